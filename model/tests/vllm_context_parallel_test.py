"""Decode context parallelism: engines of two processes that share the keys of one KV head."""

import cpu_slot_mapping
import pytest
from parallel_check import check


@pytest.mark.parametrize("block_size,interleave", ((16, 1), (64, 16)))
def test_shared_keys_match(block_size, interleave, tmp_path, seed):
    """Prompts come in chunks, and again from the cache."""
    slots = cpu_slot_mapping.SlotMapping
    check(tmp_path, seed, dict(
        tensor_parallel_size=2, decode_context_parallel_size=2, block_size=block_size,
        cp_kv_cache_interleave_size=interleave,
        worker_extension_cls=f"{slots.__module__}.{slots.__qualname__}"), num_key_value_heads=1)
