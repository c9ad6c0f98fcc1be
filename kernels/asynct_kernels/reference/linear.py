"""Projections with what follows them ("The model" in the specification).

Differentiable, computed in float32 (float64 for float64); outputs are rounded once, products not.
"""

import torch

from asynct_kernels.reference.activations import relu_and_mul
from asynct_kernels.reference.norms import post_attn_pre_mlp_uclip_out
from asynct_kernels.reference.precision import compute_dtype


def linear_relu_and_mul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Returns relu(x gate^T) * (x up^T) [T, n] for x [T, k], weight [2 n, k], the gate first."""
    return relu_and_mul(_product(x, weight)).to(x.dtype)


def linear_add_uclip(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor,
    post_alpha: torch.Tensor,
    post_gamma: torch.Tensor,
    mlp_alpha: torch.Tensor,
    mlp_gamma: torch.Tensor,
    clip_min: float = -1.0,
    clip_max: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (DyHT_mlp(r), r) [T, n], r = residual [T, n] + DyHT_post(x [T, k] weight [n, k]^T)."""
    return post_attn_pre_mlp_uclip_out(
        _product(x, weight), residual, post_alpha, post_gamma, mlp_alpha, mlp_gamma, clip_min,
        clip_max)


def _product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    compute = compute_dtype(x.dtype)
    return x.to(compute) @ weight.to(compute).T
