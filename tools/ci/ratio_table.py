"""Writes the ratio table of a runner's results as Markdown, for a pull request's comment.

    ./bazelw run //tools/ci:ratio_table -- results

reads results/CARD/*.json as the benchmarks write them and writes results/ratios.md. A report whose
rows hold no ratio (that of an evaluation, say) is left out.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterable

from documents import markdown
from user_path import user_path

OUTPUT = "ratios.md"
_HEAD = "Our time over FlashAttention-3's, in the same run: below 1 ours is faster.\n"

# Key of a row -> its format; of these a report shows what its rows have. First those that name it.
_NAMES = dict.fromkeys(("kernel", "scenario", "model"), "")
_FIGURES = {
    **dict.fromkeys(("B", "T_q", "ctx", "H", "H_kv", "D", "zeros"), ""),
    "ours_us": ".1f", "fa3_us": ".1f", "ours_s": ".4f", "fa3_s": ".4f",
    "ratio": ".3f", "low": ".3f", "high": ".3f", "spread": ".1%",
}


def render(reports: Iterable[tuple[str, dict]]) -> str:
    """Markdown of (name, report) pairs: a heading and a table for each that holds ratios."""
    sections = [f"### {name}: {_origin(report)}\n\n{_table(report['rows'])}\n"
                for name, report in reports
                if any("ratio" in row for row in report.get("rows", ()))]
    return "\n".join([_HEAD, *sections]) if sections else "No benchmark has left a ratio.\n"


def _origin(report: dict) -> str:
    machine = report.get("machine", report)
    return f"{machine['card']}, commit {str(machine.get('commit', 'unknown'))[:12]}"


def _table(rows: list[dict]) -> str:
    names, figures = ([key for key in keys if any(key in row for row in rows)]
                      for keys in (_NAMES, _FIGURES))
    return markdown(names + figures,
                    ([_cell(row, key) for key in names + figures] for row in rows), len(names))


def _cell(row: dict, key: str) -> str:
    """A wrong result has no time, and a side that did not run has neither time nor ratio."""
    value = row.get(key)
    return "-" if value is None else format(value, _FIGURES.get(key, ""))


def read(folder: pathlib.Path) -> list[tuple[str, dict]]:
    """The reports of every card, by name.

    Raises:
      ValueError: a file is not JSON, or not an object; the message names it.
    """
    found = []
    for path in sorted(folder.glob("*/*.json")):
        try:
            report = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        if not isinstance(report, dict):
            raise ValueError(f"{path} is no report: it holds no object")
        found.append((f"{path.parent.name}/{path.stem}", report))
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", help="folder of the results of all cards")
    folder = user_path(parser.parse_args(argv).results)
    try:
        text = render(read(folder))
    except ValueError as error:
        print(f"ratio_table: {error}", file=sys.stderr)
        return 1
    folder.mkdir(exist_ok=True)
    (folder / OUTPUT).write_text(text)
    print(f"wrote {folder / OUTPUT}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
