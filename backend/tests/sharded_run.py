"""Steps of requests whose keys are shared among ranks, the ranks run in turn in one process."""

import contextlib
import dataclasses
from collections.abc import Iterator
from types import SimpleNamespace
from unittest import mock

import torch
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.kv_cache_interface import FullAttentionSpec

from asynct_kernels import GateParams
from asynct_kernels.reference import attention
from asynct_vllm.context_parallel import impl as impl_module
from asynct_vllm.context_parallel.builder import (
    ContextParallelMetadata,
    ContextParallelMetadataBuilder,
)
from asynct_vllm.context_parallel.impl import ContextParallelImpl
from asynct_vllm.settings import Settings

_WILD = torch.tensor([2**31 - 1, -(2**31), 10**6, -1], dtype=torch.int32)
_MOST_TOKENS, _MOST_REQUESTS = 512, 16


@dataclasses.dataclass
class Group:
    """vLLM's group of ranks as one of them sees it; counts the bytes that the rank sends."""

    rank_in_group: int
    world_size: int
    whole: list[torch.Tensor]  # what the next all_gathers give
    partial: torch.Tensor | None = None
    bytes_sent: int = 0

    def all_gather(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        whole = self.whole.pop(0)
        mine = whole.chunk(self.world_size, dim)[self.rank_in_group]
        if not (x.is_cuda and torch.cuda.is_current_stream_capturing()):
            assert torch.equal(mine, x)
        self.bytes_sent += (self.world_size - 1) * x.nbytes
        return whole

    def reduce_scatter(self, x: torch.Tensor, dim: int) -> torch.Tensor:
        self.partial = x
        self.bytes_sent += (self.world_size - 1) * x.nbytes // self.world_size
        return x.chunk(self.world_size, dim)[self.rank_in_group]


@dataclasses.dataclass(frozen=True)
class Case:
    """How a sequence is shared, and the shape of a layer with one KV head for all ranks."""

    ranks: int = 2
    interleave: int = 1
    block_size: int = 16
    heads: int = 4  # of all ranks
    size: int = 32
    dtype: torch.dtype = torch.float32
    device: str = "cpu"


def vllm_config(case: Case) -> SimpleNamespace:
    """What a layer and a builder read of vLLM's configuration."""
    return SimpleNamespace(
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=case.ranks, tensor_parallel_size=case.ranks,
            cp_kv_cache_interleave_size=case.interleave, dcp_comm_backend="ag_rs",
            data_parallel_size=1),
        model_config=SimpleNamespace(dtype=case.dtype, get_total_num_kv_heads=lambda: 1),
        device_config=SimpleNamespace(device=torch.device(case.device)),
        cache_config=SimpleNamespace(enable_prefix_caching=False),
        scheduler_config=SimpleNamespace(
            max_num_batched_tokens=_MOST_TOKENS, max_num_seqs=_MOST_REQUESTS),
        kv_transfer_config=None, speculative_config=None, num_speculative_tokens=0)


