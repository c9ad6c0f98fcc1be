"""Projections with what follows them: one GEMM with an epilogue beside cuBLAS and a kernel.

In bf16, on the shapes of the two model sizes, in CUDA graphs, in turn:

  cuBLAS            the product alone;
  cuBLAS, Inductor  torch.compile of the product and what follows it, for any number of tokens;
  cuBLAS, ours      the product, then our kernel;
  fused             one kernel.

From the report come the plan of asynct_kernels.gemm and the table in kernels/docs/bounds.md. A
fused kernel whose result is wrong gets no ratio.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from unittest import mock

import torch
from rich.console import Console
from rich.table import Table

import asynct_kernels
import harness
from asynct_kernels import gemm, reference

REPORT = "linear"
PRODUCT, INDUCTOR, OURS, FUSED = "cuBLAS", "cuBLAS, Inductor", "cuBLAS, ours", "fused"
CANDIDATES = (PRODUCT, INDUCTOR, OURS, FUSED)

_TOKENS = (32, 64, 128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096,
           8192, 16384)

Outputs = torch.Tensor | tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Model:
    """A model size: widths of the residual stream, of all query heads together, of the MLP."""

    name: str
    hidden: int
    heads: int
    intermediate: int


MODELS = (Model("0.6b", 1024, 1024, 3072), Model("1.7b", 2048, 2048, 6144))


@dataclasses.dataclass(frozen=True)
class Case:
    """A projection of a model, and what follows it, on a number of tokens."""

    operation: str
    model: Model
    tokens: int

    @property
    def name(self) -> str:
        return f"{self.operation} {self.model.name} {self.tokens}"

    @property
    def columns(self) -> int:
        """Of the product."""
        return self.model.hidden if self.has_residual else 2 * self.model.intermediate

    @property
    def depth(self) -> int:
        return self.model.heads if self.has_residual else self.model.hidden

    @property
    def has_residual(self) -> bool:
        return self.operation == "linear_add_uclip"

    def make(self) -> tuple[torch.Tensor, ...]:
        """The operation's arguments: x, weight, and residual, alphas and gammas if it has them."""
        x = _random(self.tokens, self.depth).bfloat16()
        weight = (_random(self.columns, self.depth) * self.depth**-0.5).bfloat16()
        if not self.has_residual:
            return x, weight
        return x, weight, _random(self.tokens, self.columns).bfloat16(), *_random(4, self.columns)


def cases() -> list[Case]:
    return [Case(operation, model, tokens)
            for operation in ("linear_add_uclip", "linear_relu_and_mul")
            for model in MODELS for tokens in _TOKENS]


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda")


def product(x: torch.Tensor, weight: torch.Tensor, *_) -> torch.Tensor:
    return x @ weight.T


def add_uclip(x: torch.Tensor, weight: torch.Tensor, *others: torch.Tensor) -> Outputs:
    return reference.post_attn_pre_mlp_uclip_out(x @ weight.T, *others)


def relu_and_mul(x: torch.Tensor, weight: torch.Tensor) -> Outputs:
    return reference.relu_and_mul(x @ weight.T)


@functools.lru_cache(maxsize=1)
def compiled(operation: str, model: Model) -> Callable[..., Outputs]:
    """The two steps by Inductor as vLLM has it: one kernel for every number of tokens."""
    torch.compiler.reset()
    formula = torch.compile(steps(operation), fullgraph=True)

    def run(*args: torch.Tensor) -> Outputs:
        for x in (args[0], *args[2:3]):  # x, and the residual if there is one
            torch._dynamo.mark_dynamic(x, 0)
        return formula(*args)

    return run


def steps(operation: str) -> Callable[..., Outputs]:
    return add_uclip if operation == "linear_add_uclip" else relu_and_mul


def planned(operation: str, fused: bool) -> Callable[..., Outputs]:
    """The operation with the plan's choice made for it."""
    function = getattr(asynct_kernels, operation)

    def run(*args: torch.Tensor) -> Outputs:
        with mock.patch.object(gemm, "fuses", return_value=fused):
            return function(*args)

    return run


def _tensors(outputs: Outputs) -> tuple[torch.Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def measure(case: Case, chosen: Callable[[str], bool], rounds: int,
            console: Console) -> Iterator[dict[str, object]]:
    """The row of the report, if the operation is `chosen`."""
    if not chosen(case.operation):
        return
    args = case.make()
    whole = {INDUCTOR: compiled(case.operation, case.model),
             OURS: planned(case.operation, fused=False), FUSED: planned(case.operation, fused=True)}
    exact = _tensors(getattr(reference, case.operation)(*(a.double() for a in args)))
    eager_error = harness.relative_error(_tensors(steps(case.operation)(*args)), exact)
    errors = {name: harness.relative_error(_tensors(function(*args)), exact)
              for name, function in whole.items()}
    del exact
    moved = sum(t.numel() * t.element_size() for t in args) + 2 * case.tokens * case.columns
    sets = [args] + [case.make() for _ in range(harness.number_of_sets(moved) - 1)]
    timings = harness.time_interleaved({PRODUCT: product} | whole, sets, rounds)
    yield row(case, eager_error, errors, timings)


def row(
    case: Case, eager_error: float, errors: dict[str, float], timings: dict[str, harness.Timing]
) -> dict[str, object]:
    """The results of one case; the fused kernel's ratios only if it is accurate."""
    correct = harness.is_accurate(errors[FUSED], eager_error)
    fused = timings[FUSED].median_us
    flop = 2 * case.tokens * case.columns * case.depth
    return {
        "operation": case.operation, "model": case.model.name, "tokens": case.tokens,
        "columns": case.columns, "depth": case.depth, "correct": correct,
        "eager_error": eager_error, "errors": errors,
        "timings": {name: dataclasses.asdict(timing) for name, timing in timings.items()},
        "tflops": {name: flop / timings[name].median_us / 1e6 for name in (PRODUCT, FUSED)},
        "ratios": {name: fused / timings[name].median_us for name in (PRODUCT, INDUCTOR, OURS)}
                  if correct else None,
    }


def is_red(result: dict[str, object]) -> bool:
    return not result["correct"]


def table(results: list[dict[str, object]]) -> Table:
    shown = Table("projection")
    for heading in ("tokens", *(f"{name}, us" for name in CANDIDATES), "fused / Inductor",
                    "cuBLAS, TFLOP/s", "fused, TFLOP/s"):
        shown.add_column(heading, justify="right")
    for result in results:
        shown.add_row(
            f"{result['operation']} {result['model']}", str(result["tokens"]),
            *(f"{result['timings'][name]['median_us']:.2f}" for name in CANDIDATES),
            "[red]WRONG" if is_red(result) else f"{result['ratios'][INDUCTOR]:.2f}",
            *(f"{result['tflops'][name]:.0f}" for name in (PRODUCT, FUSED)))
    return shown
