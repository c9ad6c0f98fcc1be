"""One card's process of the benchmark of shared keys: checks both sides, and times them."""

import statistics
from collections.abc import Callable

import torch
from context_parallel_sides import SIDES, Sequence, Shape, Side
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed.parallel_state import (
    ensure_model_parallel_initialized,
    get_dcp_group,
    init_distributed_environment,
)
from vllm.v1.worker.workspace import init_workspace_manager

_CALLS = 8  # of a graph
_COLD = 256 << 20  # bytes written between calls, several times what the L2 holds


def measure(ranks: int, rank: int, store: str, settings: dict) -> list[dict]:
    """One process: its rows of the report."""
    torch.cuda.set_device(rank)
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(
            ranks, rank, f"file://{store}", local_rank=rank, backend="nccl")
        ensure_model_parallel_initialized(ranks, 1, decode_context_model_parallel_size=ranks)
    init_workspace_manager(torch.device("cuda", rank))
    found = []
    for context in settings["contexts"]:
        for heads in settings["heads"]:
            shape = Shape(context, ranks, heads, settings["head_dim"], settings["block_size"],
                          settings["interleave"])
            sequence = Sequence.make(shape, settings["seed"])
            sides = {name: side(shape, sequence) for name, side in SIDES.items()}
            errors = {name: _error(side) for name, side in sides.items()}
            if rank == 0:
                print(f"{context} keys, {heads} heads: errors {errors}", flush=True)
            if any(not error <= settings["tolerance"] for error in errors.values()):
                raise SystemExit(f"no times: errors {errors} at {shape}")
            times = _times(sides, settings["rounds"])
            found += [
                {"side": name, "context": context, "heads": heads, "step_us": times[name],
                 "cache_bytes": side.cache_bytes, "error": errors[name]}
                for name, side in sides.items()]
            del sides, sequence
            torch.cuda.empty_cache()
    return found


def _error(side: Side) -> float:
    exact = side.exact()
    return ((side.step() - exact).norm() / exact.norm()).item()


def _times(sides: dict[str, Side], rounds: int) -> dict[str, float]:
    """Microseconds of a step: graphs of calls with cold caches, less those of making them cold."""
    other = torch.empty(_COLD, dtype=torch.uint8, device="cuda")
    graphs = {name: _graph(other, side.step) for name, side in sides.items()}
    graphs[""] = _graph(other, lambda: None)
    samples = {name: [] for name in graphs}
    for _ in range(rounds + 2):
        for name, graph in graphs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            get_dcp_group().barrier()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples[name].append(start.elapsed_time(end) * 1e3 / _CALLS)
    medians = {name: statistics.median(values[2:]) for name, values in samples.items()}
    return {name: medians[name] - medians[""] for name in sides}


def _graph(other: torch.Tensor, step: Callable[[], object]) -> torch.cuda.CUDAGraph:
    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(_CALLS):
            other.zero_()
            step()
    return graph
