"""The tables of GEMMs with epilogues: the bench before the kernels, and the kernels."""

from ceilings import COPY_TB_PER_S, CUBLAS_TFLOPS
from document import results, table
from documents import markdown

PRODUCT, INDUCTOR, OURS, FUSED = "cuBLAS", "cuBLAS, Inductor", "cuBLAS, ours", "fused"


def product_us(tokens: int, width: int, depth: int) -> float:
    """Its operations at what cuBLAS sustains, or the weight's bytes, whichever takes longer."""
    return max(2 * tokens * width * depth / CUBLAS_TFLOPS, 2 * width * depth / COPY_TB_PER_S) / 1e6


@table("epilogues")
def epilogues() -> str:
    def row(x: dict) -> list[str]:
        times = {name: timing["median_us"] for name, timing in x["timings"].items()}
        tile = min((name for name in times if name.startswith("CUTLASS")), key=times.get)
        fused, two = times[tile], min(times[INDUCTOR], times[OURS])
        return [x["projection"], str(x["tokens"]),
                f"{product_us(x['tokens'], x['width'], x['depth']):.1f}",
                *(f"{times[name]:.1f}" for name in (PRODUCT, INDUCTOR, OURS)), f"{fused:.1f}",
                tile.removeprefix("CUTLASS "), f"{fused / two:.2f}",
                f"{fused / times[PRODUCT]:.2f}"]
    return markdown(
        ["projection", "tokens", f"weight at {COPY_TB_PER_S} TB/s or {CUBLAS_TFLOPS} TFLOP/s, us",
         "cuBLAS alone, us", "cuBLAS + Inductor, us", "cuBLAS + ours, us", "CUTLASS fused, us",
         "its tile", "fused / better of two", "fused / cuBLAS alone"],
        map(row, results("epilogues")["rows"]))


@table("linear")
def linear() -> str:
    """Each projection by number of tokens; the faster of the op's two ways stands in bold."""
    def row(x: dict) -> list[object]:
        times = {name: timing["median_us"] for name, timing in x["timings"].items()}
        ways = {name: f"{times[name]:.1f}" for name in (OURS, FUSED)}
        best = min(ways, key=times.get)
        ways[best] = f"**{ways[best]}**"
        return [f"`{x['operation']}` {x['model']}", x["tokens"],
                f"{times[PRODUCT]:.1f} ({x['tflops'][PRODUCT]:.0f})", f"{times[INDUCTOR]:.1f}",
                ways[OURS], f"{ways[FUSED]} ({x['tflops'][FUSED]:.0f})",
                f"{times[FUSED] / times[INDUCTOR]:.2f}", f"{times[best] / times[INDUCTOR]:.2f}"]
    return markdown(
        ["projection", "tokens", "cuBLAS alone, us (TFLOP/s)", "cuBLAS + Inductor, us",
         "cuBLAS + ours, us", "fused, us (TFLOP/s)", "fused / Inductor", "better way / Inductor"],
        map(row, results("linear")["rows"]))
