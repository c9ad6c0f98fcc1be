"""Shapes and inputs of the attention suite, and what is right on them."""

import dataclasses
import functools
import math
from collections.abc import Iterator

import torch

import harness
from asynct_kernels import GateParams, QkNormRope, reference

BLOCK_SIZE = 16
MAX_MODEL_LEN = 131072  # block-table rows are as wide as this needs
DTYPE = torch.bfloat16
_SAMPLED_ROWS = 12
_LAYERS = 257  # at most: 256 MB between two uses of one of the smallest


@dataclasses.dataclass(frozen=True)
class Case:
    """`requests` requests of `query_len` queries each, the last of `context` keys."""

    kind: str  # prefill or decode
    requests: int
    query_len: int
    context: int
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128

    @property
    def name(self) -> str:
        return f"{self.kind} {self.requests}x{self.query_len}x{self.context}"

    @property
    def zeros(self) -> tuple[float, ...]:
        """The shares of p that are to be zero, one after the other."""
        return (0.7,) if self.kind == "prefill" else (0.0, 0.5, 0.7, 0.9)

    @property
    def blocks(self) -> int:
        return self.requests * math.ceil(self.context / BLOCK_SIZE)

    @property
    def row_bytes(self) -> int:
        """Bytes of all K rows of a layer; V has as many."""
        return self.requests * self.context * self.kv_heads * self.head_dim * DTYPE.itemsize

    @property
    def max_seq_len(self) -> int:
        """What a launch is told: a decode step's graph is captured once, for any length."""
        return MAX_MODEL_LEN if self.kind == "decode" else self.context

    def operations(self) -> int:
        """Floating-point operations of both products, over the keys that each query sees."""
        unseen = self.query_len * (self.query_len - 1) // 2
        pairs = self.requests * (self.query_len * self.context - unseen)
        return 4 * self.head_dim * self.heads * pairs

    def bytes_needed(self, zeros: float) -> float:
        """Of a decode: all of K, and the rows of V that some head of their group gives weight."""
        return self.row_bytes * (2 - zeros ** (self.heads // self.kv_heads))


def _decode(requests: int, context: int) -> Case:
    return Case("decode", requests, 1, context)


_CASES = (
    Case("prefill", 32, 256, 256, heads=8, kv_heads=4),
    Case("prefill", 16, 1024, 1024),
    Case("prefill", 4, 2048, 2048),
    Case("prefill", 8, 4096, 4096),
    Case("prefill", 1, 8192, 8192),
    Case("prefill", 1, 32768, 32768),
    Case("prefill", 16, 512, 2048),
    *(_decode(requests, context) for context in (256, 1024, 2048, 4096, 16384)
      for requests in (1, 8, 32, 128)),
    _decode(512, 2048),
)


def cases() -> list[Case]:
    return list(_CASES)


@dataclasses.dataclass(frozen=True)
class Layer:
    """A cache [blocks, 2, BLOCK_SIZE, kv_heads, D], and the keys and values [T, kv_heads, D] that
    lie in it, for kernels that take fresh ones."""

    cache: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Batch:
    """What all layers of a step share: the arguments of attend that hold no data of a layer."""

    block_table: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    slot_mapping: torch.Tensor


def make_batch(case: Case, device: torch.device) -> Batch:
    """Requests with shuffled blocks; unused entries of the block table are 0."""
    width = math.ceil(case.context / BLOCK_SIZE)
    table = torch.zeros(case.requests, MAX_MODEL_LEN // BLOCK_SIZE, dtype=torch.int32,
                        device=device)
    table[:, :width] = torch.randperm(case.blocks, device=device).view(case.requests, width)
    position = torch.arange(case.context - case.query_len, case.context, device=device)
    slots = table[:, position // BLOCK_SIZE].long() * BLOCK_SIZE + position % BLOCK_SIZE
    starts = torch.arange(case.requests + 1, dtype=torch.int32, device=device) * case.query_len
    lengths = torch.full((case.requests,), case.context, dtype=torch.int32, device=device)
    return Batch(table, starts, lengths, slots.flatten())


def number_of_layers(case: Case) -> int:
    """How many caches to rotate so that none is found in the L2."""
    return harness.number_of_sets(2 * case.row_bytes, most=_LAYERS)


def make_layer(case: Case, batch: Batch) -> Layer:
    """Random keys and values; dimension 0 of every key is 1: that of a query shifts its scores."""
    cache = torch.empty(case.blocks, 2, BLOCK_SIZE, case.kv_heads, case.head_dim, dtype=DTYPE,
                        device=batch.seq_lens.device).normal_()
    cache[:, 0, ..., 0] = 1
    block, slot = batch.slot_mapping // BLOCK_SIZE, batch.slot_mapping % BLOCK_SIZE
    return Layer(cache, *(cache[block, side, slot] for side in (0, 1)))


def make_query(case: Case, zeros: float, device: torch.device) -> torch.Tensor:
    """Queries [T, heads, D] for which gate_for(zeros) closes on the share `zeros` of the keys.

    A query's scores have mean shift(zeros) and standard deviation 1 over random keys, times the
    constant factor sqrt(D - 1) that the gate's scale takes back, and are independent of those of
    other queries and heads.
    """
    query = torch.randn(case.requests * case.query_len, case.heads, case.head_dim, device=device)
    deviation = math.sqrt(case.head_dim - 1)
    query[..., 0] = 0
    query *= deviation / query.norm(dim=-1, keepdim=True)
    query[..., 0] = shift(zeros) * deviation
    return query.to(DTYPE)


def gate_for(case: Case, zeros: float, device: torch.device) -> GateParams:
    """A gate of window 3; sigma is 0 where no p may be zero, and gamma differs by head."""
    def per_head(value: float) -> torch.Tensor:
        return torch.full((case.heads,), value, device=device)

    gamma = torch.linspace(0.5, 1.5, case.heads, device=device)
    return GateParams(per_head(1.0 if zeros else 0.0), per_head(0.5), gamma,
                      scale=1 / math.sqrt(case.head_dim - 1))


def idle_norm_rope(case: Case, device: torch.device) -> QkNormRope:
    """A DyHT and a RoPE that change nothing."""
    one = torch.ones(case.head_dim, device=device)
    angles = torch.cat([torch.ones(case.context, case.head_dim // 2, device=device),
                        torch.zeros(case.context, case.head_dim // 2, device=device)], dim=-1)
    return QkNormRope(q_alpha=one, q_gamma=one, k_alpha=one, k_gamma=one,
                      clip=(-math.inf, math.inf), cos_sin=angles.to(DTYPE))


@functools.cache
def shift(zeros: float) -> float:
    """The mean of scores of deviation 1 that closes the gate on the share `zeros` of them."""
    if zeros == 0:
        return 6.0  # with sigma 0: every score is positive
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1 << 20, dtype=torch.float64, generator=generator)
    low, high = -8.0, 8.0
    for _ in range(40):
        middle = (low + high) / 2
        closed = share_closed(scores + middle)
        low, high = (middle, high) if closed > zeros else (low, middle)
    return low


def share_closed(scores: torch.Tensor) -> float:
    """The share of scores [..., keys] that a gate of sigma 1 and window 3 closes on."""
    rectified = scores.relu()
    average = (rectified[..., 2:] + rectified[..., 1:-1] + rectified[..., :-2]) / 3
    return (scores[..., 2:] <= average).double().mean().item()


def sample_rows(case: Case) -> list[int]:
    """Rows of query to check: the first, the last, and some more."""
    tokens = case.requests * case.query_len
    return sorted({0, tokens - 1, *torch.randint(tokens, (_SAMPLED_ROWS - 2,)).tolist()})


def expected(case: Case, batch: Batch, layer: Layer, query: torch.Tensor, gate: GateParams,
             rows: list[int]) -> torch.Tensor:
    """AsyncI attention [rows, heads, D] of these rows of query, in float64."""
    return torch.stack([reference.attention(row[None], keys, values, gate)[0]
                        for row, keys, values in _seen(case, batch, layer, query, rows)])


def expected_softmax(case: Case, batch: Batch, layer: Layer, query: torch.Tensor, scale: float,
                     rows: list[int]) -> torch.Tensor:
    """Softmax attention [rows, heads, D] of these rows of query, in float64."""
    outputs = []
    for row, keys, values in _seen(case, batch, layer, query, rows):
        keys, values = keys.double().movedim(0, 1), values.double().movedim(0, 1)
        weights = (scale * row.double().unflatten(0, (case.kv_heads, -1)) @ keys.mT).softmax(-1)
        outputs.append((weights @ values).flatten(0, 1))
    return torch.stack(outputs)


def _seen(
    case: Case, batch: Batch, layer: Layer, query: torch.Tensor, rows: list[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """These rows of query [heads, D], each with the keys and values [keys, kv_heads, D] it sees."""
    for row in rows:
        request, index = divmod(row, case.query_len)
        length = case.context - case.query_len + index + 1
        blocks = batch.block_table[request, : math.ceil(length / BLOCK_SIZE)].long()
        yield query[row], *(layer.cache[blocks, side].flatten(0, 1)[:length] for side in (0, 1))
