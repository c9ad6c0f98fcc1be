"""A step of a rank that holds a share of the keys: every token is a request of its own."""

import dataclasses

import torch
from vllm.config import VllmConfig
from vllm.v1.attention.backend import AttentionCGSupport, CommonAttentionMetadata
from vllm.v1.kv_cache_interface import AttentionSpec

from asynct_kernels.attention.decode import schedule_bytes
from asynct_vllm.builder import (
    AsyncTMetadataBuilder,
    attention_impl,
    layer_shape,
    upper_bounds,
)
from asynct_vllm.context_parallel.rows import StepRows
from asynct_vllm.context_parallel.shard import Shard, shard_of
from asynct_vllm.context_parallel.work import SharedWork
from asynct_vllm.kernel_work import KernelCall, KernelWork
from asynct_vllm.metadata import AsyncTMetadata
from asynct_vllm.plan import DECODE_PAGED, PREFILL_FRESH, Plan, StepShape
from asynct_vllm.torch_paths import TorchWork

# Tokens of a prompt that one call of a decode kernel serves; bounds its workspace.
_CALL_TOKENS = 256


@dataclasses.dataclass(frozen=True, eq=False)
class ContextParallelMetadata(AsyncTMetadata):
    """A step over a rank's rows; `work` is a `SharedWork`."""

    rows: StepRows


