"""How often each path served, in steps and in tokens.

A step counts if it fills cache slots. vLLM's warm-up, capture and other dummy steps fill none (both
model runners give them slots of -1), so they count nothing. Whether a step does is copied to the
host beside the step's own work, and looked at when it has arrived: counting never waits for the
device, and a step is seen with the next one at the latest.
"""

import atexit
import collections
import dataclasses
import logging
from collections.abc import Sequence
from typing import NamedTuple

import torch
from vllm.distributed import get_pp_group, get_tp_group, model_parallel_is_initialized
from vllm.logger import init_logger

from asynct_vllm import metrics

logger = init_logger(f"vllm.{__name__}")

# Of a step's slots; under context parallelism some of a rank's are -1 in every step.
_LOOKED_AT = 64
_MOST_WAITING = 64  # steps; vLLM launches one or two ahead


class Hits(NamedTuple):
    """What a path served since the last reset."""

    calls: int
    tokens: int


@dataclasses.dataclass
class _Step:
    """A step that may be a dummy; its `slots` are on the host once `arrived` says so."""

    slots: torch.Tensor
    arrived: torch.cuda.Event
    served: Sequence[tuple[str, int]] = ()
    tokens: int = 0


_waiting: collections.deque[_Step] = collections.deque()
_spare: list[_Step] = []
_totals: dict[str, Hits] = {}


def count(served: Sequence[tuple[str, int]], slot_mapping: torch.Tensor) -> None:
    """Counts one step.

    Args:
        served: paths, and how many tokens each serves, padding aside.
        slot_mapping: [T] int64, the tokens' cache slots, negative for none.
    """
    slots = slot_mapping[:_LOOKED_AT]
    if not slots.is_cuda:
        _add(served, slots)
        return
    step = _spare.pop() if _spare else _new_step(slots.dtype)
    step.served, step.tokens = served, slots.shape[0]
    step.slots[: step.tokens].copy_(slots, non_blocking=True)
    step.arrived.record()
    _waiting.append(step)
    _settle(most=_MOST_WAITING)


def snapshot() -> dict[str, Hits]:
    """The totals by path, of paths that served at least one step. Waits for the device."""
    _settle(most=0)
    return dict(sorted(_totals.items()))


def reset() -> None:
    """Sets all totals to zero; those that vLLM's metrics show go on."""
    _waiting.clear()
    _totals.clear()


def _new_step(dtype: torch.dtype) -> _Step:
    with torch.inference_mode(False):  # to be written to in either mode
        return _Step(torch.empty(_LOOKED_AT, dtype=dtype, pin_memory=True), torch.cuda.Event())


def _settle(most: int) -> None:
    """Counts the steps that have arrived, and waits for others while more than `most` are left."""
    while _waiting and (len(_waiting) > most or _waiting[0].arrived.query()):
        step = _waiting.popleft()
        step.arrived.synchronize()
        _add(step.served, step.slots[: step.tokens])
        _spare.append(step)


def _add(served: Sequence[tuple[str, int]], slots: torch.Tensor) -> None:
    if not (slots.numpy() >= 0).any():
        return
    for path, tokens in served:
        hits = _totals.get(path, Hits(0, 0))
        _totals[path] = Hits(hits.calls + 1, hits.tokens + tokens)
        if _speaks_for_all_ranks():
            metrics.add(path, tokens)


def _speaks_for_all_ranks() -> bool:
    """The ranks of a model serve the same tokens, and metrics add up."""
    return not model_parallel_is_initialized() or (
        get_tp_group().is_first_rank and get_pp_group().is_first_rank)


@atexit.register
def _log() -> None:
    if totals := snapshot():
        logging.raiseExceptions = False  # The log's stream may be closed by now.
        served = ", ".join(
            f"{path} {hits.calls} steps of {hits.tokens} tokens" for path, hits in totals.items()
        )
        logger.info("AsyncT attention served by: %s", served)
