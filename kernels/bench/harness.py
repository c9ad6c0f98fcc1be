"""What the benchmarks share: timing, accuracy, the report."""

import dataclasses
import json
import math
import pathlib
import statistics
from collections.abc import Callable, Sequence

import torch
from user_path import user_path

# Bytes that pass between two uses of one buffer, several times what the L2 holds.
_BYTES_BETWEEN_USES = 256 << 20
_WARM_UP_REPLAYS = 3

# How much worse than eager PyTorch a result may be, against float64.
MAX_ERROR_RATIO = 2.0

Outputs = tuple[torch.Tensor, ...]


@dataclasses.dataclass(frozen=True)
class Timing:
    """Microseconds of one call: the median over the rounds, and where 8 of 10 rounds lie."""

    median_us: float
    low_us: float
    high_us: float
    rounds: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Timing":
        deciles = statistics.quantiles(samples, n=10, method="inclusive")
        return cls(statistics.median(samples), deciles[0], deciles[-1], len(samples))


def number_of_sets(bytes_per_call: int, most: int = 64) -> int:
    """How many sets of buffers to rotate, so that large ones are never found in the L2."""
    return min(1 + math.ceil(_BYTES_BETWEEN_USES / max(bytes_per_call, 1)), most)


def time_interleaved(
    candidates: dict[str, Callable[..., object]], sets: Sequence[Sequence], rounds: int
) -> dict[str, Timing]:
    """Times functions of the same arguments on the GPU, in turn, back and forth, `rounds` times.

    Each is captured in a CUDA graph that calls it once on every set of arguments; a sample is the
    time of a replay over the number of sets. Outputs have memory of their own, as inputs do.
    """
    graphs = {name: _capture(function, sets) for name, function in candidates.items()}
    samples = {name: [] for name in candidates}
    for round_index in range(_WARM_UP_REPLAYS + rounds):
        for name in list(graphs)[:: -1 if round_index % 2 else 1]:
            graph, _ = graphs[name]
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if round_index >= _WARM_UP_REPLAYS:
                samples[name].append(start.elapsed_time(end) * 1e3 / len(sets))
    return {name: Timing.of(values) for name, values in samples.items()}


def _capture(function: Callable, sets: Sequence[Sequence]) -> tuple[torch.cuda.CUDAGraph, list]:
    """A graph of function(*args) for each set, and the outputs, which must live as long as it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for args in sets[:2]:
            function(*args)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = [function(*args) for args in sets]
    return graph, outputs


def relative_error(outputs: Outputs, exact: Outputs) -> float:
    """The largest |output - exact| / |exact| (2-norms) of the outputs; NaN if any is NaN."""
    errors = [((output.double() - truth).norm() / truth.norm()).item()
              for output, truth in zip(outputs, exact, strict=True)]
    return math.nan if any(map(math.isnan, errors)) else max(errors)


def is_accurate(error: float, eager_error: float) -> bool:
    """Whether `error` is at most MAX_ERROR_RATIO that of eager PyTorch; never for NaN."""
    return error <= MAX_ERROR_RATIO * eager_error


def write_json(path: str, report: dict[str, object]) -> pathlib.Path:
    """Writes `report`; a relative path is meant from where `bazel run` was called."""
    target = user_path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(report, indent=2) + "\n")
    return target
