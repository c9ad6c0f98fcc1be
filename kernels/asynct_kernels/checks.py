"""Argument checks shared by everything in this package.

Each raises TypeError or ValueError, with a message that names the argument, what it is, and what
is allowed, before anything is computed or launched.
"""

import math
import numbers
from collections.abc import Sequence

import torch

from asynct_kernels import layout

# Of what the kernels read and write.
ACTIVATION_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def real(name: str, value: object) -> None:
    """Raises unless `value` is a finite real number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}): must be a real number")
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value}: must be finite")


def positive_int(name: str, value: object) -> None:
    """Raises unless `value` is an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r} ({type(value).__name__}): must be an int")
    if value < 1:
        raise ValueError(f"{name} is {value}: must be at least 1")


def clip(low_name: str, low: object, high_name: str, high: object) -> None:
    """Raises unless `low <= high`; infinities are allowed, NaN is not."""
    for name, value in ((low_name, low), (high_name, high)):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is {value!r} ({type(value).__name__}): must be a real number")
    if not low <= high:
        raise ValueError(f"{low_name} is {low} and {high_name} is {high}: "
                         f"{low_name} <= {high_name} must hold")


def tensor(name: str, value: object) -> None:
    """Raises unless `value` is a torch.Tensor."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}: must be a torch.Tensor")


def tensors(**values: object) -> None:
    """Raises unless every value is a torch.Tensor."""
    for name, value in values.items():
        tensor(name, value)


def dtype(name: str, value: torch.Tensor, allowed: Sequence[torch.dtype]) -> None:
    """Raises unless `value.dtype` is one of `allowed`."""
    if value.dtype not in allowed:
        names = ", ".join(str(a) for a in dict.fromkeys(allowed))
        raise TypeError(f"{name} has dtype {value.dtype}: must be one of {names}")


def floating(name: str, value: object) -> None:
    """Raises unless `value` is a tensor of a floating-point dtype."""
    tensor(name, value)
    if not value.dtype.is_floating_point:
        raise TypeError(f"{name} has dtype {value.dtype}: must be a floating-point dtype")


def shape(name: str, value: torch.Tensor, allowed: Sequence[tuple[int, ...]]) -> None:
    """Raises unless the shape of `value` is one of `allowed`."""
    if tuple(value.shape) not in allowed:
        choices = " or ".join(str(list(a)) for a in dict.fromkeys(allowed))
        raise ValueError(f"{name} has shape {list(value.shape)}: must be {choices}")


def grouped_heads(num_heads: int, num_kv_heads: int) -> None:
    """Raises unless the query heads fall into equal groups, one for each key-value head."""
    if num_kv_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"query has {num_heads} heads and key has {num_kv_heads}: "
                         "the query's must be a multiple of the key's")


def activations(name: str, value: torch.Tensor) -> None:
    """Raises unless `value` is [..., channels] as the kernels read it: of one of
    ACTIVATION_DTYPES, with adjacent channels."""
    dtype(name, value, ACTIVATION_DTYPES)
    if value.dim() < 1:
        raise ValueError(f"{name} has shape []: must be [..., channels]")
    if value.shape[-1] > 1 and value.stride(-1) != 1:
        raise ValueError(f"{name} has strides {list(value.stride())}: the last must be 1")


def rows(name: str, value: torch.Tensor) -> None:
    """Raises unless `value` is as `activations` wants it, with evenly spaced rows."""
    activations(name, value)
    if layout.row_stride(value) is None:
        raise ValueError(f"{name} has shape {list(value.shape)} and strides "
                         f"{list(value.stride())}: its rows must be evenly spaced")


def same_device(name: str, value: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """Raises unless the two tensors are on one device."""
    if value.device != other.device:
        raise ValueError(f"{name} is on {value.device} and {other_name} on {other.device}: "
                         "must be the same")


def same_kind(name: str, value: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """Raises unless the two tensors have one dtype and device."""
    same_device(name, value, other_name, other)
    if value.dtype != other.dtype:
        raise TypeError(f"{name} has dtype {value.dtype} and {other_name} has dtype "
                        f"{other.dtype}: must be the same")


def channel_parameter(name: str, value: torch.Tensor, x_name: str, x: torch.Tensor) -> None:
    """Raises unless `value` is contiguous, [channels of x] or [1], float32 or of x's dtype."""
    same_device(name, value, x_name, x)
    dtype(name, value, (torch.float32, x.dtype))
    shape(name, value, [tuple(x.shape[-1:]), (1,)])
    if value.shape[0] > 1 and value.stride(0) != 1:
        raise ValueError(f"{name} has strides {list(value.stride())}: must be contiguous")


def even_channels(name: str, value: torch.Tensor) -> None:
    """Raises unless `value` is [..., 2 n]."""
    if value.dim() < 1 or value.shape[-1] % 2:
        raise ValueError(f"{name} has shape {list(value.shape)}: its last size must be even")


def contiguous_matrix(name: str, value: torch.Tensor) -> None:
    """Raises unless `value` is [rows, columns], contiguous, from a multiple of 16 bytes on."""
    if value.dim() != 2:
        raise ValueError(f"{name} has shape {list(value.shape)}: must be [rows, columns]")
    if not value.is_contiguous() or value.storage_offset() * value.element_size() % 16:
        raise ValueError(f"{name} has strides {list(value.stride())} and storage offset "
                         f"{value.storage_offset()}: must be contiguous, from 16 bytes' multiple on")


def multiple(name: str, value: int, divisor: int) -> None:
    """Raises unless `value` is a multiple of `divisor`, and not 0."""
    if value < 1 or value % divisor:
        raise ValueError(f"{name} are {value}: must be a multiple of {divisor}")
