"""Every attention kernel at the shapes of a server, beside FlashAttention-3 in the same process.

A result is checked against float64 before it is timed; one that is wrong gets no time. Both sides
read the same data, in layers that rotate through more than the L2 holds; a sample is the replay of
a CUDA graph. The share `zeros` of each query head's p is zero, independently of the other heads'.
The reference is what is right, and not timed.

What a step's layers share, a list of segments or FlashAttention-3's metadata, is made ahead. A
decode that can also do DyHT, RoPE and the cache write has two rows more: that one launch ("raw"),
and qk_norm_rope_cache before the same kernel ("two launches"). They too have FlashAttention-3's
attention alone beside them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import torch
from rich.console import Console
from rich.table import Table

import asynct_kernels
import attention_cases
import flash_attention
import harness
from asynct_kernels import GateParams
from asynct_kernels.attention import find_kernel
from asynct_kernels.attention.decode import schedule_decode
from attention_cases import Batch, Case, Layer

REPORT = "kernels"
FLASH = "flash-3"
# Twice what rounding p and the output to bfloat16 gives.
MAX_ERROR = 4e-3
_MAX_FLASH_ERROR = 1e-2
_SECONDS = 2.0  # of timed calls a point: slow kernels have fewer rounds
_LEAST_ROUNDS = 3

RAW_KERNELS = [name for name in asynct_kernels.attention_kernels()
               if find_kernel(name).limits.fresh == "raw"]
Launch = Callable[[Layer], torch.Tensor]
cases = attention_cases.cases


@dataclasses.dataclass(frozen=True)
class Point:
    """A case with its inputs, at one share of zeros."""

    case: Case
    batch: Batch
    zeros: float
    query: torch.Tensor
    gate: GateParams

    def arguments(self, layer: Layer, fresh: bool) -> dict[str, object]:
        """Of attend, for any kernel; `fresh` for those that take keys and values as projected."""
        batch = self.batch
        key_value = dict(key=layer.key, value=layer.value, slot_mapping=batch.slot_mapping)
        return dict(
            query=self.query, k_cache=layer.cache[:, 0], v_cache=layer.cache[:, 1],
            block_table=batch.block_table, query_start_loc=batch.query_start_loc,
            seq_lens=batch.seq_lens, gate=self.gate, max_query_len=self.case.query_len,
            max_seq_len=self.case.max_seq_len) | (key_value if fresh else {})

    def bind(self, kernel: str, layer: Layer) -> tuple[Launch | None, list[str]]:
        """How to launch the kernel, or why it cannot serve this."""
        for fresh in (False, True):
            reasons = asynct_kernels.explain(kernel, **self.arguments(layer, fresh))
            if not reasons:
                break
        else:
            return None, reasons
        shared = self.shared_by_layers(kernel, self.arguments(layer, fresh))
        return lambda layer: asynct_kernels.attend(**shared, **self.arguments(layer, fresh)), []

    def shared_by_layers(self, kernel: str, arguments: dict[str, object]) -> dict[str, object]:
        """What all layers give attend alike, the workspace as the step's first launch leaves it."""
        size = asynct_kernels.workspace_bytes(kernel, **arguments)
        workspace = torch.full((size,), 0xFF, dtype=torch.uint8, device=self.query.device)
        shared = dict(kernel=kernel, out=torch.empty_like(self.query), workspace=workspace)
        if kernel not in RAW_KERNELS or not self.query.is_cuda:
            return shared
        schedule_decode(workspace, self.batch.query_start_loc, self.batch.seq_lens,
                        heads=self.case.heads, kv_heads=self.case.kv_heads,
                        head_dim=self.case.head_dim, max_seq_len=self.case.max_seq_len)
        return shared | dict(scheduled=1)

    def bind_raw(self, kernel: str, layer: Layer) -> dict[str, Launch]:
        """How to launch the kernel on queries and keys before DyHT and RoPE, by name, if it takes
        those. The parameters are such that nothing changes, for the same work."""
        if kernel not in RAW_KERNELS:
            return {}
        batch, norm_rope = self.batch, attention_cases.idle_norm_rope(self.case, self.query.device)
        positions = batch.seq_lens.long() - 1
        outputs = (self.query.clone(), layer.key.clone())
        shared = self.shared_by_layers(kernel, self.arguments(layer, fresh=False))

        def two_launches(layer: Layer) -> torch.Tensor:
            asynct_kernels.qk_norm_rope_cache(
                self.query, layer.key, layer.value, positions, norm_rope, layer.cache[:, 0],
                layer.cache[:, 1], batch.slot_mapping, out=outputs)
            return asynct_kernels.attend(
                **shared, **self.arguments(layer, fresh=False) | dict(query=outputs[0]))

        def raw(layer: Layer) -> torch.Tensor:
            return asynct_kernels.attend(
                **shared, qk_norm_rope=norm_rope, **self.arguments(layer, fresh=True))

        return {f"{kernel}, raw": raw, f"{kernel}, two launches": two_launches}

    def bind_flash(self) -> Launch:
        case, batch = self.case, self.batch
        launch = flash_attention.bind(
            self.query, batch.query_start_loc, batch.seq_lens, batch.block_table,
            block_size=attention_cases.BLOCK_SIZE, kv_heads=case.kv_heads,
            max_query_len=case.query_len, max_seq_len=case.context, scale=self.gate.scale)
        return lambda layer: launch(layer.cache[:, 0], layer.cache[:, 1])


