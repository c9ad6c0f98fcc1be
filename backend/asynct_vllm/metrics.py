"""The counters among vLLM's metrics: at `/metrics`, and in `LLM.get_metrics()`.

Steps are counted in the engine's processes, and another one answers for them. So each writes its
totals to a memory-mapped file of prometheus_client's multi-process form. Where vLLM has several API
servers, they read such files anyhow; else a collector of ours does, in the front end.
"""

import functools
import os
import pathlib
import tempfile
import time

from prometheus_client import REGISTRY
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector

_VLLMS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # set if there are several API servers
_FOLDER = "ASYNCT_METRICS_DIR"  # ours, which the engine's processes inherit

STEPS = ("vllm:asynct_attention_steps", "Steps that a path of AsyncT's attention served.")
TOKENS = ("vllm:asynct_attention_tokens", "Query tokens that a path of AsyncT's attention served.")

_made: list[tempfile.TemporaryDirectory] = []  # goes with the process


def expose() -> None:
    """Shows in this process's registry what it and its children count. Re-entrant."""
    if _FOLDER in os.environ:
        return
    _made.append(tempfile.TemporaryDirectory(prefix="asynct-metrics-"))
    os.environ[_FOLDER] = _made[-1].name
    MultiProcessCollector(REGISTRY, os.environ[_FOLDER])


def add(path: str, tokens: int) -> None:
    """Adds a step of `path` to what is shown, if anything shows it."""
    folder = os.environ.get(_VLLMS_FOLDER) or os.environ.get(_FOLDER)
    if folder is None:
        return
    values = _values(folder, os.getpid())
    for metric, amount in ((STEPS, 1), (TOKENS, tokens)):
        key = _key(*metric, path)
        total, _ = values.read_value(key)
        values.write_value(key, total + amount, time.time())


@functools.cache
def _key(name: str, meaning: str, path: str) -> str:
    return mmap_key(name, f"{name}_total", ["path"], [path], meaning)


@functools.cache
def _values(folder: str, process: int) -> MmapedDict:
    """This process's totals. The file's name begins with the type, as prometheus_client has it."""
    return MmapedDict(str(pathlib.Path(folder, f"counter_asynct{process}.db")))
