"""Tables of the competitor's step, from kernels/results/step_profile_fa3.json.

The profile gives GPU time by kind for a step of each phase; a scenario's time is put together from
them and from the wall times, which were measured without the profiler.
"""

import collections
import dataclasses
from collections.abc import Iterator

from document import results, table
from documents import markdown

LAYERS = 28
# Inductor's names for Qwen3's q and k norms with RoPE say nothing: the profile has them as other.
COLUMNS = {
    "GEMM": ("gemm",), "attention": ("attention",), "q/k norm, RoPE": ("other",),
    "cache write": ("cache write",), "norm, residual": ("norm",), "activation": ("activation",),
    "sampler, inputs, copies": ("sampler", "step inputs", "copy", "embedding"),
}
DECODE = "decode"


@dataclasses.dataclass(frozen=True)
class Lever:
    """A change to a decode or prefill step: `factors` of a column's time, and nodes that go.

    Attributes:
        factors: by phase (DECODE or "prefill") and column.
        nodes: launches a layer that a decode step no longer has.
    """

    factors: dict[tuple[str, str], float]
    nodes: int = 0


def attention(prefill: float, decode: float) -> Lever:
    return Lever({("prefill", "attention"): prefill, (DECODE, "attention"): decode}, nodes=1)


def without(column: str, nodes: int) -> Lever:
    return Lever({(phase, column): 0.0 for phase in ("prefill", DECODE)}, nodes)


# FlashAttention-3 has a second launch a layer that adds its splits: ours adds them in the first.
LEVERS: dict[str, tuple[Lever, ...]] = {
    "attention 1.60 prefill, 1.20 decode": (attention(1.60, 1.20),),
    "attention 1.00": (attention(1.00, 1.00),),
    "attention 0.90 prefill, 0.72 decode (a)": (attention(0.90, 0.72),),
    "q/k clamp, RoPE and cache write in the attention's launch (b)":
        (without("q/k norm, RoPE", 2), without("cache write", 1)),
    "activation in the GEMM (c)": (without("activation", 1),),
    "post-attention clamp, residual, next clamp in the GEMM (d)":
        (Lever({("prefill", "norm, residual"): 0.5, (DECODE, "norm, residual"): 0.5}, 1),),
}
_A, _B, _C, _D = list(LEVERS.values())[2:]
LEVERS |= {"a + b": _A + _B, "a + b + c": _A + _B + _C, "a + b + c + d": _A + _B + _C + _D}


def scenarios() -> list[dict]:
    return results("step_profile_fa3")["scenarios"]


def column_times(summary: dict) -> dict[str, float]:
    """Microseconds of a step, by column."""
    return {column: sum(summary["kinds"].get(kind, {"us": 0.0})["us"] for kind in kinds)
            for column, kinds in COLUMNS.items()}


def steps(scenario: dict) -> Iterator[tuple[str, float]]:
    """Of the profiled slice: each step's phase, and its tokens over those of the step described."""
    for context, context_tokens, generation, generation_tokens in scenario["sequence"]:
        phase = "mixed" if context and generation else "prefill" if context else DECODE
        tokens = context_tokens + generation_tokens
        yield phase, tokens / scenario["phases"][phase]["tokens"]


def gpu_times(scenario: dict) -> dict[tuple[str, str], float]:
    """Microseconds of the whole scenario, by phase (mixed counts as prefill) and column."""
    times = collections.Counter()
    prompts = sum(step[1] for step in scenario["sequence"])
    longer = prompts / (scenario["requests"] * scenario["prompt_tokens"])
    for phase, share in steps(scenario):
        for column, us in column_times(scenario["phases"][phase]).items():
            if phase != DECODE:
                times["prefill", column] += us * share / longer
            elif "decode_step_us" not in scenario["wall"]:
                times[DECODE, column] += us * share
    if "decode_step_us" in scenario["wall"]:
        for column, us in column_times(scenario["phases"][DECODE]).items():
            times[DECODE, column] = us * (scenario["output_tokens"] - 1)
    return times


def idle_per_node(scenario: dict) -> float:
    """Microseconds between two launches of a decode step, not profiled."""
    decode = scenario["phases"].get(DECODE)
    if decode is None or "decode_step_us" not in scenario["wall"]:
        return 0.0
    return max(scenario["wall"]["decode_step_us"] - decode["busy_us"], 0.0) / decode["launches"]


def ratio(scenario: dict, levers: tuple[Lever, ...]) -> float:
    """The scenario's time with the levers over its time without."""
    times = gpu_times(scenario)
    wall = 1e6 * scenario["wall"]["wall_s"]
    saved = sum((1 - factor) * times[key] for lever in levers
                for key, factor in lever.factors.items())
    nodes = LAYERS * sum(lever.nodes for lever in levers)
    return 1 - (saved + nodes * idle_per_node(scenario) * (scenario["output_tokens"] - 1)) / wall


@table("competitor step")
def competitor_step() -> str:
    def rows() -> Iterator[list[str]]:
        for scenario in scenarios():
            for phase, summary in scenario["phases"].items():
                wall = scenario["wall"].get("decode_step_us") if phase == DECODE else None
                yield [scenario["name"], phase, summary["tokens"],
                       f"{wall:.0f}" if wall else "", f"{summary['busy_us']:.0f}",
                       *(f"{us:.0f}" for us in column_times(summary).values()),
                       f"{summary['launches']:.0f} ({summary['in_graph']:.0f})",
                       summary["launches_per_layer"]]
    return markdown(["scenario", "step", "tokens", "wall, us", "GPU busy, us", *COLUMNS,
                     "launches (in a graph)", "a layer"], rows())


@table("competitor scenario")
def competitor_scenario() -> str:
    def row(scenario: dict) -> list[str]:
        times = gpu_times(scenario)
        wall = 1e6 * scenario["wall"]["wall_s"]
        both = [sum(times[phase, column] for phase in ("prefill", DECODE)) for column in COLUMNS]
        return [scenario["name"], f"{wall / 1e3:.1f}",
                f"{scenario['wall']['low_s'] * 1e3:.1f} to {scenario['wall']['high_s'] * 1e3:.1f}",
                *(f"{us / wall:.1%}" for us in both), f"{1 - sum(both) / wall:.1%}"]
    return markdown(["scenario", "wall, ms", "range", *COLUMNS, "GPU idle"], map(row, scenarios()))


@table("levers")
def levers() -> str:
    return markdown(
        ["our time over FlashAttention-3's", *(scenario["name"] for scenario in scenarios())],
        ([name, *(f"{ratio(scenario, chosen):.3f}" for scenario in scenarios())]
         for name, chosen in LEVERS.items()))
