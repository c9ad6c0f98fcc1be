"""vLLM's FlashAttention-3 over a paged cache, as vLLM calls it."""

from collections.abc import Callable

import torch

_DECODE_SPLITS = 32  # vLLM's bound inside CUDA graphs
_METADATA_ENTRIES = 4096


def why_missing() -> str:
    """Why there is no FlashAttention-3 in this process; empty: there is."""
    try:
        from vllm.vllm_flash_attn import is_fa_version_supported
    except ImportError as error:
        return str(error)
    return "" if is_fa_version_supported(3) else "vLLM has none for this device"


def bind(
    query: torch.Tensor, query_start_loc: torch.Tensor, seq_lens: torch.Tensor,
    block_table: torch.Tensor, *, block_size: int, kv_heads: int, max_query_len: int,
    max_seq_len: int, scale: float,
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Returns a function of (k_cache, v_cache) [blocks, block_size, kv_heads, D] -> out like query.

    query is [T, H, D], the rest as of asynct_kernels.attend. The scheduler's metadata are made
    here, once, in a buffer that stays, as vLLM makes them once a step for all layers. A decode step
    may use as many splits as in a captured graph of vLLM's; longer queries use one.
    """
    from vllm.vllm_flash_attn import flash_attn_varlen_func, get_scheduler_metadata

    splits = _DECODE_SPLITS if max_query_len == 1 else 1
    metadata = get_scheduler_metadata(
        batch_size=len(seq_lens), max_seqlen_q=max_query_len, max_seqlen_k=max_seq_len,
        num_heads_q=query.shape[1], num_heads_kv=kv_heads, headdim=query.shape[2],
        cache_seqlens=seq_lens, qkv_dtype=query.dtype, cu_seqlens_q=query_start_loc,
        page_size=block_size, causal=True, num_splits=splits)
    buffer = torch.zeros(_METADATA_ENTRIES, dtype=torch.int32, device=query.device)
    buffer[: len(metadata)] = metadata
    out = torch.empty_like(query)

    def launch(k_cache: torch.Tensor, v_cache: torch.Tensor) -> torch.Tensor:
        flash_attn_varlen_func(
            q=query, k=k_cache, v=v_cache, out=out, cu_seqlens_q=query_start_loc,
            max_seqlen_q=max_query_len, seqused_k=seq_lens, max_seqlen_k=max_seq_len,
            softmax_scale=scale, causal=True, block_table=block_table,
            scheduler_metadata=buffer[: len(metadata)], num_splits=splits, fa_version=3)
        return out

    return launch
