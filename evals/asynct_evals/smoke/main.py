"""The gate of continuous integration.

Every production path (the CUDA kernels with and without graphs, the mma prefill, Triton, PyTorch)
serves two models by vLLM, each in a process of its own: the tiny checkpoint, whose problems it must
solve, and one of random weights and head size 128 with contexts of up to 16K tokens, whose
log-probabilities must be those of the Hugging Face model. The kernels that served are counted and
must be the path's. Last, AsyncT and a softmax model of its shape on FlashAttention-3 are timed in
turn. Anything that is wrong is told, and the program then ends with 1.

Without a GPU it does the same at a small scale on PyTorch's paths.
"""

from __future__ import annotations

import os
import secrets
import sys

from absl import app, flags
from rich.console import Console
from user_path import user_path

from asynct_evals import environment
from asynct_evals.data import InputError, generated
from asynct_evals.settings import TINY_CHECKPOINT, Settings

_PATHS = flags.DEFINE_list("paths", None, "Only these (default: all that this machine has).")
_JOBS = flags.DEFINE_integer(
    "jobs", None, "Paths that serve at once (default: one for two cores).", lower_bound=1)
_TIME = flags.DEFINE_bool("time", True, "Whether both sides are timed.")
_MIN_SPEED = flags.DEFINE_float(
    "min_speed", None, "Throughput that is asked for, in FlashAttention-3's (default: 0.8; 0.1 of "
    "vLLM's attention on the CPU).", lower_bound=0.01)
_WEIGHTS_SEED = flags.DEFINE_integer(
    "weights_seed", None, "Draws weights and prompts; a fresh one by default, printed.")
_COMMIT = flags.DEFINE_string("commit", "", "The commit, for the report; git is asked by default.")
_OUTPUT = flags.DEFINE_string(
    "output", None, "The JSON report (default: results/CARD/smoke.json, from where you are).")

_SHOTS = 8
_PROBLEMS_SEED = 1234  # fixed: the checkpoint is not perfect, and a gate must not depend on luck


def asked(*, gpu: bool):
    """The run that the flags ask for.

    Raises:
      InputError: there is no such path.
    """
    from asynct_model import AsyncTConfig

    from asynct_evals.smoke import gate, scales
    from asynct_evals.smoke.paths import paths
    from asynct_evals.throughput import settings

    scale = scales.GPU if gpu else scales.CPU
    found = {path.name: path for path in paths(gpu=gpu)}
    names = _PATHS.value or list(found)
    if unknown := [name for name in names if name not in found]:
        raise InputError(f"--paths {','.join(unknown)}: must be of {', '.join(found)}")
    throughput = settings.Settings(
        gpu=gpu, model="random weights", shape=AsyncTConfig(**scale.shape), checkpoint=None,
        scenarios=scale.timed, rounds=scale.rounds, seconds=0.0, dtype="bfloat16",
        quantization=None, graphs=scale.graphs, async_scheduling=None, queued=True,
        full_shape_warm_up=True, attention_zeros=0.7, cache_gib=1.0, profile=False,
        seed=secrets.randbelow(2**31) if _WEIGHTS_SEED.value is None else _WEIGHTS_SEED.value,
    )  # fmt: skip
    memory = {name: throughput.our_options()[name]
              for name in ("kv_cache_memory_bytes", "gpu_memory_utilization")}
    return gate.Asked(
        paths=tuple(found[name] for name in names),
        jobs=_JOBS.value or max(os.cpu_count() // 2, 1),
        scenario=scale.answers,
        chunk=scale.chunk,
        problems=generated(num_fewshot=_SHOTS, limit=scale.problems, seed=_PROBLEMS_SEED),
        evaluation=Settings(TINY_CHECKPOINT, "vllm", _SHOTS, _PROBLEMS_SEED, options=memory),
        throughput=throughput,
        timed=_TIME.value,
        min_speed=_MIN_SPEED.value or scale.min_speed,
    )


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {argv[1:]}")
    console = Console(soft_wrap=True, highlight=False, markup=False)
    environment.prepare(offline=True, verbose=False)
    # Imported only now: the libraries read their environment, and importing takes seconds.
    import torch
    from machine import folder_name

    from asynct_evals.smoke import gate, report

    try:
        run = asked(gpu=torch.cuda.is_available())
        console.print(f"{', '.join(path.name for path in run.paths)}; weights and prompts of seed "
                      f"{run.throughput.seed}")
        result = gate.run(run, console.print, commit=_COMMIT.value)
    except InputError as error:
        sys.exit(f"smoke: {error}")
    console.print(*report.tables(result))
    output = user_path(_OUTPUT.value or f"results/{folder_name(result.machine)}/smoke.json")
    console.print(f"Report: {report.save(run, result, output)}")
    if result.faults:
        sys.exit("\n".join(f"smoke: {fault}" for fault in result.faults))


if __name__ == "__main__":
    app.run(main)
