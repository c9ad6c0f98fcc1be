"""DyHT with RoPE behind it (asynct_kernels.QkNormRope has the formulas)."""

import torch

from asynct_kernels.qk_norm_rope import QkNormRope
from asynct_kernels.reference.norms import dyht
from asynct_kernels.reference.precision import compute_dtype


def qk_norm_rope(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, norm_rope: QkNormRope
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (q', k') for q [T, H, D], k [T, H_kv, D] and positions [T]; contiguous.

    Computes in float32 (in float64 for float64 inputs), one rounded operation a step, and rounds
    the result once.
    """
    compute = compute_dtype(q.dtype)
    cos, sin = norm_rope.cos_sin[positions].to(compute).unsqueeze(1).chunk(2, dim=-1)

    def turned(x, alpha, gamma):
        y = dyht(x.to(compute), alpha, gamma, *norm_rope.clip)
        first, second = y.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)

    return (turned(q, norm_rope.q_alpha, norm_rope.q_gamma),
            turned(k, norm_rope.k_alpha, norm_rope.k_gamma))
