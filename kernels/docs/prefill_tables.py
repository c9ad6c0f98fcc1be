"""The tables of the wgmma prefill, from kernels/results/prefill_wgmma.json."""

from document import results, table
from documents import markdown

FLASH = "flash-3 paged"
BARE = "contiguous"  # of the bench: no gate, the best feed


def runs() -> list[dict]:
    return results("prefill_wgmma")["runs"]


def shape_name(shape: list[int]) -> str:
    batch, queries, keys, heads, kv_heads = shape
    context = "" if queries == keys else f" ctx {keys}"
    return f"B {batch} T {queries}{context} {heads}/{kv_heads}"


@table("prefill wgmma")
def prefill_wgmma() -> str:
    def cell(record: dict, name: str) -> str:
        if name not in record["us"]:
            return ""
        us, flash = record["us"][name][0], record["us"][FLASH][0]
        return f"{us / flash:.2f} ({us:.1f})"

    def rows(run: dict):
        by_shape = {shape_name(record["shape"]): record for record in run["records"]}
        names = max((record["us"] for record in run["records"]), key=len)
        for name in names:
            yield [run["schedule"], name,
                   *(cell(by_shape[shape], name) if shape in by_shape else "" for shape in shapes)]

    shapes = list(dict.fromkeys(
        shape_name(record["shape"]) for run in reversed(runs()) for record in run["records"]))
    return markdown(["schedule", f"over {FLASH} (us)", *shapes],
                    (row for run in runs() for row in rows(run)))


@table("prefill measured")
def prefill_measured() -> str:
    """The last run, and the bare skeleton's time at the same speed of FlashAttention-3."""
    bare = {}
    for record in results("prefill_bounds")["records"]:
        batch, length, *heads = record["shape"]
        bare[shape_name([batch, length, length, *heads])] = record["results"]

    def row(record: dict) -> list[str]:
        shape, us = shape_name(record["shape"]), {n: t[0] for n, t in record["us"].items()}
        flash = us[FLASH]
        cells = [shape, f"{flash:.1f}"]
        for feed in ("pages", "rows"):
            cells.append(f"{us[feed]:.1f} ({us[feed] / flash:.2f})" if feed in us else "")
        if shape in bare:
            floor = bare[shape][BARE]["us"] / bare[shape][FLASH]["us"] * flash
            cells += [f"{floor:.1f}", f"{floor / us['pages']:.2f}", f"{floor / us['rows']:.2f}"]
        return cells + [""] * (7 - len(cells))

    return markdown(["shape", f"{FLASH}, us", "pages, us (over it)", "rows, us (over it)",
                     "bare, us", "share, pages", "share, rows"],
                    map(row, runs()[-1]["records"]))


@table("prefill counters")
def prefill_counters() -> str:
    def row(run: dict, name: str) -> list[str]:
        counters = run["counters"][name]
        stalls = counters["warps_per_issue"]
        return [run["schedule"], name, f"{counters['us']:.0f}", f"{counters['tensor_percent']:.0f}",
                f"{counters['issue_percent']:.0f}", f"{counters['instructions'] / 1e6:.0f}",
                *(f"{stalls.get(stall, 0):.2f}" for stall in shown)]

    shown = ["dispatch_stall", "short_scoreboard", "mio_throttle", "wait", "math_pipe_throttle",
             "not_selected", "barrier", "gmma", "long_scoreboard"]
    return markdown(
        ["schedule", "feed", "us", "tensor cores busy, %", "issue slots used, %", "M instructions",
         *shown],
        (row(run, name) for run in runs() for name in run["counters"]))
