"""Calls whose data comes to the device by copies alone, without a kernel of PyTorch's.

Where its kernels cannot run (forced PTX), and where a tool that looks at ours alone would not see
what they write (initcheck).
"""

import dataclasses

import torch


def on_device(given: dict[str, object]) -> dict[str, object]:
    """attend's keywords on the CPU, copied to the device."""
    return {name: _on_device(value) for name, value in given.items()}


def _on_device(x: object) -> object:
    if isinstance(x, torch.Tensor):
        return _copied(x)
    if dataclasses.is_dataclass(x):
        return type(x)(**{f.name: _on_device(getattr(x, f.name)) for f in dataclasses.fields(x)})
    return x


def _copied(x: torch.Tensor) -> torch.Tensor:
    """x with its strides, by one copy of all the memory it is part of."""
    memory = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).to("cuda")
    return memory.view(x.dtype).as_strided(x.shape, x.stride(), x.storage_offset())
