"""Ratios over commits: keeps accepted runs, and draws them.

    ./bazelw run //tools/history -- accept results/h200/throughput.json
    ./bazelw run //tools/history -- draw results/h200/history

`accept` copies a report's ratios into the folder `history` beside it, a file a run, numbered; to be
committed. `draw` prints a table of each kind of report there and plots it beside its files. A ratio
that got worse, beyond both runs' intervals, is marked.
"""

import argparse
import collections
import json
import pathlib
import re
import sys
from typing import Any

from documents import markdown
from user_path import user_path

# What tells a row from the others of its report, where it has it.
_NAMES = ("scenario", "model", "kernel", "dtype", "B", "T_q", "ctx", "H", "H_kv", "D", "zeros")
_FIGURES = ("ratio", "low", "high")
_RUN = re.compile(r"(?P<report>.+)-(?P<number>\d+)-(?P<commit>[^-]+)\.json")

Ratios = dict[str, dict[str, float]]  # by row: those of _FIGURES that it has


def accept(path: pathlib.Path) -> pathlib.Path:
    """Keeps the ratios of a report; returns the new file.

    Raises:
      ValueError: the report has no ratio, or is of no commit, or of one with changes.
    """
    report = json.loads(path.read_text())
    machine = report.get("machine", report)
    commit = machine.get("commit", "unknown")
    if not re.fullmatch("[0-9a-f]{7,40}", commit):
        raise ValueError(f"{path} is of commit {commit!r}: only a whole commit can be accepted")
    rows = {_name(row): {key: row[key] for key in _FIGURES if row.get(key) is not None}
            for row in report.get("rows", ()) if row.get("ratio") is not None}
    if not rows:
        raise ValueError(f"{path} has no ratio")
    folder = path.parent / "history"
    folder.mkdir(exist_ok=True)
    number = 1 + max((int(match["number"]) for match in _runs(folder, path.stem)), default=0)
    kept = folder / f"{path.stem}-{number:04d}-{commit[:12]}.json"
    kept.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    return kept


def _name(row: dict[str, Any]) -> str:
    return " ".join(f"{key} {row[key]}" if isinstance(row[key], (int, float)) else str(row[key])
                    for key in _NAMES if row.get(key) is not None)


def _runs(folder: pathlib.Path, report: str | None = None) -> list[re.Match]:
    """The runs' file names in the order of acceptance, of one report or of all."""
    found = filter(None, (_RUN.fullmatch(path.name) for path in folder.iterdir()))
    return sorted((match for match in found if report in (None, match["report"])),
                  key=lambda match: int(match["number"]))


def read(folder: pathlib.Path) -> dict[str, dict[str, Ratios]]:
    """The accepted runs: by report, by commit."""
    found: dict[str, dict[str, Ratios]] = collections.defaultdict(dict)
    for match in _runs(folder):
        content = json.loads((folder / match.string).read_text())
        found[match["report"]][match["commit"]] = content["rows"]
    return found


def table(runs: dict[str, Ratios]) -> str:
    """Markdown: a line a row, a column a commit; a ratio that got worse is marked."""
    names = dict.fromkeys(name for rows in runs.values() for name in rows)
    return markdown(["", *runs], ([name, *_cells(name, runs)] for name in names))


def _cells(name: str, runs: dict[str, Ratios]) -> list[str]:
    cells, before = [], None
    for rows in runs.values():
        row = rows.get(name)
        worse = (row and before and
                 row.get("low", row["ratio"]) > before.get("high", before["ratio"]))
        cells.append("-" if row is None else f"{row['ratio']:.3f}{' worse' if worse else ''}")
        before = row or before
    return cells


def plot(report: str, runs: dict[str, Ratios], path: pathlib.Path) -> None:
    """A line a row, over commits."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5), layout="constrained")
    for name in dict.fromkeys(name for rows in runs.values() for name in rows):
        axes.plot(list(runs), [rows.get(name, {}).get("ratio", float("nan"))
                               for rows in runs.values()], marker="o", label=name)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_ylabel("ratio of times (below 1 AsyncT is faster)")
    axes.set_title(report)
    axes.tick_params(axis="x", rotation=45)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("action", choices=("accept", "draw"))
    parser.add_argument("path", help="accept: a report; draw: the folder of accepted runs")
    arguments = parser.parse_args(argv)
    path = user_path(arguments.path)
    try:
        if arguments.action == "accept":
            print(f"wrote {accept(path)}")
            return 0
        for report, runs in read(path).items():
            print(f"{report}\n\n{table(runs)}\n")
            plot(report, runs, path / f"{report}.png")
    except (OSError, ValueError) as error:
        print(f"history: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
