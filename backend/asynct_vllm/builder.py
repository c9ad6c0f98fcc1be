"""Turns the scheduler's tensors into a step's metadata, once a step for all layers."""

from typing import ClassVar

import torch
from vllm.config import VllmConfig
from vllm.v1.attention.backend import (
    AttentionCGSupport,
    AttentionMetadataBuilder,
    CommonAttentionMetadata,
)
from vllm.v1.kv_cache_interface import AttentionSpec

from asynct_vllm import counters
from asynct_vllm.metadata import AsyncTMetadata
from asynct_vllm.plan import StepShape, plan
from asynct_vllm.settings import settings
from asynct_vllm.torch_paths import PATHS
from asynct_vllm.torch_paths.batch import Batch


class AsyncTMetadataBuilder(AttentionMetadataBuilder[AsyncTMetadata]):
    """Serves vLLM's model runners V1 and V2; never waits for the device."""

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.NEVER

    def __init__(
        self,
        kv_cache_spec: AttentionSpec,
        layer_names: list[str],
        vllm_config: VllmConfig,
        device: torch.device,
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self.settings = settings()

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
        num_requests = common.num_reqs
        query_start = tuple(common.query_start_loc_cpu[: num_requests + 1].tolist())
        batch = Batch.build(
            query_start=query_start,
            max_seq_lens=_max_seq_lens(common),
            query_start_loc=common.query_start_loc[: num_requests + 1],
            seq_lens=common.seq_lens[:num_requests],
            block_table=common.block_table_tensor[:num_requests],
            block_size=self.kv_cache_spec.block_size,
        )
        shape = StepShape(
            num_requests=num_requests,
            num_tokens=batch.num_tokens,
            max_query_len=common.max_query_len,
            max_seq_len=max(batch.max_seq_lens),
        )
        step_plan = plan(shape, self.device, self.settings)
        work = PATHS[step_plan.path].prepare(batch, step_plan.bucket_tokens)
        counters.count(step_plan.path, common.slot_mapping[: batch.num_tokens])
        return AsyncTMetadata(step_plan, batch, work)


def _max_seq_lens(common: CommonAttentionMetadata) -> tuple[int, ...]:
    """Upper bounds of the sequence lengths, as far as the host knows them."""
    bounds = common.seq_lens_cpu_upper_bound
    if bounds is None:
        return (common.max_seq_len,) * common.num_reqs
    return tuple(bounds[: common.num_reqs].tolist())
