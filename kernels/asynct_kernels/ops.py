"""DyHT and ReGLU as operations for inference, on the CPU and on CUDA.

They are torch.ops.asynct.* and can be compiled and captured; they have no gradients (those of
`asynct_kernels.reference` do). All compute in float32 and round each output once. In all of them

- activations are float32, float16 or bfloat16, with adjacent channels. Leading dimensions may be
  strided, as long as the rows are evenly spaced; outputs are contiguous.
- alpha and gamma are [channels], or [1] for one value, in float32 or in the activations' dtype.
- DyHT(x) = gamma * clamp(alpha * x, clip_min, clip_max), and NaN stays NaN.
- TypeError or ValueError is raised for an argument of the wrong type, shape, stride or device, and
  RuntimeError with CUDA's message if a launch fails.
"""

import torch

from asynct_kernels import checks
from asynct_kernels import library  # noqa: F401  (registers torch.ops.asynct)


def uclip_norm(
    x: torch.Tensor,
    alpha: torch.Tensor,
    gamma: torch.Tensor,
    clip_min: float = -1.0,
    clip_max: float = 1.0,
) -> torch.Tensor:
    """Returns DyHT(x), for x [..., n]."""
    checks.tensors(x=x, alpha=alpha, gamma=gamma)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)
    return torch.ops.asynct.uclip_norm(x, alpha, gamma, clip_min, clip_max)


def fused_add_uclip_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    alpha: torch.Tensor,
    gamma: torch.Tensor,
    clip_min: float = -1.0,
    clip_max: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (DyHT(r), r) with r = x + residual, for x and residual [..., n] of one dtype."""
    checks.tensors(x=x, residual=residual, alpha=alpha, gamma=gamma)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)
    return torch.ops.asynct.fused_add_uclip_norm(x, residual, alpha, gamma, clip_min, clip_max)


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
    """Returns (DyHT_q(q), DyHT_k(k)), over the D channels of each head, in one launch.

    Args:
        q: [T, H, D], with any stride between tokens and between heads.
        k: [T, H_kv, D], likewise; H is a multiple of H_kv.
        q_alpha, q_gamma, k_alpha, k_gamma: [D] or [1].
        clip_min, clip_max: the clamp of both.
    """
    checks.tensors(q=q, k=k, q_alpha=q_alpha, q_gamma=q_gamma, k_alpha=k_alpha, k_gamma=k_gamma)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)
    return torch.ops.asynct.hp1_qk_uclip_norm(
        q, k, q_alpha, q_gamma, k_alpha, k_gamma, clip_min, clip_max)


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
    """Returns (DyHT_mlp(r), r) with r = residual + DyHT_post(x), in one pass.

    Args:
        x: [..., n], what the attention's output projection gave.
        residual: [..., n] of x's dtype.
        post_alpha, post_gamma, mlp_alpha, mlp_gamma: [n] or [1].
        clip_min, clip_max: the clamp of both.
    """
    checks.tensors(x=x, residual=residual, post_alpha=post_alpha, post_gamma=post_gamma,
                   mlp_alpha=mlp_alpha, mlp_gamma=mlp_gamma)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)
    return torch.ops.asynct.hp1_post_attn_pre_mlp_uclip_out(
        x, residual, post_alpha, post_gamma, mlp_alpha, mlp_gamma, clip_min, clip_max)


def relu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """Returns relu(gate) * up [..., n], for gate_up [..., 2 n] with the gate in its first half."""
    checks.tensors(gate_up=gate_up)
    return torch.ops.asynct.relu_and_mul(gate_up)
