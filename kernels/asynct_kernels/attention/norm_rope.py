"""DyHT and RoPE of a step's queries and keys, and the write of its keys and values to the cache."""

import dataclasses

import torch

from asynct_kernels import _C, checks, cuda, reference
from asynct_kernels.attention import launch
from asynct_kernels.attention.cache import CacheWrite
from asynct_kernels.attention.problem import check_dims
from asynct_kernels.attention.reference import write_cache
from asynct_kernels.library import LIBRARY
from asynct_kernels.qk_norm_rope import QkNormRope


def qk_norm_rope_cache(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    positions: torch.Tensor,
    norm_rope: QkNormRope,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    out: tuple[torch.Tensor, torch.Tensor] | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (q', k') of norm_rope, and writes each token's k' and value to the paged cache.

    One launch for all tokens. A token's bits do not depend on the others.

    Args:
        query: [T, H, D] bfloat16 or float16; D adjacent, other strides any.
        key, value: [T, H_kv, D] likewise; H is a multiple of H_kv.
        positions: [T] int64, each below norm_rope.cos_sin's max_position.
        norm_rope: the parameters, for D channels.
        k_cache, v_cache, k_scale, v_scale: as reshape_and_cache takes them. An fp8 cache gets what
            k' is after it was rounded to query's dtype.
        slot_mapping: [T'] int64, T' <= T, as reshape_and_cache takes it; tokens past T' go to no
            slot.
        out: where to write q' [T, H, D] and k' [T, H_kv, D]: contiguous, of query's dtype.

    Raises:
        TypeError, ValueError: for an argument of the wrong type, shape, stride or device.
        RuntimeError: with CUDA's message, if the launch fails.
    """
    checks.tensors(query=query, key=key, value=value, positions=positions, k_cache=k_cache,
                   v_cache=v_cache, slot_mapping=slot_mapping)
    if not isinstance(norm_rope, QkNormRope):
        raise TypeError(f"norm_rope is a {type(norm_rope).__name__}: must be a QkNormRope")
    if out is None:
        out = tuple(torch.empty_like(x, memory_format=torch.contiguous_format)
                    for x in (query, key))
    torch.ops.asynct.qk_norm_rope_cache(
        *out, query, key, value, positions, *norm_rope.parameters, *norm_rope.clip,
        norm_rope.cos_sin, k_cache, v_cache, slot_mapping, k_scale, v_scale)
    return out


def _checked(
    query_out, key_out, query, key, value, positions, q_alpha, q_gamma, k_alpha, k_gamma, clip_min,
    clip_max, cos_sin, k_cache, v_cache, slot_mapping, k_scale=None, v_scale=None
) -> tuple[QkNormRope, CacheWrite]:
    """The operation's arguments, checked."""
    norm_rope = QkNormRope(q_alpha=q_alpha, q_gamma=q_gamma, k_alpha=k_alpha, k_gamma=k_gamma,
                           clip=(clip_min, clip_max), cos_sin=cos_sin)
    write = CacheWrite(key, value, k_cache, v_cache, slot_mapping, k_scale, v_scale)
    check_dims("query", query, "[T, H, D]")
    checks.same_kind("query", query, "key", key)
    checks.shape("query", query, [(key.shape[0], query.shape[1], key.shape[2])])
    checks.grouped_heads(query.shape[1], key.shape[1])
    norm_rope.check_suits(query)
    check_dims("positions", positions, "[T]")
    checks.dtype("positions", positions, (torch.int64,))
    checks.same_device("positions", positions, "query", query)
    checks.shape("positions", positions, [(query.shape[0],)])
    for name, out, x in (("out[0]", query_out, query), ("out[1]", key_out, key)):
        checks.same_kind(name, out, "query", query)
        checks.shape(name, out, [tuple(x.shape)])
        if not out.is_contiguous():
            raise ValueError(f"{name} has strides {list(out.stride())}: must be contiguous")
    return norm_rope, write


def _on_cuda(*args) -> None:
    norm_rope, write = _checked(*args)
    query_out, key_out, query, key, _, positions, *_ = args
    with torch.cuda.device(query.device):
        _C.qk_norm_rope_cache(
            dtype=cuda.DTYPES[query.dtype], fresh=launch.fresh_key_value(write.fresh),
            cache=launch.paged_cache(write), slots=write.slot_mapping.shape[0],
            kv_heads=key.shape[1], head_dim=key.shape[2], query=cuda.heads_view(query),
            heads=query.shape[1], positions=positions.data_ptr(), tokens=query.shape[0],
            norm_rope=cuda.norm_rope_params(norm_rope), query_out=query_out.data_ptr(),
            key_out=key_out.data_ptr(), stream=cuda.current_stream(query))


def _on_cpu(*args) -> None:
    norm_rope, write = _checked(*args)
    query_out, key_out, query, key, _, positions, *_ = args
    for out, turned in zip((query_out, key_out),
                           reference.qk_norm_rope(query, key, positions, norm_rope)):
        out.copy_(turned)
    write_cache(write, dataclasses.replace(write.fresh, key=key_out[:len(write.slot_mapping)]))


LIBRARY.define(
    "qk_norm_rope_cache(Tensor(a!) query_out, Tensor(b!) key_out, Tensor query, Tensor key, "
    "Tensor value, Tensor positions, Tensor q_alpha, Tensor q_gamma, Tensor k_alpha, "
    "Tensor k_gamma, float clip_min, float clip_max, Tensor cos_sin, Tensor(c!) k_cache, "
    "Tensor(d!) v_cache, Tensor slot_mapping, Tensor? k_scale=None, Tensor? v_scale=None) -> ()",
    tags=torch.Tag.pt2_compliant_tag)
LIBRARY.impl("qk_norm_rope_cache", _on_cuda, "CUDA")
LIBRARY.impl("qk_norm_rope_cache", _on_cpu, "CPU")
torch.library.register_fake(
    "asynct::qk_norm_rope_cache", lambda *args: _checked(*args) and None, lib=LIBRARY)
