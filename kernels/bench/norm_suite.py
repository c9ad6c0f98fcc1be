"""The DyHT kernels and ReGLU beside PyTorch, on the shapes of the 1.7B model.

Each operation runs as our kernel, as its formula in eager PyTorch, and as that formula compiled by
Inductor, in turn, in CUDA graphs. A ratio is the other's time over ours: above 1, ours is faster.
No ratio is given for an operation whose result is wrong.
"""

import dataclasses
from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.table import Table

import asynct_kernels
import harness
from asynct_kernels import reference

REPORT = "norms"
OURS, EAGER, COMPILED = "ours", "eager", "compiled"

_TOKENS = (32, 8192)
_HIDDEN, _INTERMEDIATE = 2048, 6144
_HEADS, _KV_HEADS, _HEAD_SIZE = 16, 8, 128


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation on a number of tokens; `make` returns its arguments."""

    operation: str
    tokens: int
    make: Callable[[], tuple]

    @property
    def name(self) -> str:
        return f"{self.operation} {self.tokens}"


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16)


def _qk_arguments(tokens: int) -> tuple:
    """q and k as views of the fused projection, with scalar gammas: as the model has them."""
    q, k, _ = _random(tokens, _HEADS + 2 * _KV_HEADS, _HEAD_SIZE).split(
        [_HEADS, _KV_HEADS, _KV_HEADS], dim=1)
    return q, k, _random(_HEAD_SIZE), _random(1), _random(_HEAD_SIZE), _random(1)


_ARGUMENTS: dict[str, Callable[[int], tuple]] = {
    "uclip_norm": lambda t: (_random(t, _HIDDEN), *_random(2, _HIDDEN)),
    "fused_add_uclip_norm": lambda t: (*_random(2, t, _HIDDEN), *_random(2, _HIDDEN)),
    "qk_uclip_norm": _qk_arguments,
    "post_attn_pre_mlp_uclip_out": lambda t: (*_random(2, t, _HIDDEN), *_random(4, _HIDDEN)),
    "relu_and_mul": lambda t: (_random(t, 2 * _INTERMEDIATE),),
}


def cases() -> list[Case]:
    return [Case(operation, tokens, lambda make=make, tokens=tokens: make(tokens))
            for operation, make in _ARGUMENTS.items() for tokens in _TOKENS]


def _tensors(outputs: torch.Tensor | tuple) -> tuple[torch.Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _bytes_moved(args: tuple, outputs: tuple) -> int:
    """Every element read once and written once."""
    return sum(t.numel() * t.element_size() for t in (*args, *outputs))


def measure(case: Case, chosen: Callable[[str], bool], rounds: int,
            console: Console) -> Iterator[dict[str, object]]:
    """The row of the report, if the operation is `chosen`."""
    if not chosen(case.operation):
        return
    formula = getattr(reference, case.operation)
    args = case.make()
    torch.compiler.reset()
    candidates = {OURS: getattr(asynct_kernels, case.operation), EAGER: formula,
                  COMPILED: torch.compile(formula, fullgraph=True, dynamic=False)}
    outputs = {name: _tensors(function(*args)) for name, function in candidates.items()}
    exact = _tensors(formula(*(a.double() for a in args)))
    errors = {name: harness.relative_error(out, exact) for name, out in outputs.items()}
    moved = _bytes_moved(args, outputs[OURS])
    del outputs, exact
    sets = [args] + [case.make() for _ in range(harness.number_of_sets(moved) - 1)]
    timings = harness.time_interleaved(candidates, sets, rounds)
    yield row(case, moved, len(sets), errors, timings)


def row(
    case: Case, moved: int, sets: int, errors: dict[str, float], timings: dict[str, harness.Timing]
) -> dict[str, object]:
    """The results of one operation; `ratios` only if ours is accurate."""
    correct = harness.is_accurate(errors[OURS], errors[EAGER])
    ours = timings[OURS].median_us
    return {
        "operation": case.operation, "tokens": case.tokens, "bytes": moved, "sets": sets,
        "correct": correct, "relative_errors": errors,
        "timings": {key: dataclasses.asdict(timing) for key, timing in timings.items()},
        "gigabytes_per_second": {key: moved / timing.median_us / 1e3
                                 for key, timing in timings.items()},
        "ratios": {key: timings[key].median_us / ours for key in (EAGER, COMPILED)}
                  if correct else None,
    }


def is_red(result: dict[str, object]) -> bool:
    return not result["correct"]


def table(results: list[dict[str, object]]) -> Table:
    shown = Table("operation")
    for heading in ("tokens", "ours, us (8 of 10)", "ours, GB/s", "eager, us", "compiled, us",
                    "eager / ours", "compiled / ours"):
        shown.add_column(heading, justify="right")
    for result in results:
        ours, eager, compiled = (result["timings"][key] for key in (OURS, EAGER, COMPILED))
        ratios = (["[red]WRONG"] * 2 if is_red(result) else
                  [f"{result['ratios'][key]:.2f}" for key in (EAGER, COMPILED)])
        shown.add_row(
            result["operation"], str(result["tokens"]),
            f"{ours['median_us']:.2f} ({ours['low_us']:.2f} to {ours['high_us']:.2f})",
            f"{result['gigabytes_per_second'][OURS]:.0f}",
            f"{eager['median_us']:.2f}", f"{compiled['median_us']:.2f}", *ratios)
    return shown
