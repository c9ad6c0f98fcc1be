"""Times one workload by each way to serve it: the ladder from Hugging Face to the CUDA kernels.

    ./bazelw run //evals:ladder -- --data test.jsonl --fewshot_data train.jsonl
    ./bazelw run //evals:ladder -- --workload long_decode_b32

The model is AsyncT's 0.6B shape on random weights, which puts out all the tokens it may. All rungs
start side by side and are timed one after another. The slow ones are timed on a part of the
requests; the report says so, beside what the whole would take at that rate. It prints a table and
writes a JSON report and a plot.
"""

from __future__ import annotations

import secrets
import sys

from absl import app, flags
from rich.console import Console
from scenarios import SCENARIOS, Scenario
from user_path import user_path

from asynct_evals import data, environment
from asynct_evals.data import InputError

_WORKLOAD = flags.DEFINE_enum(
    "workload", "gsm8k", ["gsm8k", *SCENARIOS], "gsm8k's problems (--data), or a fixed scenario.")
_DATA = flags.DEFINE_string("data", None, "gsm8k: JSON-lines file of the problems.")
_FEWSHOT_DATA = flags.DEFINE_string(
    "fewshot_data", None, "gsm8k: that of the examples (default: the first problems of --data).")
_NUM_FEWSHOT = flags.DEFINE_integer("num_fewshot", 8, "gsm8k: examples.", lower_bound=0)
_LIMIT = flags.DEFINE_integer(
    "limit", None, "Only so many requests of the workload.", lower_bound=1)
_RUNGS = flags.DEFINE_list("rungs", None, "Only these (default: all that this machine has).")
_TRY = flags.DEFINE_bool("try_out", False, "A tiny model, a CPU's too: to see the program work.")
_SEED = flags.DEFINE_integer(
    "seed", None, "Draws weights, prompts and examples; a fresh one by default, printed.")
_COMMIT = flags.DEFINE_string("commit", "", "The commit, for the report; git is asked by default.")
_OUTPUT = flags.DEFINE_string(
    "output", None, "The JSON report (default: results/CARD/ladder_WORKLOAD.json, relative to "
    "where you are). The plot goes beside it.")

_PRESET = "asynct-0.6b"
_TRY_OUT_SHAPE = dict(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, vocab_size=512,
)  # fmt: skip


def workload(seed: int) -> Scenario:
    """What is served.

    Raises:
      InputError: the problems cannot be read.
    """
    if _WORKLOAD.value != "gsm8k":
        found = SCENARIOS[_WORKLOAD.value]
    elif _DATA.value is None:
        raise InputError("--workload gsm8k needs --data, a JSON-lines file of its problems")
    else:
        from asynct_evals.ladder.workload import gsm8k

        examples = None if _FEWSHOT_DATA.value is None else user_path(_FEWSHOT_DATA.value)
        found = gsm8k(data.from_files(user_path(_DATA.value), examples,
                                      num_fewshot=_NUM_FEWSHOT.value, limit=_LIMIT.value),
                      num_fewshot=_NUM_FEWSHOT.value, seed=seed)
    return Scenario(found.name, found.lengths[: _LIMIT.value])


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    environment.prepare(offline=True, verbose=False)
    # Imported only now: the libraries read their environment, and importing takes seconds.
    import torch
    from asynct_model import AsyncTConfig
    from machine import describe_run, folder_name

    from asynct_evals.ladder import climb, report
    from asynct_evals.ladder.rungs import CPU_RUNGS, RUNGS

    gpu = torch.cuda.is_available()
    seed = secrets.randbelow(2**31) if _SEED.value is None else _SEED.value
    found = RUNGS if gpu else CPU_RUNGS
    names = _RUNGS.value or list(found)
    try:
        if unknown := [name for name in names if name not in found]:
            raise InputError(f"--rungs {','.join(unknown)}: must be of {', '.join(found)}")
        scenario = workload(seed)
    except InputError as error:
        sys.exit(f"ladder: {error}")
    console.print(f"{scenario.name}: {len(scenario.lengths)} requests, seed {seed}")
    shape = AsyncTConfig(**_TRY_OUT_SHAPE) if _TRY.value else AsyncTConfig.preset(_PRESET)
    steps = climb.climb({name: found[name] for name in names}, scenario, shape, seed, console.print)
    machine = describe_run(_COMMIT.value)
    model = "try-out" if _TRY.value else _PRESET
    console.print(report.table(steps, scenario, model, machine))
    output = user_path(_OUTPUT.value or
                       f"results/{folder_name(machine)}/ladder_{_WORKLOAD.value}.json")
    written = report.save(steps, scenario, model, machine, seed, output)
    console.print("Report:", *map(str, written))


if __name__ == "__main__":
    app.run(main)
