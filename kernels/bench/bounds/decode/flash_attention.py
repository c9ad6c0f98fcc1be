"""FlashAttention-3 as vLLM's captured graphs call it for a decode step."""

from collections.abc import Callable

import torch

from decode_kernels import HEAD_SIZE, PAGE, Batch
from decode_problem import SCALE

_MAX_SPLITS = 32  # vLLM's bound inside CUDA graphs


def bind(batch: Batch) -> Callable[[torch.Tensor], torch.Tensor]:
    """Returns a function of a cache [blocks, 2, 16, kv_heads, 128] -> [requests, heads, 128] bf16.

    The scheduler's metadata are made here, once, in a buffer that stays, as vLLM makes them once a
    step for all layers.
    """
    from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata

    requests, heads = batch.query.shape[:2]
    longest = int(batch.lengths.max())
    starts = torch.arange(requests + 1, device=batch.query.device, dtype=torch.int32)
    metadata = get_scheduler_metadata(
        batch_size=requests, max_seqlen_q=1, max_seqlen_k=longest, num_heads_q=heads,
        num_heads_kv=batch.kv_heads, headdim=HEAD_SIZE, cache_seqlens=batch.lengths,
        qkv_dtype=torch.bfloat16, cu_seqlens_q=starts, page_size=PAGE, causal=True,
        num_splits=_MAX_SPLITS)
    buffer = torch.zeros(4096, dtype=torch.int32, device=batch.query.device)
    buffer[: len(metadata)] = metadata
    out = torch.empty_like(batch.query)

    def launch(cache: torch.Tensor) -> torch.Tensor:
        flash_attn_varlen_func(
            q=batch.query, k=cache[:, 0], v=cache[:, 1], out=out, cu_seqlens_q=starts,
            max_seqlen_q=1, seqused_k=batch.lengths, max_seqlen_k=longest, softmax_scale=SCALE,
            causal=True, block_table=batch.block_table, scheduler_metadata=buffer[: len(metadata)],
            num_splits=_MAX_SPLITS, fa_version=3)
        return out

    return launch
