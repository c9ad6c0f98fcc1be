"""What the tests know of each operation: inputs, its formula in float64, and in eager PyTorch."""

import dataclasses
import math
from collections.abc import Callable

import torch

import asynct_kernels

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
DEVICES = ["cpu", "cuda"]
CLIPS = [(-1.0, 1.0), (0.25, 2.0), (-0.5, -0.25), (0.5, 0.5), (-math.inf, math.inf)]


def dyht(x, alpha, gamma, low, high):
    """The formula, in whatever precision the arguments have."""
    return gamma * torch.minimum(torch.maximum(alpha * x, x.new_tensor(low)), x.new_tensor(high))


def _uclip_norm(x, alpha, gamma, low, high):
    return (dyht(x, alpha, gamma, low, high),)


def _fused_add(x, residual, alpha, gamma, low, high):
    new_residual = x + residual
    return dyht(new_residual, alpha, gamma, low, high), new_residual


def _qk(q, k, q_alpha, q_gamma, k_alpha, k_gamma, low, high):
    return dyht(q, q_alpha, q_gamma, low, high), dyht(k, k_alpha, k_gamma, low, high)


def _post_attn_pre_mlp(x, residual, post_alpha, post_gamma, mlp_alpha, mlp_gamma, low, high):
    new_residual = residual + dyht(x, post_alpha, post_gamma, low, high)
    return dyht(new_residual, mlp_alpha, mlp_gamma, low, high), new_residual


def _relu_and_mul(gate_up):
    gate, up = gate_up.chunk(2, dim=-1)
    return (torch.maximum(gate, gate.new_zeros(())) * up,)


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation: `function` is the public one, `formula` returns its outputs as a tuple.

    `activations` gives the shapes of its activations for (T, n); `parameters` counts the DyHT
    parameters that follow them; `kernel` is the name of its CUDA kernel.
    """

    name: str
    kernel: str
    function: Callable
    formula: Callable
    activations: Callable[[int, int], list[tuple[int, ...]]]
    parameters: int

    @property
    def has_clip(self) -> bool:
        return self.parameters > 0

    def run(self, *args) -> tuple[torch.Tensor, ...]:
        outputs = self.function(*args)
        return outputs if isinstance(outputs, tuple) else (outputs,)


OPERATIONS = [
    Operation("uclip_norm", "UclipNormKernel", asynct_kernels.uclip_norm, _uclip_norm,
              lambda tokens, n: [(tokens, n)], 2),
    Operation("fused_add_uclip_norm", "FusedAddUclipNormKernel",
              asynct_kernels.fused_add_uclip_norm, _fused_add,
              lambda tokens, n: [(tokens, n)] * 2, 2),
    Operation("hp1_qk_uclip_norm", "QkUclipNormKernel", asynct_kernels.qk_uclip_norm, _qk,
              lambda tokens, n: [(tokens, 6, n), (tokens, 2, n)], 4),
    Operation("hp1_post_attn_pre_mlp_uclip_out", "PostAttnPreMlpUclipOutKernel",
              asynct_kernels.post_attn_pre_mlp_uclip_out, _post_attn_pre_mlp,
              lambda tokens, n: [(tokens, n)] * 2, 4),
    Operation("relu_and_mul", "ReluAndMulKernel", asynct_kernels.relu_and_mul, _relu_and_mul,
              lambda tokens, n: [(tokens, 2 * n)], 0),
]


def contiguous(x: torch.Tensor) -> torch.Tensor:
    return x


def narrowed(x: torch.Tensor) -> torch.Tensor:
    """x as a view of rows that are twice as wide, 16-byte aligned where x's are; NaN beside it."""
    wide = torch.full((*x.shape[:-1], 2 * x.shape[-1]), math.nan, dtype=x.dtype, device=x.device)
    view = wide[..., x.shape[-1]:]
    return view.copy_(x)


def unaligned(x: torch.Tensor) -> torch.Tensor:
    """x as a view whose rows begin at no multiple of 16 bytes; NaN beside it."""
    wide = torch.full((*x.shape[:-1], x.shape[-1] + 3), math.nan, dtype=x.dtype, device=x.device)
    view = wide[..., 1:-2]
    return view.copy_(x)


LAYOUTS = [contiguous, narrowed, unaligned]


def make_inputs(operation, tokens, n, dtype, device, *, layout=contiguous, clip=CLIPS[0],
                parameter_dtype=torch.float32, parameter_sizes=("n",), unaligned_parameters=False):
    """Random arguments for `operation`. Sizes "n" and "1" are dealt to the parameters in turn."""
    args = [layout(torch.randn(shape, device=device).mul(1.5).to(dtype))
            for shape in operation.activations(tokens, n)]
    for i in range(operation.parameters):
        size = n if parameter_sizes[i % len(parameter_sizes)] == "n" else 1
        parameter = torch.randn(size, device=device).to(parameter_dtype)
        args.append(unaligned(parameter) if unaligned_parameters else parameter)
    return args + list(clip) * operation.has_clip


def converted(args, convert):
    """`args` with every tensor replaced by convert(tensor)."""
    return [convert(a) if isinstance(a, torch.Tensor) else a for a in args]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether a and b are equal, NaN for NaN (zeros may differ in sign)."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


def assert_accurate(operation, args, outputs) -> None:
    """Asserts that `outputs` are finite and their errors at most twice those of eager PyTorch.

    Both are measured against the formula in float64. Eager PyTorch computes it in the dtype of the
    activations, one rounding a step. Of few elements the worst may be lucky: there one unit in the
    last place is allowed besides.
    """
    exact = operation.formula(*converted(args, lambda t: t.double().cpu()))
    dtype = args[0].dtype
    eager = operation.formula(*converted(args, lambda t: t.to(dtype)))
    assert len(outputs) == len(exact)
    for output, plain, truth in zip(outputs, eager, exact):
        assert output.dtype == dtype and output.shape == truth.shape and output.is_contiguous()
        assert output.isfinite().all()
        if not truth.numel():
            continue
        error, allowed = ((t.double().cpu() - truth).abs() for t in (output, plain))
        if truth.numel() < 4096:
            allowed += torch.finfo(dtype).eps * truth.abs()
        assert error.norm() <= 2 * allowed.norm()
        assert error.norm(math.inf) <= 2 * allowed.norm(math.inf)
