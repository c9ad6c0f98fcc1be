"""The paged KV cache: its layout, its views, reading by block and writing by slot.

One layer's cache is `[num_blocks, 2, block_size, H_kv, D]`, 0 for K and 1 for V, of any strides. A
slot is `block * block_size + offset`.
"""

import torch

from asynct_kernels.attention.cache import CacheWrite
from asynct_kernels.attention.reference import write_cache

# vLLM gives slots below zero to tokens whose K and V are not to be kept: padding and dummy runs.
NO_SLOT = -1


def shape(
    num_blocks: int, block_size: int, num_kv_heads: int, head_size: int
) -> tuple[int, int, int, int, int]:
    """The shape of one layer's cache."""
    return (num_blocks, 2, block_size, num_kv_heads, head_size)


def split(kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The K and the V view, each `[num_blocks, block_size, H_kv, D]`.

    Raises:
        ValueError: the cache has another layout.
    """
    if kv_cache.dim() != 5 or kv_cache.shape[1] != 2:
        raise ValueError(
            f"kv_cache has shape {tuple(kv_cache.shape)}: must be "
            "[num_blocks, 2, block_size, H_kv, D]"
        )
    k_cache, v_cache = kv_cache.unbind(1)
    return k_cache, v_cache


def read(cache: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """Copies whole blocks of a K or V view.

    Args:
        cache: `[num_blocks, block_size, H_kv, D]`, any strides.
        blocks: `[..., n]` int64, every entry in range.

    Returns:
        `[..., n * block_size, H_kv, D]`, what the blocks hold, slots never written included.
    """
    return cache[blocks].flatten(-4, -3)


def write(
    key: torch.Tensor,
    value: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    """Stores a step's K and V on the CPU; tokens whose slot is negative are skipped.

    Args:
        key, value: `[T, H_kv, D]`; rows past the slot mapping's end are padding.
        kv_cache: one layer's cache.
        slot_mapping: `[at most T]` int64.
        k_scale, v_scale: `[1]` or `[H_kv]`, of a float8 cache: it gets the value over the scale,
            saturated.

    Raises:
        ValueError: there are more slots than keys.
    """
    num_slots = slot_mapping.shape[0]
    if num_slots > key.shape[0]:
        raise ValueError(f"slot_mapping names {num_slots} tokens: key has {key.shape[0]}")
    # As asynct_kernels.reshape_and_cache, which is for the kernels' types alone.
    write = CacheWrite(key, value, *split(kv_cache), slot_mapping, k_scale, v_scale)
    write_cache(write, write.fresh)
