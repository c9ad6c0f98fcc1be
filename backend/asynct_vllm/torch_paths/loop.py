"""One request at a time: the plainest path, and the slowest (one call a request and layer)."""

import torch

from asynct_kernels import GateParams
from asynct_kernels.reference import attention
from asynct_vllm import kv_cache
from asynct_vllm.torch_paths.batch import Batch, Span, causal_mask


def prepare(batch: Batch, bucket_tokens: int) -> list[Span]:
    """The requests that have query rows. No batch is formed, so the budget has no part in it."""
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
    """Writes `output` [T, H, D] for `query` [T, H, D], request by request."""
    for span in prepared:
        blocks = batch.blocks[span.request, : span.num_blocks]
        keys = kv_cache.read(k_cache, blocks)
        values = kv_cache.read(v_cache, blocks)
        rows = slice(span.start, span.stop)
        visible = causal_mask(batch.positions[rows], keys.shape[0])
        output[rows] = attention(
            query[rows], keys, values, gate, visible=visible, dtype=torch.float32
        )
