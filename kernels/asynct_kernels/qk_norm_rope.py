"""What a layer does to its queries and keys before attention: DyHT, then RoPE."""

import dataclasses

import torch

from asynct_kernels import checks


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class QkNormRope:
    """Parameters of q' = rope(DyHT_q(q), position), and of k' likewise.

    RoPE turns the channels d and d + D / 2 by the same angle: with c and s of the token's position,

        y'_d = y_d c_d - y_{d + D/2} s_d        y'_{d + D/2} = y_{d + D/2} c_d + y_d s_d

    Everything is computed in float32 and rounded once, at the end. (A DyHT and a RoPE that are two
    operations round twice or more.)

    Attributes:
        q_alpha, q_gamma, k_alpha, k_gamma: float32 [D] or [1], of DyHT_q and DyHT_k.
        clip: (low, high) of both DyHTs.
        cos_sin: [max_position, D]: the cosines of a position's D / 2 angles, then their sines;
            float32, or of the queries' dtype.

    Raises:
        TypeError, ValueError: for an argument of the wrong type, shape, stride, range or device.
    """

    q_alpha: torch.Tensor
    q_gamma: torch.Tensor
    k_alpha: torch.Tensor
    k_gamma: torch.Tensor
    clip: tuple[float, float]
    cos_sin: torch.Tensor

    def __post_init__(self) -> None:
        checks.floating("cos_sin", self.cos_sin)
        if self.cos_sin.dim() != 2 or not self.cos_sin.is_contiguous():
            raise ValueError(
                f"cos_sin has shape {list(self.cos_sin.shape)} and strides "
                f"{list(self.cos_sin.stride())}: must be [max_position, D], contiguous")
        checks.even_channels("cos_sin", self.cos_sin)
        for name in ("q_alpha", "q_gamma", "k_alpha", "k_gamma"):
            parameter = getattr(self, name)
            checks.tensor(name, parameter)
            checks.dtype(name, parameter, (torch.float32,))
            checks.channel_parameter(name, parameter, "cos_sin", self.cos_sin)
        if not isinstance(self.clip, tuple) or len(self.clip) != 2:
            raise TypeError(f"clip is {self.clip!r}: must be a tuple (low, high)")
        checks.clip("clip[0]", self.clip[0], "clip[1]", self.clip[1])

    def tensors(self) -> dict[str, torch.Tensor]:
        """All tensors, by name."""
        return dict(zip(("q_alpha", "q_gamma", "k_alpha", "k_gamma"), self.parameters),
                    cos_sin=self.cos_sin)

    @property
    def parameters(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.q_alpha, self.q_gamma, self.k_alpha, self.k_gamma

    def check_suits(self, query: torch.Tensor) -> None:
        """Raises unless these are parameters for `query` [T, H, D]."""
        checks.same_device("cos_sin", self.cos_sin, "query", query)
        checks.dtype("cos_sin", self.cos_sin, (torch.float32, query.dtype))
        checks.shape("cos_sin", self.cos_sin, [(self.cos_sin.shape[0], query.shape[-1])])
