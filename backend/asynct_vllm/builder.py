"""Turns the scheduler's tensors into a step's metadata, once a step for all layers."""

import dataclasses
from collections.abc import Callable

import torch
from vllm.config import VllmConfig
from vllm.v1.attention.backend import (
    AttentionCGSupport,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)
from vllm.v1.kv_cache_interface import AttentionSpec

from asynct_kernels.attention import LayerShape
from asynct_vllm import counters
from asynct_vllm.decode_rows import DecodeRows
from asynct_vllm.decode_schedule import DecodeScheduler
from asynct_vllm.impl import AsyncTImpl
from asynct_vllm.kernel_work import KernelCall, KernelWork
from asynct_vllm.metadata import AsyncTMetadata, Work
from asynct_vllm.plan import (
    DECODE_PAGED,
    NORMALISING_KERNELS,
    PREFILL_FRESH,
    Plan,
    StepShape,
    plan,
)
from asynct_vllm.settings import settings
from asynct_vllm.torch_paths import TorchWork
from asynct_vllm.torch_paths.batch import Batch

# A plan for one decode says what serves decodes, whatever the step.
_ONE_DECODE = StepShape(
    num_decodes=1, num_prefills=0, fresh=False, num_tokens=1, max_query_len=1, max_seq_len=1)


@dataclasses.dataclass(frozen=True, eq=False)
class _PagedDecodes:
    """Decodes by the paged kernel, alike in every step whose tensors are in the same places.

    Attributes:
        place: of what vLLM fills for each step.
        schedule: lists a step's segments.
        call: of a layer.
    """

    place: tuple[int, ...]
    schedule: Callable[[], None]
    call: KernelCall


