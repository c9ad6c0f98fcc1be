"""The benches' arithmetic, their inputs, their refusal of a ratio, and (on a GPU) all of it."""

import json
import math

import attention_cases
import attention_plot
import attention_suite
import bench
import harness
import norm_suite
import pytest
import torch
from absl import flags
from attention_cases import Case
from rich.console import Console

import asynct_kernels
from asynct_kernels import apply_gate

CPU = torch.device("cpu")
SMALL = Case("decode", 4, 1, 1000, heads=8, kv_heads=4)
KERNEL = "a_decode_kernel"
NORM = norm_suite.Case("op", 32, tuple)


def timings(**medians):
    return {name: harness.Timing.of([us - 1, us, us, us + 1]) for name, us in medians.items()}


def printed(table) -> str:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_timing():
    timing = harness.Timing.of([float(i) for i in range(1, 12)])
    assert timing == harness.Timing(6.0, 2.0, 10.0, 11)


@pytest.mark.parametrize("bytes_per_call, sets", [(0, 64), (1 << 30, 2), (64 << 20, 5),
                                                  (32 << 20, 9), ((32 << 20) - 1, 10)])
def test_number_of_sets(bytes_per_call, sets):
    assert harness.number_of_sets(bytes_per_call) == sets


def test_relative_error(seed):
    exact = (torch.randn(9, dtype=torch.float64), torch.randn(3, dtype=torch.float64))
    assert harness.relative_error(exact, exact) == 0
    assert math.isclose(harness.relative_error((exact[0], 1.25 * exact[1]), exact), 0.25)
    assert math.isnan(harness.relative_error((exact[0], math.nan * exact[1]), exact))


