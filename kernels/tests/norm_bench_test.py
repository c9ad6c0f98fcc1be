"""The benchmark's arithmetic, its refusal of a ratio, and (on a GPU) the whole of it."""

import json
import math

import harness
import norm_bench
import pytest
import torch
from absl import flags


def timings(**medians):
    return {name: harness.Timing.of([us - 1, us, us, us + 1]) for name, us in medians.items()}


def test_timing():
    timing = harness.Timing.of([float(i) for i in range(1, 12)])
    assert timing == harness.Timing(6.0, 2.0, 10.0, 11)


@pytest.mark.parametrize("bytes_per_call, sets", [(0, 64), (1 << 30, 4), (64 << 20, 4),
                                                  (32 << 20, 8), ((32 << 20) - 1, 9)])
def test_number_of_sets(bytes_per_call, sets):
    assert harness.number_of_sets(bytes_per_call) == sets


def test_row():
    result = norm_bench.row("op", 32, 8000, 4, dict(ours=2e-3, eager=1e-3, compiled=1e-3),
                            timings(ours=2.0, eager=8.0, compiled=3.0))
    assert result["correct"] and result["ratios"] == dict(eager=4.0, compiled=1.5)
    assert result["gigabytes_per_second"]["ours"] == 4.0


@pytest.mark.parametrize("error", [2.1e-3, math.nan, math.inf])
def test_no_ratio_for_a_wrong_result(error, capsys):
    result = norm_bench.row("op", 32, 8000, 4, dict(ours=error, eager=1e-3, compiled=1e-3),
                            timings(ours=2.0, eager=8.0, compiled=3.0))
    assert not result["correct"] and result["ratios"] is None
    norm_bench.print_table([result], "title")
    printed = capsys.readouterr().out
    assert "WRONG" in printed and "4.00" not in printed


def test_relative_error(seed):
    exact = (torch.randn(9, dtype=torch.float64), torch.randn(3, dtype=torch.float64))
    assert harness.relative_error(exact, exact) == 0
    assert math.isclose(harness.relative_error((exact[0], 1.25 * exact[1]), exact), 0.25)
    assert math.isnan(harness.relative_error((exact[0], math.nan * exact[1]), exact))


def test_writes_where_bazel_run_was_called(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    path = harness.write_json("a/b.json", {"x": 1})
    assert path == tmp_path / "a" / "b.json" and json.loads(path.read_text()) == {"x": 1}


@pytest.mark.gpu
def test_runs(seed, tmp_path, capsys):
    flags.FLAGS(["norm_bench", "--tokens=3", "--hidden=64", "--intermediate=64", "--rounds=3",
                 f"--output={tmp_path}/out.json", "--commit=abc"])
    norm_bench.main(["norm_bench"])
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["commit"] == "abc" and report["settings"]["hidden"] == 64
    assert len(report["results"]) == 5 and all(r["correct"] for r in report["results"])
    assert report["machine"]["driver"]