class AsyncTMetadataBuilder(AttentionMetadataBuilder[AsyncTMetadata]):
    """Serves vLLM's model runners V1 and V2; never waits for the device."""

    def __init__(
        self,
        kv_cache_spec: AttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.settings = settings()
        self.capability = capability_of(device)
        # A draft model's layers may differ from the model's, and have another builder then.
        layers = vllm_config.compilation_config.static_forward_context
        self.impl: AsyncTImpl = layers[layer_names[0]].impl
        self.layer = layer_shape(self.impl, vllm_config, kv_cache_spec)
        # Requests that share blocks may read, by one token, keys of this step: these are then
        # written before any attention.
        shared = vllm_config.cache_config.enable_prefix_caching
        self.normalising = () if shared else NORMALISING_KERNELS
        self.decode_query_len = 1 + vllm_config.num_speculative_tokens
        # Model runner V1 puts requests of so few query tokens first, as V2 always does.
        self.reorder_batch_threshold = self.decode_query_len
        self.decode_rows: DecodeRows | None = None
        self.scheduler: DecodeScheduler | None = None
        self.paged_decodes: dict[tuple[int, int], _PagedDecodes] = {}  # by requests and tokens

    @classmethod
    def get_cudagraph_support(
        cls, vllm_config: VllmConfig, kv_cache_spec: AttentionSpec
    ) -> AttentionCGSupport:
        """Decodes, of 1 + k tokens under speculation, are captured where a kernel serves them."""
        capability = capability_of(vllm_config.device_config.device)
        layer = layer_shape(attention_impl(vllm_config), vllm_config, kv_cache_spec)
        if plan(_ONE_DECODE, layer, capability, settings()).decode is None:
            return AttentionCGSupport.NEVER
        return AttentionCGSupport.UNIFORM_BATCH

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> AsyncTMetadata:
        """Builds the metadata of one step.

        Raises:
            ValueError: the step is not causal.
        """
        del common_prefix_len, fast_build  # Cascade attention is declined, and one way builds all.
        common = common_attn_metadata
        if common.causal is not True:
            raise ValueError(f"causal={common.causal}: AsyncI attention is causal")
        query_start = tuple(common.query_start_loc_cpu[: common.num_reqs + 1].tolist())
        num_decodes = common.num_reqs
        if common.max_query_len > self.decode_query_len:
            num_decodes = _num_decodes(query_start, self.decode_query_len)
        shape = StepShape(
            num_decodes=num_decodes,
            num_prefills=common.num_reqs - num_decodes,
            fresh=num_decodes < common.num_reqs and _fresh(query_start, common, num_decodes),
            num_tokens=query_start[-1],
            max_query_len=common.max_query_len,
            # Dummy steps may claim more than a row of the table has room for.
            max_seq_len=min(common.max_seq_len, self._room(common)),
        )
        step_plan = self._plan(shape)
        if step_plan.torch_path is None:
            work: Work = self._kernel_work(step_plan, common, shape, query_start[num_decodes])
        else:
            work = self._torch_work(step_plan, common, query_start)
        counters.count(_served(step_plan, query_start, num_decodes), common.slot_mapping)
        return AsyncTMetadata(step_plan, shape.num_tokens, work)

    def _plan(self, shape: StepShape) -> Plan:
        return plan(shape, self.layer, self.capability, self.settings)

    def _torch_work(
        self, step_plan: Plan, common: CommonAttentionMetadata, query_start: tuple[int, ...]
    ) -> TorchWork:
        num_requests = common.num_reqs
        batch = Batch.build(
            query_start=query_start,
            max_seq_lens=upper_bounds(common),
            query_start_loc=common.query_start_loc[: num_requests + 1],
            seq_lens=common.seq_lens[:num_requests],
            block_table=common.block_table_tensor[:num_requests],
            block_size=self.kv_cache_spec.block_size,
        )
        return TorchWork.prepare(step_plan.torch_path, batch, self.settings.bucket_tokens)

    def _kernel_work(
        self,
        step_plan: Plan,
        common: CommonAttentionMetadata,
        shape: StepShape,
        num_decode_tokens: int,
    ) -> KernelWork:
        calls = []
        if step_plan.decode is not None:
            calls.append(self._decode_call(step_plan.decode, common, shape, num_decode_tokens))
        if step_plan.prefill is not None:
            requests = slice(shape.num_decodes, common.num_reqs)
            starts = common.query_start_loc[requests.start : requests.stop + 1]
            fresh = step_plan.prefill == PREFILL_FRESH
            rows = slice(num_decode_tokens, shape.num_tokens)
            calls.append(KernelCall(
                kernel=step_plan.prefill,
                rows=rows,
                block_table=common.block_table_tensor[requests],
                query_start_loc=starts - num_decode_tokens,
                seq_lens=common.seq_lens[requests],
                max_query_len=shape.max_query_len,
                max_seq_len=shape.max_query_len if fresh else shape.max_seq_len,
                fresh=fresh,
                **self._norm_rope(step_plan.prefill, common, rows),
            ))
        return KernelWork(tuple(calls))

    def _decode_call(
        self, kernel: str, common: CommonAttentionMetadata, shape: StepShape, num_tokens: int
    ) -> KernelCall:
        # Views of vLLM's own buffers: a captured graph reads them again in each replay.
        query_start_loc = common.query_start_loc[: shape.num_decodes + 1]
        seq_lens = common.seq_lens[: shape.num_decodes]
        block_table = common.block_table_tensor[: shape.num_decodes]
        if self.decode_query_len > 1:
            if not shape.num_prefills:
                num_tokens = common.num_actual_tokens  # as the graph has them, padding included
            if self.decode_rows is None:
                self.decode_rows = DecodeRows.make(
                    self._most_rows(), block_table.shape[1], self.device)
            rows = self.decode_rows.fill(num_tokens, query_start_loc, seq_lens, block_table)
            query_start_loc, seq_lens = rows.query_start_loc, rows.seq_lens
            block_table = rows.block_table

        def call(**options) -> KernelCall:
            rows = slice(0, num_tokens)
            return KernelCall(
                kernel=kernel, rows=rows, block_table=block_table, query_start_loc=query_start_loc,
                seq_lens=seq_lens, max_query_len=1,
                max_seq_len=self._room(common),  # Of every replay.
                **self._norm_rope(kernel, common, rows), **options)

        if kernel != DECODE_PAGED:
            return call()
        place = tuple(0 if buffer is None else buffer.data_ptr() for buffer in (
            query_start_loc, seq_lens, block_table, common.slot_mapping, common.positions))
        key = seq_lens.shape[0], num_tokens
        if key not in self.paged_decodes or self.paged_decodes[key].place != place:
            scheduler = self._scheduler(self._room(common))
            schedule, tuning = scheduler.prepare(query_start_loc, seq_lens)
            self.paged_decodes[key] = _PagedDecodes(
                place, schedule, call(workspace=scheduler.workspace, tuning=tuning))
        self.paged_decodes[key].schedule()
        return self.paged_decodes[key].call

    def _scheduler(self, max_seq_len: int) -> DecodeScheduler:
        if self.scheduler is None:
            self.scheduler = DecodeScheduler.make(
                heads=self.impl.attended_heads, kv_heads=self.impl.num_kv_heads,
                head_dim=self.impl.head_size, max_seq_len=max_seq_len,
                max_requests=self._most_rows(), device=self.device)
        return self.scheduler

    def _norm_rope(
        self, kernel: str, common: CommonAttentionMetadata, rows: slice
    ) -> dict[str, object]:
        """What a call is told where the layers' queries and keys lack DyHT and RoPE."""
        if self.impl.norm_rope is None:
            return {}
        return dict(slot_mapping=common.slot_mapping[rows], positions=common.positions[rows],
                    normalises=kernel in self.normalising)

    def _most_rows(self) -> int:
        """Query tokens that the decodes of a step can have."""
        return self.vllm_config.scheduler_config.max_num_seqs * self.decode_query_len

    def _room(self, common: CommonAttentionMetadata) -> int:
        """Keys that a row of the block table has room for."""
        return common.block_table_tensor.shape[1] * self.kv_cache_spec.block_size


def capability_of(device: torch.device | str) -> tuple[int, int] | None:
    """A CUDA device's compute capability; None of any other."""
    device = torch.device(device)
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def attention_impl(vllm_config: VllmConfig) -> AsyncTImpl:
    """That of a layer with AsyncI attention; the model's have heads and gate settings in common."""
    layers = vllm_config.compilation_config.static_forward_context.values()
    impls = (getattr(layer, "impl", None) for layer in layers)
    return next(impl for impl in impls if isinstance(impl, AsyncTImpl))


def layer_shape(
    impl: AsyncTImpl, vllm_config: VllmConfig, kv_cache_spec: AttentionSpec
) -> LayerShape:
    """What all calls for layers like `impl`'s have in common."""
    return LayerShape(
        dtype=vllm_config.model_config.dtype,
        head_dim=impl.head_size,
        group=impl.attended_heads // impl.num_kv_heads,
        block_size=kv_cache_spec.block_size,
        window=impl.gate.window,
        float8_cache=impl.float8_cache,
    )


def _served(
    step_plan: Plan, query_start: tuple[int, ...], num_decodes: int
) -> list[tuple[str, int]]:
    """The plan's paths, and how many query tokens each serves."""
    decode_tokens, num_tokens = query_start[num_decodes], query_start[-1]
    parts = ((step_plan.torch_path, num_tokens), (step_plan.decode, decode_tokens),
             (step_plan.prefill, num_tokens - decode_tokens))
    return [(path, tokens) for path, tokens in parts if path is not None]


def _num_decodes(query_start: tuple[int, ...], most: int) -> int:
    """How many requests before the first of more than `most` query tokens."""
    pairs = enumerate(zip(query_start, query_start[1:]))
    return next((i for i, (start, stop) in pairs if stop - start > most), len(query_start) - 1)


def _fresh(query_start: tuple[int, ...], common: CommonAttentionMetadata, first: int) -> bool:
    """Whether no request from `first` on has keys from before this step, for all the host knows."""
    if common.seq_lens_cpu_upper_bound is None:
        return False
    bounds = common.seq_lens_cpu_upper_bound[first : common.num_reqs].tolist()
    spans = zip(query_start[first:], query_start[first + 1 :])
    return all(bound == stop - start for bound, (start, stop) in zip(bounds, spans, strict=True))


def upper_bounds(common: CommonAttentionMetadata) -> tuple[int, ...]:
    """Upper bounds of the sequence lengths, as far as the host knows them."""
    bounds = common.seq_lens_cpu_upper_bound
    if bounds is None:
        return (common.max_seq_len,) * common.num_reqs
    return tuple(bounds[: common.num_reqs].tolist())
