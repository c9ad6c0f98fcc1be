"""A run of the gate: every path serves at once, is judged, and then both engines are timed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import multiprocessing
import pathlib
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from scenarios import Scenario

from asynct_evals.data import Data
from asynct_evals.settings import Settings
from asynct_evals.smoke import serving
from asynct_evals.smoke.paths import Path
from asynct_evals.smoke.serving import Request, Served
from asynct_evals.throughput import contestants, settings
from asynct_evals.throughput.contestants import Contestant, Contestants
from asynct_evals.throughput.paired import Interval, alternate
from asynct_evals.throughput.reference import Reference, Verdict
from asynct_evals.throughput.remote import Remote, remote

MIN_ACCURACY = 0.95
MIN_LONGEST = 1024  # tokens that some problem must come to


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a run of the gate serves.

    paths: those that serve.
    jobs: how many do at once.
    scenario, chunk: what each answers, and the tokens of a step.
    problems, evaluation: for the tiny checkpoint, and how.
    throughput: the random model, and what both sides are timed on.
    timed: whether they are.
    min_speed: of FlashAttention-3's throughput, what ours must reach.
    """

    paths: tuple[Path, ...]
    jobs: int
    scenario: Scenario
    chunk: int
    problems: Data
    evaluation: Settings
    throughput: settings.Settings
    timed: bool
    min_speed: float


@dataclasses.dataclass(frozen=True)
class PathResult:
    """What a path served (None if it crashed), how it was judged, and what is wrong."""

    served: Served | None
    verdict: Verdict | None
    faults: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Result:
    """By path what it did; by timed scenario the ratio of our time; and what is wrong of all."""

    machine: dict[str, Any]
    paths: dict[str, PathResult]
    ratios: dict[str, Interval]
    faults: tuple[str, ...]


def run(asked: Asked, say: Callable[[str], None], *, commit: str = "",
        serve: Callable[[Path, Request], Served] = serving.serve) -> Result:
    """Serves, judges and times.

    Args:
      say: takes a line of progress.
      commit: for the record; git is asked where it is empty.
      serve: what each path's process calls.

    Raises:
      InputError: FlashAttention-3 does not run on the GPU.
    """
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides = contestants.prepare(asked.throughput, folder, commit)
        # All start now; what is timed is so at the end, alone.
        judge = stack.enter_context(
            remote(Reference, sides.ours, getattr(torch, asked.throughput.dtype), None))
        engines = [
            stack.enter_context(remote(Contestant, checkpoint, folder / "traces", **options))
            for checkpoint, options in (
                (sides.ours, asked.throughput.our_options()),
                (sides.theirs, asked.throughput.their_options()))
            if asked.timed]
        paths = {}
        for path, served in _serve_all(asked, sides, serve):
            result = paths[path.name] = _judge(path, served, judge)
            say(f"{path.name}: {'; '.join(result.faults) or 'right'}")
        ratios = {scenario.name: _time(asked, scenario, engines)
                  for scenario in asked.throughput.scenarios if asked.timed}
    return Result(sides.machine, {path.name: paths[path.name] for path in asked.paths}, ratios,
                  tuple(_slow(ratios, asked.min_speed))
                  + tuple(f"{name}: {fault}" for name, r in paths.items() for fault in r.faults))


def _serve_all(
    asked: Asked, sides: Contestants, serve: Callable[[Path, Request], Served]
) -> Iterator[tuple[Path, Served | Exception]]:
    """What each path served, or how it failed, as they come."""
    options = asked.throughput.our_options() | {
        "max_model_len": asked.scenario.longest, "max_num_batched_tokens": asked.chunk}
    request = Request(sides.ours, options, asked.scenario, asked.throughput.seed, asked.problems,
                      asked.evaluation)
    with concurrent.futures.ProcessPoolExecutor(
        asked.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        futures = {pool.submit(serve, path, request): path for path in asked.paths}
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future.exception() or future.result()


def _judge(path: Path, served: Served | Exception, judge: Remote) -> PathResult:
    if isinstance(served, Exception):
        return PathResult(None, None, (f"{type(served).__name__}: {served}",))
    verdict = judge.call("judge", served.answers)
    faults = (
        verdict.fault,
        path.fault(served.kernels, all_kernels=True),
        path.fault(served.problem_kernels, all_kernels=False),
        None if served.accuracy >= MIN_ACCURACY
        else f"accuracy {served.accuracy:.3f}: must be {MIN_ACCURACY} or more",
        None if served.longest > MIN_LONGEST
        else f"the longest problem has {served.longest} tokens: must be over {MIN_LONGEST}",
    )
    return PathResult(served, verdict, tuple(filter(None, faults)))


def _time(asked: Asked, scenario: Scenario, engines: list[Remote]) -> Interval:
    """The ratio of our time to theirs, after a run of each that warms up."""
    def timed(engine: Remote, index: int) -> float:
        return engine.call("run", scenario, asked.throughput.seed + 1 + index)

    sides = [functools.partial(timed, engine) for engine in engines]
    for side in sides:
        side(-1)
    *_, (paired, _) = alternate(*sides, rounds=asked.throughput.rounds, seconds=0.0)
    return paired.ratio


def _slow(ratios: dict[str, Interval], min_speed: float) -> Iterator[str]:
    """Scenarios on which ours is slower than allowed, beyond the doubt of the interval."""
    for name, ratio in ratios.items():
        if not ratio.low <= 1 / min_speed:
            yield (f"{name}: {1 / ratio.median:.2f} times the softmax model's throughput, and must "
                   f"be {min_speed}")
