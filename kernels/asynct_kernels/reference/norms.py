"""DyHT and its fused forms ("DyHT" and "The model" in the specification).

All are differentiable, compute in float32 (in float64 for float64 inputs) and round each output
once, to the dtype of the activations. The fused forms do what one DyHT after the other would, the
rounding of the residual stream between them included.
"""

import torch

from asynct_kernels import checks
from asynct_kernels.reference.precision import compute_dtype


def dyht(
    x: torch.Tensor,
    alpha: torch.Tensor,
    gamma: torch.Tensor,
    clip_min: float = -1.0,
    clip_max: float = 1.0,
) -> torch.Tensor:
    """Returns gamma * clamp(alpha * x, clip_min, clip_max), of x's shape and dtype.

    NaN stays NaN.

    Args:
        x: [..., n], floating point.
        alpha: [n], or [1] for one value for all channels.
        gamma: [n] or [1].
        clip_min: lower bound.
        clip_max: upper bound.

    Raises:
        TypeError, ValueError: for an argument of the wrong type or shape, or clip_min > clip_max.
    """
    checks.floating("x", x)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)
    for name, parameter in (("alpha", alpha), ("gamma", gamma)):
        checks.floating(name, parameter)
        checks.shape(name, parameter, [tuple(x.shape[-1:]), (1,)])
    compute = compute_dtype(x.dtype)
    clamped = (alpha.to(compute) * x.to(compute)).clamp(clip_min, clip_max)
    return (gamma.to(compute) * clamped).to(x.dtype)


def uclip_norm(
    x: torch.Tensor,
    alpha: torch.Tensor,
    gamma: torch.Tensor,
    clip_min: float = -1.0,
    clip_max: float = 1.0,
) -> torch.Tensor:
    """DyHT under the name of its kernel."""
    return dyht(x, alpha, gamma, clip_min, clip_max)


def fused_add_uclip_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    alpha: torch.Tensor,
    gamma: torch.Tensor,
    clip_min: float = -1.0,
    clip_max: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (DyHT(r), r), where r = x + residual; all are [..., n] of one dtype."""
    # The bits of x + residual. That, behind a product, torch.compile would leave to the product's
    # kernel, which wants a copy of the residual to add to.
    compute = compute_dtype(x.dtype)
    new_residual = (x.to(compute) + residual.to(compute)).to(x.dtype)
    return dyht(new_residual, alpha, gamma, clip_min, clip_max), new_residual


def qk_uclip_norm(
    q: torch.Tensor,
    k: torch.Tensor,
    q_alpha: torch.Tensor,
    q_gamma: torch.Tensor,
    k_alpha: torch.Tensor,
    k_gamma: torch.Tensor,
    clip_min: float = -1.0,
    clip_max: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (DyHT_q(q), DyHT_k(k)), over D of q [T, H, D] and k [T, H_kv, D]; contiguous."""
    return (dyht(q, q_alpha, q_gamma, clip_min, clip_max).contiguous(),
            dyht(k, k_alpha, k_gamma, clip_min, clip_max).contiguous())


def post_attn_pre_mlp_uclip_out(
    x: torch.Tensor,
    residual: torch.Tensor,
    post_alpha: torch.Tensor,
    post_gamma: torch.Tensor,
    mlp_alpha: torch.Tensor,
    mlp_gamma: torch.Tensor,
    clip_min: float = -1.0,
    clip_max: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (DyHT_mlp(r), r), where r = residual + DyHT_post(x); all are [..., n].

    x may be more precise than the residual, whose dtype the outputs have.
    """
    compute = compute_dtype(x.dtype)
    post = dyht(x.to(compute), post_alpha, post_gamma, clip_min, clip_max)
    new_residual = (residual.to(compute) + post).to(residual.dtype)
    return dyht(new_residual, mlp_alpha, mlp_gamma, clip_min, clip_max), new_residual
