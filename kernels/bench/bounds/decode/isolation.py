"""Runs jobs in a forked process, so that one that hangs or crashes costs only itself."""

import multiprocessing
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def run_isolated(
    work: Callable[[Any], Any], jobs: Sequence, seconds: float
) -> Iterator[tuple[Any, Any, str | None]]:
    """Yields (job, work(job), None), or (job, None, what went wrong), for every job in order.

    Jobs share one process until one of them raises, dies or takes longer than `seconds`; the next
    jobs then get a new one. The caller must not have touched the GPU: it does not survive a fork.
    """
    context = multiprocessing.get_context("fork")
    process = connection = None
    for job in jobs:
        if process is None:
            connection, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(work, theirs), daemon=True)
            process.start()
            theirs.close()
        connection.send(job)
        result, error = None, f"no answer within {seconds} s"
        try:
            if connection.poll(seconds):
                result, error = connection.recv()
        except EOFError:
            error = "the process died"
        if error is not None:
            process.kill()
            process.join()
            process = None
        yield job, result, error
    if process is not None:
        connection.send(None)
        process.join(10)


def _serve(work: Callable[[Any], Any], connection) -> None:
    while (job := connection.recv()) is not None:
        try:
            answer = work(job), None
        except Exception:  # the parent reports it
            answer = None, traceback.format_exc()
        connection.send(answer)
