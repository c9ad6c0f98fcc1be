"""What one path serves, in a process of its own."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
from typing import Any

from scenarios import Scenario

from asynct_evals.data import Data
from asynct_evals.settings import Settings
from asynct_evals.smoke.paths import Path
from asynct_evals.throughput.reference import Answer

_LOGPROBS = 20  # of the likeliest tokens
# Counters are read where the engine runs.
_HERE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


@dataclasses.dataclass(frozen=True)
class Served:
    """What came of one path.

    answers: to the scenario.
    kernels: steps and tokens of each kernel that served it.
    accuracy, longest: of the problems; the most tokens that one of them came to.
    problem_kernels: those that served the problems.
    """

    answers: list[Answer]
    kernels: dict[str, tuple[int, int]]
    accuracy: float
    longest: int
    problem_kernels: dict[str, tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Request:
    """What a path is asked.

    checkpoint, options: the scenario's model, and arguments of vllm.LLM.
    scenario, seed: what `timed_engine.Engine.answers` takes.
    problems, settings: what `evaluation.run` takes.
    """

    checkpoint: pathlib.Path
    options: dict[str, Any]
    scenario: Scenario
    seed: int
    problems: Data
    settings: Settings


def serve(path: Path, request: Request) -> Served:
    """Serves the scenario and solves the problems; to be called once in a process."""
    os.environ.update(_HERE | path.environment)
    # Only now: they read the environment.
    from asynct_vllm import counters
    from vllm.distributed import cleanup_dist_env_and_memory

    from asynct_evals import evaluation

    answers = _answers(request, request.options | path.options)
    kernels = _plain(counters.snapshot())
    cleanup_dist_env_and_memory()
    counters.reset()
    settings = dataclasses.replace(
        request.settings, options=request.settings.options | path.options)
    result = evaluation.run(settings, request.problems)
    return Served(
        answers, kernels, result.scores[evaluation.STRICT].value,
        max(s.prompt_tokens + len(s.generation.tokens) for s in result.samples),
        _plain(counters.snapshot()))


def _plain(counted: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Without the counters' type: nobody else has to import vLLM."""
    return {name: tuple(hits) for name, hits in counted.items()}


def _answers(request: Request, options: dict[str, Any]) -> list[Answer]:
    from timed_engine import Engine, random_prompts

    with tempfile.TemporaryDirectory() as traces:
        engine = Engine(request.checkpoint, pathlib.Path(traces), **options)
    steps = engine.answers(request.scenario, request.seed, _LOGPROBS)
    prompts = random_prompts(request.scenario, engine.vocabulary, request.seed)
    engine.close()
    return [Answer(*pair) for pair in zip(prompts, steps, strict=True)]
