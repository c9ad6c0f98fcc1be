r"""Times the DyHT kernels and ReGLU against PyTorch, on a GPU.

Each operation runs as our kernel, as its formula in eager PyTorch, and as that formula compiled by
Inductor, in turn, in CUDA graphs. A ratio is the other's time over ours: above 1, ours is faster.
No ratio is given for an operation whose result is wrong.

    bazel run --config=gpu //kernels/bench:norm_bench -- --output=norms.json --commit=$(git \
        rev-parse HEAD)
"""

import dataclasses
import sys
from collections.abc import Callable

import harness
import rich.console
import rich.table
import torch
import tqdm
from absl import app, flags

import asynct_kernels
from asynct_kernels import reference

_TOKENS = flags.DEFINE_multi_integer("tokens", [32, 8192], "Numbers of tokens.", lower_bound=1)
_HIDDEN = flags.DEFINE_integer("hidden", 2048, "Hidden size.", lower_bound=1)
_INTERMEDIATE = flags.DEFINE_integer("intermediate", 6144, "Size of the MLP.", lower_bound=1)
_HEADS = flags.DEFINE_integer("heads", 16, "Query heads.", lower_bound=1)
_KV_HEADS = flags.DEFINE_integer("kv_heads", 8, "Key-value heads.", lower_bound=1)
_HEAD_SIZE = flags.DEFINE_integer("head_size", 128, "Head size.", lower_bound=1)
_DTYPE = flags.DEFINE_enum("dtype", "bfloat16", ["bfloat16", "float16", "float32"],
                           "Dtype of activations and parameters.")
_ROUNDS = flags.DEFINE_integer("rounds", 50, "Samples of each median.", lower_bound=2)
_SEED = flags.DEFINE_integer("seed", None, "Seed of the inputs; by default a fresh one.")
_COMMIT = flags.DEFINE_string("commit", "", "The commit that is measured, for the record.")
_OUTPUT = flags.DEFINE_string("output", None, "JSON file to write.", required=True)

