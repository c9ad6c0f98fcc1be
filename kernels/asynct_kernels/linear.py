"""Projections with what follows them, as operations for inference, on the CPU and on CUDA.

They are torch.ops.asynct.* and can be compiled and captured; they have no gradients. On CUDA each
is one kernel or two, by the number of tokens T (gemm.py); sums are in float32, outputs contiguous.
TypeError or ValueError is raised for an argument of the wrong type, shape, layout or device, and
RuntimeError with the library's message if a launch fails.
"""

import torch

from asynct_kernels import checks
from asynct_kernels import library  # noqa: F401  (registers torch.ops.asynct)


def linear_relu_and_mul(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Returns relu(x gate^T) * (x up^T) [T, n]: a projection and ReGLU.

    Args:
        x: [T, k], float16 or bfloat16, contiguous; k a multiple of 8.
        weight: [2 n, k] of x's dtype, gate in its first half, contiguous; n a multiple of 8.
    """
    checks.tensors(x=x, weight=weight)
    return torch.ops.asynct.linear_relu_and_mul(x, weight)


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
    """Returns (DyHT_mlp(r), r) [T, n] with r = residual + DyHT_post(x weight^T).

    Args:
        x: [T, k], float16 or bfloat16, contiguous; k a multiple of 8.
        weight: [n, k] of x's dtype, contiguous; n a multiple of 8.
        residual: [T, n] of x's dtype, contiguous.
        post_alpha, post_gamma, mlp_alpha, mlp_gamma: [n] or [1], float32.
        clip_min, clip_max: the clamp of both.
    """
    checks.tensors(x=x, weight=weight, residual=residual, post_alpha=post_alpha,
                   post_gamma=post_gamma, mlp_alpha=mlp_alpha, mlp_gamma=mlp_gamma)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)
    return torch.ops.asynct.linear_add_uclip(
        x, weight, residual, post_alpha, post_gamma, mlp_alpha, mlp_gamma, clip_min, clip_max)