class Rank:
    """One rank: its layer, its builder and its cache, poisoned where nothing is stored."""

    def __init__(self, case: Case, rank: int, gate: GateParams, blocks: int, settings: Settings):
        self.case, self.group = case, Group(rank, case.ranks, [])
        heads = case.heads // case.ranks
        mine = dataclasses.replace(gate, **{
            name: getattr(gate, name).chunk(case.ranks)[rank]
            for name in ("sigma", "alpha", "gamma")})
        config = vllm_config(case)
        with self._in_group(config):
            self.impl = ContextParallelImpl(
                heads, case.size, mine.score_scale(case.size), 1, gate=mine)
            self.group.whole = [gate.sigma, gate.alpha, gate.gamma]
            self.impl.process_weights_after_loading(case.dtype)
        config.compilation_config = SimpleNamespace(
            static_forward_context={"layer": SimpleNamespace(impl=self.impl)})
        spec = self.impl.cache_spec(
            FullAttentionSpec(block_size=case.block_size, num_kv_heads=1, head_size=case.size,
                              dtype=case.dtype), config)
        self.builder = ContextParallelMetadataBuilder(
            spec, ["layer"], config, torch.device(case.device))
        self.builder.settings = settings
        # As vLLM cuts it: it shows block_size rows of K and of V, the page goes on after them.
        elements = spec.page_size_bytes // case.dtype.itemsize
        self.memory = torch.full(
            (blocks, elements), float("nan"), dtype=case.dtype, device=case.device)
        row = case.size
        self.kv_cache = self.memory.as_strided(
            (blocks, 2, case.block_size, 1, case.size),
            (elements, case.block_size * row, row, row, 1))

    def build(self, common: CommonAttentionMetadata) -> ContextParallelMetadata:
        """The step's metadata, as all layers share it."""
        return self.builder.build(0, common)

    def forward(
        self, metadata: ContextParallelMetadata, query: torch.Tensor, key: torch.Tensor,
        value: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One layer for the queries [T, H, D] of all ranks.

        Returns:
            The rank's summand of the first tokens' output, for all heads, and the output of the
            others, for its own heads.
        """
        tokens = metadata.work.tokens
        mine = query.chunk(self.case.ranks, dim=1)[self.group.rank_in_group]
        self.group.whole, self.group.partial = [query[:tokens]], query[:0]
        output = torch.full_like(mine, float("nan"))
        scale = torch.ones(1, device=mine.device)
        with self._in_group():
            self.impl.forward(SimpleNamespace(_k_scale=scale, _v_scale=scale), mine, key, value,
                              self.kv_cache, metadata, output)
        return self.group.partial, output[tokens:]

    @contextlib.contextmanager
    def _in_group(self, config: SimpleNamespace | None = None) -> Iterator[None]:
        group = lambda: self.group  # noqa: E731
        with mock.patch.multiple(impl_module, get_dcp_group=group,
                                 get_current_vllm_config=lambda: config), \
                mock.patch("vllm.distributed.parallel_state.get_dcp_group", group):
            yield


class ShardedRun:
    """Sequences that grow step by step on all ranks."""

    def __init__(self, case: Case, gate: GateParams, lengths: list[int], settings: Settings):
        """Random sequences of the given final lengths, in blocks that the ranks share in number."""
        self.case, self.gate, self.seen = case, gate, [0] * len(lengths)
        self.queries, self.keys, self.values = (
            [torch.randn(length, heads, case.size, dtype=case.dtype, device=case.device)
             for length in lengths]
            for heads in (case.heads, 1, 1))
        owned = [-(-length // (case.block_size * case.ranks)) for length in lengths]
        order = (torch.randperm(sum(owned) + 2) + 1).tolist()
        self.table = _WILD[torch.randint(len(_WILD), (len(lengths), max(owned) + 2))]
        for request, blocks in enumerate(owned):
            self.table[request, :blocks] = torch.tensor([order.pop() for _ in range(blocks)])
        self.table = self.table.to(case.device)
        self.ranks = [Rank(case, rank, gate, sum(owned) + 3, settings)
                      for rank in range(case.ranks)]

    def step(self, tokens: list[int], slack: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        """Advances each request by that many tokens; returns output and float64 reference."""
        common, fresh, reference = self.advance(tokens, slack)
        partials, outputs = zip(*(
            rank.forward(rank.build(common), *fresh) for rank in self.ranks))
        return torch.cat((sum(partials), torch.cat(outputs, dim=1))), reference

    def advance(
        self, tokens: list[int], slack: int = 0
    ) -> tuple[CommonAttentionMetadata, list[torch.Tensor], torch.Tensor]:
        """The next step: what vLLM gives the builder, query, key and value, and the reference."""
        rows = [slice(seen, seen + new) for seen, new in zip(self.seen, tokens)]
        self.seen = [row.stop for row in rows]
        starts = torch.tensor([0, *tokens]).cumsum(0).to(torch.int32)
        seq_lens = torch.tensor(self.seen, dtype=torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=starts.to(self.case.device), query_start_loc_cpu=starts,
            seq_lens=seq_lens.to(self.case.device), seq_lens_cpu_upper_bound=seq_lens + slack,
            num_reqs=len(tokens), num_actual_tokens=sum(tokens), max_query_len=max(tokens),
            max_seq_len=max(self.seen) + slack, block_table_tensor=self.table,
            slot_mapping=torch.full((sum(tokens),), -1, device=self.case.device))
        fresh = [torch.cat([tensor[row] for tensor, row in zip(tensors, rows)])
                 for tensors in (self.queries, self.keys, self.values)]
        reference = torch.cat([
            attention(queries[row], keys[: row.stop], values[: row.stop], self.gate)
            for queries, keys, values, row in zip(self.queries, self.keys, self.values, rows)])
        return common, fresh, reference
