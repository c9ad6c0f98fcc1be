"""What a bare prefill skeleton reaches beside FlashAttention-3.

    bazel run //kernels/bench/bounds/prefill:bench -- --output result.json --commit HASH

Every variant is checked first, in a process of its own with a time limit (a wrong barrier hangs).
The right ones are then timed together with FlashAttention-3 (vLLM's build), interleaved replays of
graphs in one process, on random data whose gate closes on about 70% of the scores, after a check of
sampled rows on the timed shape itself. A variant that fails a check gets no figure.
"""

import concurrent.futures
import os
import subprocess
import sys
import time

from absl import app, flags
from rich.console import Console
from rich.table import Table
import torch

import flash_attention
import harness
import machine
import reference
import skeleton

FLAGS = flags.FLAGS
flags.DEFINE_string("library", None, "The compiled skeleton.", required=True)
flags.DEFINE_string("output", None, "JSON file to write.", required=True)
flags.DEFINE_string("commit", "unknown", "Commit the library was built from, for the record.")
flags.DEFINE_list("variants", [], "Variants to look at; all when left out.")
flags.DEFINE_integer("rounds", 15, "Interleaved replays per shape.")
flags.DEFINE_integer("check_seconds", 40, "Time limit of one variant's check.")
flags.DEFINE_bool("flash", True, "Time FlashAttention-3 too (needs vLLM).")

# batch, length, heads, kv_heads
SHAPES = [(16, 1024, 16, 8), (4, 2048, 16, 8), (1, 8192, 16, 8), (8, 4096, 16, 8), (32, 256, 8, 4)]
LOAD_SHAPE = (1, 8192, 16, 8)  # on it, the card's clock and power are read too
GRAPH_SECONDS = 2e-3  # a replayed graph holds launches for about this long


def check(name: str) -> tuple[bool, str]:
    command = [sys.executable, os.path.join(os.path.dirname(__file__), "check.py"),
               f"--library={FLAGS.library}", f"--variant={name}"]
    try:
        done = subprocess.run(command, timeout=FLAGS.check_seconds, capture_output=True, text=True)
    except subprocess.TimeoutExpired as error:
        return False, f"{name}: no answer in {FLAGS.check_seconds} s (a hang)\n{error.stdout}"
    tail = "" if done.returncode in (0, 1) and done.stdout else done.stderr[-1500:]
    return done.returncode == 0, done.stdout + tail


