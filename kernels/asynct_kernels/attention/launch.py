"""An AttentionProblem as the structs of the CUDA library (asynct/attention.h)."""

import torch

from asynct_kernels import _C, cuda
from asynct_kernels.attention.problem import AttentionProblem, FreshKeyValue


def attention_params(problem: AttentionProblem, out: torch.Tensor) -> _C.AttentionParams:
    """Everything that a launch is told; `out` is [T, H, D] of query's dtype."""
    return _C.AttentionParams(
        dtype=cuda.DTYPES[out.dtype], query=cuda.heads_view(problem.query), out=out.data_ptr(),
        out_token_stride=out.stride(0), out_head_stride=out.stride(1),
        cache=paged_cache(problem), block_table=problem.block_table.data_ptr(),
        table_stride=problem.block_table.stride(0),
        query_start_loc=problem.query_start_loc.data_ptr(), seq_lens=problem.seq_lens.data_ptr(),
        gate=_gate(problem), requests=problem.requests, heads=problem.heads,
        kv_heads=problem.kv_heads, head_dim=problem.head_dim,
        max_query_len=problem.max_query_len, max_seq_len=problem.max_seq_len)


def paged_cache(problem: AttentionProblem) -> _C.PagedCache:
    return _C.PagedCache(
        dtype=cuda.DTYPES[problem.k_cache.dtype],
        key=_cache_view(problem.k_cache, problem.k_scale),
        value=_cache_view(problem.v_cache, problem.v_scale),
        block_size=problem.block_size, num_blocks=problem.k_cache.shape[0])


def fresh_key_value(fresh: FreshKeyValue) -> _C.FreshKeyValue:
    return _C.FreshKeyValue(key=cuda.heads_view(fresh.key), value=cuda.heads_view(fresh.value),
                            slot_mapping=fresh.slot_mapping.data_ptr())


def raw_step(fresh: FreshKeyValue) -> _C.RawStep:
    return _C.RawStep(fresh=fresh_key_value(fresh),
                      norm_rope=cuda.norm_rope_params(fresh.norm_rope))


def stream(problem: AttentionProblem) -> int:
    """The current stream of the problem's device, as a launch takes it."""
    return cuda.current_stream(problem.query)


def _cache_view(cache: torch.Tensor, scale: torch.Tensor | None) -> _C.CacheView:
    block_stride, slot_stride, head_stride, _ = cache.stride()
    return _C.CacheView(
        data=cache.data_ptr(), block_stride=block_stride, slot_stride=slot_stride,
        head_stride=head_stride, scale=0 if scale is None else scale.data_ptr(),
        scale_stride=0 if scale is None or scale.numel() == 1 else 1)


def _gate(problem: AttentionProblem) -> _C.GateParams:
    gate = problem.gate
    return _C.GateParams(
        sigma=gate.sigma.data_ptr(), alpha=gate.alpha.data_ptr(), gamma=gate.gamma.data_ptr(),
        scale=gate.score_scale(problem.head_dim), weights=gate.taps, relu_pre=gate.relu_pre,
        clip_min=gate.clip[0], clip_max=gate.clip[1])
