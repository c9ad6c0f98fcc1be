"""What the GPU did in a step of each side, by kind of kernel."""

from __future__ import annotations

import gpu_trace
from kernel_kinds import KINDS

# The rows of the table, and the kinds of kernel that each adds up.
_GROUPS = {
    "attention prefill": ("attention prefill",),
    "attention decode": ("attention decode",),
    "cache write": ("cache write",),
    "GEMM": ("gemm",),
    "norm and elementwise": ("norm", "rope", "activation", "quantisation", "embedding"),
    "sampler and step inputs": ("sampler", "step inputs"),
    "copies": ("copy",),
    "other": ("other",),
}
GROUPS = tuple(_GROUPS)
_GROUP_OF = {kind: group for group, kinds in _GROUPS.items() for kind in kinds}
assert set(KINDS) == {*_GROUP_OF, "attention"}


def phases(trace, layers: int) -> dict[str, dict]:
    """`gpu_trace.summarise` of a trace file, each phase with its `groups` too.

    Returns:
      By phase (prefill, mixed, decode), as there; and `groups`: microseconds a step, by GROUPS.
      The time of an attention kernel that serves decodes and prefills in one launch counts as
      decode only in steps that have nothing else.
    """
    summary = gpu_trace.summarise(gpu_trace.read_steps(trace), layers)
    for phase, step in summary.items():
        groups = dict.fromkeys(GROUPS, 0.0)
        for kind, entry in step["kinds"].items():
            either = "attention decode" if phase == "decode" else "attention prefill"
            groups[_GROUP_OF.get(kind, either)] += entry["us"]
        step["groups"] = groups
    return summary
