"""The tables of the paged decode and the mma prefill, from what their first timings wrote."""

import statistics
from collections.abc import Iterator

from document import results, table
from documents import markdown

# bf16, 8 KV heads of 128: a key, and as many bytes for a row of V that some head wants.
KEY_BYTES = 8 * 128 * 2


def decode_us(record: dict) -> float:
    """The time in segments that the device chose."""
    return record["t"]["chosen 0"][0]


def decode_ratio(record: dict) -> float:
    return decode_us(record) / record["fa3"]


@table("decode paged")
def decode_paged() -> str:
    def row(record: dict) -> list[object]:
        needed = record["B"] * record["ctx"] * KEY_BYTES * (1 + record["rows"])
        us = decode_us(record)
        return [record["B"], record["ctx"], f"{record['zeros']:.0%}", f"{us:.1f}",
                f"{needed / us / 1e6:.2f}", f"{record['fa3']:.1f}", f"{decode_ratio(record):.2f}"]

    def summary() -> Iterator[list[object]]:
        ratios = [decode_ratio(record) for record in records
                  if record["B"] in (8, 32, 128) and record["ctx"] >= 1024
                  and round(record["zeros"], 1) == 0.7]
        yield ["8, 32, 128", "1024 up", "70%", "", "", "geometric mean",
               f"{statistics.geometric_mean(ratios):.2f}"]

    records = sorted(results("decode_chosen"), key=lambda record: (
        record["B"], record["ctx"], round(record["zeros"], 1)))
    return markdown(["B", "ctx", "zeros", "us", "TB/s needed", "FlashAttention-3, us", "ratio"],
                    [*map(row, records), *summary()], text=0)


@table("prefill mma")
def prefill_mma() -> str:
    def name(record: dict) -> str:
        context = "" if record["T_q"] == record["ctx"] else f" ctx {record['ctx']}"
        head_dim = "" if record["D"] == 128 else f", D {record['D']}"
        cache = ", fp8 cache (FlashAttention-3 in bf16)" if record["fp8"] else ""
        return (f"B {record['B']} T {record['T_q']}{context} {record['H']}/{record['H_kv']}"
                f"{head_dim}{cache}")

    def tflops(record: dict) -> float:
        queries, keys = record["T_q"], record["ctx"]
        visible = queries * (keys - queries) + queries * (queries + 1) / 2
        flop = 4 * record["D"] * record["B"] * record["H"] * visible
        return flop / record["ours_us"] / 1e6

    return markdown(
        ["shape", "mma, us", "TFLOP/s", "FlashAttention-3, us", "ratio"],
        ([name(record), f"{record['ours_us']:.1f}", f"{tflops(record):.0f}",
          f"{record['fa3_us']:.1f}", f"{record['ratio']:.2f}"]
         for record in results("prefill_mma")))
