"""Objects that live in a process of their own."""

from __future__ import annotations

import concurrent.futures
import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

_object: Any = None  # in the other process


class Remote:
    """An object in another process, whose methods are called from here; errors come back."""

    def __init__(self, executor: concurrent.futures.Executor):
        self._executor = executor

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """What the object's method returns."""
        return self._executor.submit(_call, method, arguments, options).result()


@contextlib.contextmanager
def remote(build: Callable[..., Any], *arguments: Any, **options: Any) -> Iterator[Remote]:
    """Builds an object, `build(*arguments, **options)`, in a new process, which ends at the end.

    Its `close()` is called then, if it has one.
    """
    with concurrent.futures.ProcessPoolExecutor(
        max_workers=1, mp_context=multiprocessing.get_context("spawn")
    ) as executor:
        executor.submit(_build, build, arguments, options).result()
        try:
            yield Remote(executor)
        finally:
            executor.submit(_close).result()


def call_apart(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """`function(*arguments, **options)`, in a process that leaves nothing on the GPU."""
    with remote(_Function, function) as process:
        return process.call("call", *arguments, **options)


class _Function:
    def __init__(self, function: Callable[..., Any]):
        self.call = function


def _build(build: Callable[..., Any], arguments: tuple, options: dict) -> None:
    global _object
    _object = build(*arguments, **options)


def _call(method: str, arguments: tuple, options: dict) -> Any:
    return getattr(_object, method)(*arguments, **options)


def _close() -> None:
    if close := getattr(_object, "close", None):
        close()
