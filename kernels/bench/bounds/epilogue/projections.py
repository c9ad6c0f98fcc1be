"""The three projections of a layer, each with what follows it, on the shapes of the 1.7B model.

"folded": with the scales that can be folded into weights taken as ones, scalars of which the fused
kernel loads none. For q and k that leaves the clamp, for o_proj gamma of DyHT_post and alpha of
DyHT_mlp.
"""

import dataclasses
import functools
from collections.abc import Callable

import torch

import asynct_kernels
from asynct_kernels import reference
from epilogues import Epilogues

HIDDEN, INTERMEDIATE = 2048, 6144
HEADS, KV_HEADS, HEAD_SIZE = 16, 8, 128

Outputs = tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Projection:
    """A projection and what follows it; all functions take the arguments that `make` returns.

    Attributes:
        name: the projection's.
        width: columns of the product.
        make: arguments for a number of tokens: x, weight, and whatever else.
        follow: what follows, as two kernels would do it: (operations, product, *arguments) ->
            outputs, with `operations` either asynct_kernels or asynct_kernels.reference.
        fused: (library, tile, *arguments) -> outputs, by one GEMM with an epilogue.
    """

    name: str
    width: int
    make: Callable[[int], Outputs]
    follow: Callable[..., Outputs]
    fused: Callable[..., Outputs]

    def formula(self, *args: torch.Tensor) -> Outputs:
        return self.follow(reference, product(*args), *args)

    def two_kernels(self, *args: torch.Tensor) -> Outputs:
        return self.follow(asynct_kernels, product(*args), *args)


def product(x: torch.Tensor, weight: torch.Tensor, *_) -> torch.Tensor:
    return x @ weight.T


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def _weight(rows: int) -> torch.Tensor:
    return _random(rows, HIDDEN) * HIDDEN**-0.5


def _one() -> torch.Tensor:
    return torch.ones(1, device="cuda", dtype=torch.bfloat16)


def _o_proj_arguments(folded: bool, tokens: int) -> Outputs:
    """x, weight, residual, alpha and gamma of DyHT_post and of DyHT_mlp."""
    post_alpha, post_gamma, mlp_alpha, mlp_gamma = _random(4, HIDDEN)
    if folded:
        post_alpha = mlp_gamma = _one()
    return (_random(tokens, HIDDEN), _weight(HIDDEN), _random(tokens, HIDDEN), post_alpha,
            post_gamma, mlp_alpha, mlp_gamma)


def _o_proj_follow(operations, y, x, weight, residual, *vectors) -> Outputs:
    return operations.post_attn_pre_mlp_uclip_out(y, residual, *vectors)


def _o_proj_fused(library: Epilogues, tile: int, x, weight, residual, *vectors) -> Outputs:
    return library.o_proj(tile, x, weight, residual,
                          *(None if v.numel() == 1 else v for v in vectors))


def _gate_up_arguments(tokens: int) -> Outputs:
    """x, the weight (gate, then up), and the same with their rows interleaved."""
    weight = _weight(2 * INTERMEDIATE)
    interleaved = weight.unflatten(0, (2, INTERMEDIATE)).transpose(0, 1).flatten(0, 1).contiguous()
    return _random(tokens, HIDDEN), weight, interleaved


def _gate_up_follow(operations, y, *_) -> Outputs:
    return (operations.relu_and_mul(y),)


def _gate_up_fused(library: Epilogues, tile: int, x, weight, interleaved) -> Outputs:
    return (library.gate_up(tile, x, interleaved),)


def _qkv_arguments(folded: bool, tokens: int) -> Outputs:
    """x, weight, alpha and gamma [1] of q and of k, and limit, alpha, gamma of all columns; the
    last two are missing if folded, else the alphas are [D]."""
    inputs = (_random(tokens, HIDDEN), _weight((HEADS + 2 * KV_HEADS) * HEAD_SIZE))
    clamped, passed = (heads * HEAD_SIZE for heads in (HEADS + KV_HEADS, KV_HEADS))
    limit = torch.cat([_one().repeat(clamped), (_one() / 0).repeat(passed)])
    if folded:
        return *inputs, *(_one() for _ in range(4)), limit
    (q_alpha, k_alpha), (q_gamma, k_gamma) = _random(2, HEAD_SIZE), _random(2, 1)
    alpha = torch.cat([q_alpha.repeat(HEADS), k_alpha.repeat(KV_HEADS), _one().repeat(passed)])
    gamma = torch.cat([q_gamma.repeat(HEADS * HEAD_SIZE), k_gamma.repeat(KV_HEADS * HEAD_SIZE),
                       _one().repeat(passed)])
    return *inputs, q_alpha, q_gamma, k_alpha, k_gamma, limit, alpha, gamma


def _split_heads(y: torch.Tensor) -> Outputs:
    return y.unflatten(-1, (-1, HEAD_SIZE)).split([HEADS, KV_HEADS, KV_HEADS], dim=1)


def _qkv_follow(operations, y, x, weight, q_alpha, q_gamma, k_alpha, k_gamma, *_) -> Outputs:
    q, k, v = _split_heads(y)
    return (*operations.qk_uclip_norm(q, k, q_alpha, q_gamma, k_alpha, k_gamma), v)


def _qkv_fused(library: Epilogues, tile: int, x, weight, q_alpha, q_gamma, k_alpha, k_gamma,
               limit, alpha=None, gamma=None) -> Outputs:
    return _split_heads(library.qkv(tile, x, weight, alpha, gamma, limit))


PROJECTIONS = tuple(
    Projection(name + (" folded" if folded else ""), width, functools.partial(make, folded),
               follow, fused)
    for name, width, make, follow, fused in (
        ("qkv", (HEADS + 2 * KV_HEADS) * HEAD_SIZE, _qkv_arguments, _qkv_follow, _qkv_fused),
        ("o_proj", HIDDEN, _o_proj_arguments, _o_proj_follow, _o_proj_fused))
    for folded in (False, True)
) + (
    Projection("gate_up", 2 * INTERMEDIATE, _gate_up_arguments, _gate_up_follow, _gate_up_fused),
)
