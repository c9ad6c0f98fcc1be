"""What decides a run of the suite."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asynct_model import AsyncTConfig
    from scenarios import Scenario

DTYPES = ("bfloat16", "float16")
QUANTIZATIONS = ("fp8",)
# By name, what vLLM is told of CUDA graphs.
GRAPHS: dict[str, dict[str, Any]] = {
    "default": {},
    "eager": {"enforce_eager": True},
    **{
        mode: {"compilation_config": {"cudagraph_mode": mode.upper()}}
        for mode in ("none", "piecewise", "full_decode_only", "full_and_piecewise")
    },
}

# Of the memory, what vLLM wants to see free before it starts: the engines start side by side.
_FREE_AT_START = 0.05
_FLASH_ATTENTION_3 = {"attention_config": {"backend": "FLASH_ATTN", "flash_attn_version": 3}}


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to compare.

    gpu: whether to run on the GPU; else on the CPU, where the softmax model has vLLM's attention
      for it in the place of FlashAttention-3.
    model: the name that the rows carry.
    shape: the configuration of random weights, None for those of `checkpoint`.
    checkpoint: an AsyncT checkpoint's folder, None for random weights.
    scenarios: what is run, in this order.
    rounds, seconds: alternations of a scenario, and what they take together, both at least.
    dtype, quantization: of DTYPES; of QUANTIZATIONS or None. Both sides'.
    graphs: of GRAPHS.
    async_scheduling: vLLM's, None for its own choice.
    queued: whether all prompts lie in the queue before time counts.
    full_shape_warm_up: whether a scenario runs once on both sides before it is timed.
    attention_zeros: of the random weights, the share of closed gates that is aimed at.
    cache_gib: GiB of keys and values that each engine has room for, on each card.
    profile: whether a breakdown of GPU time is made, after all timing; the CPU has none, and nor
      have several cards.
    seed: of weights and prompts.
    tensor_parallel_size: cards that each engine spreads over; both spread over the same.
    """

    gpu: bool
    model: str
    shape: AsyncTConfig | None
    checkpoint: pathlib.Path | None
    scenarios: tuple[Scenario, ...]
    rounds: int
    seconds: float
    dtype: str
    quantization: str | None
    graphs: str
    async_scheduling: bool | None
    queued: bool
    full_shape_warm_up: bool
    attention_zeros: float
    cache_gib: float
    profile: bool
    seed: int
    tensor_parallel_size: int = 1

    @property
    def rival(self) -> str:
        """The attention that the softmax model runs on."""
        return "FlashAttention-3" if self.gpu else "vLLM's CPU attention"

    def our_options(self) -> dict[str, Any]:
        """What our engine is told, of `timed_engine.Engine`: nothing that is for us alone."""
        return {
            "queued": self.queued,
            "dtype": self.dtype,
            "quantization": self.quantization,
            "async_scheduling": self.async_scheduling,
            "kv_cache_memory_bytes": int(self.cache_gib * 2**30),
            "gpu_memory_utilization": _FREE_AT_START,
            "tensor_parallel_size": self.tensor_parallel_size,
            "max_model_len": max(scenario.longest for scenario in self.scenarios),
            **GRAPHS[self.graphs],
        }

    def their_options(self) -> dict[str, Any]:
        """What the softmax model's engine is told: the same, and its attention."""
        return self.our_options() | (_FLASH_ATTENTION_3 if self.gpu else {})

    def as_json(self) -> dict[str, Any]:
        """All of it as plain data, the scenarios by their lengths."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {
            "shape": None if self.shape is None else self.shape.to_diff_dict(),
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
            "scenarios": [scenario.as_json() for scenario in self.scenarios],
        }
