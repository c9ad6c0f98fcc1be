"""The paged cache: its shape, its views, and what a write leaves alone."""

import pytest
import torch
from synthetic_step import LAYOUTS

from asynct_vllm import kv_cache
from asynct_vllm.backend import AsyncTBackend

BLOCKS, BLOCK_SIZE, HEADS, SIZE = 5, 16, 2, 8


def filled_cache(layout: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    cache = LAYOUTS[layout](BLOCKS, (BLOCK_SIZE, HEADS, SIZE), dtype)
    return cache.copy_(torch.randn(cache.shape))


def test_the_backend_has_the_layout():
    shape = AsyncTBackend.get_kv_cache_shape(BLOCKS, BLOCK_SIZE, HEADS, SIZE)
    assert shape == (BLOCKS, 2, BLOCK_SIZE, HEADS, SIZE)
    assert AsyncTBackend.get_kv_cache_block_dim(BLOCK_SIZE, HEADS, SIZE) == 0
    assert AsyncTBackend.indexes_kv_by_block_stride()


@pytest.mark.parametrize("block_size", (0, 8, 24, -16))
def test_the_backend_refuses_block_sizes(block_size):
    with pytest.raises(ValueError, match=f"block_size={block_size}.*multiple of 16"):
        AsyncTBackend.get_kv_cache_shape(BLOCKS, block_size, HEADS, SIZE)


@pytest.mark.parametrize("shape", ((2, 5, 16, 2, 8), (5, 2, 16, 16), (5, 3, 16, 2, 8)))
def test_another_layout_is_refused(shape):
    with pytest.raises(ValueError, match="num_blocks, 2, block_size"):
        kv_cache.split(torch.empty(shape))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_reads_whole_blocks(layout, seed):
    k_cache, v_cache = kv_cache.split(filled_cache(layout))
    blocks = torch.tensor([[4, 1], [0, 4]])
    for cache in (k_cache, v_cache):
        rows = kv_cache.read(cache, blocks)
        assert torch.equal(rows[0], torch.cat((cache[4], cache[1])))
        assert torch.equal(rows[1], torch.cat((cache[0], cache[4])))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize("layout", LAYOUTS)
def test_writes_slots_and_nothing_else(layout, dtype, seed):
    cache = filled_cache(layout, dtype)
    expected = cache.clone()
    # Two tokens without a slot, and two rows past the slot mapping's end.
    slots = torch.tensor([79, -1, 0, 17, -1, 33])
    key, value = torch.randn(2, 8, HEADS, SIZE)
    kv_cache.write(key, value, cache, slots)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            expected[slot // BLOCK_SIZE, 0, slot % BLOCK_SIZE] = key[token].to(dtype)
            expected[slot // BLOCK_SIZE, 1, slot % BLOCK_SIZE] = value[token].to(dtype)
    assert torch.equal(cache, expected)


def test_more_slots_than_keys_are_refused(seed):
    key = torch.randn(3, HEADS, SIZE)
    with pytest.raises(ValueError, match="names 4 tokens: key has 3"):
        kv_cache.write(key, key, filled_cache("contiguous"), torch.arange(4))
