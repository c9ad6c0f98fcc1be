"""Writes the measured tables of the documents in this folder from what benches wrote.

    bazel run //kernels/docs:tables

A new table is one function, under `@table(NAME)`, and its place in a document (tools/documents).
"""

import attention_tables  # noqa: F401  (registers its tables)
import documents
import epilogue_tables  # noqa: F401  (registers its tables)
import kernel_tables  # noqa: F401  (registers its tables)
import prefill_tables  # noqa: F401  (registers its tables)
import step_tables  # noqa: F401  (registers its tables)
from ceilings import COPY_TB_PER_S, CUBLAS_TFLOPS
from document import KERNELS, TABLES, results, table
from documents import markdown

DOCUMENTS = ("attention.md", "bounds.md", "log.md", "prefill.md")

HEAD_DIM = 128
TENSOR_FLOP_PER_CLOCK = 4096 * 132  # dense bf16, all multiprocessors

FLASH = "flash-3 paged"
# At most this share of FlashAttention-3's time, by length: what the prefill kernel has to reach.
BARS = {256: 0.85, 1024: 0.90, 2048: 0.90, 4096: 0.90, 8192: 0.90}


# Prefill: one causal prompt per request, as many keys as queries.


def shape_name(record: dict) -> str:
    batch, length, heads, kv_heads = record["shape"]
    return f"B {batch} T {length} {heads}/{kv_heads}"


