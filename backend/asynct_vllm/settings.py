"""Settings of the backend: read once from the environment, typed and validated."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

TorchPath = Literal["loop", "padded", "bucketed", "gather"]

PREFIX = "VLLM_HP1_"


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return text

    return parse


def _positive_integer(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError("an integer of 1 or more")
    return int(text)


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("0 or 1")
    return text == "1"


def _setting(default: Any, variable: str, parse: Callable[[str], Any], meaning: str) -> Any:
    """A field; `parse` turns the variable's text into its value, or raises what is allowed."""
    metadata = {"variable": variable, "parse": parse, "meaning": meaning}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a user can choose. Each field's metadata names its variable and what it means."""

    torch_path: TorchPath | None = _setting(
        None,
        "VLLM_HP1_TORCH_PATH",
        _one_of(*get_args(TorchPath)),
        "serve everything by this PyTorch path: one request at a time, one padded batch, length "
        "buckets, or vectorised gather; unset, by kernels, and by gather where there are none",
    )
    bucket_tokens: int = _setting(
        131072,
        "VLLM_HP1_BUCKET_TOKENS",
        _positive_integer,
        "the most that one batch of the bucketed path (padded keys) or of the gather path (padded "
        "query and key pairs) holds, unless a single request or query row needs more",
    )
    use_cuda: bool = _setting(
        True, "VLLM_HP1_USE_CUDA", _switch, "whether CUDA kernels serve; if not, Triton's do"
    )
    prefill_wgmma: bool = _setting(
        True,
        "VLLM_HP1_PREFILL_WGMMA",
        _switch,
        "whether the wgmma prefill serves; if not, the mma prefill does",
    )
    wgmma_min_tq: int = _setting(
        64,
        "VLLM_HP1_WGMMA_MIN_TQ",
        _positive_integer,
        "the least query tokens of a step's longest prefill that the wgmma prefill serves",
    )
    batch_invariant: bool = _setting(
        False,
        "VLLM_BATCH_INVARIANT",
        _switch,
        "vLLM's: whether what else is in the batch may not change a bit of a request; "
        "`hp1_prefill_mma` then serves every query, decodes too",
    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Reads the variables that are set.

        Raises:
            ValueError: a value is not allowed, or no setting has a variable that begins like ours;
                names the variable, its value and what is allowed.
        """
        known = [field.metadata["variable"] for field in dataclasses.fields(cls)]
        for variable, text in environment.items():
            if variable.startswith(PREFIX) and variable not in known:
                raise ValueError(f"{variable}={text!r}: no such setting, there are "
                                 f"{', '.join(known)}")
        values = {}
        for field in dataclasses.fields(cls):
            variable = field.metadata["variable"]
            if variable not in environment:
                continue
            text = environment[variable]
            try:
                values[field.name] = field.metadata["parse"](text)
            except ValueError as allowed:
                raise ValueError(f"{variable}={text!r}: must be {allowed}") from None
        return cls(**values)


@functools.cache
def settings() -> Settings:
    """The process's settings: the environment as the first caller found it."""
    return Settings.from_environment(os.environ)
