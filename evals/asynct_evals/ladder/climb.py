"""Starts every rung and times them one after another."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Callable, Mapping

import torch
from asynct_model import AsyncTConfig
from scenarios import Scenario

from asynct_evals.ladder.rungs import HuggingFaceRung, Rung, VllmRung
from asynct_evals.throughput import weights
from asynct_evals.throughput.remote import Remote, call_apart, remote

_DTYPE = "bfloat16"
_ZEROS = 0.7  # share of the attention's p
_OPTIONS = {
    "dtype": _DTYPE,
    "max_num_seqs": 256,
    "gpu_memory_utilization": 0.05,  # of the memory, what has to be free: they start side by side
}
_SPARE_BLOCKS = 1.1  # of the cache, for pages that are not full
_WARM_UP_TOKENS = 4


@dataclasses.dataclass(frozen=True)
class Step:
    """What a rung took.

    requests: so many of the workload's were timed.
    seconds: they took; None where the rung failed, and `fault` says why.
    whole_s: the whole workload at that rate.
    """

    requests: int
    seconds: float | None
    whole_s: float | None
    fault: str | None = None


def climb(rungs: Mapping[str, Rung], workload: Scenario, shape: AsyncTConfig, seed: int,
          say: Callable[[str], None]) -> dict[str, Step]:
    """Times the workload, or a part, on random weights of `shape`; `say` takes progress."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        call_apart(weights.save_asynct, shape, folder / "model", zeros=_ZEROS,
                   dtype=getattr(torch, _DTYPE), seed=seed)
        parts = {name: dataclasses.replace(workload, lengths=workload.lengths[: rung.part])
                 for name, rung in rungs.items()}
        engines = {name: stack.enter_context(_start(rung, folder, parts[name], shape))
                   for name, rung in rungs.items()}
        for engine in engines.values():
            with contextlib.suppress(Exception):  # which `_time` tells
                engine.wait()
        steps = {}
        for name, engine in engines.items():
            step = steps[name] = _time(engine, parts[name], len(workload.lengths), seed)
            say(f"{name}: {step.fault or f'{step.seconds:.1f} s'}")
        return steps


def _start(rung: Rung, folder: pathlib.Path, part: Scenario, shape: AsyncTConfig):
    if rung.environment is None:
        return remote(HuggingFaceRung, folder / "model", _DTYPE)
    return remote(VllmRung, rung.environment, folder / "model", folder / "traces",
                  max_model_len=part.longest, kv_cache_memory_bytes=_cache_bytes(part, shape),
                  **_OPTIONS | rung.options)


def _cache_bytes(part: Scenario, shape: AsyncTConfig) -> int:
    """Room for as many requests as the engine takes at once, be they the longest."""
    tokens = sum(sorted(map(sum, part.lengths))[-_OPTIONS["max_num_seqs"]:])
    element_bytes = getattr(torch, _DTYPE).itemsize
    token_bytes = (2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim
                   * element_bytes)
    return int(_SPARE_BLOCKS * tokens * token_bytes)


def _time(engine: Remote, part: Scenario, total: int, seed: int) -> Step:
    """One run, after a short one that warms up."""
    requests = len(part.lengths)
    few = dataclasses.replace(part, lengths=part.lengths[:2]).middle(_WARM_UP_TOKENS)
    try:
        engine.call("run", few, seed + 1)
        seconds = engine.call("run", part, seed)
    except Exception as error:  # out of memory for one: the other rungs can still be climbed
        return Step(requests, None, None, f"{type(error).__name__}: {error}")
    return Step(requests, seconds, seconds * total / requests)
