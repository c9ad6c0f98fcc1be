"""All requests padded into one batch: requests are copied one by one, attention is one call.

The batch takes requests * longest query * longest sequence scores a head, so memory grows fast with
one long request among many.
"""

import torch

from asynct_kernels import GateParams
from asynct_kernels.reference import attention
from asynct_vllm import kv_cache
from asynct_vllm.torch_paths.batch import Batch, Span, causal_mask


def prepare(batch: Batch, bucket_tokens: int) -> list[Span]:
    """The requests that have query rows; all form one batch, whatever the budget."""
    del bucket_tokens
    return batch.spans()


def attend(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    gate: GateParams,
    batch: Batch,
    prepared: list[Span],
    output: torch.Tensor,
) -> None:
    """Writes `output` [T, H, D] for the spans' rows of `query` [T, H, D]."""
    if not prepared:
        return
    num_rows = max(span.num_rows for span in prepared)
    num_keys = max(span.num_blocks for span in prepared) * batch.block_size
    queries = query.new_zeros(len(prepared), num_rows, *query.shape[1:])
    keys = k_cache.new_zeros(len(prepared), num_keys, *k_cache.shape[2:])
    values = torch.zeros_like(keys)
    positions = batch.positions.new_full((len(prepared), num_rows), -1)
    for i, span in enumerate(prepared):
        blocks = batch.blocks[span.request, : span.num_blocks]
        held = slice(span.num_blocks * batch.block_size)
        queries[i, : span.num_rows] = query[span.start : span.stop]
        keys[i, held] = kv_cache.read(k_cache, blocks)
        values[i, held] = kv_cache.read(v_cache, blocks)
        positions[i, : span.num_rows] = batch.positions[span.start : span.stop]
    result = attention(
        queries, keys, values, gate, visible=causal_mask(positions, num_keys), dtype=torch.float32
    )
    for i, span in enumerate(prepared):
        output[span.start : span.stop] = result[i, : span.num_rows]
