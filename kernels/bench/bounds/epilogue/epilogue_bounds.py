"""What a GEMM with an epilogue of ours gives over a GEMM and a kernel after it.

    bazel run //kernels/bench/bounds/epilogue:epilogue_bounds -- --output epilogues.json

For the projections of a layer of the 1.7B model, by interleaved graph replays in one process:

  cuBLAS            the product alone;
  cuBLAS, Inductor  torch.compile of the product and what follows it: DyHT or ReGLU as one kernel;
  cuBLAS, ours      the product, then our kernel;
  CUTLASS ...       one kernel, by tile.

A result that is wrong gets no figure. CUTLASS compiles for some minutes.
"""

import dataclasses
import functools
import secrets

import torch
from absl import app, flags
from rich.console import Console
from rich.progress import track
from rich.table import Table

import harness
import machine
from epilogues import TILES, Epilogues
from projections import HIDDEN, PROJECTIONS, Projection, product

_LIBRARY = flags.DEFINE_string("library", None, "The compiled GEMMs.", required=True)
_OUTPUT = flags.DEFINE_string("output", "epilogues.json", "The JSON file to write.")
_COMMIT = flags.DEFINE_string("commit", "", "The commit that is measured; asks git by default.")
_ROUNDS = flags.DEFINE_integer("rounds", 30, "Samples of each median.", lower_bound=2)
_TOKENS = (32, 8192)

PRODUCT, INDUCTOR, OURS = "cuBLAS", "cuBLAS, Inductor", "cuBLAS, ours"


def measure(library: Epilogues, projection: Projection, tokens: int) -> dict[str, object]:
    """One row of the report."""
    args = projection.make(tokens)
    torch.compiler.reset()
    whole = {
        INDUCTOR: torch.compile(projection.formula, fullgraph=True, dynamic=False),
        OURS: projection.two_kernels,
    } | {f"CUTLASS {name}": functools.partial(projection.fused, library, tile)
         for tile, name in enumerate(TILES)}
    exact = projection.formula(*(a.double() for a in args))
    eager_error = harness.relative_error(projection.formula(*args), exact)
    errors = {name: harness.relative_error(function(*args), exact)
              for name, function in whole.items()}
    wrong = [name for name, error in errors.items() if not harness.is_accurate(error, eager_error)]
    del exact
    candidates = {PRODUCT: product} | {n: f for n, f in whole.items() if n not in wrong}
    weight_bytes = 2 * projection.width * HIDDEN
    sets = [args] + [projection.make(tokens)
                     for _ in range(harness.number_of_sets(weight_bytes) - 1)]
    timings = harness.time_interleaved(candidates, sets, _ROUNDS.value)
    return {
        "projection": projection.name, "tokens": tokens, "width": projection.width,
        "depth": HIDDEN, "eager_error": eager_error, "errors": errors, "wrong": wrong,
        "timings": {name: dataclasses.asdict(timing) for name, timing in timings.items()},
    }


def print_table(console: Console, rows: list[dict]) -> None:
    table = Table(title="us (over cuBLAS, Inductor)")
    table.add_column("")
    for row in rows:
        table.add_column(f"{row['projection']} {row['tokens']}", justify="right")
    for name in (PRODUCT, INDUCTOR, OURS, *(f"CUTLASS {tile}" for tile in TILES)):
        cells = []
        for row in rows:
            if name in row["wrong"]:
                cells.append(f"WRONG {row['errors'][name]:.1e}")
                continue
            us, base = (row["timings"][n]["median_us"] for n in (name, INDUCTOR))
            cells.append(f"{us:.2f} ({us / base:.2f})")
        table.add_row(name, *cells)
    console.print(table)


def main(_) -> None:
    console = Console(width=140)
    seed = secrets.randbelow(2**31)
    torch.manual_seed(seed)
    library = Epilogues(_LIBRARY.value)
    work = [(projection, tokens) for tokens in _TOKENS for projection in PROJECTIONS]
    rows = [measure(library, *item) for item in track(work, "epilogues", console=console)]
    print_table(console, rows)
    path = harness.write_json(_OUTPUT.value, machine.describe_run(_COMMIT.value) | {
        "seed": seed, "rounds": _ROUNDS.value, "rows": rows})
    console.print(f"wrote {path}")


if __name__ == "__main__":
    app.run(main)
