"""The attention of one layer whose keys are shared among ranks."""

import dataclasses

import torch
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.distributed.parallel_state import get_dcp_group
from vllm.v1.attention.backend import AttentionLayer
from vllm.v1.kv_cache_interface import AttentionSpec

from asynct_kernels import GateParams
from asynct_vllm import kv_cache as paged
from asynct_vllm.context_parallel.builder import ContextParallelMetadata
from asynct_vllm.context_parallel.shard import shard_of
from asynct_vllm.impl import AsyncTImpl
from asynct_vllm.metadata import LayerTensors


class ContextParallelImpl(AsyncTImpl):
    """Writes a rank's rows itself, for vLLM's slots know no halo; sums what the ranks compute."""

    # vLLM asks this of any layer under decode context parallelism; there is no log-sum-exp here.
    can_return_lse_for_decode = True

    def __init__(self, *args, **kwargs) -> None:
        """See AsyncTImpl.

        Raises:
            ValueError: for a configuration that is not served with shared keys.
        """
        super().__init__(*args, **kwargs)
        if refusals := _refusals(get_current_vllm_config()):
            raise ValueError("AsyncT attention cannot share keys among ranks: "
                             + "; ".join(refusals))
        self.attended_heads = self.num_heads * self.dcp_world_size
        self.group_gate: GateParams | None = None  # until the weights are there

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Gathers the per-head values of the ranks' query heads."""
        super().process_weights_after_loading(act_dtype)
        gathered = {
            name: get_dcp_group().all_gather(value.data.contiguous(), dim=0)
            for name in ("sigma", "alpha", "gamma")
            if isinstance(value := getattr(self.gate, name), torch.Tensor)}
        self.group_gate = dataclasses.replace(self.gate, **gathered)

    def cache_spec(self, spec: AttentionSpec, vllm_config: VllmConfig) -> AttentionSpec:
        """`spec` with pages that have room for the halo rows as well."""
        shard = shard_of(vllm_config, self.dcp_rank, self.gate.window)
        page = spec.real_page_size_bytes // spec.block_size * shard.block_rows(spec.block_size)
        return dataclasses.replace(spec, page_size_padded=page)

    def attend(
        self,
        layer: AttentionLayer,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: ContextParallelMetadata,
        output: torch.Tensor,
    ) -> None:
        """Stores the step's rows, then as AsyncTImpl.attend, over the keys of all ranks."""
        rows, tokens = attn_metadata.rows, query.shape[0]
        pages = _pages(kv_cache, rows.block_rows)
        kept = torch.where(rows.owned[:tokens, None, None], value[:tokens], 0)
        self.do_kv_cache_update(layer, key[:tokens], kept, pages, rows.slots[:tokens])
        k_cache, v_cache = paged.split(self._typed(pages))
        attn_metadata.work.attend_over(
            get_dcp_group(), self.group_gate,
            LayerTensors(query, key, value, k_cache, v_cache, self.gate, output,
                         *self._scales(layer)))


def _pages(kv_cache: torch.Tensor, block_rows: int) -> torch.Tensor:
    """The whole pages `[num_blocks, 2, block_rows, H_kv, D]` of which vLLM's view shows a part.

    Raises:
        ValueError: pages are not adjacent rows of K, then of V, as vLLM lays them out.
    """
    blocks, kv, _, heads, size = kv_cache.shape
    row = heads * size
    if kv_cache.stride()[2:] != (row, size, 1) or kv_cache.stride(0) != kv * block_rows * row:
        raise ValueError(f"kv_cache has strides {kv_cache.stride()}: must have pages of "
                         f"{block_rows} rows of K and as many of V, {row} elements each")
    return kv_cache.as_strided(
        (blocks, kv, block_rows, heads, size),
        (kv_cache.stride(0), block_rows * row, row, size, 1))


def _refusals(vllm_config: VllmConfig) -> list[str]:
    parallel, model = vllm_config.parallel_config, vllm_config.model_config
    ranks = parallel.decode_context_parallel_size
    copies = parallel.tensor_parallel_size // model.get_total_num_kv_heads()
    return [reason for refused, reason in (
        (copies % ranks, f"decode_context_parallel_size={ranks}: must divide the {copies} ranks "
         "that have a KV head"),
        (parallel.dcp_comm_backend != "ag_rs", f"dcp_comm_backend={parallel.dcp_comm_backend!r}: "
         "must be 'ag_rs', partial outputs are summed"),
        (parallel.data_parallel_size > 1, f"data_parallel_size={parallel.data_parallel_size}: must "
         "be 1, dummy steps would write halo keys"),
        (vllm_config.kv_transfer_config is not None, "kv_transfer_config is given: a connector "
         "would not carry the halo keys"),
        (vllm_config.speculative_config is not None, "speculative_config is given: tokens are "
         "served one by one"),
    ) if refused]
