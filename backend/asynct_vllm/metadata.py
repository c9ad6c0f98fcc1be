"""What every attention layer of a step shares."""

import dataclasses
from typing import Any

from vllm.v1.attention.backend import AttentionMetadata

from asynct_vllm.plan import Plan
from asynct_vllm.torch_paths.batch import Batch


@dataclasses.dataclass(frozen=True, eq=False)
class AsyncTMetadata(AttentionMetadata):
    """A step: its requests, the plan, and the plan's work.

    Attributes:
        plan: which path serves the step.
        batch: the requests.
        work: what the path's `prepare` made of the batch, indices included.
    """

    plan: Plan
    batch: Batch
    work: Any
