"""Calls of attention to test with: random data, and poison in everything that must not be used."""

import dataclasses
import math
import random
from collections.abc import Callable

import torch

from asynct_kernels import GateParams, QkNormRope, attend, workspace_bytes
from asynct_kernels.attention import LayerShape

FLOAT8 = torch.float8_e4m3fn
HUGE_ENTRIES = (2**31 - 1, -2**31, 10**9, -1)
GUARD = 256  # bytes behind the workspace that nothing may write


def usual_gate(case: "Case", device: str) -> GateParams:
    """Per-head parameters with which p is zero for some 64% of the keys, and seldom saturates."""
    sigma, alpha, gamma = torch.rand(3, case.heads, device=device) * 0.4 + 0.8
    return GateParams(sigma, alpha * 0.5, gamma, window=case.window)


def interleaved(shape: tuple[int, ...], dtype: torch.dtype, device: str):
    """K and V as [num_blocks, 2, ...] has them, the spec's cache."""
    num_blocks, *block = shape
    return torch.empty(num_blocks, 2, *block, dtype=dtype, device=device).unbind(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """What a call is like; hashable.

    Attributes:
        query_lens, seq_lens: of each request.
        gate: makes the gate for (case, device), with a window of `window` keys.
        layout: makes the uninitialised caches for (shape, dtype, device).
        share: changes the table [R, W], given the number of blocks of each request.
        head_scales: a float8 cache has a scale for each KV head, not one.
        padding: rows of query past the last request's.
        spare_blocks, spare_columns: that no request uses.
        shift: a constant added to every score, but for rounding.
        poison: fills what must not be used; None leaves it uninitialised.
        raw: the kernel gets the queries and each request's newest key as they are before DyHT and
            RoPE, and that key and its value beside the cache.
    """

    name: str
    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 128
    block_size: int = 16
    dtype: torch.dtype = torch.bfloat16
    float8: bool = False
    head_scales: bool = False
    gate: Callable = usual_gate
    window: int = 3
    layout: Callable = interleaved
    alignment: int = 16
    share: Callable | None = None
    padding: int = 0
    spare_blocks: int = 7
    spare_columns: int = 3
    shift: float = 0.0
    poison: float | None = math.nan
    raw: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def layer(self) -> LayerShape:
        return LayerShape(
            dtype=self.dtype, head_dim=self.head_dim, group=self.heads // self.kv_heads,
            block_size=self.block_size, window=self.window, float8_cache=self.float8)

    @property
    def fresh(self) -> bool:
        """Whether every key is of this step."""
        return self.query_lens == self.seq_lens

    @property
    def can_be_raw(self) -> bool:
        """Whether it is a decode in which nobody else reads a request's newest key."""
        return max(self.query_lens) == 1 and self.share is None

    @property
    def products(self) -> int:
        """Products of query and key elements, about."""
        pairs = sum(q * k for q, k in zip(self.query_lens, self.seq_lens))
        return pairs * self.heads * self.head_dim

    def make(self, device: str) -> "Call":
        """Random data of torch's generators."""
        table = self._block_table()
        num_blocks = 1 + self._blocks_needed().sum().item() + self.spare_blocks
        position = torch.arange(table.shape[1] * self.block_size)
        owned = position < torch.tensor(self.seq_lens, dtype=torch.int64)[:, None]
        block = table.repeat_interleave(self.block_size, dim=1)[owned].to(device)
        slot = (position % self.block_size).expand_as(owned)[owned].to(device)
        caches = self.layout((num_blocks, self.block_size, self.kv_heads, self.head_dim),
                             FLOAT8 if self.float8 else self.dtype, device)
        for cache, shift in zip(caches, (self.shift, 0.0)):
            if self.poison is not None:
                poison(cache, self.poison)
            values = torch.randn(len(block), self.kv_heads, self.head_dim, device=device)
            values[..., 0] += 8 * shift
            as_bytes(cache)[block, slot] = as_bytes(values.to(cache.dtype))
        query = torch.randn(sum(self.query_lens) + self.padding, self.heads, self.head_dim,
                            device=device) * math.sqrt(self.head_dim)
        if self.shift:
            query[..., 0] = self.head_dim / 8
        return Call(
            case=self, query=query.to(self.dtype), k_cache=caches[0], v_cache=caches[1],
            block_table=self._with_unused_entries(table).to(device),
            query_start_loc=torch.tensor((0, *self.query_lens)).cumsum(0).to(device, torch.int32),
            seq_lens=torch.tensor(self.seq_lens, dtype=torch.int32, device=device),
            gate=self.gate(self, device), k_scale=self._scale(device),
            v_scale=self._scale(device))

    def _block_table(self) -> torch.Tensor:
        """[R, W] int64: shuffled blocks, 0 (vLLM's null block) not among them; -1 where unused."""
        needed = self._blocks_needed()
        width = int(needed.max()) + self.spare_columns
        used = torch.arange(width) < needed[:, None]
        total = int(needed.sum())
        table = torch.full(used.shape, -1)
        table[used] = 1 + torch.randperm(total + self.spare_blocks)[:total]
        if self.share is not None:
            self.share(table, needed.tolist())
        return table

    def _blocks_needed(self) -> torch.Tensor:
        return torch.tensor([-(-length // self.block_size) for length in self.seq_lens])

    def _with_unused_entries(self, table: torch.Tensor) -> torch.Tensor:
        huge = torch.tensor(HUGE_ENTRIES)[torch.randint(len(HUGE_ENTRIES), table.shape)]
        return torch.where(table < 0, huge, table).to(torch.int32)

    def _scale(self, device: str) -> torch.Tensor | None:
        if not self.float8:
            return None
        return torch.rand(self.kv_heads if self.head_scales else 1, device=device) + 0.5


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Call:
    """The tensors of a call, as attend takes them."""

    case: Case
    query: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    block_table: torch.Tensor
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    gate: GateParams
    k_scale: torch.Tensor | None
    v_scale: torch.Tensor | None

    @property
    def tokens(self) -> int:
        """Rows of query that a request owns."""
        return sum(self.case.query_lens)

    def arguments(self) -> dict[str, object]:
        """Keywords for attend, `kernel` aside; the bounds are the case's own."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        del fields["case"]
        return fields | dict(max_query_len=max(self.case.query_lens),
                             max_seq_len=max(self.case.seq_lens))

    def fresh_arguments(self) -> dict[str, object]:
        """As `arguments`, where the step's own keys and values are not in the cache yet.

        They are strided views of one fused projection, and copies of the caches have poison in
        their slots.
        """
        rows, block, slot = self.step_slots()
        fused = torch.full((self.query.shape[0], 2 * self.case.kv_heads + 1, self.case.head_dim),
                           math.nan, dtype=self.case.dtype, device=self.query.device)
        key, value = (fused[:, i * self.case.kv_heads:(i + 1) * self.case.kv_heads]
                      for i in range(2))
        caches = []
        for fresh, cache, scale in ((key, self.k_cache, self.k_scale),
                                    (value, self.v_cache, self.v_scale)):
            stored = as_bytes(cache)[block, slot].view(cache.dtype).float()
            fresh[rows] = (stored if scale is None else stored * scale[:, None]).to(fresh.dtype)
            copy = torch.empty_strided(cache.shape, cache.stride(), dtype=cache.dtype,
                                       device=cache.device)
            as_bytes(copy).copy_(as_bytes(cache))
            nan = torch.tensor(math.nan, device=cache.device).to(cache.dtype)
            as_bytes(copy)[block, slot] = as_bytes(nan)
            caches.append(copy)
        slot_mapping = torch.full((self.query.shape[0],), -1, device=self.query.device)
        slot_mapping[rows] = block * self.case.block_size + slot
        return self.arguments() | dict(k_cache=caches[0], v_cache=caches[1], key=key, value=value,
                                       slot_mapping=slot_mapping)

    def raw_arguments(self) -> dict[str, object]:
        """`fresh_arguments` before a DyHT and a RoPE that give just these queries and keys."""
        given = self.fresh_arguments()
        positions = torch.zeros(len(given["query"]), dtype=torch.int64, device=self.query.device)
        lengths = self.seq_lens[self.query_start_loc.diff() > 0]
        positions[:self.tokens] = (lengths - 1).clamp(min=0)
        norm_rope = exact_norm_rope(self.case, self.query.device)
        cos, sin = norm_rope.cos_sin[positions].to(self.case.dtype)[:, None].chunk(2, dim=-1)
        for name in ("query", "key"):
            first, second = given[name].chunk(2, dim=-1)
            turned = torch.cat([first * cos + second * sin, second * cos - first * sin], dim=-1)
            given[name] = given[name].clone() if name == "query" else given[name]
            given[name].copy_(2 * turned)
        return given | dict(qk_norm_rope=norm_rope)

    def step_slots(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The queries that stand at a key, and that key's block and slot, request after request."""
        rows, block, slot, start = [], [], [], 0
        for request, (queries, keys) in enumerate(zip(self.case.query_lens, self.case.seq_lens)):
            position = torch.arange(keys - queries, keys, device=self.query.device)
            rows.append(torch.arange(queries, device=self.query.device)[position >= 0] + start)
            start += queries
            position = position[position >= 0]
            block.append(self.block_table[request, position // self.case.block_size].long())
            slot.append(position % self.case.block_size)
        return torch.cat(rows), torch.cat(block), torch.cat(slot)


def exact_norm_rope(case: Case, device: torch.device) -> QkNormRope:
    """A DyHT that halves, and a RoPE by quarter turns: no rounding, for all but tiny numbers."""
    channel = torch.arange(case.head_dim, device=device)
    alpha = torch.tensor([1.0, -0.5, 4.0, 2.0], device=device)[channel % 4].contiguous()
    turns = torch.arange(max(case.seq_lens) + 1, device=device)[:, None] + channel
    half = case.head_dim // 2
    cos, sin = (torch.tensor(values, device=device)[turns[:, :half] % 4]
                for values in ((1.0, 0.0, -1.0, 0.0), (0.0, 1.0, 0.0, -1.0)))
    cos_sin = torch.cat([cos, sin], dim=-1).to(torch.float32 if case.float8 else case.dtype)
    return QkNormRope(q_alpha=alpha, q_gamma=0.5 / alpha, k_alpha=2.0 * alpha[:1],
                      k_gamma=0.25 / alpha[:1], clip=(-math.inf, math.inf), cos_sin=cos_sin)


def run(kernel: str, arguments: dict[str, object]) -> torch.Tensor:
    """attend(**arguments), into a poisoned output and with a poisoned workspace of the least size.

    Asserts that nothing behind the workspace is written.
    """
    query = arguments["query"]
    least = workspace_bytes(kernel, **{k: v for k, v in arguments.items() if k != "out"})
    workspace = torch.full((least + GUARD,), 0xFF, dtype=torch.uint8, device=query.device)
    out = arguments.get("out")
    if out is None:
        out = torch.full_like(query, math.nan)
    result = attend(**arguments | dict(kernel=kernel, out=out, workspace=workspace[:least]))
    assert result is out
    assert (workspace[least:] == 0xFF).all()
    return out


def poison(cache: torch.Tensor, value: float) -> None:
    """Fills the cache; float8_e4m3fn has no infinities, NaN stands for them."""
    if cache.dtype == FLOAT8:
        value = math.nan if math.isinf(value) else value
        as_bytes(cache).fill_(int(as_bytes(torch.tensor(value).to(FLOAT8))))
    else:
        cache.fill_(value)


def as_bytes(x: torch.Tensor) -> torch.Tensor:
    """x to be filled and indexed, which torch does not do to float8."""
    return x.view(torch.uint8) if x.dtype == FLOAT8 else x


def wild_lengths(count: int, longest: int) -> tuple[int, ...]:
    """Lengths from 0 to `longest`, as many of each order of magnitude."""
    generator = random.Random(count)
    return tuple(int(math.exp(generator.uniform(0, math.log(longest + 1)))) - 1
                 for _ in range(count))
