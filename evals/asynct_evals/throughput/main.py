"""Compares the speed of AsyncT in vLLM with that of a softmax model on FlashAttention-3.

Both models have the same shape and random weights (or AsyncT those of a checkpoint), and each has a
vLLM engine in processes of its own. Both engines are up at once, get the same prompts (random
tokens) and the same fixed lengths of output, and take turns: the one that came second in a round
comes first in the next. Before anything is timed, our engine's log-probabilities on each scenario
are checked against the unpaged Hugging Face model; if they are wrong, there is no ratio.

It prints the ratio of times (below 1: AsyncT is faster) with an interval of its median, and where
the GPU's time goes in a step of each, and writes a JSON report and a plot.
"""

from __future__ import annotations

import re
import secrets
import sys

from absl import app, flags
from rich.console import Console
from scenarios import SCENARIOS, Scenario
from user_path import user_path

from asynct_evals import environment
from asynct_evals.data import InputError
from asynct_evals.throughput.settings import DTYPES, GRAPHS, QUANTIZATIONS, Settings

_PRESETS = ("asynct-1.7b", "asynct-0.6b")
_TRY_OUT = "asynct-try-out"
# A model and workloads that a CPU serves in seconds.
_TRY_OUT_SHAPE = dict(
    hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, vocab_size=512,
)  # fmt: skip
_TRY_OUT_SHORTER, _TRY_OUT_REQUESTS = 32, 4

_PRESET = flags.DEFINE_enum("preset", _PRESETS[0], _PRESETS, "Shape of both models.")
_CHECKPOINT = flags.DEFINE_string(
    "checkpoint", None, "Folder of an AsyncT checkpoint, in the place of --preset with random "
    "weights; the softmax model then has its shape.")
_SCENARIOS = flags.DEFINE_list(
    "scenarios", list(SCENARIOS), f"What to run, of {', '.join(SCENARIOS)}.")
_ROUNDS = flags.DEFINE_integer(
    "rounds", 20, "Alternations of each scenario, at least.", lower_bound=1)
_SECONDS = flags.DEFINE_float(
    "seconds", 10.0, "Seconds that a scenario's alternations take, at least: a short one gets more "
    "rounds.", lower_bound=0.0)
_DTYPE = flags.DEFINE_enum("dtype", DTYPES[0], DTYPES, "Type of weights and activations.")
_QUANTIZATION = flags.DEFINE_enum(
    "quantization", None, QUANTIZATIONS, "Quantisation of both models' weights by vLLM.")
_GRAPHS = flags.DEFINE_enum(
    "graphs", "default", list(GRAPHS), "CUDA graphs: vLLM's default, one of its modes, or eager, "
    "which compiles nothing either.")
_ASYNC_SCHEDULING = flags.DEFINE_bool(
    "async_scheduling", None, "vLLM's asynchronous scheduling (default: vLLM decides).")
_QUEUED = flags.DEFINE_bool(
    "queued", False, "Queue all prompts before the engine may begin, and time it from there. As "
    "vLLM's generate() has it, they come one by one, and short scenarios vary with what the first "
    "step finds.")
_WARM_UP = flags.DEFINE_bool(
    "full_shape_warm_up", True, "Run each scenario once on both sides before it is timed.")
_ZEROS = flags.DEFINE_float(
    "attention_zeros", 0.7, "Share of the attention's p that random weights make zero; the report "
    "has what was measured.", lower_bound=0.5, upper_bound=0.95)
_CACHE_GIB = flags.DEFINE_float(
    "cache_gib", 20.0, "GiB of keys and values that each engine has room for (1 with --try_out).",
    lower_bound=0.1)
_TENSOR_PARALLEL = flags.DEFINE_integer(
    "tensor_parallel_size", 1, "Cards that each engine spreads over.", lower_bound=1)
_PROFILE = flags.DEFINE_bool(
    "profile", True, "After all timing, profile some steps of each scenario (needs one GPU).")
_TRACES = flags.DEFINE_string("traces", None, "Folder to keep the profiler's traces in.")
_SEED = flags.DEFINE_integer(
    "seed", None, "Draws weights and prompts; a fresh one by default, printed.")
