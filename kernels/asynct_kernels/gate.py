"""The gate of AsyncI attention: what the softmax is elsewhere."""

import dataclasses
from collections.abc import Sequence

import torch

from asynct_kernels import checks


@dataclasses.dataclass(frozen=True, eq=False)
class GateParams:
    """Parameters of the AsyncI gate ("AsyncI attention" in the specification).

    For the scores s_j = scale * (q . k_j) of one query:

        r_j = max(s_j, 0) if relu_pre else s_j
        z_j = s_j - sigma * sum_{m < window} weights[m] * r_{j-m}
        p_j = gamma * clamp(alpha * z_j, *clip)

    Attributes:
        sigma, alpha, gamma: a float, or a floating-point tensor [H], one value a query head.
        scale: factor of the dot product; None stands for 1 / head size.
        window: number of keys K in the moving average, the query's key j itself included.
        weights: the K weights of the average, nearest key first; None stands for 1 / K each.
        relu_pre: whether the average runs over max(s, 0) rather than s.
        clip: (low, high) of the clamp.

    Raises:
        TypeError, ValueError: for an argument of the wrong type, shape or range.
    """

    sigma: float | torch.Tensor
    alpha: float | torch.Tensor
    gamma: float | torch.Tensor
    scale: float | None = None
    window: int = 3
    weights: Sequence[float] | None = None
    relu_pre: bool = True
    clip: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        for name, value in self._head_parameters():
            if not isinstance(value, torch.Tensor):
                checks.real(name, value)
                continue
            checks.floating(name, value)
            if value.dim() != 1:
                raise ValueError(f"{name} has shape {list(value.shape)}: must be [heads]")
        if self.scale is not None:
            checks.real("scale", self.scale)
        checks.positive_int("window", self.window)
        if self.weights is not None:
            if len(self.weights) != self.window:
                raise ValueError(f"weights has {len(self.weights)} values: "
                                 f"must have window = {self.window}")
            for m, weight in enumerate(self.weights):
                checks.real(f"weights[{m}]", weight)
        if not isinstance(self.relu_pre, bool):
            raise TypeError(f"relu_pre is {self.relu_pre!r}: must be a bool")
        if not isinstance(self.clip, Sequence) or len(self.clip) != 2:
            raise ValueError(f"clip is {self.clip!r}: must be (low, high)")
        checks.clip("clip[0]", self.clip[0], "clip[1]", self.clip[1])

    @property
    def taps(self) -> tuple[float, ...]:
        """The weights w_0 .. w_{K-1} of the moving average."""
        if self.weights is None:
            return (1.0 / self.window,) * self.window
        return tuple(float(weight) for weight in self.weights)

    def score_scale(self, head_size: int) -> float:
        """The factor of q . k for heads of `head_size` values: `scale`, or 1 / head_size."""
        return 1.0 / head_size if self.scale is None else self.scale

    def check_heads(self, num_heads: int) -> None:
        """Raises ValueError unless every per-head tensor has `num_heads` values."""
        for name, value in self._head_parameters():
            if isinstance(value, torch.Tensor):
                checks.shape(name, value, [(num_heads,)])

    def _head_parameters(self) -> list[tuple[str, float | torch.Tensor]]:
        return [("sigma", self.sigma), ("alpha", self.alpha), ("gamma", self.gamma)]


def apply_gate(scores: torch.Tensor, gate: GateParams, visible: torch.Tensor) -> torch.Tensor:
    """Returns the weights p of the values: the AsyncI gate, in plain differentiable PyTorch.

    Args:
        scores: [..., H, T_q, T_k] of a floating-point dtype, scale * q . k; anything, NaN
            included, where `visible` is False.
        gate: the parameters, per head.
        visible: bool, broadcastable to `scores`: whether the query may see the key. A key that
            it may not see adds nothing to the moving average, and its p is 0.

    Returns:
        p, of the shape and dtype of `scores`.

    Raises:
        TypeError, ValueError: for an argument of the wrong type or shape.
    """
    checks.floating("scores", scores)
    checks.tensor("visible", visible)
    checks.dtype("visible", visible, [torch.bool])
    if scores.dim() < 3:
        raise ValueError(f"scores has shape {list(scores.shape)}: must be [..., heads, T_q, T_k]")
    gate.check_heads(scores.shape[-3])

    scores = torch.where(visible, scores, 0.0)
    rectified = scores.relu() if gate.relu_pre else scores
    first, *others = gate.taps
    average = first * rectified
    for distance, weight in enumerate(others, start=1):
        average[..., distance:].add_(rectified[..., :-distance], alpha=weight)
    high_passed = scores - _per_head(gate.sigma, scores) * average
    clamped = (_per_head(gate.alpha, scores) * high_passed).clamp(*gate.clip)
    return torch.where(visible, _per_head(gate.gamma, scores) * clamped, 0.0)


def _per_head(parameter: float | torch.Tensor, scores: torch.Tensor) -> float | torch.Tensor:
    """`parameter` so that it broadcasts over scores [..., H, T_q, T_k]."""
    if not isinstance(parameter, torch.Tensor):
        return parameter
    return parameter.to(device=scores.device, dtype=scores.dtype)[:, None, None]
