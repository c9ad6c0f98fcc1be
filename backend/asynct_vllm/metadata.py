"""What every attention layer of a step shares."""

import dataclasses
from typing import Protocol

import torch
from vllm.v1.attention.backend import AttentionMetadata

from asynct_kernels import GateParams
from asynct_vllm.plan import Plan


class Work(Protocol):
    """What the plan's paths prepared for all layers of the step."""

    def served(self) -> list[tuple[str, slice]]:
        """The paths and the query rows that each serves."""

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        gate: GateParams,
        output: torch.Tensor,
    ) -> None:
        """Writes the step's rows of output [T, H, D], for query [T, H, D] and one layer's caches
        [num_blocks, block_size, H_kv, D], which hold key and value [T, H_kv, D] already."""


@dataclasses.dataclass(frozen=True, eq=False)
class AsyncTMetadata(AttentionMetadata):
    """A step: its plan, its number of query tokens, and the work of each layer."""

    plan: Plan
    num_tokens: int
    work: Work
