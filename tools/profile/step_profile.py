"""Where the time of a vLLM engine's steps goes.

Runs a model on fixed workloads, in vLLM as users run it (engine in its own process, CUDA graphs,
async scheduling), and says for each: the wall time without a profiler, then, from a profiled slice,
GPU busy time by kind of kernel, kernel launches a layer, idle time inside a step, the gap between
steps, and the span of a graph's replay a layer. It draws the timeline of one step of each. Without --model, it is Qwen3's 1.7B shape on random weights and FlashAttention-3, the softmax
model that AsyncT is compared with.
"""

import itertools
import json
import pathlib
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from absl import app, flags
from rich.console import Console
from rich.table import Table

import gpu_trace
import qwen3_shape
import timeline
from kernel_kinds import KINDS
from machine import describe_run
from scenarios import SCENARIOS, Scenario
from timed_engine import Engine
from user_path import user_path

_MODEL = flags.DEFINE_string("model", None, "Checkpoint folder; Qwen3's 1.7B shape by default.")
_LOAD_FORMAT = flags.DEFINE_string("load_format", "dummy", "vLLM's; dummy is random weights.")
_QUANTIZATION = flags.DEFINE_string("quantization", None, "vLLM's, fp8 for one.")
_SCENARIOS = flags.DEFINE_list("scenarios", list(SCENARIOS), f"Of {', '.join(SCENARIOS)}.")
_OUTPUT = flags.DEFINE_string("output", "step_profile.json", "The JSON file to write.")
_SECONDS = flags.DEFINE_float("seconds", 3.0, "Time spent on a scenario's timed runs, at least.")
_DECODE_STEPS = flags.DEFINE_integer("decode_steps", 16,
                                     "Output tokens that are profiled, around the middle.")
_KERNELS = flags.DEFINE_integer("kernels", 8, "Slowest kernels to print of a step.")
_SEED = flags.DEFINE_integer("seed", None, "Of the prompts; a fresh one by default.")

_LEAST_RUNS = 3


def time_runs(engine: Engine, scenario: Scenario, seeds: Iterator[int]) -> list[float]:
    """Seconds of each timed run, after one that warms up."""
    engine.run(scenario, next(seeds))
    runs = []
    while len(runs) < _LEAST_RUNS or sum(runs) < _SECONDS.value:
        runs.append(engine.run(scenario, next(seeds)))
    return runs


def measure_wall(engine: Engine, scenario: Scenario, seeds: Iterator[int]) -> dict[str, Any]:
    """Wall times; of a decode scenario also of a decode step, from runs that only prefill."""
    runs = time_runs(engine, scenario, seeds)
    wall = {"runs": len(runs), "wall_s": statistics.median(runs), "low_s": min(runs),
            "high_s": max(runs)}
    if scenario.decodes:
        prefill = statistics.median(time_runs(engine, scenario.only_prefill(), seeds))
        wall["decode_step_us"] = 1e6 * (wall["wall_s"] - prefill) / (max(scenario.outputs) - 1)
    return wall


def print_scenario(console: Console, result: dict[str, Any]) -> None:
    wall = result["wall"]
    line = (f"\n[bold]{result['name']}[/]: {1e3 * wall['wall_s']:.2f} ms "
            f"({1e3 * wall['low_s']:.2f} to {1e3 * wall['high_s']:.2f}, {wall['runs']} runs)")
    if "decode_step_us" in wall:
        line += f", {wall['decode_step_us']:.0f} us a decode step"
    console.print(line + ", not profiled")
    for phase, summary in result["phases"].items():
        table = Table(title=_phase_title(phase, summary), title_justify="left")
        for column in ("kind", "us a step", "of busy", "launches"):
            table.add_column(column, justify="left" if column == "kind" else "right")
        total = sum(kind["us"] for kind in summary["kinds"].values())
        for kind in sorted(summary["kinds"], key=KINDS.index):
            entry = summary["kinds"][kind]
            table.add_row(kind, f"{entry['us']:.1f}", f"{entry['us'] / total:.1%}",
                          f"{entry['launches']:.1f}")
        console.print(table)
        for kernel in summary["kernels"][: _KERNELS.value]:
            console.print(f"  {kernel['us']:8.1f} us {kernel['launches']:6.1f} x {kernel['kind']:12}"
                          f" {kernel['name'][:90]}", markup=False, highlight=False)


def _phase_title(phase: str, summary: dict[str, Any]) -> str:
    graph = ("" if summary["graph_us_per_layer"] is None else
             f"; a graph's replay {summary['graph_us_per_layer']:.1f} us a layer")
    gap = "none" if summary["gap_us"] is None else f"{summary['gap_us']:.0f} us"
    return (f"{phase}: {summary['steps']} step(s) of {summary['tokens']} tokens; first to last kernel "
            f"{summary['span_us']:.0f} us, GPU busy {summary['busy_us']:.0f} us, gap after it {gap}; "
            f"{summary['launches']:.0f} launches, {summary['in_graph']:.0f} of them in a graph, "
            f"{summary['launches_per_layer']} a layer{graph}")


def main(_) -> None:
    console = Console(width=130)
    unknown = [name for name in _SCENARIOS.value if name not in SCENARIOS]
    if unknown:
        raise app.UsageError(f"--scenarios has {unknown}: must be of {list(SCENARIOS)}")
    seed = secrets.randbelow(2**31) if _SEED.value is None else _SEED.value
    seeds = itertools.count(seed)
    target = user_path(_OUTPUT.value).absolute()
    chosen = [SCENARIOS[name] for name in _SCENARIOS.value]
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(_MODEL.value or qwen3_shape.write(pathlib.Path(folder)))
        started = time.perf_counter()
        engine = Engine(model, pathlib.Path(folder, "traces"), load_format=_LOAD_FORMAT.value,
                        quantization=_QUANTIZATION.value, dtype="bfloat16",
                        max_model_len=max(scenario.longest for scenario in chosen))
        startup = time.perf_counter() - started
        console.print(f"engine of {_MODEL.value or 'the Qwen3 1.7B shape'} up in {startup:.0f} s, "
                      f"seed {seed}")
        # All wall times first: once attached, the profiler costs time even when it is stopped.
        walls = {scenario.name: measure_wall(engine, scenario, seeds) for scenario in chosen}
        results = []
        for scenario in chosen:
            trace = engine.profile(scenario.middle(_DECODE_STEPS.value), next(seeds))
            steps = gpu_trace.read_steps(trace)
            results.append({
                **scenario.as_json(), "wall": walls[scenario.name],
                "sequence": [[s.context_requests, s.context_tokens, s.generation_requests,
                              s.generation_tokens] for s in steps],
                "phases": gpu_trace.summarise(steps, engine.layers)})
            print_scenario(console, results[-1])
            picture = target.with_name(f"{target.stem}_{scenario.name}.png")
            timeline.draw(gpu_trace.full_step(steps), f"{scenario.name}: one step", picture)
            console.print(f"wrote {picture}")
    report = {"machine": describe_run(), "model": _MODEL.value or "qwen3-1.7b-shape",
              "quantization": _QUANTIZATION.value, "seed": seed, "startup_s": startup,
              "scenarios": results}
    target.write_text(json.dumps(report, indent=1) + "\n")
    console.print(f"wrote {target}")


if __name__ == "__main__":
    app.run(main)
