"""Times the kernels on a GPU, and checks what they compute before that.

    ./bazelw run --config=gpu //kernels/bench -- --suite attention

Suites: attention, beside vLLM's FlashAttention-3 where it is installed; norms (DyHT and ReGLU),
beside PyTorch, eager and compiled; linear (projections with what follows them), beside cuBLAS. A
kernel whose result is wrong gets no ratio, and the program fails. Writes a JSON report, and the
attention suite a plot beside it.
"""

import re
import secrets
import sys

import torch
from absl import app, flags
from rich.console import Console
from rich.progress import Progress

import attention_plot
import attention_suite
import harness
import linear_suite
import machine
import norm_suite

# A suite has: REPORT, the name of its report; cases(), each with a name; measure(case, chosen,
# rounds, console), which yields rows of the report; is_red(row); table(rows).
SUITES = {"attention": attention_suite, "linear": linear_suite, "norms": norm_suite}

_SUITE = flags.DEFINE_enum("suite", None, list(SUITES), "What to time.", required=True)
_KERNELS = flags.DEFINE_string("kernels", "", "Only kernels whose name has it (a regular expression).")
_SHAPES = flags.DEFINE_string(
    "shapes", "", "Only shapes whose name has it (likewise): 'prefill 16x1024x1024' is 16 requests of 1024 "
    "queries and 1024 keys, 'decode 32x1x4096' 32 of one query and 4096 keys; 'relu_and_mul 32' "
    "32 tokens of an operation.")
_ROUNDS = flags.DEFINE_integer("rounds", 15, "Samples of a median.", lower_bound=2)
_OUTPUT = flags.DEFINE_string("output", None,
                              "The report; by default results/CARD/REPORT.json.")
_COMMIT = flags.DEFINE_string("commit", "", "The commit that is measured; git is asked by default.")
_SEED = flags.DEFINE_integer("seed", None, "Of the inputs; a fresh one by default.")


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    if not torch.cuda.is_available():
        sys.exit("the benchmarks need a CUDA device, and torch sees none")
    suite = SUITES[_SUITE.value]
    cases = [case for case in suite.cases() if re.search(_SHAPES.value, case.name)]
    if not cases:
        raise app.UsageError(f"no shape has {_SHAPES.value!r} in its name: there are "
                             f"{', '.join(case.name for case in suite.cases())}")
    seed = secrets.randbelow(2**31) if _SEED.value is None else _SEED.value
    torch.manual_seed(seed)
    console = Console(width=140)
    report = machine.describe_run(_COMMIT.value) | {"seed": seed, "rounds": _ROUNDS.value,
                                                    "rows": []}
    output = _OUTPUT.value or f"results/{machine.folder_name(report)}/{suite.REPORT}.json"
    with Progress(console=console) as progress:
        for case in progress.track(cases, description=_SUITE.value):
            progress.console.print(case.name)
            for row in suite.measure(case, re.compile(_KERNELS.value).search, _ROUNDS.value,
                                     progress.console):
                report["rows"].append(row)
            path = harness.write_json(output, report)  # a later shape may be cut off
    console.print(suite.table(report["rows"]))
    console.print(f"wrote {path}")
    if _SUITE.value == "attention":
        console.print(f"wrote {attention_plot.draw(report, path)}")
    if red := [row for row in report["rows"] if suite.is_red(row)]:
        sys.exit(f"{len(red)} of {len(report['rows'])} results are wrong: see above")


if __name__ == "__main__":
    app.run(main)