_COMMIT = flags.DEFINE_string(
    "commit", "", "The commit that is measured, for the report; git is asked by default.")
_OUTPUT = flags.DEFINE_string(
    "output", None, "The JSON report (default: results/CARD/throughput.json, relative to where you "
    "are; CARD is h200 on an H200). The plot goes beside it.")
_TRY = flags.DEFINE_bool(
    "try_out", False, "A tiny model and tiny scenarios on whatever is here, a CPU too: to see the "
    "program work, not to measure.")
_VERBOSE = flags.DEFINE_bool("verbose", False, "Show the logs of vLLM and transformers.")


def settings(*, gpu: bool) -> Settings:
    """What the flags ask for.

    Raises:
      InputError: it cannot be had.
    """
    from asynct_model import AsyncTConfig

    unknown = [name for name in _SCENARIOS.value if name not in SCENARIOS]
    if unknown or not _SCENARIOS.value:
        raise InputError(f"--scenarios {','.join(unknown)}: must be of {', '.join(SCENARIOS)}")
    if not gpu and not _TRY.value:
        raise InputError("there is no GPU here: on a CPU there is only --try_out")
    if not gpu and _GRAPHS.value not in ("default", "eager"):
        raise InputError(f"--graphs {_GRAPHS.value}: a CPU has no CUDA graphs")
    chosen = tuple(SCENARIOS[name] for name in _SCENARIOS.value)
    model, shape, checkpoint = _PRESET.value, None, None
    if _CHECKPOINT.value is not None:
        checkpoint = user_path(_CHECKPOINT.value).resolve()
        model = checkpoint.name
    elif _TRY.value:
        model, shape = _TRY_OUT, AsyncTConfig(**_TRY_OUT_SHAPE)
    else:
        shape = AsyncTConfig.preset(_PRESET.value)
    return Settings(
        gpu=gpu,
        model=model,
        shape=shape,
        checkpoint=checkpoint,
        scenarios=tuple(map(_shorter, chosen)) if _TRY.value else chosen,
        rounds=_ROUNDS.value,
        seconds=0.0 if _TRY.value else _SECONDS.value,
        dtype=_DTYPE.value,
        quantization=_QUANTIZATION.value,
        graphs=_GRAPHS.value if gpu else "eager",
        async_scheduling=_ASYNC_SCHEDULING.value,
        queued=_QUEUED.value,
        full_shape_warm_up=_WARM_UP.value,
        attention_zeros=_ZEROS.value,
        cache_gib=1.0 if _TRY.value else _CACHE_GIB.value,
        tensor_parallel_size=_TENSOR_PARALLEL.value,
        profile=_PROFILE.value and gpu and _TENSOR_PARALLEL.value == 1,
        seed=secrets.randbelow(2**31) if _SEED.value is None else _SEED.value,
    )


def _shorter(scenario: Scenario) -> Scenario:
    lengths = [tuple(max(tokens // _TRY_OUT_SHORTER, 1) for tokens in length)
               for length in scenario.lengths[:_TRY_OUT_REQUESTS]]
    return Scenario(scenario.name, tuple(lengths))


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    console = Console(soft_wrap=True)
    environment.prepare(offline=True, verbose=_VERBOSE.value)
    # Imported only now: the libraries read their environment, and importing takes seconds.
    import torch
    from machine import folder_name

    from asynct_evals.throughput import report, suite

    try:
        asked = settings(gpu=torch.cuda.is_available())
        on = "the GPU" if asked.gpu else "the CPU, where GPU time cannot be broken down"
        console.print(f"{asked.model} on {on}, seed {asked.seed}", highlight=False)
        traces = None if _TRACES.value is None else user_path(_TRACES.value)
        for result in suite.run(asked, console, commit=_COMMIT.value, traces=traces):
            folder = folder_name(result.contestants.machine)
            output = user_path(_OUTPUT.value or f"results/{folder}/throughput.json")
            written = report.save(result, output)
    except (InputError, suite.WrongOutput) as error:
        sys.exit(f"throughput: {error}")
    console.print(*report.tables(result))
    console.print("Report:", *map(str, written))


if __name__ == "__main__":
    app.run(main)
