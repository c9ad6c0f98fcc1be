"""Kernels of AsyncT: AsyncI attention, DyHT and ReGLU."""

from asynct_kernels.gate import GateParams, apply_gate
from asynct_kernels.reference.norms import dyht

__all__ = ["GateParams", "apply_gate", "dyht"]
