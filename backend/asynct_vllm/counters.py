"""How often each path served, in steps and in tokens.

A step counts by the cache slots that it fills. vLLM's warm-up, capture and other dummy steps fill
none (both model runners give them slots of -1), so they count nothing, and nor do padded tokens.
The totals stay on the device, so that counting never waits for it.
"""

import atexit
import logging
from typing import NamedTuple

import torch
from vllm.logger import init_logger

logger = init_logger(f"vllm.{__name__}")

_totals: dict[str, torch.Tensor] = {}


class Hits(NamedTuple):
    """What a path served since the last reset."""

    calls: int
    tokens: int


def count(path: str, slot_mapping: torch.Tensor) -> None:
    """Counts one step of `path` whose tokens have these slots (`[T]`, negative for none)."""
    filled = slot_mapping >= 0
    hits = torch.stack((filled.any(), filled.sum()))
    _totals[path] = _totals[path] + hits if path in _totals else hits


def snapshot() -> dict[str, Hits]:
    """The totals by path, of paths that served at least one step. Waits for the device."""
    totals = {path: Hits(*hits.tolist()) for path, hits in sorted(_totals.items())}
    return {path: hits for path, hits in totals.items() if hits.calls}


def reset() -> None:
    """Sets all totals to zero."""
    _totals.clear()


@atexit.register
def _log() -> None:
    if totals := snapshot():
        logging.raiseExceptions = False  # The log's stream may be closed by now.
        served = ", ".join(
            f"{path} {hits.calls} steps of {hits.tokens} tokens" for path, hits in totals.items()
        )
        logger.info("AsyncT attention served by: %s", served)
