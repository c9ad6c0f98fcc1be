"""Registration with torch.library: torch.ops.asynct, with fake, CPU and CUDA implementations.

All three check their arguments alike (checks.py); the fake one then only allocates the outputs, the
CUDA one also launches the kernel (cuda.py), and the CPU one computes the reference.
"""

from collections.abc import Callable

import torch

from asynct_kernels import checks, cuda, gemm, reference

LIBRARY = torch.library.Library("asynct", "DEF")


def _register(
    schema: str, check: Callable, allocate: Callable, launch: Callable, compute: Callable
) -> None:
    """Registers an operation.

    Args:
        schema: its name, arguments and results.
        check: raises if it does not like the arguments.
        allocate: returns the outputs, a tensor or a tuple, for the arguments.
        launch: enqueues the CUDA kernel, given the outputs and the arguments.
        compute: returns the outputs on the CPU.
    """

    def fake(*args):
        check(*args)
        return allocate(*args)

    def on_cuda(*args):
        outputs = fake(*args)
        launch(outputs, *args)
        return outputs

    def on_cpu(*args):
        check(*args)
        return compute(*args)

    LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    name = schema.partition("(")[0]
    LIBRARY.impl(name, on_cuda, "CUDA")
    LIBRARY.impl(name, on_cpu, "CPU")
    torch.library.register_fake(f"asynct::{name}", fake, lib=LIBRARY)


def _empty_like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _check_uclip_norm(x, alpha, gamma, clip_min, clip_max):
    checks.rows("x", x)
    checks.channel_parameter("alpha", alpha, "x", x)
    checks.channel_parameter("gamma", gamma, "x", x)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)


def _check_residual(x, residual):
    checks.rows("x", x)
    checks.same_kind("residual", residual, "x", x)
    checks.shape("residual", residual, [tuple(x.shape)])
    checks.rows("residual", residual)


def _check_fused_add_uclip_norm(x, residual, alpha, gamma, clip_min, clip_max):
    _check_residual(x, residual)
    _check_uclip_norm(x, alpha, gamma, clip_min, clip_max)


def _check_qk_uclip_norm(q, k, q_alpha, q_gamma, k_alpha, k_gamma, clip_min, clip_max):
    for name, heads in (("q", q), ("k", k)):
        if heads.dim() != 3:
            raise ValueError(f"{name} has shape {list(heads.shape)}: must be [T, heads, D]")
        checks.activations(name, heads)
    checks.same_kind("k", k, "q", q)
    checks.shape("k", k, [(q.shape[0], k.shape[1], q.shape[2])])
    checks.grouped_heads(q.shape[1], k.shape[1])
    for name, parameter in (("q_alpha", q_alpha), ("q_gamma", q_gamma),
                            ("k_alpha", k_alpha), ("k_gamma", k_gamma)):
        checks.channel_parameter(name, parameter, "q", q)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)


def _check_post_attn_pre_mlp(
    x, residual, post_alpha, post_gamma, mlp_alpha, mlp_gamma, clip_min, clip_max
):
    _check_residual(x, residual)
    for name, parameter in (("post_alpha", post_alpha), ("post_gamma", post_gamma),
                            ("mlp_alpha", mlp_alpha), ("mlp_gamma", mlp_gamma)):
        checks.channel_parameter(name, parameter, "x", x)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)


def _check_relu_and_mul(gate_up):
    checks.rows("gate_up", gate_up)
    checks.even_channels("gate_up", gate_up)


def _check_product(x, weight, multiple):
    """x [T, k] times weight [n, k]: both contiguous, rows of 16 bytes' multiples, as the copy
    engine and the vectorised epilogues want them."""
    for name, matrix in (("x", x), ("weight", weight)):
        checks.dtype(name, matrix, (torch.float16, torch.bfloat16))
        checks.contiguous_matrix(name, matrix)
    checks.same_kind("weight", weight, "x", x)
    checks.shape("weight", weight, [(weight.shape[0], x.shape[1])])
    checks.multiple("columns of x", x.shape[1], 8)
    checks.multiple("rows of weight", weight.shape[0], multiple)


