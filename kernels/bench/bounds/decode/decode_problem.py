"""Inputs of the decode bench and what is right on them."""

import dataclasses
import math

import torch
from asynct_kernels import GateParams, apply_gate
from asynct_kernels.reference import attention

from decode_kernels import HEAD_SIZE, PAGE, ROW_BYTES, Batch

SCALE = 1.0 / HEAD_SIZE
MAX_MODEL_LEN = 131072  # block table rows are as wide as this needs
BYTES_BETWEEN_USES = 220 << 20
_HASH = 0x9E3779B1  # as in bytes_math.cuh


@dataclasses.dataclass(frozen=True)
class Shape:
    """`requests` decodes of `context` keys each."""

    requests: int
    context: int
    heads: int = 16
    kv_heads: int = 8

    @property
    def blocks(self) -> int:
        return self.requests * math.ceil(self.context / PAGE)

    @property
    def key_bytes(self) -> int:
        """Bytes of all K rows of one layer; V has as many."""
        return self.requests * self.context * self.kv_heads * ROW_BYTES

    @property
    def layers(self) -> int:
        """Caches to rotate so that BYTES_BETWEEN_USES are read between two uses of one."""
        return max(2, 1 + math.ceil(BYTES_BETWEEN_USES / self.key_bytes))


class Pool:
    """Memory for the caches of any shape, filled once with random keys and values.

    Dimension 0 of every key is 1, so that the same dimension of a query shifts its scores.
    """

    def __init__(self, shapes: list[Shape], kv_heads: int):
        block = 2 * PAGE * kv_heads * HEAD_SIZE
        blocks = max(shape.layers * shape.blocks for shape in shapes)
        self._blocks = torch.empty(blocks, 2, PAGE, kv_heads, HEAD_SIZE, device="cuda",
                                   dtype=torch.bfloat16)
        for part in self._blocks.split((1 << 30) // block):
            part.normal_()
        self._blocks[:, 0, :, :, 0] = 1

    def layers(self, shape: Shape) -> list[torch.Tensor]:
        """Caches [blocks, 2, 16, kv_heads, 128], one a layer."""
        return list(self._blocks.split(shape.blocks)[: shape.layers])


def random_batch(shape: Shape, zeros: float, kept_rows: float = 1.0) -> Batch:
    """Requests of equal length with shuffled blocks; about `zeros` of each head's p are 0."""
    lengths = [shape.context] * shape.requests
    return ragged_batch(lengths, shape.heads, shape.kv_heads, zeros, kept_rows, unused_entry=0)


def ragged_batch(lengths: list[int], heads: int, kv_heads: int, zeros: float, kept_rows: float,
                 unused_entry: int) -> Batch:
    """A decode step over a cache of exactly the blocks that the requests need, shuffled."""
    device = torch.device("cuda")
    pages = [math.ceil(length / PAGE) for length in lengths]
    table = torch.full((len(lengths), MAX_MODEL_LEN // PAGE), unused_entry, dtype=torch.int32)
    order = torch.randperm(sum(pages), dtype=torch.int32)
    for row, blocks in zip(table, order.split(pages), strict=True):
        row[: len(blocks)] = blocks
    query = torch.randn(len(lengths), heads, HEAD_SIZE, device=device)
    query[..., 0] = _shift(zeros) * math.sqrt(HEAD_SIZE - 1)

    def per_head(value: float) -> torch.Tensor:
        return torch.full((heads,), value, device=device)

    return Batch(query.to(torch.bfloat16), table.to(device),
                 torch.tensor(lengths, dtype=torch.int32, device=device), kv_heads,
                 sigma=per_head(1.0 if zeros > 0 else 0.0), alpha=per_head(8.0),
                 gamma=torch.linspace(0.5, 1.5, heads, device=device), kept_rows=kept_rows)


def _shift(zeros: float) -> float:
    """Mean of unit-variance scores that closes the gate, at sigma 1, on the share `zeros`."""
    if zeros <= 0:
        return 5.0  # with sigma 0: every score is positive
    scores = torch.randn(1 << 20, dtype=torch.float64)
    low, high = -6.0, 6.0
    for _ in range(40):
        middle = (low + high) / 2
        shifted = (scores + middle)
        rectified = shifted.clamp_min(0)
        average = (rectified[2:] + rectified[1:-1] + rectified[:-2]) / 3
        closed = (shifted[2:] <= average).double().mean().item()
        low, high = (middle, high) if closed > zeros else (low, middle)
    return low


def rows_of(batch: Batch, cache: torch.Tensor, request: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [context, kv_heads, 128] of one request."""
    length = int(batch.lengths[request])
    blocks = batch.block_table[request, : math.ceil(length / PAGE)].long()
    keys, values = (cache[blocks, side].flatten(0, 1)[:length] for side in (0, 1))
    return keys, values


def gate_of(batch: Batch) -> GateParams:
    return GateParams(batch.sigma, batch.alpha, batch.gamma, scale=SCALE)


def attention_of(batch: Batch, cache: torch.Tensor, request: int) -> torch.Tensor:
    """AsyncI attention [heads, 128] of one request in float64; zeros where it has no key."""
    keys, values = rows_of(batch, cache, request)
    if len(keys) == 0:
        return torch.zeros_like(batch.query[request], dtype=torch.float64)
    return attention(batch.query[request][None], keys, values, gate_of(batch))[0]


def softmax_of(batch: Batch, cache: torch.Tensor, request: int) -> torch.Tensor:
    """Softmax attention [heads, 128] of one request in float64, scores scaled by SCALE."""
    keys, values = (x.double().movedim(0, 1) for x in rows_of(batch, cache, request))
    query = batch.query[request].double().unflatten(0, (batch.kv_heads, -1))
    weights = (SCALE * query @ keys.mT).softmax(-1)
    return (weights @ values).flatten(0, 1)


def bytes_output_of(batch: Batch, cache: torch.Tensor, request: int) -> torch.Tensor:
    """What the kernels that only move bytes give for one request: [kv_heads, 64] int32."""
    keys, values = (x.contiguous().view(torch.int32) for x in rows_of(batch, cache, request))
    if len(keys) == 0:
        return torch.zeros(batch.kv_heads, ROW_BYTES // 4, dtype=torch.int32,
                           device=keys.device)
    hashes = _xor(keys, -1).long() * _HASH & 0xFFFFFFFF
    kept = hashes < min(round(batch.kept_rows * 2**32), 2**32 - 1)
    return _xor(torch.where(kept[..., None], values, 0), 0)


def _xor(x: torch.Tensor, dim: int) -> torch.Tensor:
    while (size := x.shape[dim]) > 1:
        half = size // 2
        folded = x.narrow(dim, 0, half) ^ x.narrow(dim, half, half)
        x = torch.cat([folded, x.narrow(dim, size - 1, 1)], dim) if size % 2 else folded
    return x.squeeze(dim)


def needed_value_rows(batch: Batch, cache: torch.Tensor) -> float:
    """The share of V's rows that some head of their group gives weight, over a few requests."""
    shares = []
    for request in range(min(len(batch.lengths), 8)):
        keys, _ = rows_of(batch, cache, request)
        query = batch.query[request].float().unflatten(0, (batch.kv_heads, -1))
        scores = (SCALE * query @ keys.float().movedim(0, 1).mT).flatten(0, 1)[:, None]
        visible = torch.ones_like(scores[0], dtype=torch.bool)
        weights = apply_gate(scores, gate_of(batch), visible).unflatten(0, (batch.kv_heads, -1))
        shares.append((weights != 0).any(1).float().mean().item())
    return sum(shares) / len(shares)
