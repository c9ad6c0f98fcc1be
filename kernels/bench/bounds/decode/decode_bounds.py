"""What a decode attention that skips V can reach on this card, beside FlashAttention-3.

Three kinds of kernels over the paged cache, at one query token a request:
  bytes    read all of K and a random share of V's rows, and compute next to nothing;
  decode   AsyncI attention, in several designs;
  flash-3  vLLM's FlashAttention-3, called as its captured CUDA graphs call it.

Every variant is checked against float64 first, on requests of all lengths around page edges with
NaN in all memory that no request owns, and again on each shape it is timed on; one that is wrong,
or hangs, gets no figure. Times are medians of interleaved graph replays in one process, caches
rotating through more than the L2 holds.
"""

import dataclasses
import functools
import math
import re
import secrets
from collections.abc import Callable
from typing import Any

import torch
from absl import app, flags
from rich.console import Console
from rich.table import Table

import decode_problem as problem
import flash_attention
import harness
import machine
from decode_kernels import PAGE, ROW_BYTES, Batch, DecodeKernels, Variant
from isolation import run_isolated

_LIBRARY = flags.DEFINE_string("library", None, "The compiled kernels.", required=True)
_OUTPUT = flags.DEFINE_string("output", "decode_bounds.json", "The JSON file to write.")
_COMMIT = flags.DEFINE_string("commit", "unknown", "What the library was built from.")
_VARIANTS = flags.DEFINE_string("variants", ".*", "Regular expression of the variants' names.")
_SHAPES = flags.DEFINE_list(
    "shapes", [f"{b}x{c}" for c in (256, 1024, 2048, 4096, 16384) for b in (1, 8, 32, 128)]
    + ["512x2048"], "Requests x keys each.")
_SEGMENTS = flags.DEFINE_list("segments", ["256", "512", "1024"], "Keys of a segment.")
_KEPT = flags.DEFINE_list("kept", ["0.5"], "Shares of V's rows that the bytes kernels read.")
_ZEROS = flags.DEFINE_list("zeros", ["0.7"], "Shares of zero p per head, for the decode kernels.")
_ROUNDS = flags.DEFINE_integer("rounds", 15, "Timed replays of each.")
_SECONDS = flags.DEFINE_integer("seconds", 40, "Time limit of one check or one shape.")
_TOP = flags.DEFINE_integer("top", 6, "Rows of each printed table; the JSON has all.")
_FLASH = flags.DEFINE_bool("flash", True, "Time FlashAttention-3 too (needs vLLM).")
_SEED = flags.DEFINE_integer("seed", None, "Of all random inputs; a fresh one by default.")

_HEADS, _KV_HEADS = 16, 8
_MAX_ERROR = 4e-3  # of p rounded to bf16; the rounding alone gives 1.5e-3
_UNUSED_ENTRY = 0x3FFFFFFF
_CHECKED_LENGTHS = [0, 1, 2, 3, 15, 16, 17, 31, 33, 64, 130, 255, 256, 257, 511, 513, 1025, 2050]


@dataclasses.dataclass(frozen=True)
class Timed:
    """A shape to time variants on, at one share of V's rows or of zeros."""

    shape: problem.Shape
    kind: str  # bytes or decode
    share: float
    variants: tuple[Variant, ...]


@functools.cache
def _kernels() -> DecodeKernels:
    return DecodeKernels(_LIBRARY.value)


@functools.cache
def _pool(shapes: tuple[problem.Shape, ...]) -> problem.Pool:
    torch.manual_seed(_SEED.value)
    return problem.Pool(list(shapes), _KV_HEADS)


def _shapes() -> tuple[problem.Shape, ...]:
    sizes = [tuple(map(int, name.split("x"))) for name in _SHAPES.value]
    return tuple(sorted((problem.Shape(*size) for size in sizes), key=lambda s: s.key_bytes))


def _error(variant: Variant, batch: Batch, cache: torch.Tensor, out: torch.Tensor,
           requests: list[int]) -> float:
    """Relative to the float64 reference; the bytes kernels are right or wrong: 0 or infinity."""
    if variant.group == 0:
        right = all(torch.equal(out[r].view(torch.int32), problem.bytes_output_of(batch, cache, r))
                    for r in requests)
        return 0.0 if right else math.inf
    want = torch.stack([problem.attention_of(batch, cache, r) for r in requests])
    return harness.relative_error((out[requests],), (want,))


