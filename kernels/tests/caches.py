"""Paged caches full of guards, and what they must hold of the rows that are written to them."""

import torch

FLOAT8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FLOAT8).max
GUARD = 0xA5  # of bytes that nothing may write


def bits(x: torch.Tensor) -> torch.Tensor:
    """x's stored bits, to be compared and filled."""
    return x.view(torch.uint8 if x.element_size() == 1 else torch.int16)


def guarded_caches(shape, dtype, device, spare=0):
    """K and V as views of [blocks, 2, ...], `spare` elements wider than their heads."""
    blocks, slots, heads, size = shape
    whole = torch.empty(blocks, 2, slots, heads, size + spare, dtype=dtype, device=device)
    whole.view(torch.uint8).fill_(GUARD)
    return whole, whole[:, 0, :, :, :size], whole[:, 1, :, :, :size]


def stored(rows, scale):
    """What the cache must hold of rows [tokens, heads, size]."""
    if scale is None:
        return rows
    return (rows.float() / scale.float()[:, None]).clamp(-LARGEST, LARGEST).to(FLOAT8)
