"""What the modules that write tables share: the result files and the register of tables."""

import functools
import json
import os
import pathlib
from collections.abc import Callable

_ROOT = pathlib.Path(
    os.environ.get("BUILD_WORKSPACE_DIRECTORY", pathlib.Path(__file__).parents[2]))
KERNELS = _ROOT / "kernels"

TABLES: dict[str, Callable[[], str]] = {}


def table(name: str) -> Callable:
    """Registers a function that returns the table called `name`, as Markdown."""
    def register(function: Callable[[], str]) -> Callable[[], str]:
        TABLES[name] = function
        return function
    return register


@functools.cache
def results(name: str, folder: str = "kernels/results") -> dict:
    """The contents of `folder`/`name`.json."""
    return json.loads((_ROOT / folder / f"{name}.json").read_text())
