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

    def __init__(self, executor: concurrent.futures.Executor, built: concurrent.futures.Future):
        self._executor = executor
        self._built = built

    def wait(self) -> None:
        """Until the object is built; an error of that comes back."""
        self._built.result()

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """What the object's method returns, once the object is built."""
        self.wait()
        return self._executor.submit(_call, method, arguments, options).result()


@contextlib.contextmanager
def remote(build: Callable[..., Any], *arguments: Any, **options: Any) -> Iterator[Remote]:
    """Begins to build an object, `build(*arguments, **options)`, in a new process.

    The process ends at the end, after the object's `close()`, if it has one.
    """
    with concurrent.futures.ProcessPoolExecutor(
        max_workers=1, mp_context=multiprocessing.get_context("spawn")
    ) as executor:
        built = executor.submit(_build, build, arguments, options)
        try:
            yield Remote(executor, built)
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
