"""One decode step of one attention layer whose keys are shared among ranks: AsyncI, and softmax.

All ranks make the same random sequence; each stores its share of it. Both sides are vLLM's own
classes: what a layer calls in a captured graph, the cache write and the ranks' exchange included.
"""

import dataclasses
from types import SimpleNamespace
from typing import Protocol

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.parallel_state import get_dcp_group
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends import flash_attn
from vllm.v1.kv_cache_interface import FullAttentionSpec

from asynct_kernels import GateParams
from asynct_kernels.reference import attention
from asynct_vllm import kv_cache as paged
from asynct_vllm.builder import AsyncTMetadataBuilder
from asynct_vllm.context_parallel.builder import ContextParallelMetadataBuilder
from asynct_vllm.context_parallel.impl import ContextParallelImpl
from asynct_vllm.context_parallel.rows import StepRows
from asynct_vllm.context_parallel.shard import Shard
from asynct_vllm.impl import AsyncTImpl

DTYPE = torch.bfloat16


@dataclasses.dataclass(frozen=True)
class Shape:
    """One request that decodes, and how its keys are shared.

    Attributes:
        context: keys, the step's own included.
        heads: query heads of all ranks; they share one KV head.
    """

    context: int
    ranks: int
    heads: int
    head_dim: int
    block_size: int
    interleave: int

    @property
    def mine(self) -> slice:
        """The query heads of this rank."""
        heads = self.heads // self.ranks
        return slice(rank() * heads, (rank() + 1) * heads)

    @property
    def blocks(self) -> int:
        """Blocks of each rank."""
        return -(-self.context // (self.block_size * self.ranks))

    def config(self) -> SimpleNamespace:
        """What the builders and layers read of vLLM's configuration."""
        return SimpleNamespace(
            parallel_config=SimpleNamespace(
                decode_context_parallel_size=self.ranks, tensor_parallel_size=self.ranks,
                cp_kv_cache_interleave_size=self.interleave, dcp_comm_backend="ag_rs",
                data_parallel_size=1),
            model_config=SimpleNamespace(
                dtype=DTYPE, rswa_window=None, get_total_num_kv_heads=lambda: 1,
                get_num_kv_heads=lambda parallel: 1, get_head_size=lambda: self.head_dim,
                get_num_attention_heads=lambda parallel: self.heads // self.ranks),
            cache_config=SimpleNamespace(
                cache_dtype="auto", block_size=self.block_size, enable_prefix_caching=False),
            compilation_config=SimpleNamespace(
                static_forward_context={}, max_cudagraph_capture_size=8,
                cudagraph_mode=SimpleNamespace(has_full_cudagraphs=lambda: True)),
            attention_config=SimpleNamespace(
                flash_attn_max_num_splits_for_cuda_graph=32),
            device_config=SimpleNamespace(device=torch.device("cuda")),
            scheduler_config=SimpleNamespace(max_num_batched_tokens=8, max_num_seqs=8),
            kv_transfer_config=None, speculative_config=None, num_speculative_tokens=0)

    def spec(self) -> FullAttentionSpec:
        """The cache that vLLM would give such a layer."""
        return FullAttentionSpec(block_size=self.block_size, num_kv_heads=1,
                                 head_size=self.head_dim, dtype=DTYPE)


@dataclasses.dataclass(frozen=True, eq=False)
class Sequence:
    """The request: query [1, H, D] of all ranks, keys and values [context, 1, D]."""

    query: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor

    @classmethod
    def make(cls, shape: Shape, seed: int) -> "Sequence":
        """The same on every rank; scores have a deviation of 1."""
        generator = torch.Generator("cuda").manual_seed(seed)
        query, keys, values = (
            torch.randn(rows, heads, shape.head_dim, generator=generator, device="cuda")
            for rows, heads in ((1, shape.heads), (shape.context, 1), (shape.context, 1)))
        return cls((query * shape.head_dim**0.5).to(DTYPE), keys.to(DTYPE), values.to(DTYPE))


class Side(Protocol):
    """A layer ready to be captured.

    Attributes:
        cache_bytes: of the request on this card, in one layer.
    """

    cache_bytes: int

    def step(self) -> torch.Tensor:
        """Output [1, H / ranks, D] of this rank's heads."""

    def exact(self) -> torch.Tensor:
        """The same in float64, unpaged and of all keys."""


class AsyncT:
    """AsyncI attention with some two thirds of its gates closed."""

    def __init__(self, shape: Shape, sequence: Sequence) -> None:
        self.sequence, self.shape = sequence, shape
        one = torch.ones(shape.heads, device="cuda")
        self.gate = GateParams(sigma=one, alpha=0.5 * one, gamma=one)
        mine = dataclasses.replace(self.gate, **{
            name: getattr(self.gate, name)[shape.mine] for name in ("sigma", "alpha", "gamma")})
        config, shared = shape.config(), shape.ranks > 1
        arguments = (shape.heads // shape.ranks, shape.head_dim,
                     mine.score_scale(shape.head_dim), 1)
        with set_current_vllm_config(config):
            self.impl = (ContextParallelImpl if shared else AsyncTImpl)(*arguments, gate=mine)
        self.impl.process_weights_after_loading(DTYPE)
        spec = self.impl.cache_spec(shape.spec(), config)
        self.cache_bytes = shape.blocks * spec.page_size_bytes
        config.compilation_config.static_forward_context["layer"] = SimpleNamespace(impl=self.impl)
        builder = (ContextParallelMetadataBuilder if shared else AsyncTMetadataBuilder)(
            spec, ["layer"], config, torch.device("cuda"))
        # One rank's share is the whole sequence, a row a key.
        shard = Shard(rank(), shape.ranks, shape.interleave, mine.window)
        rows = shard.block_rows(shape.block_size)
        memory = torch.empty(shape.blocks, 2, rows, 1, shape.head_dim, dtype=DTYPE, device="cuda")
        table = torch.randperm(shape.blocks, device="cuda").to(torch.int32)[None]
        _store(memory, shard, table, sequence)
        self.kv_cache = memory.as_strided(
            (shape.blocks, 2, shape.block_size, 1, shape.head_dim),
            (memory.stride(0), shape.block_size * shape.head_dim, *memory.stride()[2:]))
        self.common = _common(shape, table)
        self.metadata = builder.build(0, self.common)
        self.layer = SimpleNamespace(_k_scale=one[:1], _v_scale=one[:1])
        self.query = sequence.query[:, shape.mine].contiguous()
        self.output = torch.empty_like(self.query)

    def step(self) -> torch.Tensor:
        key, value = self.sequence.keys[-1:], self.sequence.values[-1:]
        if self.shape.ranks == 1:
            self.impl.do_kv_cache_update(
                self.layer, key, value, self.kv_cache, self.common.slot_mapping)
        return self.impl.forward(
            self.layer, self.query, key, value, self.kv_cache, self.metadata, self.output)

    def exact(self) -> torch.Tensor:
        whole = self.sequence
        return attention(whole.query, whole.keys, whole.values, self.gate)[:, self.shape.mine]


class FlashAttention3:
    """Softmax attention by vLLM's FlashAttention backend."""

    def __init__(self, shape: Shape, sequence: Sequence) -> None:
        self.sequence, self.shape = sequence, shape
        config = shape.config()
        self.scale = shape.head_dim**-0.5
        self.impl = flash_attn.FlashAttentionImpl(
            shape.heads // shape.ranks, shape.head_dim, self.scale, 1, None, None, "auto")
        self.impl._dcp_dtype = DTYPE  # which it takes from a whole configuration of vLLM
        if self.impl.vllm_flash_attn_version != 3:
            raise RuntimeError(f"FlashAttention {self.impl.vllm_flash_attn_version}: must be 3")
        builder = flash_attn.FlashAttentionMetadataBuilder(
            shape.spec(), ["layer"], config, torch.device("cuda"))
        self.cache_bytes = shape.blocks * shape.spec().page_size_bytes
        self.kv_cache = torch.empty(
            shape.blocks, 2, shape.block_size, 1, shape.head_dim, dtype=DTYPE, device="cuda")
        table = torch.randperm(shape.blocks, device="cuda").to(torch.int32)[None]
        # Window 1: no halo.
        _store(self.kv_cache, Shard(rank(), shape.ranks, shape.interleave, 1), table, sequence)
        self.common = _common(shape, table)
        self.metadata = builder.build(0, self.common)
        one = torch.ones(1, device="cuda")
        self.layer = SimpleNamespace(_q_scale=one, _k_scale=one, _v_scale=one)
        self.query = sequence.query[:, shape.mine].contiguous()
        self.output = torch.empty_like(self.query)

    def step(self) -> torch.Tensor:
        key, value = self.sequence.keys[-1:], self.sequence.values[-1:]
        self.impl.do_kv_cache_update(
            self.layer, key, value, self.kv_cache, self.common.slot_mapping)
        return self.impl.forward(
            self.layer, self.query, key, value, self.kv_cache, self.metadata, self.output)

    def exact(self) -> torch.Tensor:
        whole = self.sequence
        scores = torch.einsum("qhd,khd->hk", whole.query[:, self.shape.mine].double(),
                              whole.keys.double()) * self.scale
        return torch.einsum("hk,khd->hd", scores.softmax(-1), whole.values.double())[None]


SIDES: dict[str, type[Side]] = {"AsyncT": AsyncT, "FlashAttention-3": FlashAttention3}


def rank() -> int:
    """Which of the ranks this process is."""
    return get_dcp_group().rank_in_group


def _store(memory: torch.Tensor, shard: Shard, table: torch.Tensor, sequence: Sequence) -> None:
    """Fills the pages [blocks, 2, rows, 1, D] with the rank's share of the sequence."""
    rows = StepRows.make(shard, memory.shape[2], sequence.keys.shape[0], 1, memory.device)
    length = torch.tensor([0, sequence.keys.shape[0]], dtype=torch.int32, device=memory.device)
    rows.fill(sequence.keys.shape[0], length, length[1:], table)
    kept = torch.where(rows.owned[:, None, None], sequence.values, 0)
    paged.write(sequence.keys, kept, memory, rows.slots)


def _common(shape: Shape, table: torch.Tensor) -> CommonAttentionMetadata:
    starts = torch.tensor([0, 1], dtype=torch.int32)
    length = torch.tensor([shape.context], dtype=torch.int32)
    shard = Shard(rank(), shape.ranks, shape.interleave, 1)
    slots = StepRows.make(shard, shape.block_size, 1, 1, table.device)
    slots.fill(1, starts.cuda(), length.cuda(), table)
    return CommonAttentionMetadata(
        query_start_loc=starts.cuda(), query_start_loc_cpu=starts, seq_lens=length.cuda(),
        seq_lens_cpu_upper_bound=length, num_reqs=1, num_actual_tokens=1, max_query_len=1,
        max_seq_len=shape.context, block_table_tensor=table, slot_mapping=slots.slots)