def measure(case: Case, chosen: Callable[[str], bool], rounds: int,
            console: Console) -> Iterator[dict[str, object]]:
    """Rows of the report: one a share of zeros and kernel that is `chosen` and can serve it."""
    device = torch.device("cuda")
    batch = attention_cases.make_batch(case, device)
    layers = [attention_cases.make_layer(case, batch)
              for _ in range(attention_cases.number_of_layers(case))]
    if missing := flash_missing():
        console.print(f"no FlashAttention-3, ours is timed alone: {missing}", markup=False)
    for zeros in case.zeros:
        point = Point(case, batch, zeros, attention_cases.make_query(case, zeros, device),
                      attention_cases.gate_for(case, zeros, device))
        yield from measure_point(point, layers, chosen, rounds, console)


def measure_point(point: Point, layers: list[Layer], chosen: Callable[[str], bool], rounds: int,
                  console: Console) -> Iterator[dict[str, object]]:
    case, layer = point.case, layers[0]
    rows = attention_cases.sample_rows(case)
    inputs = (case, point.batch, layer, point.query)
    want = attention_cases.expected(*inputs, point.gate, rows)
    launches, errors = {}, {}
    for name in asynct_kernels.attention_kernels():
        if case.kind not in name or not chosen(name):
            continue
        launch, reasons = point.bind(name, layer)
        if launch is None:
            console.print(f"{case.name}: no {name}: {'; '.join(reasons)}", markup=False)
            continue
        for form, bound in ({name: launch} | point.bind_raw(name, layer)).items():
            errors[form] = error_of(bound, layer, rows, want)
            if errors[form] <= MAX_ERROR:
                launches[form] = bound
    if launches and not flash_missing():
        launches[FLASH] = point.bind_flash()
        want = attention_cases.expected_softmax(*inputs, point.gate.scale, rows)
        if not error_of(launches[FLASH], layer, rows, want) <= _MAX_FLASH_ERROR:
            raise RuntimeError(f"{case.name}: FlashAttention-3 is wrong here")
    timings = _time(launches, layers, rounds) if launches else {}
    for name, error in errors.items():
        yield row(case, point.zeros, name, error, timings.get(name), timings.get(FLASH))


def error_of(launch: Launch, layer: Layer, rows: list[int], want: torch.Tensor) -> float:
    """The largest relative error of these rows of query; NaN if any row at all holds a NaN.

    Where zeros are right (a gate can close on all that a query sees), anything else is infinitely
    wrong.
    """
    launch(layer).fill_(math.nan)
    out = launch(layer)
    if out.isnan().any():
        return math.nan
    want = want.flatten(1)
    wrong = (out[rows].double().flatten(1) - want).norm(dim=1)
    return torch.where(wrong == 0, 0.0, wrong / want.norm(dim=1)).max().item()


@functools.cache
def flash_missing() -> str:
    return flash_attention.why_missing()


def _time(launches: dict[str, Launch], layers: list[Layer],
          rounds: int) -> dict[str, harness.Timing]:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for launch in launches.values():
        launch(layers[0])
    end.record()
    end.synchronize()
    seconds = start.elapsed_time(end) * 1e-3 * len(layers)
    affordable = max(_LEAST_ROUNDS, int(_SECONDS / seconds))
    return harness.time_interleaved(launches, [(layer,) for layer in layers],
                                    min(rounds, affordable))


def row(case: Case, zeros: float, kernel: str, error: float, ours: harness.Timing | None,
        flash: harness.Timing | None) -> dict[str, object]:
    """A row of the report; times in microseconds, none for a wrong result.

    `ratio` is our time over FlashAttention-3's; `spread` is how far apart 8 of 10 of our samples
    lie, over their median.
    """
    return {
        "kind": case.kind, "kernel": kernel, "B": case.requests, "T_q": case.query_len,
        "ctx": case.context, "H": case.heads, "H_kv": case.kv_heads, "D": case.head_dim,
        "dtype": str(attention_cases.DTYPE).removeprefix("torch."), "zeros": zeros,
        "ours_us": ours and ours.median_us, "fa3_us": flash and flash.median_us,
        "ratio": ours and flash and ours.median_us / flash.median_us,
        "spread": ours and (ours.high_us - ours.low_us) / ours.median_us,
        "error": error if math.isfinite(error) else str(error),
    }


def is_red(result: dict[str, object]) -> bool:
    return result["ours_us"] is None


def table(results: list[dict[str, object]]) -> Table:
    columns = ("B", "T_q", "ctx", "H", "H_kv", "zeros", "ours, us", "FA3, us", "ratio", "spread",
               "error")
    shown = Table("kernel")
    for column in columns:
        shown.add_column(column, justify="right")
    for result in results:
        figures = [f"{result[key]:{form}}" if result[key] is not None else "-"
                   for key, form in (("ours_us", ".1f"), ("fa3_us", ".1f"), ("ratio", ".3f"),
                                     ("spread", ".1%"))]
        if is_red(result):
            figures[0] = "[red]WRONG"
        shown.add_row(result["kernel"], *(str(result[key]) for key in
                                          ("B", "T_q", "ctx", "H", "H_kv", "zeros")), *figures,
                      f"{float(result['error']):.1e}")
    return shown
