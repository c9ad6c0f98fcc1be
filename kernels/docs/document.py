"""What the modules that write tables share: the result files and the register of tables."""

import functools
import json
import os
import pathlib
from collections.abc import Callable

KERNELS = pathlib.Path(
    os.environ.get("BUILD_WORKSPACE_DIRECTORY", pathlib.Path(__file__).parents[2]), "kernels")

TABLES: dict[str, Callable[[], str]] = {}


def table(name: str) -> Callable:
    """Registers a function that returns the table called `name`, as Markdown."""
    def register(function: Callable[[], str]) -> Callable[[], str]:
        TABLES[name] = function
        return function
    return register


@functools.cache
def results(name: str) -> dict:
    """The contents of kernels/results/`name`.json."""
    return json.loads((KERNELS / "results" / f"{name}.json").read_text())
