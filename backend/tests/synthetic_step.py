"""A step as vLLM's scheduler would give it, with a cache poisoned wherever it must not be read.

Drives the builder and the impl without a model or an engine, for the tests and the benchmark.
"""

import dataclasses
import math
from collections.abc import Sequence
from types import SimpleNamespace

import torch
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.kv_cache_interface import FullAttentionSpec

from asynct_kernels import GateParams
from asynct_kernels.reference import attention
from asynct_vllm.builder import AsyncTMetadataBuilder
from asynct_vllm.impl import AsyncTImpl
from asynct_vllm.metadata import AsyncTMetadata
from asynct_vllm.plan import Plan, StepShape
from asynct_vllm.settings import Settings


# Block table entries that no request owns: far out of range on either side.
WILD_ENTRIES = (2**31 - 1, -(2**31), 10**6, -1)


def reference_plan(shape: StepShape, *_) -> Plan:
    """In the place of `plan`: the reference serves, as kernels do."""
    return Plan(None, "reference" if shape.num_decodes else None,
                "reference" if shape.num_prefills else None, "a test")


@dataclasses.dataclass(frozen=True)
class Heads:
    """The shape of an attention layer."""

    query: int = 4
    kv: int = 2
    size: int = 32


def _padded_pages(blocks: int, page: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    half = math.prod(page)
    pages = torch.empty(blocks, 2 * half + 24, dtype=dtype)
    return pages[:, : 2 * half].unflatten(1, (2, *page))


def _kv_first(blocks: int, page: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(2, blocks, *page, dtype=dtype).movedim(1, 0)


def _layers_inside(blocks: int, page: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(blocks, 3, 2, *page, dtype=dtype)[:, 1]


def _heads_first(blocks: int, page: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    tokens, heads, size = page
    return torch.empty(blocks, 2, heads, tokens, size, dtype=dtype).transpose(2, 3)


# Caches of shape [blocks, 2, *page] whose memory is laid out in the ways that vLLM has.
LAYOUTS = {
    "contiguous": lambda blocks, page, dtype: torch.empty(blocks, 2, *page, dtype=dtype),
    "kv_first": _kv_first,
    "layers_inside": _layers_inside,
    "heads_first": _heads_first,
    "padded_pages": _padded_pages,
}


@dataclasses.dataclass(frozen=True, eq=False)
class SyntheticStep:
    """One step of requests whose earlier tokens are cached.

    Attributes:
        common: what vLLM gives the builder.
        query, key, value: `[T, heads, D]`, this step's tokens in row order.
        kv_cache: `[num_blocks, 2, block_size, H_kv, D]` with the earlier tokens' K and V.
        keys, values: for each request `[seq_len, H_kv, D]`, earlier tokens and this step's.
        layer: vLLM's attention layer, of which only a float8 cache's scales are read.
        speculated: tokens that a decode has beside its one.
        shares_blocks: whether prefix caching is on.
    """

    common: CommonAttentionMetadata
    heads: Heads
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    kv_cache: torch.Tensor
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    layer: SimpleNamespace | None = None
    speculated: int = 0
    shares_blocks: bool = False

    @classmethod
    def make(
        cls,
        query_lens: Sequence[int],
        prefix_lens: Sequence[int],
        *,
        heads: Heads = Heads(),
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        slack: int = 0,
        layout: str = "contiguous",
        poison: float = float("nan"),
    ) -> "SyntheticStep":
        """Random tokens and shuffled blocks.

        Args:
            query_lens, prefix_lens: this step's and the cached tokens of each request.
            slack: how far the host's bounds of the sequence lengths lie above them.
            layout: the cache's strides, one of LAYOUTS.
            poison: what every slot holds that no request owns.
        """
        seq_lens = [query + prefix for query, prefix in zip(query_lens, prefix_lens)]
        own_blocks = [-(-seq_len // block_size) for seq_len in seq_lens]
        order = torch.randperm(sum(own_blocks) + 3).tolist()
        width = max(own_blocks) + -(-slack // block_size) + 2
        wild = torch.tensor(WILD_ENTRIES, dtype=torch.int32)
        block_table = wild[torch.randint(len(wild), (len(seq_lens), width))]
        kv_cache = LAYOUTS[layout](len(order), (block_size, heads.kv, heads.size), dtype)
        kv_cache.fill_(poison)
        keys, values, slots = [], [], []
        for request, seq_len in enumerate(seq_lens):
            blocks = [order.pop() for _ in range(own_blocks[request])]
            block_table[request, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
            keys.append(torch.randn(seq_len, heads.kv, heads.size, dtype=dtype))
            values.append(torch.randn(seq_len, heads.kv, heads.size, dtype=dtype))
            for token in range(seq_len):
                block, offset = blocks[token // block_size], token % block_size
                if token < prefix_lens[request]:
                    kv_cache[block, 0, offset] = keys[request][token]
                    kv_cache[block, 1, offset] = values[request][token]
                else:
                    slots.append(block * block_size + offset)
        query_start = torch.tensor([0, *query_lens]).cumsum(0).to(torch.int32)
        bounds = torch.tensor(seq_lens, dtype=torch.int32) + slack
        fresh = [slice(prefix, None) for prefix in prefix_lens]
        return cls(
            common=CommonAttentionMetadata(
                query_start_loc=query_start,
                query_start_loc_cpu=query_start.clone(),
                seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
                seq_lens_cpu_upper_bound=bounds,
                num_reqs=len(seq_lens),
                num_actual_tokens=sum(query_lens),
                max_query_len=max(query_lens),
                max_seq_len=int(bounds.max()),
                block_table_tensor=block_table,
                slot_mapping=torch.tensor(slots, dtype=torch.int64),
            ),
            heads=heads,
            query=torch.randn(sum(query_lens), heads.query, heads.size, dtype=dtype),
            key=torch.cat([k[rows] for k, rows in zip(keys, fresh)]),
            value=torch.cat([v[rows] for v, rows in zip(values, fresh)]),
            kv_cache=kv_cache,
            keys=keys,
            values=values,
        )

    def float8(self, k_scale: torch.Tensor, v_scale: torch.Tensor) -> "SyntheticStep":
        """The step with a float8 cache, as bytes, and with every K and V rounded as it rounds them.

        Args:
            k_scale, v_scale: float32, `[]` or `[H_kv]`.
        """
        def stored(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            most = torch.finfo(torch.float8_e4m3fn).max
            return (x.float() / scale.view(-1, 1)).clamp(-most, most).to(torch.float8_e4m3fn)

        def restored(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return stored(x, scale).float() * scale.view(-1, 1)

        cache = torch.stack([stored(half, scale) for half, scale in
                             zip(self.kv_cache.unbind(1), (k_scale, v_scale))], 1)
        return dataclasses.replace(
            self, kv_cache=cache.view(torch.uint8),
            keys=[restored(x, k_scale) for x in self.keys],
            values=[restored(x, v_scale) for x in self.values],
            layer=SimpleNamespace(_k_scale=k_scale, _v_scale=v_scale))

    def impl(self, gate: GateParams) -> AsyncTImpl:
        """A layer of the step's shape."""
        scale = 1 / self.heads.size if gate.scale is None else gate.scale
        return AsyncTImpl(self.heads.query, self.heads.size, scale, self.heads.kv, gate=gate,
                          kv_cache_dtype="auto" if self.layer is None else "fp8")

    def kv_cache_spec(self) -> FullAttentionSpec:
        return FullAttentionSpec(
            block_size=self.kv_cache.shape[2],
            num_kv_heads=self.heads.kv,
            head_size=self.heads.size,
            dtype=self.kv_cache.dtype,
        )

    def vllm_config(self, dtype: torch.dtype) -> SimpleNamespace:
        """What the builder reads of vLLM's configuration."""
        layers = {"layer": SimpleNamespace(impl=self.impl(GateParams(1.0, 1.0, 1.0)))}
        return SimpleNamespace(
            cache_config=SimpleNamespace(enable_prefix_caching=self.shares_blocks),
            compilation_config=SimpleNamespace(static_forward_context=layers),
            device_config=SimpleNamespace(device=self.kv_cache.device),
            model_config=SimpleNamespace(dtype=dtype),
            num_speculative_tokens=self.speculated,
            scheduler_config=SimpleNamespace(max_num_seqs=16),
        )

    def builder(self, settings: Settings) -> AsyncTMetadataBuilder:
        """As vLLM makes it for the layers of such steps."""
        builder = AsyncTMetadataBuilder(
            self.kv_cache_spec(), ["layer"], self.vllm_config(self.query.dtype),
            self.kv_cache.device)
        builder.settings = settings
        return builder

    def build(self, settings: Settings) -> AsyncTMetadata:
        """The step's metadata, as all layers share it."""
        return self.builder(settings).build(0, self.common)

    def run(self, gate: GateParams, settings: Settings) -> torch.Tensor:
        """Builds the metadata, writes the cache and attends, in one layer: `[T, H, D]`."""
        impl = self.impl(gate)
        impl.do_kv_cache_update(
            self.layer, self.key, self.value, self.kv_cache, self.common.slot_mapping
        )
        output = torch.full_like(self.query, float("nan"))
        metadata = self.build(settings)
        impl.forward(
            self.layer, self.query, self.key, self.value, self.kv_cache, metadata, output)
        return output

    def split_rows(self, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """A tensor of the step's rows, request by request."""
        return rows.split(self.common.query_start_loc_cpu.diff().tolist())

    def reference(self, gate: GateParams) -> torch.Tensor:
        """The unpaged float64 attention of each request on its own: `[T, H, D]`."""
        requests = zip(self.split_rows(self.query), self.keys, self.values)
        return torch.cat([attention(query, key, value, gate) for query, key, value in requests])

    def only(self, request: int) -> "SyntheticStep":
        """The step as it is when one of its requests is alone in the batch, in the same cache."""
        rows = slice(*self.common.query_start_loc_cpu[request : request + 2].tolist())
        own = slice(request, request + 1)
        query_start = torch.tensor([0, rows.stop - rows.start], dtype=torch.int32)
        bounds = self.common.seq_lens_cpu_upper_bound[own]
        return dataclasses.replace(
            self,
            common=self.common.replace(
                query_start_loc=query_start,
                query_start_loc_cpu=query_start,
                seq_lens=self.common.seq_lens[own],
                seq_lens_cpu_upper_bound=bounds,
                num_reqs=1,
                num_actual_tokens=rows.stop - rows.start,
                max_query_len=rows.stop - rows.start,
                max_seq_len=int(bounds),
                block_table_tensor=self.common.block_table_tensor[own],
                slot_mapping=self.common.slot_mapping[rows],
            ),
            query=self.query[rows],
            key=self.key[rows],
            value=self.value[rows],
            keys=self.keys[own],
            values=self.values[own],
        )
