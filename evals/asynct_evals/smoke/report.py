"""What the gate shows and leaves behind."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from asynct_evals.smoke.gate import Asked, PathResult, Result


def tables(result: Result) -> Iterator[Table]:
    """The paths; then the speed."""
    table = Table(title=f"paths on {result.machine['card']}", caption="differences of "
                  "log-probability: root mean squares from the model in float32")
    for column in ("path", "accuracy", "longest", "difference", "eager's", "steps of kernels", ""):
        table.add_column(column)
    for name, path in result.paths.items():
        table.add_row(name, *_figures(path), "wrong" if path.faults else "right")
    yield table
    table = Table("scenario", "time over the softmax model's", "interval", title="speed")
    for name, ratio in result.ratios.items():
        table.add_row(name, f"{ratio.median:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}")
    yield table


def _figures(path: PathResult) -> tuple[str, ...]:
    if path.served is None:
        return ("-",) * 5
    steps = (f"{name} {steps}" for name, (steps, _) in path.served.kernels.items())
    return (f"{path.served.accuracy:.3f}", str(path.served.longest), f"{path.verdict.error:.2g}",
            f"{path.verdict.eager:.2g}", ", ".join(steps))


def to_json(asked: Asked, result: Result) -> dict[str, Any]:
    """The run as plain data, without the answers; `rows` are as in other reports of ratios."""
    out = dataclasses.asdict(result)
    for path in out["paths"].values():
        if path["served"] is not None:
            del path["served"]["answers"]
    rows = [{"scenario": name, "ratio": ratio["median"], "low": ratio["low"], "high": ratio["high"]}
            for name, ratio in out.pop("ratios").items()]
    return out | {
        "rows": rows,
        "seed": asked.throughput.seed, "scenario": asked.scenario.as_json(),
        "problems": str(asked.problems), "min_speed": asked.min_speed,
        "shape": asked.throughput.as_json()["shape"],
        "timed": [scenario.as_json() for scenario in asked.throughput.scenarios]}


def save(asked: Asked, result: Result, path: pathlib.Path) -> pathlib.Path:
    """Writes the JSON, and the folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_json(asked, result), indent=1) + "\n")
    return path