def test_writes_where_bazel_run_was_called(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    path = harness.write_json("a/b.json", {"x": 1})
    assert path == tmp_path / "a" / "b.json"
    assert json.loads(path.read_text()) == {"x": 1}


def test_norm_row():
    result = norm_suite.row(NORM, 8000, 4, dict(ours=2e-3, eager=1e-3, compiled=1e-3),
                            timings(ours=2.0, eager=8.0, compiled=3.0))
    assert not norm_suite.is_red(result) and result["ratios"] == dict(eager=4.0, compiled=1.5)
    assert result["gigabytes_per_second"]["ours"] == 4.0


@pytest.mark.parametrize("error", [2.1e-3, math.nan, math.inf])
def test_no_ratio_for_a_wrong_norm(error):
    result = norm_suite.row(NORM, 8000, 4, dict(ours=error, eager=1e-3, compiled=1e-3),
                            timings(ours=2.0, eager=8.0, compiled=3.0))
    assert norm_suite.is_red(result) and result["ratios"] is None
    shown = printed(norm_suite.table([result]))
    assert "WRONG" in shown and "4.00" not in shown


def test_shapes_to_beat():
    counts = {kind: len([case for case in attention_cases.cases() if case.kind == kind])
              for kind in ("prefill", "decode")}
    assert counts == dict(prefill=7, decode=21)
    for case in attention_cases.cases():
        between = (attention_cases.number_of_layers(case) - 1) * 2 * case.row_bytes
        assert between >= 200e6, case.name


def test_operations():
    visible = sum(3 + query + 1 for query in range(5))
    case = Case("prefill", 2, 5, 8, heads=4, kv_heads=2, head_dim=64)
    assert case.operations() == 4 * 64 * 4 * 2 * visible


@pytest.mark.parametrize("zeros", [0.0, 0.5, 0.7, 0.9])
def test_share_of_zeros(zeros, seed):
    """Of each head about the same, and independent of the other head that reads the same keys."""
    case = Case("decode", 16, 1, 1024, heads=8, kv_heads=4)
    batch = attention_cases.make_batch(case, CPU)
    layer = attention_cases.make_layer(case, batch)
    query = attention_cases.make_query(case, zeros, CPU).float()
    gate = attention_cases.gate_for(case, zeros, CPU)
    keys = layer.cache[batch.block_table[:, :64].long(), 0].flatten(1, 2).float()
    scores = gate.scale * torch.einsum("rhd,rkhd->rhk", query,
                                       keys.repeat_interleave(2, dim=2))[..., None, :]
    closed = apply_gate(scores, gate, torch.ones(1, 1024, dtype=torch.bool)) == 0
    closed = closed.squeeze(-2).movedim(1, 0).flatten(1).double()  # [heads, requests x keys]
    assert (closed.mean(1) - zeros).abs().max() < 0.03
    assert abs(closed.mean() - zeros) < 0.01
    both = (closed[0::2] * closed[1::2]).mean()
    assert abs(both - zeros**2) < 0.015


def measure_on_cpu(monkeypatch, factor: float) -> list[dict]:
    """The rows of one point for a kernel whose output is `factor` times what is right."""
    def attend(*, kernel, out, workspace, **arguments):
        assert kernel == KERNEL
        return out.copy_(factor * asynct_reference(kernel="reference", **arguments))

    asynct_reference = asynct_kernels.attend
    monkeypatch.setattr(asynct_kernels, "attend", attend)
    monkeypatch.setattr(asynct_kernels, "attention_kernels", lambda: ("reference", KERNEL))
    monkeypatch.setattr(asynct_kernels, "explain", lambda kernel, **arguments: [])
    monkeypatch.setattr(asynct_kernels, "workspace_bytes", lambda kernel, **arguments: 0)
    monkeypatch.setattr(attention_suite, "flash_missing", lambda: "for this test")
    monkeypatch.setattr(attention_suite, "_time",
                        lambda launches, layers, rounds: timings(**dict.fromkeys(launches, 8.0)))
    batch = attention_cases.make_batch(SMALL, CPU)
    point = attention_suite.Point(SMALL, batch, 0.7, attention_cases.make_query(SMALL, 0.7, CPU),
                                  attention_cases.gate_for(SMALL, 0.7, CPU))
    layers = [attention_cases.make_layer(SMALL, batch)]
    return list(attention_suite.measure_point(point, layers, lambda name: True, 3, Console()))


def test_a_right_kernel_is_timed(seed, monkeypatch):
    result, = measure_on_cpu(monkeypatch, 1.0)
    assert result["ours_us"] == 8.0 and result["error"] < 4e-3
    assert not attention_suite.is_red(result)


def test_a_kernel_that_takes_raw_queries_has_three_rows(seed, monkeypatch):
    monkeypatch.setattr(attention_suite, "RAW_KERNELS", [KERNEL])
    results = measure_on_cpu(monkeypatch, 1.0)
    assert [result["kernel"] for result in results] == [
        KERNEL, f"{KERNEL}, raw", f"{KERNEL}, two launches"]
    assert not any(map(attention_suite.is_red, results))


@pytest.mark.parametrize("factor", [1.01, math.nan])
def test_a_wrong_kernel_gets_no_time(factor, seed, monkeypatch):
    result, = measure_on_cpu(monkeypatch, factor)
    assert result["ours_us"] is None and result["ratio"] is None
    assert attention_suite.is_red(result) and "WRONG" in printed(attention_suite.table([result]))
    json.dumps(result, allow_nan=False)


def test_what_counts_as_an_error():
    out = torch.ones(3, 2)
    assert attention_suite.error_of(lambda layer: out.fill_(1), None, [0], torch.ones(1, 2)) == 0

    zeros = torch.zeros(3, 2)
    assert attention_suite.error_of(lambda layer: out.copy_(zeros), None, [0, 1], zeros[:2]) == 0
    assert attention_suite.error_of(lambda layer: out.fill_(1), None, [0, 1], zeros[:2]) == math.inf

    def broken(layer):
        out.fill_(1)[2, 1] = math.nan
        return out

    assert math.isnan(attention_suite.error_of(broken, None, [0], torch.ones(1, 2)))


def rows():
    times = timings(ours=8.0, flash=10.0)
    return [attention_suite.row(case, zeros, f"some_{case.kind}", 1e-3, times["ours"], flash)
            for case in attention_cases.cases()[5:9] for zeros in case.zeros
            for flash in (times["flash"], None)]


def test_attention_row():
    result = rows()[0]
    assert list(result) == ["kind", "kernel", "B", "T_q", "ctx", "H", "H_kv", "D", "dtype", "zeros",
                            "ours_us", "fa3_us", "ratio", "spread", "error"]
    assert result["dtype"] == "bfloat16" and result["ratio"] == 0.8
    assert rows()[1]["ratio"] is None and "0.800" in printed(attention_suite.table(rows()))


def test_share_of_the_ceiling():
    case = Case("decode", 1, 1, 1 << 20)
    result = attention_suite.row(case, 0.5, "k", 0.0, *timings(ours=1e3, flash=1e3).values())
    assert attention_plot.share_of_ceiling(result) == pytest.approx(
        1.75 * (1 << 20) * 8 * 256 * 1e3 / 4.3e12)


def test_plot(tmp_path):
    report = {"rows": rows(), "card": "a card", "date": "a day"}
    picture = attention_plot.draw(report, tmp_path / "kernels.json")
    assert picture == tmp_path / "kernels.png" and picture.stat().st_size > 10_000


@pytest.mark.gpu
@pytest.mark.parametrize("suite, shapes", [("attention", "decode 8x1x256"), ("norms", " 32")])
def test_runs(suite, shapes, tmp_path):
    flags.FLAGS(["bench", f"--suite={suite}", f"--shapes={shapes}", "--rounds=3",
                 f"--output={tmp_path}/out.json", "--commit=abc"])
    bench.main(["bench"])
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["commit"] == "abc" and report["driver"] and report["rows"]
