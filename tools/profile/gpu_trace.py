"""Steps of a vLLM engine, read from a trace of PyTorch's profiler.

vLLM's worker wraps each model execution in an annotation that counts the step's requests and
tokens. What the worker launches from there until the next annotation belongs to the step; a kernel
is tied to its launch by the correlation number, which the nodes of a CUDA graph share.
"""

import bisect
import collections
import dataclasses
import gzip
import json
import pathlib
import re
import statistics
from collections.abc import Sequence

from kernel_kinds import kind_of

_STEP = re.compile(r"execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
_GPU_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
_LAUNCHES = {"cuda_runtime", "cuda_driver"}


@dataclasses.dataclass(frozen=True)
class GpuWork:
    """A kernel, copy or fill; times in microseconds of the trace."""

    name: str
    start: float
    end: float
    is_kernel: bool
    in_graph: bool


@dataclasses.dataclass
class Step:
    """One execution of the model: requests in prefill and in decode, with their tokens."""

    context_requests: int
    context_tokens: int
    generation_requests: int
    generation_tokens: int
    work: list[GpuWork] = dataclasses.field(default_factory=list)

    @property
    def phase(self) -> str:
        """prefill, decode, or mixed."""
        if self.context_requests and self.generation_requests:
            return "mixed"
        return "prefill" if self.context_requests else "decode"

    @property
    def start(self) -> float:
        return min(work.start for work in self.work if work.is_kernel)

    @property
    def end(self) -> float:
        return max(work.end for work in self.work if work.is_kernel)


def read_steps(path: pathlib.Path) -> list[Step]:
    """The steps of a trace (JSON, gzipped or not) that launched kernels, in order.

    Raises:
      ValueError: the trace has no step with GPU work.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("ph") == "X"]
    annotated = sorted((event["ts"], match) for event in events
                       if event.get("cat") == "user_annotation"
                       and (match := _STEP.search(event["name"])))
    starts = [start for start, _ in annotated]
    steps = [Step(*map(int, match.groups())) for _, match in annotated]
    launched = {event["args"]["correlation"]: event for event in events
                if event.get("cat") in _LAUNCHES and "correlation" in event.get("args", {})}
    for event in events:
        launch = launched.get(event.get("args", {}).get("correlation"))
        if event.get("cat") not in _GPU_WORK or launch is None:
            continue
        index = bisect.bisect_right(starts, launch["ts"]) - 1
        if index >= 0:
            steps[index].work.append(GpuWork(
                event["name"], event["ts"], event["ts"] + event["dur"],
                event["cat"] == "kernel", "GraphLaunch" in launch["name"]))
    steps = [step for step in steps if any(work.is_kernel for work in step.work)]
    if not steps:
        raise ValueError(f"{path}: no step with GPU work")
    return steps


def busy(work: Sequence[GpuWork]) -> float:
    """Microseconds in which at least one of `work` ran."""
    total, until = 0.0, float("-inf")
    for start, end in sorted((item.start, item.end) for item in work):
        total += max(end - max(start, until), 0.0)
        until = max(until, end)
    return total


def summarise(steps: Sequence[Step], layers: int) -> dict[str, dict]:
    """What a step of each phase costs.

    Of steps of one phase, those with the most tokens are meant (the others are a run's ramp).

    Returns:
      For each phase: `steps` (how many), `tokens`; mean microseconds a step `span_us` (first kernel
      to last), `busy_us`; median `gap_us` (last kernel to the next step's first; None after the
      last step), `graph_us_per_layer` (mean from the first to the last kernel of a graph, by the
      layers; None without one); a step's `launches`, `in_graph` (of them, nodes of a CUDA graph)
      and `launches_per_layer`; `kinds`: kind -> {us, launches}; `kernels`: a row per name, slowest
      first.
    """
    gaps = {id(step): after.start - step.end for step, after in zip(steps, steps[1:])}
    phases = {}
    for phase in ("prefill", "mixed", "decode"):
        chosen = [step for step in steps if step.phase == phase]
        if chosen:
            tokens = max(map(_tokens, chosen))
            full = [step for step in chosen if _tokens(step) == tokens]
            phases[phase] = _summarise_phase(full, layers, tokens,
                                             [gaps[id(s)] for s in full if id(s) in gaps])
    return phases


def _tokens(step: Step) -> int:
    return step.context_tokens + step.generation_tokens


def full_step(steps: Sequence[Step]) -> Step:
    """The first decode of the most tokens; where there is no decode, such a step."""
    decodes = [step for step in steps if step.phase == "decode"]
    return max(decodes or steps, key=_tokens)


def _graph_span(steps: list[Step], layers: int) -> float | None:
    replays = [[work for work in step.work if work.in_graph] for step in steps]
    if not all(replays):
        return None
    return statistics.fmean(max(work.end for work in replay) - min(work.start for work in replay)
                            for replay in replays) / layers


def _summarise_phase(steps: list[Step], layers: int, tokens: int, gaps: list[float]) -> dict:
    count = len(steps)
    times, launches = collections.Counter(), collections.Counter()
    for work in (work for step in steps for work in step.work):
        times[work.name] += (work.end - work.start) / count
        launches[work.name] += 1 / count
    kinds = {}
    for name, us in times.items():
        entry = kinds.setdefault(kind_of(name), {"us": 0.0, "launches": 0.0})
        entry["us"] += us
        entry["launches"] += launches[name]
    return {
        "steps": count,
        "tokens": tokens,
        "span_us": statistics.fmean(step.end - step.start for step in steps),
        "busy_us": statistics.fmean(busy(step.work) for step in steps),
        "gap_us": statistics.median(gaps) if gaps else None,
        "graph_us_per_layer": _graph_span(steps, layers),
        "launches": sum(launches.values()),
        "in_graph": sum(work.in_graph for step in steps for work in step.work) / count,
        "launches_per_layer": sum(int(n / layers + 0.01) for n in launches.values()),
        "kinds": dict(sorted(kinds.items(), key=lambda item: -item[1]["us"])),
        "kernels": [{"name": name, "kind": kind_of(name), "us": us, "launches": launches[name]}
                    for name, us in times.most_common()],
    }
