"""What every attention layer of a step shares, and what each brings."""

import dataclasses
from typing import Protocol

import torch
from vllm.v1.attention.backend import AttentionMetadata

from asynct_kernels import GateParams, QkNormRope
from asynct_vllm.plan import Plan


@dataclasses.dataclass(frozen=True, eq=False)
class LayerTensors:
    """One layer's part in a step.

    Attributes:
        query: `[T, H, D]`.
        key, value: `[T, H_kv, D]`, this step's; T or more rows.
        k_cache, v_cache: `[num_blocks, block_size, H_kv, D]`, which hold them already, unless there
            is a `norm_rope`.
        gate: the layer's.
        output: `[T, H, D]`.
        k_scale, v_scale: factors of a float8 cache, `[1]` or `[H_kv]` float32; None for others.
        norm_rope: DyHT and RoPE, which query and key still lack; None: they have them.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    gate: GateParams
    output: torch.Tensor
    k_scale: torch.Tensor | None = None
    v_scale: torch.Tensor | None = None
    norm_rope: QkNormRope | None = None


class Work(Protocol):
    """What the plan's paths prepared for all layers of the step."""

    def attend(self, layer: LayerTensors) -> None:
        """Writes the step's rows of the layer's output."""


@dataclasses.dataclass(frozen=True, eq=False)
class AsyncTMetadata(AttentionMetadata):
    """A step: its plan, its number of query tokens, and the work of each layer."""

    plan: Plan
    num_tokens: int
    work: Work