def check(variant: Variant) -> float:
    """The variant's error on a mixed batch amid NaN, launched twice over the same workspace."""
    torch.manual_seed(_SEED.value)
    heads = _KV_HEADS * max(variant.group, 1)
    batch = problem.ragged_batch(_CHECKED_LENGTHS, heads, _KV_HEADS, 0.7, 0.5, _UNUSED_ENTRY)
    blocks = sum(math.ceil(length / PAGE) for length in _CHECKED_LENGTHS)
    cache = torch.full((blocks, 2, PAGE, _KV_HEADS, ROW_BYTES // 2), float("nan"), device="cuda",
                       dtype=torch.bfloat16)
    for request, length in enumerate(_CHECKED_LENGTHS):
        for page in range(math.ceil(length / PAGE)):
            block = cache[batch.block_table[request, page]]
            block[:, : length - page * PAGE].normal_()
            block[0, : length - page * PAGE, :, 0] = 1
    launch = _kernels().bind(variant, batch, 256)
    everyone = list(range(len(_CHECKED_LENGTHS)))
    first = _error(variant, batch, cache, launch(cache).clone(), everyone)
    again = launch(cache)
    torch.cuda.synchronize()
    return max(first, _error(variant, batch, cache, again, everyone))


def _bind_flash_attention(batch: Batch) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function of a cache, as DecodeKernels.bind returns."""
    starts = torch.arange(len(batch.lengths) + 1, device="cuda", dtype=torch.int32)
    launch = flash_attention.bind(
        batch.query, starts, batch.lengths, batch.block_table, block_size=PAGE,
        kv_heads=batch.kv_heads, max_query_len=1, max_seq_len=int(batch.lengths.max()),
        scale=problem.SCALE)
    return lambda cache: launch(cache[:, 0], cache[:, 1])


def measure(timed: Timed) -> dict[str, Any]:
    """Times the variants on one shape; a row a variant and segment."""
    pool, shape = _pool(_shapes()), timed.shape
    caches = pool.layers(shape)
    is_bytes = timed.kind == "bytes"
    batch = problem.random_batch(shape, 0.5 if is_bytes else timed.share, timed.share)
    needed_rows = timed.share if is_bytes else problem.needed_value_rows(batch, caches[0])
    needed = round(shape.key_bytes * (1 + needed_rows))
    sampled = [int(torch.randint(shape.requests, ()))]

    candidates, errors = {}, {}
    for variant in timed.variants:
        for segment in map(int, _SEGMENTS.value):
            if segment > variant.longest_segment:
                continue
            launch = _kernels().bind(variant, batch, segment)
            error = _error(variant, batch, caches[0], launch(caches[0]), sampled)
            errors[variant.name, segment] = error
            if error <= _MAX_ERROR:
                candidates[variant.name, segment] = launch
    if _FLASH.value:
        launch = _bind_flash_attention(batch)
        want = problem.softmax_of(batch, caches[0], sampled[0])
        if harness.relative_error((launch(caches[0])[sampled[0]],), (want,)) > 1e-2:
            raise RuntimeError("FlashAttention-3 is wrong here")
        candidates["flash-3", 0] = launch
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")
    candidates["contiguous read", 0] = lambda cache: _kernels().stream(cache, needed, sink)

    timings = harness.time_interleaved(candidates, [(cache,) for cache in caches], _ROUNDS.value)
    rows = []
    for (name, segment), timing in timings.items():
        read = 2 * shape.key_bytes if name == "flash-3" else needed
        rows.append({"variant": name, "segment": segment, **dataclasses.asdict(timing),
                     "bytes": read, "tb_per_s": read / timing.median_us * 1e-6,
                     "error": errors.get((name, segment))})
    return {"requests": shape.requests, "context": shape.context, "kind": timed.kind,
            "share": timed.share, "value_rows": needed_rows, "layers": len(caches), "rows": rows,
            "wrong": [key for key, error in errors.items() if not error <= _MAX_ERROR]}


def _print_record(console: Console, record: dict[str, Any]) -> None:
    flash = next((row for row in record["rows"] if row["variant"] == "flash-3"), None)
    title = (f"B {record['requests']} ctx {record['context']}, {record['kind']} {record['share']}: "
             f"{record['value_rows']:.3f} of V's rows needed")
    table = Table(title=title, title_justify="left")
    for column in ("variant", "segment", "us", "low", "high", "TB/s needed", "of flash-3's time"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    fastest = sorted(record["rows"], key=lambda row: row["median_us"])
    for row in fastest[: _TOP.value] + ([flash] if flash in fastest[_TOP.value:] else []):
        ratio = f"{row['median_us'] / flash['median_us']:.3f}" if flash else ""
        table.add_row(row["variant"], str(row["segment"] or ""), f"{row['median_us']:.2f}",
                      f"{row['low_us']:.2f}", f"{row['high_us']:.2f}", f"{row['tb_per_s']:.2f}",
                      ratio)
    console.print(table)
    for name, segment in record["wrong"]:
        console.print(f"[red]wrong, not timed: {name}, segment {segment}")


def _checked(console: Console, variants: list[Variant]) -> tuple[list[Variant], dict[str, str]]:
    """The variants that are right, and what is wrong with the others."""
    green, red = [], {}
    for variant, error, failure in run_isolated(check, variants, _SECONDS.value):
        if failure is None and error <= _MAX_ERROR:
            green.append(variant)
        else:
            red[variant.name] = failure or f"error {error}"
        console.print(f"{'green' if variant in green else 'RED'} {variant.name}: "
                      f"{failure or error}", markup=False)
    return green, red


def main(_) -> None:
    console = Console(width=140)
    if _SEED.value is None:
        flags.FLAGS.seed = secrets.randbelow(2**31)
    console.print(f"seed {_SEED.value}")
    if _FLASH.value:
        import vllm.vllm_flash_attn  # noqa: F401  half a minute: once, before the processes fork
    chosen = [v for v in _kernels().variants if re.search(_VARIANTS.value, v.name)]
    green, red = _checked(console, chosen)

    jobs = []
    for shape in _shapes():
        for kind, shares in (("bytes", _KEPT.value), ("decode", _ZEROS.value)):
            group = 0 if kind == "bytes" else _HEADS // _KV_HEADS
            variants = tuple(v for v in green if v.group == group)
            jobs += [Timed(shape, kind, float(share), variants) for share in shares if variants]
    records, failures, report = [], [], {}
    for job, record, failure in run_isolated(measure, jobs, _SECONDS.value):
        if failure is None:
            records.append(record)
            _print_record(console, record)
        else:
            failures.append({"job": dataclasses.asdict(job), "failure": failure})
            console.print(f"{job.shape} {job.kind} {job.share}: {failure}", markup=False)
        report = {"commit": _COMMIT.value, "seed": _SEED.value, "red": red, "failures": failures,
                  "records": records}
        harness.write_json(_OUTPUT.value, report)  # after every shape: a later one may be cut off
    console.print(f"wrote {harness.write_json(_OUTPUT.value, report | machine.describe_machine())}")


if __name__ == "__main__":
    app.run(main)
