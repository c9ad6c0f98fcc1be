"""What a run leaves behind: rows, tables, a JSON file and a plot."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import statistics
from collections.abc import Iterator
from typing import Any

from rich.table import Table

from asynct_evals.throughput.breakdown import GROUPS
from asynct_evals.throughput.paired import CONFIDENCE
from asynct_evals.throughput.suite import Result

_SIDES = ("ours", "fa3")


def rows(result: Result) -> list[dict[str, Any]]:
    """One row a scenario: median seconds of both sides, median ratio with its interval."""
    settings = result.settings
    out = []
    for name, paired in result.timings.items():
        ratio = paired.ratio
        ours, theirs = (statistics.median(times) for times in (paired.ours, paired.theirs))
        out.append({
            "scenario": name, "model": settings.model, "dtype": settings.dtype,
            "quantization": settings.quantization, "graphs": settings.graphs, "ours_s": ours,
            "fa3_s": theirs, "ratio": ratio.median, "low": ratio.low, "high": ratio.high,
            "confidence": ratio.confidence, "rounds": len(paired.ours),
            "attention_zeros": result.contestants.attention_zeros})
    return out


def to_json(result: Result) -> dict[str, Any]:
    """The run as plain data, every timed run included."""
    return {
        "machine": result.contestants.machine,
        "settings": result.settings.as_json() | {"rival": result.settings.rival},
        "rows": rows(result),
        "checks": {name: dataclasses.asdict(v) for name, v in result.verdicts.items()},
        "samples": {name: {"ours_s": paired.ours, "fa3_s": paired.theirs}
                    for name, paired in result.timings.items()},
        "breakdown": result.breakdowns,
    }


def tables(result: Result) -> Iterator[Table]:
    """The ratios; then, of each scenario that was profiled, where both sides' steps go."""
    settings, machine = result.settings, result.contestants.machine
    table = Table(
        title=f"{settings.model}: its time over that of a softmax model on {settings.rival}",
        caption=f"{machine['card']}, medians; intervals of {CONFIDENCE:.0%}, or less where there "
                f"are few rounds; {result.contestants.attention_zeros:.1%} of p are zero")
    for column in ("scenario", "ours, s", "theirs, s", "ratio", "interval", "rounds"):
        table.add_column(column, justify="left" if column == "scenario" else "right")
    for row in rows(result):
        table.add_row(row["scenario"], f"{row['ours_s']:.4f}", f"{row['fa3_s']:.4f}",
                      f"{row['ratio']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}",
                      str(row["rounds"]))
    yield table
    for name, sides in result.breakdowns.items():
        yield _breakdown_table(name, sides)


def _breakdown_table(scenario: str, sides: dict[str, dict[str, Any]]) -> Table:
    """Columns: each phase of each side. The two may differ in how prompts fell into steps."""
    columns = [(phase, side, sides[side][phase]) for phase in ("prefill", "mixed", "decode")
               for side in _SIDES if phase in sides[side]]
    table = Table(title=f"{scenario}: a step's GPU time under the profiler, us")
    table.add_column("")
    for phase, side, step in columns:
        table.add_column(f"{phase}\n{side}\n{step['tokens']} tokens", justify="right")
    for group in GROUPS:
        table.add_row(group, *(f"{step['groups'][group]:.0f}" for _, _, step in columns))
    table.add_section()
    for label, key in (("GPU busy", "busy_us"), ("first to last kernel", "span_us"),
                       ("gap to the next step", "gap_us"), ("launches", "launches"),
                       ("of them in a graph", "in_graph"),
                       ("launches a layer", "launches_per_layer")):
        table.add_row(label, *("-" if step[key] is None else f"{step[key]:.0f}"
                               for _, _, step in columns))
    return table


def save(result: Result, path: pathlib.Path) -> list[pathlib.Path]:
    """Writes the JSON to `path` and the plot beside it; returns both."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_json(result), indent=1) + "\n")
    plot = path.with_suffix(".png")
    _plot(result, plot)
    return [path, plot]


def _plot(result: Result, path: pathlib.Path) -> None:
    """Ratios with their intervals, a line a scenario."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings, found = result.settings, rows(result)[::-1]
    figure, axes = pyplot.subplots(figsize=(7, 1.4 + 0.4 * len(found)), layout="constrained")
    errors = [[row["ratio"] - row["low"] for row in found],
              [row["high"] - row["ratio"] for row in found]]
    axes.errorbar([row["ratio"] for row in found], [row["scenario"] for row in found],
                  xerr=errors, fmt="o", capsize=3)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_ylim(-0.5, len(found) - 0.5)
    axes.set_xlabel("ratio of times (below 1 AsyncT is faster)")
    precision = filter(None, (settings.dtype, settings.quantization))
    axes.set_title(f"{settings.model} against a softmax model on {settings.rival}\n"
                   f"{result.contestants.machine['card']}, {' '.join(precision)}",
                   fontsize="medium")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