class ContextParallelMetadataBuilder(AsyncTMetadataBuilder):
    """Builds a step over the rank's rows, of which a query sees those up to its position.

    How many rows a chunk's next token sees is not always one more, so no kernel for chunks serves
    it over the cache; one for decodes does, token by token. A prompt's first chunk needs no cache:
    each rank attends to it for its own heads.
    """

    def __init__(
        self,
        kv_cache_spec: AttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        shard = shard_of(vllm_config, self.impl.dcp_rank, self.impl.gate.window)
        # From here on a block is as large as the rank's rows of it.
        self.kv_cache_spec = _row_spec(kv_cache_spec, shard)
        self.layer = layer_shape(self.impl, vllm_config, self.kv_cache_spec)
        scheduler = vllm_config.scheduler_config
        self.rows = StepRows.make(
            shard, self.kv_cache_spec.block_size, scheduler.max_num_batched_tokens,
            scheduler.max_num_seqs, device)

    @classmethod
    def get_cudagraph_support(
        cls, vllm_config: VllmConfig, kv_cache_spec: AttentionSpec
    ) -> AttentionCGSupport:
        """As of any layer, with blocks of the rank's rows."""
        shard = shard_of(vllm_config, 0, attention_impl(vllm_config).gate.window)
        return super().get_cudagraph_support(vllm_config, _row_spec(kv_cache_spec, shard))

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> ContextParallelMetadata:
        """See AsyncTMetadataBuilder.build."""
        common = common_attn_metadata
        self.rows.fill(
            common.num_actual_tokens, common.query_start_loc[: common.num_reqs + 1],
            common.seq_lens[: common.num_reqs], common.block_table_tensor[: common.num_reqs])
        step = super().build(common_prefix_len, common, fast_build)
        return ContextParallelMetadata(step.plan, step.num_tokens, step.work, self.rows)

    def _plan(self, shape: StepShape) -> Plan:
        chosen = super()._plan(shape)
        if chosen.prefill in (None, PREFILL_FRESH):
            return chosen
        decode = super()._plan(dataclasses.replace(shape, num_decodes=1)).decode
        return dataclasses.replace(
            chosen, prefill=decode, reason=f"{chosen.reason}; not {chosen.prefill}: of a chunk's "
            "keys this rank stores a part, so that its tokens are served one by one")

    def _torch_work(
        self, step_plan: Plan, common: CommonAttentionMetadata, query_start: tuple[int, ...]
    ) -> SharedWork:
        tokens = query_start[-1]
        bounds = _token_bounds(query_start, upper_bounds(common))
        one_by_one = dataclasses.replace(
            common,
            num_reqs=tokens,
            query_start_loc=torch.arange(tokens + 1, dtype=torch.int32, device=self.device),
            seq_lens=self.rows.visible[:tokens],
            seq_lens_cpu_upper_bound=torch.tensor(
                [self.rows.shard.most_rows(bound) for bound in bounds]),
            block_table_tensor=common.block_table_tensor[self.rows.requests[:tokens]],
        )
        work: TorchWork = super()._torch_work(step_plan, one_by_one, tuple(range(tokens + 1)))
        return SharedWork(work, tokens, KernelWork(()))

    def _kernel_work(
        self,
        step_plan: Plan,
        common: CommonAttentionMetadata,
        shape: StepShape,
        num_decode_tokens: int,
    ) -> SharedWork:
        over_rows = dataclasses.replace(common, seq_lens=self.rows.lengths)
        if step_plan.prefill == PREFILL_FRESH:
            *decodes, fresh = super()._kernel_work(
                step_plan, over_rows, shape, num_decode_tokens).calls
            # It reads no cache: its keys are as many as its queries, which the ranks' rows have
            # room for together.
            fresh = dataclasses.replace(
                fresh, seq_lens=fresh.query_start_loc.diff(),
                block_table=fresh.block_table.repeat(1, self.rows.shard.ranks))
            return SharedWork(KernelWork(decodes), num_decode_tokens, KernelWork((fresh,)))
        decodes = dataclasses.replace(step_plan, prefill=None)
        calls = super()._kernel_work(decodes, over_rows, shape, num_decode_tokens).calls
        if step_plan.prefill is not None:
            calls += self._token_calls(
                step_plan.prefill, common, range(num_decode_tokens, shape.num_tokens))
        return SharedWork(KernelWork(calls), shape.num_tokens, KernelWork(()))

    def _token_calls(
        self, kernel: str, common: CommonAttentionMetadata, tokens: range
    ) -> tuple[KernelCall, ...]:
        """Calls for tokens of chunks, each a request of its own. They share their workspace."""
        calls = [
            self._token_call(kernel, common, slice(first, min(first + _CALL_TOKENS, tokens.stop)))
            for first in tokens[::_CALL_TOKENS]]
        if kernel != DECODE_PAGED:
            return tuple(calls)
        least = schedule_bytes(
            max(call.seq_lens.shape[0] for call in calls), heads=self.impl.attended_heads,
            kv_heads=self.impl.num_kv_heads, head_dim=self.impl.head_size,
            max_seq_len=calls[0].max_seq_len)
        workspace = torch.empty(least, dtype=torch.uint8, device=self.device)
        return tuple(dataclasses.replace(call, workspace=workspace) for call in calls)

    def _token_call(
        self, kernel: str, common: CommonAttentionMetadata, rows: slice
    ) -> KernelCall:
        tokens = rows.stop - rows.start
        return KernelCall(
            kernel=kernel,
            rows=rows,
            block_table=common.block_table_tensor[self.rows.requests[rows]],
            query_start_loc=torch.arange(tokens + 1, dtype=torch.int32, device=self.device),
            seq_lens=self.rows.visible[rows],
            max_query_len=1,
            max_seq_len=min(self.rows.shard.most_rows(common.max_seq_len), self._room(common)),
        )


def _row_spec(kv_cache_spec: AttentionSpec, shard: Shard) -> AttentionSpec:
    return kv_cache_spec.copy_with_new_block_size(shard.block_rows(kv_cache_spec.block_size))


def _token_bounds(query_start: tuple[int, ...], max_seq_lens: tuple[int, ...]) -> list[int]:
    """Upper bounds of the positions up to each token's, that included."""
    return [bound - (stop - 1 - token)
            for start, stop, bound in zip(query_start, query_start[1:], max_seq_lens)
            for token in range(start, stop)]
