"""What the ladder shows and leaves behind."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from scenarios import Scenario

from asynct_evals.ladder.climb import Step


def table(steps: Mapping[str, Step], workload: Scenario, model: str,
          machine: dict[str, Any]) -> Table:
    """A row a rung."""
    total = len(workload.lengths)
    out = Table("rung", title=f"{workload.name} by {model} on {machine['card']}",
                caption=f"{total} requests; what was timed on fewer is extrapolated")
    for column in ("requests timed", "s", f"all {total}, s"):
        out.add_column(column, justify="right")
    for name, step in steps.items():
        figures = ((step.fault, "-") if step.seconds is None else
                   (f"{step.seconds:.1f}", f"{'~' * (step.requests < total)}{step.whole_s:.1f}"))
        out.add_row(name, str(step.requests), *figures)
    return out


def save(steps: Mapping[str, Step], workload: Scenario, model: str, machine: dict[str, Any],
         seed: int, path: pathlib.Path) -> list[pathlib.Path]:
    """Writes the JSON to `path` and the plot beside it; returns both."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [{"rung": name, **dataclasses.asdict(step),
             "extrapolated": step.requests < len(workload.lengths)} for name, step in steps.items()]
    path.write_text(json.dumps({
        "machine": machine, "model": model, "seed": seed, "workload": workload.as_json(),
        "rows": rows}, indent=1) + "\n")
    plot = path.with_suffix(".png")
    _plot(rows, workload, model, machine, plot)
    return [path, plot]


def _plot(rows: list[dict[str, Any]], workload: Scenario, model: str, machine: dict[str, Any],
          path: pathlib.Path) -> None:
    """A bar a rung, hatched where it is extrapolated."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in rows if row["whole_s"] is not None][::-1]
    figure, axes = pyplot.subplots(figsize=(7, 1.4 + 0.4 * len(rows)), layout="constrained")
    bars = axes.barh([row["rung"] for row in rows], [row["whole_s"] for row in rows],
                     hatch=["//" * row["extrapolated"] for row in rows], color="lightsteelblue")
    axes.bar_label(bars, [f"{row['whole_s']:.4g}" for row in rows], padding=3)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(f"s for {len(workload.lengths)} requests (hatched: extrapolated from a part)")
    axes.set_title(f"{workload.name} by {model} on {machine['card']}", fontsize="medium")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
