"""lm-eval's model classes, which here also keep the tokens that they generate."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from asynct_evals.settings import ENGINES


@dataclasses.dataclass(frozen=True)
class Generation:
    """One greedy answer: its tokens, the ending token included.

    likeliest: per token, the log-probabilities of the likeliest tokens (empty if not asked for).
    """

    tokens: list[int]
    likeliest: list[dict[int, float]] = dataclasses.field(default_factory=list)


def load(name: str, model: pathlib.Path, *, dtype: str, max_length: int, **options: Any):
    """Builds the engine `name` ("vllm" or "hf") on the checkpoint `model`.

    `options` are further arguments of lm-eval's model class, and so of vllm.LLM.

    Returns:
      A subclass of lm-eval's LM whose `generations` maps a prompt's tokens (a tuple) to its
      Generation.
    """
    if name == "vllm":
        from asynct_evals.engines.vllm_engine import VLLMEngine as Engine
    elif name == "hf":
        from asynct_evals.engines.hf_engine import HFEngine as Engine
    else:
        raise ValueError(f"engine must be one of {ENGINES}, not {name!r}")
    return Engine(model, dtype=dtype, max_length=max_length, **options)
