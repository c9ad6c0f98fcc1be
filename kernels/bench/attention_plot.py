"""The attention suite's plot: time over FlashAttention-3's, and the share of the card's ceiling."""

import pathlib

import matplotlib
from matplotlib import ticker
from matplotlib.axes import Axes

import ceilings
from attention_cases import Case

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (after the choice of what draws)


_DASHES = {0.0: ":", 0.5: "-.", 0.7: "-", 0.9: "--"}


def draw(report: dict, path: pathlib.Path) -> pathlib.Path:
    """Draws the rows of a report that have a time into path, its suffix replaced by .png."""
    figure, axes = pyplot.subplots(2, 2, figsize=(18, 9), layout="constrained")
    for column, kind in enumerate(("prefill", "decode")):
        rows = [row for row in report["rows"] if row["kind"] == kind and row["ours_us"]]
        compared = [row for row in rows if row["ratio"]]
        _draw_lines(axes[0, column], compared, lambda row: row["ratio"])
        _draw_lines(axes[1, column], rows, share_of_ceiling)
        axes[0, column].set_title(f"{kind}, {report['card']}, {report['date']}")
        axes[0, column].set_ylabel("time over FlashAttention-3's")
        axes[0, column].axhline(1, color="black", linewidth=0.8)
        axes[0, column].set_yscale("log", base=2)
        axes[0, column].yaxis.set_major_locator(ticker.LogLocator(2, subs=(1, 1.25, 1.5, 1.75)))
        axes[0, column].yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axes[1, column].set_ylim(bottom=0)
    axes[1, 0].set_ylabel(f"share of {ceilings.CUBLAS_TFLOPS} TFLOP/s")
    axes[1, 1].set_ylabel(f"share of {ceilings.COPY_TB_PER_S} TB/s, bytes needed")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
    target = path.with_suffix(".png")
    figure.savefig(target, dpi=110)
    pyplot.close(figure)
    return target


def share_of_ceiling(row: dict) -> float:
    """A prefill's operations a second, or a decode's needed bytes, over what the card reaches."""
    case = Case(row["kind"], row["B"], row["T_q"], row["ctx"], row["H"], row["H_kv"], row["D"])
    if row["kind"] == "prefill":
        return case.operations() / row["ours_us"] * 1e-6 / ceilings.CUBLAS_TFLOPS
    return case.bytes_needed(row["zeros"]) / row["ours_us"] * 1e-6 / ceilings.COPY_TB_PER_S


def _draw_lines(axis: Axes, rows: list[dict], value) -> None:
    """A line a kernel (its colour) and share of zeros (its dashes), over the shapes."""
    shapes = list(dict.fromkeys(_shape(row) for row in rows))
    kernels = list(dict.fromkeys(row["kernel"] for row in rows))
    for kernel, zeros in dict.fromkeys((row["kernel"], row["zeros"]) for row in rows):
        points = [(shapes.index(_shape(row)), value(row)) for row in rows
                  if (row["kernel"], row["zeros"]) == (kernel, zeros)]
        axis.plot(*zip(*points), f"C{kernels.index(kernel)}", linestyle=_DASHES[zeros], marker="o",
                  markersize=3, label=f"{kernel}, {zeros:.0%} zeros")
    axis.set_xticks(range(len(shapes)), shapes, rotation=60, ha="right", fontsize=8)
    if shapes:
        axis.legend(fontsize=8)


def _shape(row: dict) -> str:
    length = f"T {row['T_q']}\n" if row["kind"] == "prefill" else ""
    return f"{length}B {row['B']} ctx {row['ctx']}"