def _check_linear_relu_and_mul(x, weight):
    _check_product(x, weight, 16)


def _check_linear_add_uclip(
    x, weight, residual, post_alpha, post_gamma, mlp_alpha, mlp_gamma, clip_min, clip_max
):
    _check_product(x, weight, 8)
    checks.same_kind("residual", residual, "x", x)
    checks.shape("residual", residual, [(x.shape[0], weight.shape[0])])
    checks.contiguous_matrix("residual", residual)
    for name, parameter in (("post_alpha", post_alpha), ("post_gamma", post_gamma),
                            ("mlp_alpha", mlp_alpha), ("mlp_gamma", mlp_gamma)):
        checks.dtype(name, parameter, (torch.float32,))
        checks.channel_parameter(name, parameter, "residual", residual)
    checks.clip("clip_min", clip_min, "clip_max", clip_max)


_register(
    "uclip_norm(Tensor x, Tensor alpha, Tensor gamma, float clip_min, float clip_max) -> Tensor",
    check=_check_uclip_norm,
    allocate=lambda x, *_: _empty_like(x),
    launch=cuda.uclip_norm,
    compute=reference.uclip_norm,
)
_register(
    "fused_add_uclip_norm(Tensor x, Tensor residual, Tensor alpha, Tensor gamma, float clip_min, "
    "float clip_max) -> (Tensor, Tensor)",
    check=_check_fused_add_uclip_norm,
    allocate=lambda x, *_: (_empty_like(x), _empty_like(x)),
    launch=cuda.fused_add_uclip_norm,
    compute=reference.fused_add_uclip_norm,
)
_register(
    "hp1_qk_uclip_norm(Tensor q, Tensor k, Tensor q_alpha, Tensor q_gamma, Tensor k_alpha, "
    "Tensor k_gamma, float clip_min, float clip_max) -> (Tensor, Tensor)",
    check=_check_qk_uclip_norm,
    allocate=lambda q, k, *_: (_empty_like(q), _empty_like(k)),
    launch=cuda.qk_uclip_norm,
    compute=reference.qk_uclip_norm,
)
_register(
    "hp1_post_attn_pre_mlp_uclip_out(Tensor x, Tensor residual, Tensor post_alpha, "
    "Tensor post_gamma, Tensor mlp_alpha, Tensor mlp_gamma, float clip_min, float clip_max) "
    "-> (Tensor, Tensor)",
    check=_check_post_attn_pre_mlp,
    allocate=lambda x, *_: (_empty_like(x), _empty_like(x)),
    launch=cuda.post_attn_pre_mlp_uclip_out,
    compute=reference.post_attn_pre_mlp_uclip_out,
)
_register(
    "relu_and_mul(Tensor gate_up) -> Tensor",
    check=_check_relu_and_mul,
    allocate=lambda gate_up: gate_up.new_empty((*gate_up.shape[:-1], gate_up.shape[-1] // 2)),
    launch=cuda.relu_and_mul,
    compute=reference.relu_and_mul,
)
_register(
    "linear_relu_and_mul(Tensor x, Tensor weight) -> Tensor",
    check=_check_linear_relu_and_mul,
    allocate=lambda x, weight: x.new_empty((x.shape[0], weight.shape[0] // 2)),
    launch=gemm.linear_relu_and_mul,
    compute=reference.linear_relu_and_mul,
)
_register(
    "linear_add_uclip(Tensor x, Tensor weight, Tensor residual, Tensor post_alpha, "
    "Tensor post_gamma, Tensor mlp_alpha, Tensor mlp_gamma, float clip_min, float clip_max) "
    "-> (Tensor, Tensor)",
    check=_check_linear_add_uclip,
    allocate=lambda x, weight, residual, *_: (_empty_like(residual), _empty_like(residual)),
    launch=gemm.linear_add_uclip,
    compute=reference.linear_add_uclip,
)
