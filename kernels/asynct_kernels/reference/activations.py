"""ReGLU."""

import torch

from asynct_kernels import checks
from asynct_kernels.reference.precision import compute_dtype


def relu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Returns relu(gate) * up, for gate_up [..., 2 I] with the gate in its first half: [..., I].

    Differentiable; computed in float32 (float64 for float64), rounded once.

    Raises:
        TypeError, ValueError: unless `gate_up` is a floating-point tensor with an even last size.
    """
    checks.floating("gate_up", gate_up)
    checks.even_channels("gate_up", gate_up)
    gate, up = gate_up.to(compute_dtype(gate_up.dtype)).chunk(2, dim=-1)
    return (gate.relu() * up).to(gate_up.dtype)
