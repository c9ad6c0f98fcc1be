"""A run of any of lm-eval's tasks: a model, an engine and tasks in; metrics and times out."""

from __future__ import annotations

import dataclasses
import logging
import pathlib
import time
from collections.abc import Callable
from typing import Any

import lm_eval
from lm_eval.models.utils import resolve_max_length
from lm_eval.tasks.manager import TaskDict
from machine import describe_machine
from rich.table import Table

from asynct_evals import checkpoint, engines, environment, evaluation
from asynct_evals.resume import Answers, Resumable
from asynct_evals.settings import Settings


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run says. Times in seconds, of this run alone.

    results: task or group -> what lm-eval has of it, as "metric,filter" and
      "metric_stderr,filter" -> number.
    computed, kept: requests that were answered now, and by a former run.
    """

    settings: Settings
    dtype: str
    max_length: int
    results: dict[str, dict[str, Any]]
    num_fewshot: dict[str, int]  # by task
    computed: int
    kept: int
    load_seconds: float
    run_seconds: float
    machine: dict[str, object]


def run(
    settings: Settings,
    tasks: TaskDict,
    *,
    limit: int | None,
    max_length: int | None,
    folder: pathlib.Path,
    say: Callable[[str], None],
) -> Result:
    """Evaluates; answers are kept in `folder`, in a file for this checkpoint and these settings.

    Args:
      limit: problems of each task that are asked, by default all.
      max_length: tokens of context, by default all that the model has.

    Raises:
      InputError: the checkpoint's configuration or tokenizer cannot be read, or another run is
        using the same file.
    """
    logging.getLogger("lm_eval").setLevel(logging.WARNING)  # a prompt that is cut is one
    environment.keep_freed_memory()
    config, tokenizer = checkpoint.describe(settings.model)
    dtype = checkpoint.resolve_dtype(settings.dtype, config)
    max_length = max_length or resolve_max_length(config, tokenizer)
    mark = checkpoint.fingerprint(settings.model, settings.engine, dtype, max_length)
    path = folder / f"answers-{mark}.jsonl"
    say(f"answers are kept in {path}: a run that is interrupted goes on from there")
    with Answers(path) as answers:
        start = time.monotonic()
        engine = engines.load(
            settings.engine, settings.model, dtype=dtype, max_length=max_length, **settings.options
        )
        loaded = time.monotonic()
        model = Resumable(engine, answers, say)
        outcome = lm_eval.evaluate(model, tasks, limit=limit, log_samples=False)
        finished = time.monotonic()

    return Result(
        settings=settings,
        dtype=dtype,
        max_length=max_length,
        results=outcome["results"],
        num_fewshot=outcome["n-shot"],
        computed=model.computed,
        kept=model.kept,
        load_seconds=loaded - start,
        run_seconds=finished - loaded,
        machine=describe_machine(*evaluation.PACKAGES),
    )


def table(result: Result) -> Table:
    """Every metric of every task."""
    settings = result.settings
    out = Table(
        "task",
        "metric",
        title=f"{settings.model} on {settings.engine}",
        caption=f"{result.machine['card']}, {result.dtype}; {result.computed} requests in "
        f"{result.run_seconds:.1f} s, {result.kept} answered before",
    )
    out.add_column("value", justify="right")
    for name, metrics in result.results.items():
        for key, value in metrics.items():
            metric, _, chosen = key.partition(",")
            if not chosen or metric.endswith("_stderr"):
                continue
            stderr = metrics.get(f"{metric}_stderr,{chosen}")
            deviation = f" ± {stderr:.3f}" if isinstance(stderr, float) else ""
            label = metric if chosen == "none" else f"{metric}, {chosen}"
            out.add_row(name, label, f"{value:.3f}{deviation}")
    return out


def to_json(result: Result) -> dict[str, Any]:
    """The run as plain data."""
    out = dataclasses.asdict(result)
    out["settings"]["model"] = str(result.settings.model)
    return out
