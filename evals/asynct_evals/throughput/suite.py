"""A run of the suite: check, time in turn, profile."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch
from rich.console import Console
from tqdm import tqdm

from asynct_evals.throughput import contestants
from asynct_evals.throughput.contestants import Contestants
from asynct_evals.throughput.paired import Paired, alternate
from asynct_evals.throughput.reference import Reference, Verdict
from asynct_evals.throughput.remote import Remote, call_apart, remote
from asynct_evals.throughput.settings import Settings


class WrongOutput(RuntimeError):
    """Our engine's answers are not the model's: there is nothing to be timed."""


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run has found so far, by scenario.

    verdicts: how far our engine's log-probabilities were off before the timing.
    timings: of both sides.
    breakdowns: by scenario and side ("ours", "fa3"), `breakdown.phases`.
    """

    settings: Settings
    contestants: Contestants
    verdicts: dict[str, Verdict]
    timings: dict[str, Paired] = dataclasses.field(default_factory=dict)
    breakdowns: dict[str, dict[str, dict[str, Any]]] = dataclasses.field(default_factory=dict)


def run(settings: Settings, console: Console, *, commit: str = "",
        traces: pathlib.Path | None = None) -> Iterator[Result]:
    """Compares both sides: checks ours on every scenario, times each, and then profiles each.

    Args:
      console: where to say what is being done.
      commit: for the record; git is asked where it is empty.
      traces: a folder that the profiler's traces are kept in.

    Yields:
      The one result, after each scenario that it has more of: what it has is not lost if the rest
      fails.

    Raises:
      InputError: what is asked for cannot be run.
      WrongOutput: our engine's answers to a scenario are not those of the model.
    """
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with _told(console, f"checkpoints of {settings.model} and of the softmax model"):
            sides = call_apart(contestants.prepare, settings, folder, commit)
        console.print(f"  {sides.attention_zeros:.1%} of the attention's p are zero")
        with _told(console, f"engines of AsyncT and on {settings.rival}"):
            engines = {
                side: stack.enter_context(remote(
                    contestants.Contestant, checkpoint, (traces or folder / "traces") / side,
                    **options))
                for side, checkpoint, options in (
                    ("ours", sides.ours, settings.our_options()),
                    ("fa3", sides.theirs, settings.their_options()))}
            for engine in engines.values():
                engine.wait()
        result = Result(settings, sides, _check(settings, sides, engines["ours"], console))
        for scenario in settings.scenarios:
            result.timings[scenario.name] = _time(scenario, settings, engines)
            yield result
        # Last: once attached, the profiler costs time even when it is stopped.
        for scenario in settings.scenarios if settings.profile else ():
            with _told(console, f"profile: {scenario.name}"):
                result.breakdowns[scenario.name] = {
                    side: engine.call("explain", scenario, settings.seed)
                    for side, engine in engines.items()}
            yield result


def _check(settings: Settings, sides: Contestants, ours: Remote,
           console: Console) -> dict[str, Verdict]:
    """Judges our engine on every scenario before any is timed."""
    verdicts = {}
    dtype = getattr(torch, settings.dtype)
    with remote(Reference, sides.ours, dtype, settings.quantization) as reference:
        for scenario in settings.scenarios:
            with _told(console, f"check: {scenario.name}"):
                answers = ours.call("answer", scenario, settings.seed)
                verdict = verdicts[scenario.name] = reference.call("judge", answers)
            if verdict.fault:
                raise WrongOutput(f"{scenario.name}: {verdict.fault}")
    return verdicts


def _time(scenario, settings: Settings, engines: dict[str, Remote]) -> Paired:
    """Alternates both sides on the same prompts, which are new in every round."""

    def timed(side: str):
        return lambda index: engines[side].call("run", scenario, settings.seed + 1 + index)

    if settings.full_shape_warm_up:
        for engine in engines.values():
            engine.call("run", scenario, settings.seed)
    with tqdm(desc=scenario.name, total=settings.rounds, unit="round", file=sys.stdout) as bar:
        for paired, bar.total in alternate(timed("ours"), timed("fa3"), rounds=settings.rounds,
                                           seconds=settings.seconds):
            bar.set_postfix_str(f"ratio {paired.ratio.median:.3f}", refresh=False)
            bar.update()
    return paired


@contextlib.contextmanager
def _told(console: Console, what: str):
    console.print(what, end=" ... ", highlight=False)
    started = time.monotonic()
    yield
    console.print(f"{time.monotonic() - started:.1f} s", highlight=False)