def computed_share(length: int, rows: int, keys: int) -> float:
    """Scores in the tiles of a causal prompt over those that count: row blocks x key tiles."""
    computed = sum(rows * keys * -(-min(first + rows, length) // keys)
                   for first in range(0, length, rows))
    return computed / (length * (length + 1) / 2)


def tile_of(variant: str) -> tuple[int, int]:
    """Query positions of a row block and keys of a tile; FlashAttention-3's causal tile is 128."""
    rows = 192 if "192 rows" in variant else 64
    if "128 rows" in variant or "flash" in variant:
        rows = 128
    return rows, 64 if "tile 64" in variant else 128


def all_variants(file: str) -> str:
    records = results(file)["records"]
    return markdown(
        ["TFLOP/s (us)", *map(shape_name, records)],
        ([name, *(f"{x['tflops']:.0f} ({x['us']:.1f})"
                  for x in (record["results"][name] for record in records))]
         for name in records[0]["results"]))


@table("prefill first run")
def prefill_first_run() -> str:
    return all_variants("prefill_bounds_first_run")


@table("prefill variants")
def prefill_variants() -> str:
    return all_variants("prefill_bounds")


@table("prefill floors")
def prefill_floors() -> str:
    def row(record: dict) -> list[str]:
        batch, length, heads, kv_heads = record["shape"]
        flop = 4 * HEAD_DIM * heads * batch * length * (length + 1) / 2
        moved = 2 * 2 * (heads + kv_heads) * batch * length * HEAD_DIM  # Q, O; K, V; two bytes
        return [shape_name(record), f"{flop / 1e9:.1f}",
                *(f"{computed_share(length, 64, keys):.3f}" for keys in (128, 64)),
                f"{moved / 1e6:.0f}", f"{moved / COPY_TB_PER_S / 1e6:.1f}",
                f"{flop / CUBLAS_TFLOPS / 1e6:.1f}",
                *(f"{record['results'][name]['us']:.1f}"
                  for name in ("contiguous", "paged", FLASH))]
    return markdown(
        ["shape", "GFLOP", "computed, 128-key tiles", "64-key tiles", "MB",
         "memory floor, us", f"at {CUBLAS_TFLOPS} TFLOP/s, us", "bare contiguous, us",
         "bare paged, us", f"{FLASH}, us"],
        map(row, results("prefill_bounds")["records"]))


@table("prefill share")
def prefill_share() -> str:
    record = next(r for r in results("prefill_bounds")["records"] if r["shape"][1] == 8192)

    def row(name: str, x: dict) -> list[str]:
        peak = TENSOR_FLOP_PER_CLOCK * x["sm_mhz"] * 1e-6
        share = x["tflops"] * computed_share(8192, *tile_of(name)) / peak
        return [name, f"{x['us']:.1f}", f"{x['us_low']:.1f} to {x['us_high']:.1f}",
                f"{x['tflops']:.0f}", f"{x['sm_mhz']:.0f}", f"{x['watts']:.0f}", f"{peak:.0f}",
                f"{share:.2f}", f"{x['tflops'] / CUBLAS_TFLOPS:.2f}"]
    return markdown(
        [shape_name(record), "us", "range, us", "TFLOP/s", "MHz", "W", "peak at that clock",
         "share of it, computed tiles", f"over {CUBLAS_TFLOPS}"],
        (row(name, x) for name, x in record["results"].items()))


@table("prefill costs")
def prefill_costs() -> str:
    records = results("prefill_bounds")["records"]
    comparisons = [
        ("gate, tile order, contiguous", "contiguous gate", "contiguous"),
        ("gate, page order, paged", "paged gate", "paged"),
        ("natural order instead of tile order, contiguous", "contiguous gate natural order",
         "contiguous gate"),
        ("natural order instead of page order, paged", "paged gate natural order", "paged gate"),
        ("paging, no gate", "paged", "contiguous"),
        ("paging and page order instead of tile order", "paged gate", "contiguous gate"),
        ("paging, FlashAttention-3", FLASH, "flash-3 contiguous"),
        ("no turns", "paged gate no turns", "paged gate"),
        ("Q from shared memory", "paged gate shared Q", "paged gate"),
        ("overlap instead of paired, no turns", "paged gate overlap no turns",
         "paged gate no turns"),
        ("linked, paged", "paged gate linked", "paged gate"),
        ("linked, contiguous", "contiguous gate linked", "contiguous gate"),
        ("tile of 64 keys", "paged gate tile 64", "paged gate"),
        ("3 x 64 rows, serial, no turns", "paged gate 192 rows no turns", "paged gate"),
    ]
    return markdown(
        ["time added", *map(shape_name, records)],
        ([title, *(f"{r['results'][with_it]['us'] / r['results'][without]['us'] - 1:+.1%}"
                   for r in records)] for title, with_it, without in comparisons))


@table("prefill bars")
def prefill_bars() -> str:
    def row(record: dict) -> list[str]:
        batch, length, _, kv_heads = record["shape"]
        times = {name: x["us"] for name, x in record["results"].items()}
        flash = times[FLASH]
        best = min((n for n in times if n.startswith("paged gate")), key=times.get)
        linked = times["contiguous gate linked"]
        paging = times["paged"] / times["contiguous"]
        scaled = linked - 0.2 * (times["contiguous gate"] - times["contiguous"])
        gather = 8 * batch * length * kv_heads * HEAD_DIM / COPY_TB_PER_S / 1e6
        flash_paging = flash / times["flash-3 contiguous"]
        return [shape_name(record), f"{flash:.1f}", f"{BARS[length]:.2f}",
                f"{BARS[length] * flash:.1f}", best,
                f"{times[best]:.1f} ({times[best] / flash:.2f})",
                *(f"{us:.1f} ({us / flash:.2f})"
                  for us in (linked, linked * paging, linked * flash_paging, linked + gather,
                             scaled + gather))]
    return markdown(
        ["us (over FlashAttention-3 paged)", "FlashAttention-3", "bar", "bar, us",
         "best paged gate", "measured", "contiguous, linked: measured",
         "+ our paging: predicted", "+ cp.async paging as FlashAttention-3's: predicted",
         "+ a gather first: predicted", "+ a gather first, scaled Q: predicted"],
        map(row, results("prefill_bounds")["records"]))


# Decode: one query token a request, paged keys and values.

# The prediction for "bytes", us, by requests and context, written before the first measurement.
DECODE_PREDICTED = {
    (32, 256): 10.0, (8, 1024): 11.5, (32, 1024): 29.6, (32, 2048): 53.7, (128, 2048): 198.2,
    (512, 2048): 776.1, (1, 4096): 8.5, (8, 4096): 29.6, (32, 4096): 101.8, (128, 4096): 390.8,
    (1, 16384): 17.5, (32, 16384): 390.8,
}


@table("decode")
def decode() -> str:
    records = [r for file in ("decode_bounds", "decode_bounds_more_shapes")
               for r in results(file)["records"]]
    cases = {(r["requests"], r["context"], r["kind"]): r["rows"] for r in records}
    reads = [x for rows in cases.values() for x in rows if x["variant"] == "contiguous read"]
    best_read = max(x["tb_per_s"] for x in reads)

    def best(rows: list[dict], start: str, without: str = "\0") -> dict:
        return min((x for x in rows if x["variant"].startswith(start)
                    and without not in x["variant"]), key=lambda x: x["median_us"])

    def row(requests: int, context: int) -> list[object]:
        moved, whole = (cases[requests, context, kind] for kind in ("bytes", "decode"))
        read, data, flash = (best(moved, name) for name in ("contiguous read", "bytes", "flash-3"))
        attention = best(whole, "decode", without="CUDA")
        cores = min((x for x in whole if "CUDA cores" in x["variant"]),
                    key=lambda x: x["median_us"])
        floor = data["bytes"] / best_read / 1e6
        return [requests, context, f"{data['bytes'] / 1e6:.1f}", f"{floor:.1f}",
                f"{read['median_us']:.1f}", f"{data['median_us']:.1f} ({data['tb_per_s']:.2f})",
                f"{floor / data['median_us']:.0%}", DECODE_PREDICTED[requests, context],
                f"{attention['median_us']:.1f} ({attention['tb_per_s']:.2f})",
                f"{cores['median_us']:.1f}", f"{flash['median_us']:.1f}",
                f"{data['median_us'] / flash['median_us']:.2f}",
                f"{attention['median_us'] / best(whole, 'flash-3')['median_us']:.2f}"]

    order = sorted({(r["context"], r["requests"]) for r in records})
    return markdown(
        ["B", "ctx", "MB", "floor", "contiguous read", "bytes", "share of floor", "predicted",
         "decode", "CUDA cores", "FA3", "bytes/FA3", "decode/FA3"],
        (row(requests, context) for context, requests in order))


# DyHT and ReGLU.


@table("norms")
def norms() -> str:
    def row(x: dict) -> list[str]:
        ours, inductor = (x["timings"][side]["median_us"] for side in ("ours", "compiled"))
        floor = x["bytes"] / COPY_TB_PER_S / 1e6
        return [f"`{x['operation']}`", x["tokens"], f"{x['bytes'] / 1e6:.2f}", f"{floor:.2f}",
                f"{ours:.2f}", f"{x['bytes'] / ours / 1e3:.0f}", f"{floor / ours:.2f}",
                f"{ours - floor:.2f}", f"{inductor:.2f}", f"{inductor - floor:.2f}",
                f"{inductor / ours:.2f}"]
    return markdown(
        ["operation", "tokens", "MB", "floor, us", "ours, us", "GB/s", "floor / ours",
         "ours - floor, us", "Inductor, us", "Inductor - floor, us", "Inductor / ours"],
        map(row, sorted(results("norms")["rows"], key=lambda x: x["tokens"])))


def main() -> None:
    documents.write([KERNELS / "docs" / name for name in DOCUMENTS], TABLES)


if __name__ == "__main__":
    main()
