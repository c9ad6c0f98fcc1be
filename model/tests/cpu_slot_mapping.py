"""vLLM's slot mapping under decode context parallelism, which its build for CPUs leaves out.

The engine's workers import this by `worker_extension_cls`. AsyncT stores keys by slots of its own;
of vLLM's it reads which are none.
"""

import torch
from vllm.utils import cpu_triton_utils


class SlotMapping:
    """Adds nothing to the worker: importing this module is what counts."""


def _slot_mapping(
    num_tokens, max_num_tokens, query_start_loc, positions, block_table, block_table_stride,
    block_size, slot_mapping, *, TOTAL_CP_WORLD_SIZE, TOTAL_CP_RANK, CP_KV_CACHE_INTERLEAVE_SIZE,
    PAD_ID, BLOCK_SIZE,
) -> None:
    ranks, rank, interleave = TOTAL_CP_WORLD_SIZE, TOTAL_CP_RANK, CP_KV_CACHE_INTERLEAVE_SIZE
    requests = torch.repeat_interleave(
        torch.arange(query_start_loc.shape[0] - 1), query_start_loc.diff())
    positions = positions[: requests.shape[0]]
    block, offset = positions // (block_size * ranks), positions % (block_size * ranks)
    slots = (block_table[requests, block].long() * block_size
             + offset // (ranks * interleave) * interleave + offset % interleave)
    slot_mapping.fill_(PAD_ID)
    slot_mapping[: requests.shape[0]] = torch.where(
        offset // interleave % ranks == rank, slots, PAD_ID)


cpu_triton_utils.compute_slot_mapping_kernel.func = _slot_mapping
