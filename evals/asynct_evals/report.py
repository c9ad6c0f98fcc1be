"""What a run shows and leaves behind: a table on the terminal and a JSON file."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib

from rich.table import Table

from asynct_evals.comparison import Comparison
from asynct_evals.evaluation import FLEXIBLE, STRICT, TASK, Result, Score

_SHOWN_DIVERGENCES = 10


def table(*results: Result) -> Table:
    """Scores and speed of runs of one model on the same problems, a column per run."""
    first = results[0]
    out = Table(title=f"{TASK}: {first.settings.model}", caption=f"data: {first.source}")
    out.add_column("")
    for result in results:
        out.add_column(result.settings.engine)
    columns = [_column(result) for result in results]
    for name in columns[0]:
        out.add_row(name, *(column[name] for column in columns))
    return out


def _column(result: Result) -> dict[str, str]:
    shots, asked = str(result.num_fewshot), result.settings.num_fewshot
    if result.num_fewshot < asked:
        shots += f" (not {asked}: no more fit the model's context)"
    count, seconds = len(result.samples), result.run_seconds
    return {
        "device": f"{result.machine['card']}, {result.dtype}",
        "problems": str(count),
        "few-shot examples": shots,
        "exact match, strict": _show(result.scores[STRICT]),
        "exact match, flexible": _show(result.scores[FLEXIBLE]),
        "time": f"{seconds:.1f} s, after {result.load_seconds:.1f} s to load",
        "problems/s": f"{count / seconds:.2f}",
        "output tokens/s": f"{result.output_tokens / seconds:.1f}",
    }


def _show(score: Score) -> str:
    return f"{score.value:.3f}" + ("" if score.stderr is None else f" ± {score.stderr:.3f}")


def comparison_tables(comparison: Comparison) -> list[Table]:
    """The two runs side by side, how far they agree, and where the first answers part."""
    summary = Table(title="agreement", show_header=False)
    count = len(comparison.results[0].samples)
    summary.add_row("equal answers", f"{count - len(comparison.divergences)} of {count}")
    summary.add_row("tokens before the first difference", f"{comparison.token_agreement:.2%}")
    judged = comparison.judged_differently
    ids = f": {', '.join(map(str, judged))}" if judged else ""
    summary.add_row("problems judged differently", f"{len(judged)} of {count}{ids}")
    tables = [table(*comparison.results), summary]
    if comparison.divergences:
        tables.append(_divergence_table(comparison))
    return tables


def _divergence_table(comparison: Comparison) -> Table:
    engines = [result.settings.engine for result in comparison.results]
    count = len(comparison.divergences)
    title = "first differing token of each answer that differs"
    if count > _SHOWN_DIVERGENCES:
        title += f" (first {_SHOWN_DIVERGENCES} of {count}; all are in the report)"
    out = Table("problem", "position", *engines, "log-prob gap", title=title)
    for d in comparison.divergences[:_SHOWN_DIVERGENCES]:
        gap = "-" if d.logprob_gap is None else f"{d.logprob_gap:.2g}"
        out.add_row(str(d.id), str(d.position), *map(repr, d.texts), gap)
    return out


def to_json(result: Result) -> dict:
    """The run as plain data; see `Result` and `Sample` for what the fields mean."""
    out = dataclasses.asdict(result)
    out["settings"]["model"] = str(result.settings.model)
    for sample in out["samples"]:
        sample["output_tokens"] = len(sample.pop("generation")["tokens"])
    return {
        "task": TASK,
        "problems_per_second": len(result.samples) / result.run_seconds,
        "output_tokens_per_second": result.output_tokens / result.run_seconds,
        **out,
    }


def comparison_to_json(comparison: Comparison) -> dict:
    """The comparison as plain data, both runs included, by engine."""
    return {
        "task": TASK,
        "token_agreement": comparison.token_agreement,
        "judged_differently": comparison.judged_differently,
        "divergences": [dataclasses.asdict(d) for d in comparison.divergences],
        "results": {r.settings.engine: to_json(r) for r in comparison.results},
    }


def save(content: dict, directory: pathlib.Path, name: str) -> pathlib.Path:
    """Writes `<directory>/<name>-<time>.json`, making the directory, and returns its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S-%f}.json"
    with path.open("x", encoding="utf-8") as file:
        json.dump(content, file, indent=1, ensure_ascii=False)
    return path
