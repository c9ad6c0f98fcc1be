"""Tables in Markdown documents that are generated from result files.

A document holds a table between the lines `<!-- table NAME -->` and `<!-- end NAME -->`; whatever
stands between them is replaced.
"""

import pathlib
import re
from collections.abc import Callable, Iterable, Mapping

Tables = Mapping[str, Callable[[], str]]

_TABLE = re.compile(r"<!-- table (?P<name>[^>]+?) -->\n.*?<!-- end (?P=name) -->", re.DOTALL)


def markdown(head: Iterable[object], rows: Iterable[Iterable[object]], text: int = 1) -> str:
    """A table whose first `text` columns are aligned left, the others, figures, right."""
    head = list(head)
    rule = ["---"] * text + ["---:"] * (len(head) - text)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, rule, *rows))


def fill(document: str, tables: Tables) -> str:
    """`document` with each of its tables as the function of that name returns it.

    Raises:
        KeyError: names a table that there is no function for.
    """
    def replace(match: re.Match) -> str:
        name = match["name"]
        return f"<!-- table {name} -->\n{tables[name]()}\n<!-- end {name} -->"

    return _TABLE.sub(replace, document)


def names(document: str) -> list[str]:
    """The tables that `document` holds."""
    return [match["name"] for match in _TABLE.finditer(document)]


def write(paths: Iterable[pathlib.Path], tables: Tables) -> None:
    """Brings the tables in these files up to date."""
    for path in paths:
        path.write_text(fill(path.read_text(), tables))
        print(f"wrote {path}")
