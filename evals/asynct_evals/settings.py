"""What decides a run beside its problems."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import asynct_tiny

# The one of this repository, where it really is: in Bazel's runfiles its files are links.
TINY_CHECKPOINT = (
    (pathlib.Path(asynct_tiny.__file__).parent.parent / "checkpoint" / "config.json")
    .resolve()
    .parent
)
ENGINES = ("vllm", "hf")
DTYPES = ("auto", "float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to evaluate.

    model: directory of a Hugging Face checkpoint.
    engine: one of ENGINES.
    num_fewshot: examples in each prompt, fewer where gsm8k's do not fit the context; None: as the
      task has it.
    seed: draws the examples of each prompt.
    dtype: one of DTYPES; "auto" is the checkpoint's on a GPU and float32 on the CPU.
    options: further arguments of vllm.LLM, for that engine.
    """

    model: pathlib.Path
    engine: str
    num_fewshot: int | None
    seed: int
    dtype: str = "auto"
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
