"""Vectorised gather: every copy is one indexed read or write, and memory is bounded.

Requests are cut into slices of query rows, and slices of similar shape are padded into chunks of
at most `bucket_tokens` (query, key) pairs. The pairs bound what a chunk holds: its keys and values,
and float32 scores for each head. Indices are made once a step; a layer reads, computes and writes.
"""

import dataclasses
import math

import numpy as np
import torch

from asynct_kernels import GateParams
from asynct_kernels.reference import attention
from asynct_vllm import kv_cache
from asynct_vllm.torch_paths.batch import Batch, Span, causal_mask


@dataclasses.dataclass(frozen=True, eq=False)
class Chunk:
    """B slices padded to N query rows and to the same number of blocks. All tensors are int64.

    Attributes:
        blocks: `[B, num_blocks]` cache blocks.
        rows: `[B, N]` query rows; any row where padded.
        positions: `[B, N]` the rows' positions; -1, which sees nothing, where padded.
        source: `[n]` which of the B * N rows are not padding.
        target: `[n]` the output rows that they belong to.
    """

    blocks: torch.Tensor
    rows: torch.Tensor
    positions: torch.Tensor
    source: torch.Tensor
    target: torch.Tensor


def prepare(batch: Batch, bucket_tokens: int) -> list[Chunk]:
    """Cuts and groups the step's rows on the host, and makes the chunks' indices on the device."""
    return _chunks(batch, group(slices(batch, bucket_tokens), batch.block_size, bucket_tokens))


def slices(batch: Batch, bucket_tokens: int) -> list[Span]:
    """Spans of at most `bucket_tokens` (query, key) pairs, or of one row, in row order."""
    cut = []
    for span in batch.spans():
        # The most keys that the row `start` sees, its own included; one more for each row after.
        num_keys = batch.max_seq_lens[span.request] - span.num_rows + 1
        start = span.start
        while start < span.stop:
            num_rows = min(_rows_within(bucket_tokens, num_keys), span.stop - start)
            num_blocks = batch.blocks_for(num_keys + num_rows - 1)
            cut.append(Span(span.request, start, start + num_rows, num_blocks))
            start += num_rows
            num_keys += num_rows
    return cut


def _rows_within(pairs: int, num_keys: int) -> int:
    """The largest n of 1 or more with n * (num_keys + n - 1) <= pairs, if there is one, else 1."""
    before = max(num_keys - 1, 0)
    return max(1, (math.isqrt(before * before + 4 * pairs) - before) // 2)


def group(spans: list[Span], block_size: int, bucket_tokens: int) -> list[list[Span]]:
    """Groups spans of similar shape to be padded together.

    A group of more than one span has at most `bucket_tokens` padded (query, key) pairs, and at most
    twice as many as its spans have on their own.
    """
    groups: list[list[Span]] = []
    own_pairs = widest = 0
    for span in sorted(spans, key=lambda span: (span.num_rows, span.num_blocks)):
        keys = span.num_blocks * block_size
        # Sorted, so this span has the most rows of its group.
        pairs = span.num_rows * keys
        padded = (len(groups[-1]) + 1) * span.num_rows * max(widest, keys) if groups else math.inf
        if padded <= min(bucket_tokens, 2 * (own_pairs + pairs)):
            groups[-1].append(span)
            own_pairs += pairs
            widest = max(widest, keys)
        else:
            groups.append([span])
            own_pairs, widest = pairs, keys
    return groups


def _chunks(batch: Batch, groups: list[list[Span]]) -> list[Chunk]:
    padding = batch.num_tokens
    arrays = []
    for spans in groups:
        rows = np.full((len(spans), spans[-1].num_rows), padding)
        for i, span in enumerate(spans):
            rows[i, : span.num_rows] = np.arange(span.start, span.stop)
        source = np.flatnonzero(rows != padding)
        arrays += [np.array([span.request for span in spans]), rows, source, rows.flat[source]]
    device = batch.blocks.device
    positions = torch.nn.functional.pad(batch.positions, (0, 1), value=-1)
    chunks = []
    tensors = iter(_to_device(arrays, device))
    for spans in groups:
        requests, rows, source, target = (next(tensors) for _ in range(4))
        num_blocks = max(span.num_blocks for span in spans)
        chunks.append(
            Chunk(
                blocks=batch.blocks[:, :num_blocks][requests],
                rows=rows.clamp(max=padding - 1),
                positions=positions[rows],
                source=source,
                target=target,
            )
        )
    return chunks


def _to_device(arrays: list[np.ndarray], device: torch.device) -> list[torch.Tensor]:
    """Copies int64 arrays in one transfer that the host does not wait for."""
    if not arrays:
        return []
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
    if device.type == "cuda":
        flat = flat.pin_memory()
    parts = flat.to(device, non_blocking=True).split([array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays)]


def attend(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    gate: GateParams,
    batch: Batch,
    prepared: list[Chunk],
    output: torch.Tensor,
) -> None:
    """Writes `output` [T, H, D] for `query` [T, H, D], chunk by chunk."""
    del batch
    for chunk in prepared:
        keys = kv_cache.read(k_cache, chunk.blocks)
        values = kv_cache.read(v_cache, chunk.blocks)
        visible = causal_mask(chunk.positions, keys.shape[1])
        result = attention(
            query[chunk.rows], keys, values, gate, visible=visible, dtype=torch.float32
        )
        output[chunk.target] = result.flatten(0, 1)[chunk.source].to(output.dtype)
