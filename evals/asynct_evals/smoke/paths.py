"""The production paths: what a user can set, and which kernels must then serve."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, get_args

from asynct_vllm.settings import TorchPath


@dataclasses.dataclass(frozen=True)
class Path:
    """A way to serve.

    environment: the variables that choose it.
    kernels: those that must serve a model of D 128 between them, prompts in chunks.
    others: further ones that may serve, short prompts for instance.
    options: of vllm.LLM.
    """

    name: str
    environment: dict[str, str]
    kernels: frozenset[str]
    others: frozenset[str] = frozenset()
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def fault(self, served: Collection[str], *, all_kernels: bool) -> str | None:
        """What is wrong with these counters' names; None if nothing is.

        all_kernels: whether each of `kernels` has to be among them.
        """
        if strange := set(served) - self.kernels - self.others:
            return f"served by {', '.join(sorted(strange))}, which is not this path"
        missing = self.kernels - set(served)
        if missing and (all_kernels or not served):
            return f"not served by {', '.join(sorted(missing))}"
        return None


_DECODE, _MMA = "hp1_decode_paged", "hp1_prefill_mma"
_WGMMA = ("hp1_prefill_super_page", "hp1_prefill_wgmma")

# One path is captured and compiled as users have it; the others start in a fraction of the time.
_EAGER = {"enforce_eager": True}
_TORCH = tuple(
    Path(name, {"VLLM_HP1_TORCH_PATH": name}, frozenset({name}), options=_EAGER)
    for name in get_args(TorchPath)
)
_KERNELS = (
    Path("graphs", {}, frozenset({_DECODE, *_WGMMA}), frozenset({_MMA})),
    Path("eager", {}, frozenset({_DECODE, *_WGMMA}), frozenset({_MMA}), _EAGER),
    Path("mma", {"VLLM_HP1_PREFILL_WGMMA": "0"}, frozenset({_DECODE, _MMA}), options=_EAGER),
    Path("triton", {"VLLM_HP1_USE_CUDA": "0"}, frozenset({"triton_decode", "triton_prefill"}),
         options=_EAGER),
)


def paths(*, gpu: bool) -> tuple[Path, ...]:
    """All of them on a GPU; on the CPU those of PyTorch."""
    return _KERNELS + _TORCH if gpu else _TORCH
