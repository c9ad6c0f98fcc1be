"""Tensors [..., channels] seen as matrices [rows, channels]."""

import torch


def row_stride(x: torch.Tensor) -> int | None:
    """Returns the number of elements between one row of x [..., channels] and the next.

    None if no single number is right for all rows.
    """
    if x.dim() == 2:
        return x.stride(0)
    stride, span = None, None
    for size, step in zip(reversed(x.shape[:-1]), reversed(x.stride()[:-1])):
        if size == 1:
            continue
        if stride is None:
            stride = step
        elif step != span:
            return None
        span = step * size
    return x.shape[-1] if stride is None else stride
