"""Calls whose data comes to the device by copies alone, without a kernel of PyTorch's.

Where its kernels cannot run (forced PTX), and where a tool that looks at ours alone would not see
what they write (initcheck).
"""

import dataclasses

import torch


def on_device(given: dict[str, object]) -> dict[str, object]:
    """attend's keywords on the CPU, copied to the device."""
    copies = {k: _copied(v) if isinstance(v, torch.Tensor) else v for k, v in given.items()}
    gate = given["gate"]
    return copies | dict(gate=dataclasses.replace(
        gate, **{name: _copied(getattr(gate, name)) for name in ("sigma", "alpha", "gamma")}))


def _copied(x: torch.Tensor) -> torch.Tensor:
    """x with its strides, by one copy of all the memory it is part of."""
    memory = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).to("cuda")
    return memory.view(x.dtype).as_strided(x.shape, x.stride(), x.storage_offset())