OURS, EAGER, COMPILED = "ours", "eager", "compiled"


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation, its formula, and a maker of its arguments for a number of tokens."""

    name: str
    function: Callable
    formula: Callable
    make: Callable[[int], tuple]


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(getattr(torch, _DTYPE.value))


def _qk_arguments(tokens: int) -> tuple:
    """q and k as views of the fused projection, with scalar gammas: as the model has them."""
    size = _HEAD_SIZE.value
    heads, kv_heads = _HEADS.value, _KV_HEADS.value
    q, k, _ = _random(tokens, (heads + 2 * kv_heads) * size).split(
        [heads * size, kv_heads * size, kv_heads * size], dim=-1)
    return (q.view(tokens, heads, size), k.view(tokens, kv_heads, size),
            _random(size), _random(1), _random(size), _random(1))


def operations() -> list[Operation]:
    hidden = _HIDDEN.value
    return [
        Operation("uclip_norm", asynct_kernels.uclip_norm, reference.uclip_norm,
                  lambda t: (_random(t, hidden), *_random(2, hidden))),
        Operation("fused_add_uclip_norm", asynct_kernels.fused_add_uclip_norm,
                  reference.fused_add_uclip_norm,
                  lambda t: (*_random(2, t, hidden), *_random(2, hidden))),
        Operation("qk_uclip_norm", asynct_kernels.qk_uclip_norm, reference.qk_uclip_norm,
                  _qk_arguments),
        Operation("post_attn_pre_mlp_uclip_out", asynct_kernels.post_attn_pre_mlp_uclip_out,
                  reference.post_attn_pre_mlp_uclip_out,
                  lambda t: (*_random(2, t, hidden), *_random(4, hidden))),
        Operation("relu_and_mul", asynct_kernels.relu_and_mul, reference.relu_and_mul,
                  lambda t: (_random(t, 2 * _INTERMEDIATE.value),)),
    ]


def _tensors(outputs: torch.Tensor | tuple) -> tuple[torch.Tensor, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _bytes_moved(args: tuple, outputs: tuple) -> int:
    """Every element read once and written once."""
    return sum(t.numel() * t.element_size() for t in (*args, *outputs))


def measure(operation: Operation, tokens: int) -> dict[str, object]:
    """One row of the report."""
    args = operation.make(tokens)
    torch.compiler.reset()
    candidates = {OURS: operation.function, EAGER: operation.formula,
                  COMPILED: torch.compile(operation.formula, fullgraph=True, dynamic=False)}
    outputs = {name: _tensors(function(*args)) for name, function in candidates.items()}
    exact = _tensors(operation.formula(*(a.double() for a in args)))
    errors = {name: harness.relative_error(out, exact) for name, out in outputs.items()}
    moved = _bytes_moved(args, outputs[OURS])
    del outputs, exact
    sets = [args] + [operation.make(tokens) for _ in range(harness.number_of_sets(moved) - 1)]
    timings = harness.time_interleaved(candidates, sets, _ROUNDS.value)
    return row(operation.name, tokens, moved, len(sets), errors, timings)


def row(
    name: str, tokens: int, moved: int, sets: int, errors: dict[str, float],
    timings: dict[str, harness.Timing],
) -> dict[str, object]:
    """The results of one operation; `ratios` only if ours is accurate."""
    correct = harness.is_accurate(errors[OURS], errors[EAGER])
    ours = timings[OURS].median_us
    return {
        "operation": name, "tokens": tokens, "bytes": moved, "sets": sets,
        "correct": correct, "relative_errors": errors,
        "timings": {key: dataclasses.asdict(timing) for key, timing in timings.items()},
        "gigabytes_per_second": {key: moved / timing.median_us / 1e3
                                 for key, timing in timings.items()},
        "ratios": {key: timings[key].median_us / ours for key in (EAGER, COMPILED)}
                  if correct else None,
    }


def print_table(rows: list[dict], title: str) -> None:
    table = rich.table.Table(title=title)
    for heading in ("operation", "tokens", "ours, us (8 of 10)", "ours, GB/s", "eager, us",
                    "compiled, us", "eager / ours", "compiled / ours"):
        table.add_column(heading, justify="left" if heading == "operation" else "right")
    for result in rows:
        ours, eager, compiled = (result["timings"][key] for key in (OURS, EAGER, COMPILED))
        ratios = ([f"{result['ratios'][key]:.2f}" for key in (EAGER, COMPILED)]
                  if result["correct"] else ["WRONG", "WRONG"])
        table.add_row(
            result["operation"], str(result["tokens"]),
            f"{ours['median_us']:.2f} ({ours['low_us']:.2f} to {ours['high_us']:.2f})",
            f"{result['gigabytes_per_second'][OURS]:.0f}",
            f"{eager['median_us']:.2f}", f"{compiled['median_us']:.2f}", *ratios)
    rich.console.Console(width=140).print(table)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    if not torch.cuda.is_available():
        sys.exit("norm_bench needs a CUDA device, and torch sees none")
    seed = torch.seed() if _SEED.value is None else _SEED.value
    torch.manual_seed(seed)
    machine = harness.describe_machine()
    work = [(operation, tokens) for operation in operations() for tokens in _TOKENS.value]
    rows = [measure(*item) for item in tqdm.tqdm(work, desc="norm_bench", unit="case")]
    print_table(rows, f"{machine['card']}, {_DTYPE.value}, medians of {_ROUNDS.value}")
    settings = {flag.name: flag.value for flag in flags.FLAGS.get_key_flags_for_module(__name__)
                if flag.name not in ("commit", "output")}
    path = harness.write_json(_OUTPUT.value, {
        "machine": machine, "commit": _COMMIT.value, "settings": settings, "seed": seed,
        "results": rows})
    print(f"wrote {path}")
    if not all(result["correct"] for result in rows):
        sys.exit("some results are wrong: see above")


if __name__ == "__main__":
    app.run(main)