def flash_attention_call(inputs: skeleton.Inputs, paged: bool):
    """FlashAttention-3 on the same keys and values, as a function of nothing."""
    starts = torch.arange(inputs.batch + 1, device="cuda", dtype=torch.int32) * inputs.length
    if paged:
        lengths = torch.full((inputs.batch,), inputs.length, device="cuda", dtype=torch.int32)
        table = inputs.block_table[:, :-(-inputs.length // skeleton.PAGE)].contiguous()
        launch = flash_attention.bind(
            inputs.query, starts, lengths, table, block_size=skeleton.PAGE,
            kv_heads=inputs.kv_heads, max_query_len=inputs.length, max_seq_len=inputs.length,
            scale=skeleton.HEAD_DIM**-0.5)
        return lambda: launch(inputs.cache[:, 0], inputs.cache[:, 1])
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    tokens = inputs.batch * inputs.length
    out = torch.empty_like(inputs.query)
    return lambda: flash_attn_varlen_func(
        inputs.query, inputs.key[:tokens], inputs.value[:tokens], cu_seqlens_k=starts,
        cu_seqlens_q=starts, max_seqlen_q=inputs.length, max_seqlen_k=inputs.length, causal=True,
        out=out, fa_version=3, num_splits=1)


def flash_rows_right(inputs: skeleton.Inputs, call) -> bool:
    """Whether the competitor computes softmax attention here (its second call, as it is timed)."""
    call().fill_(float("nan"))
    out = call()
    query, key, value = (x[: inputs.length].double().transpose(0, 1)
                         for x in (inputs.query, inputs.key, inputs.value))
    group = inputs.heads // inputs.kv_heads
    rows = torch.randint(inputs.length, (16,), device="cuda")
    scores = query[:, rows] @ key.repeat_interleave(group, 0).transpose(1, 2)
    scores = (scores * skeleton.HEAD_DIM**-0.5).masked_fill(
        torch.arange(inputs.length, device="cuda") > rows[:, None], float("-inf"))
    want = (scores.softmax(-1) @ value.repeat_interleave(group, 0)).transpose(0, 1)
    return bool((out[rows].double() - want).norm() < 1e-2 * want.norm())


def calls_in_a_graph(call) -> int:
    """How often to call it in a graph, so that a replay is long enough to time."""
    call()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    return max(1, round(GRAPH_SECONDS / ((time.perf_counter() - started) / 3)))


def card_under_load(call) -> dict[str, float]:
    """Clock of the multiprocessors in MHz and power in W, half a second into repeated calls."""
    query = subprocess.Popen(
        "sleep 0.5; nvidia-smi --query-gpu=clocks.sm,power.draw --format=csv,noheader,nounits",
        shell=True, stdout=subprocess.PIPE, text=True)
    while query.poll() is None:
        for _ in range(20):
            call()
        torch.cuda.synchronize()
    clock, power = query.stdout.read().split(",")
    return {"sm_mhz": float(clock), "watts": float(power)}


def sampled_rows_right(library, variant, inputs: skeleton.Inputs) -> bool:
    out = torch.full_like(inputs.query, float("nan"))
    library.launch(variant, inputs, out)
    request = int(torch.randint(inputs.batch, ()))
    rows = torch.randint(inputs.length, (48,), device="cuda")
    rows[0], rows[1] = 0, inputs.length - 1
    found = reference.errors(inputs, out, request, rows, variant.gated)
    return reference.is_right(found) and not bool(out.isnan().any())


def measure(library: skeleton.Skeleton, variants, shape) -> dict:
    inputs = skeleton.make_inputs(*shape)
    calls, wrong = {}, []
    for variant in variants:
        if not sampled_rows_right(library, variant, inputs):
            wrong.append(variant.name)
            continue
        out = torch.empty_like(inputs.query)
        calls[variant.name] = lambda v=variant, o=out: library.launch(v, inputs, o)
    if FLAGS.flash:
        for paged in (False, True):
            name = f"flash-3 {'paged' if paged else 'contiguous'}"
            call = flash_attention_call(inputs, paged)
            if flash_rows_right(inputs, call):
                calls[name] = call
            else:
                wrong.append(name)
    record = {"shape": shape, "wrong": wrong, "results": {}}
    repeats = max(map(calls_in_a_graph, calls.values()))
    for name, timing in harness.time_interleaved(calls, [()] * repeats, FLAGS.rounds).items():
        record["results"][name] = {
            "us": timing.median_us, "us_low": timing.low_us, "us_high": timing.high_us,
            "tflops": inputs.multiply_adds() / timing.median_us * 1e-6,
        }
        if shape == LOAD_SHAPE:
            record["results"][name] |= card_under_load(calls[name])
    return record


def print_table(records: list[dict]) -> None:
    table = Table(title="TFLOP/s, causal operations only")
    table.add_column("variant")
    for record in records:
        batch, length, heads, kv_heads = record["shape"]
        table.add_column(f"B {batch} T {length} {heads}/{kv_heads}", justify="right")
    for name in records[0]["results"]:
        cells = [r["results"].get(name) for r in records]
        table.add_row(name, *(f"{x['tflops']:.0f} ({x['us']:.1f} us)" if x else "wrong"
                              for x in cells))
    Console(width=160).print(table)


def main(_) -> None:
    library = skeleton.Skeleton(os.path.abspath(FLAGS.library))
    chosen = [v for v in library.variants if not FLAGS.variants or v.name in FLAGS.variants]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        checks = {v.name: pool.submit(check, v.name) for v in chosen}
        if FLAGS.flash:
            import vllm.vllm_flash_attn  # noqa: F401  takes half a minute, so under the checks
        checks = {name: future.result() for name, future in checks.items()}
    for right, text in checks.values():
        print(text.strip(), "" if right else "\n  RED", flush=True)
    green = [v for v in chosen if checks[v.name][0]]
    records = []
    for shape in SHAPES:
        records.append(measure(library, green, shape))
        print(f"timed {shape}; wrong on it: {records[-1]['wrong'] or 'none'}", flush=True)
    print_table(records)
    for name, result in next(r for r in records if r["shape"] == LOAD_SHAPE)["results"].items():
        print(f"  {name}: {result['sm_mhz']:.0f} MHz, {result['watts']:.0f} W at T 8192")
    path = harness.write_json(FLAGS.output, machine.describe_machine() | {
        "commit": FLAGS.commit, "rounds": FLAGS.rounds,
        "red": [n for n, (right, _) in checks.items() if not right], "records": records})
    print(f"wrote {path}")


if __name__ == "__main__":
    app.run(main)
