"""One evaluation: a model, an engine and problems in; scores, times and every answer out."""

from __future__ import annotations

import dataclasses
import logging
import time

import lm_eval
from lm_eval.models.utils import resolve_max_length
from machine import describe_machine

from asynct_evals import checkpoint, engines, environment, task
from asynct_evals.data import Data
from asynct_evals.settings import Settings

TASK = "gsm8k"
STRICT, FLEXIBLE = "strict-match", "flexible-extract"

# Beside those that every machine's description has: what can change a score.
PACKAGES = ("lm_eval", "datasets", "tokenizers", "numpy")


@dataclasses.dataclass(frozen=True)
class Sample:
    """One problem: what was asked, what came, and how lm-eval's two filters judge it."""

    id: int
    question: str
    answer: str
    output: str
    predicted: dict[str, str]  # by filter
    correct: dict[str, bool]  # by filter
    prompt_tokens: int
    generation: engines.Generation


@dataclasses.dataclass(frozen=True)
class Score:
    value: float
    stderr: float | None  # None for a single problem


@dataclasses.dataclass(frozen=True)
class Result:
    """All that a run says. Times in seconds."""

    settings: Settings
    source: str
    num_fewshot: int  # as used: fewer than asked if the context is short
    generation: dict  # lm-eval's generation settings
    dtype: str
    max_length: int
    scores: dict[str, Score]  # by filter
    samples: list[Sample]
    load_seconds: float
    run_seconds: float
    machine: dict[str, object]

    @property
    def output_tokens(self) -> int:
        return sum(len(sample.generation.tokens) for sample in self.samples)


def run(settings: Settings, data: Data) -> Result:
    """Evaluates.

    Raises:
      InputError: the checkpoint's configuration or tokenizer cannot be read, or a problem does not
        fit its context.
      RuntimeError: the engine did not answer every problem.
    """
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    environment.keep_freed_memory()
    gsm8k = task.build(TASK, data)
    config, tokenizer = checkpoint.describe(settings.model)
    shots, prompts = task.fit(
        gsm8k,
        tokenizer,
        num_fewshot=settings.num_fewshot,
        seed=settings.seed,
        room=resolve_max_length(config, tokenizer) - task.MAX_GEN_TOKS,
    )
    # No more context than the run needs: a cache for all that a model allows may not fit.
    max_length = max(map(len, prompts)) + task.MAX_GEN_TOKS
    dtype = checkpoint.resolve_dtype(settings.dtype, config)

    start = time.monotonic()
    engine = engines.load(
        settings.engine, settings.model, dtype=dtype, max_length=max_length, **settings.options
    )
    loaded = time.monotonic()
    task.set_shots(gsm8k, shots, settings.seed)
    outcome = lm_eval.evaluate(engine, {"tasks": {TASK: gsm8k}})
    finished = time.monotonic()

    return Result(
        settings=settings,
        source=data.source,
        num_fewshot=shots,
        generation=gsm8k.config.generation_kwargs,
        dtype=dtype,
        max_length=max_length,
        scores={name: _score(outcome["results"][TASK], name) for name in (STRICT, FLEXIBLE)},
        samples=_samples(outcome["samples"][TASK], data, prompts, engine.generations),
        load_seconds=loaded - start,
        run_seconds=finished - loaded,
        machine=describe_machine(*PACKAGES),
    )


def _score(metrics: dict, name: str) -> Score:
    stderr = metrics[f"exact_match_stderr,{name}"]
    return Score(
        float(metrics[f"exact_match,{name}"]), stderr if isinstance(stderr, float) else None
    )


def _samples(
    logged: list[dict],
    data: Data,
    prompts: list[list[int]],
    generations: dict[tuple[int, ...], engines.Generation],
) -> list[Sample]:
    by_filter = {
        name: {s["doc_id"]: s for s in logged if s["filter"] == name} for name in (STRICT, FLEXIBLE)
    }
    answered = by_filter[STRICT].keys()
    if len(answered) != len(data.problems) or not all(tuple(p) in generations for p in prompts):
        raise RuntimeError(
            f"{len(data.problems)} problems were asked, but the engine generated "
            f"{len(generations)} answers and lm-eval scored {len(answered)}"
        )
    return [
        Sample(
            id=i,
            question=problem.question,
            answer=problem.answer,
            output=by_filter[STRICT][i]["resps"][0][0],
            predicted={name: of[i]["filtered_resps"][0] for name, of in by_filter.items()},
            correct={name: bool(of[i]["exact_match"]) for name, of in by_filter.items()},
            prompt_tokens=len(prompt),
            generation=generations[tuple(prompt)],
        )
        for i, (problem, prompt) in enumerate(zip(data.problems, prompts, strict=True))
    ]
