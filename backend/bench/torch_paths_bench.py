"""Wall time of the PyTorch attention paths on one step of mixed prefills and decodes.

Every path is first compared with unpaged float64 attention; no time is taken unless all agree.
"""

import json
import platform
import random
import statistics
import time
from typing import Any, get_args

import torch
from absl import app, flags
from rich.console import Console
from rich.progress import track
from rich.table import Table
from synthetic_step import Heads, SyntheticStep
from user_path import user_path

from asynct_kernels import GateParams
from asynct_vllm.settings import Settings, TorchPath

_REQUESTS = flags.DEFINE_integer("requests", 16, "Requests in the step.", lower_bound=1)
_PREFILLS = flags.DEFINE_integer(
    "prefills", 4, "How many of them are chunks of prompts; the others decode.", lower_bound=0
)
_MAX_LEN = flags.DEFINE_integer(
    "max_len", 1024, "Sequence lengths are drawn from max_len / 16 to max_len.", lower_bound=16
)
_HEADS = flags.DEFINE_integer("heads", 8, "Query heads.", lower_bound=1)
_KV_HEADS = flags.DEFINE_integer("kv_heads", 4, "Key and value heads.", lower_bound=1)
_HEAD_SIZE = flags.DEFINE_integer("head_size", 128, "Values in a head.", lower_bound=1)
_BLOCK_SIZE = flags.DEFINE_integer("block_size", 16, "Tokens in a cache block.", lower_bound=16)
_BUDGET = flags.DEFINE_integer(
    "bucket_tokens", Settings().bucket_tokens, "VLLM_HP1_BUCKET_TOKENS.", lower_bound=1
)
_REPEATS = flags.DEFINE_integer("repeats", 5, "Measurements of each path.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the lengths and the tokens.")
_OUTPUT = flags.DEFINE_string(
    "output", "torch_paths.json", "Where the JSON goes, from the folder that you call this in."
)

# Largest error allowed, of the largest output, in float32.
TOLERANCE = 1e-5


def make_step(rng: random.Random, heads: Heads) -> SyntheticStep:
    """Prompts of which a random part is cached, and decodes, in random order."""
    seq_lens = [rng.randint(_MAX_LEN.value // 16, _MAX_LEN.value) for _ in range(_REQUESTS.value)]
    query_lens = [
        rng.randint(1, seq_len) if request < _PREFILLS.value else 1
        for request, seq_len in enumerate(seq_lens)
    ]
    lens = list(zip(query_lens, seq_lens))
    rng.shuffle(lens)
    return SyntheticStep.make(
        [query_len for query_len, _ in lens],
        [seq_len - query_len for query_len, seq_len in lens],
        heads=heads,
        block_size=_BLOCK_SIZE.value,
    )


def errors(step: SyntheticStep, gate: GateParams) -> dict[str, float]:
    """Each path's largest error, of the largest output of float64 attention."""
    reference = step.reference(gate)
    largest = reference.abs().max()
    found = {}
    for path in get_args(TorchPath):
        output = step.run(gate, Settings(path, _BUDGET.value))
        found[path] = float((output - reference).abs().max() / largest)
    return found


def times(step: SyntheticStep, gate: GateParams) -> dict[str, dict[str, list[float]]]:
    """Seconds of each path's build (once a step) and of one layer, the paths taken in turn."""
    impl = step.impl(gate)
    output = torch.empty_like(step.query)
    taken: dict[str, dict[str, list[float]]] = {
        path: {"build_s": [], "layer_s": []} for path in get_args(TorchPath)
    }
    for _ in track(range(_REPEATS.value), description="measuring"):
        for path, seconds in taken.items():
            start = time.perf_counter()
            metadata = step.build(Settings(path, _BUDGET.value))
            built = time.perf_counter()
            impl.forward(None, step.query, None, None, step.kv_cache, metadata, output)
            seconds["build_s"].append(built - start)
            seconds["layer_s"].append(time.perf_counter() - built)
    return taken


def rows(taken: dict[str, dict[str, list[float]]], found: dict[str, float]) -> list[dict[str, Any]]:
    """One row a path: medians, the layer's range, and how many times the loop's speed it has."""
    loop = statistics.median(taken["loop"]["layer_s"])
    return [
        {
            "path": path,
            "build_s": statistics.median(seconds["build_s"]),
            "layer_s": statistics.median(seconds["layer_s"]),
            "low_s": min(seconds["layer_s"]),
            "high_s": max(seconds["layer_s"]),
            "speedup": loop / statistics.median(seconds["layer_s"]),
            "error": found[path],
        }
        for path, seconds in taken.items()
    ]


def table(measured: list[dict[str, Any]], title: str) -> Table:
    """The rows for a person."""
    result = Table(title=title)
    for column in ("path", "build ms", "layer ms", "range ms", "speed to loop", "error"):
        result.add_column(column, justify="left" if column == "path" else "right")
    for row in measured:
        result.add_row(
            row["path"],
            f"{row['build_s'] * 1e3:.2f}",
            f"{row['layer_s'] * 1e3:.1f}",
            f"{row['low_s'] * 1e3:.1f} to {row['high_s'] * 1e3:.1f}",
            f"{row['speedup']:.2f}",
            f"{row['error']:.0e}",
        )
    return result


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected argument {argv[1]!r}")
    console = Console()
    torch.manual_seed(_SEED.value)
    heads = Heads(_HEADS.value, _KV_HEADS.value, _HEAD_SIZE.value)
    step = make_step(random.Random(_SEED.value), heads)
    sharpness = heads.size / 4  # Of scores with a deviation of 1 / sqrt(head size).
    gate = GateParams(sigma=0.5, alpha=sharpness, gamma=1.0)
    found = errors(step, gate)
    if red := {path: error for path, error in found.items() if not error <= TOLERANCE}:
        raise SystemExit(f"no times: errors against float64 attention above {TOLERANCE}: {red}")
    measured = rows(times(step, gate), found)
    query_lens = step.common.query_start_loc_cpu.diff().tolist()
    title = f"{len(query_lens)} requests, {sum(query_lens)} query tokens, {heads}, float32"
    console.print(table(measured, title))
    output = user_path(_OUTPUT.value)
    settings = flags.FLAGS.get_key_flags_for_module(__name__)
    record = {
        "settings": {flag.name: flag.value for flag in settings},
        "query_lens": query_lens,
        "seq_lens": step.common.seq_lens.tolist(),
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rows": measured,
    }
    output.write_text(json.dumps(record, indent=2) + "\n")
    console.print(f"wrote {output}")


if __name__ == "__main__":
    app.run(main)
