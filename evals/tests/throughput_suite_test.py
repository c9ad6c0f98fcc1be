"""The suite on vLLM's CPU engine: both models tiny, two rounds."""

import json

import pytest
from absl import flags
from absl.testing import flagsaver
from asynct_evals import environment
from asynct_evals.data import InputError
from asynct_evals.throughput import main, suite, weights
from asynct_model import AsyncTConfig
from rich.console import Console
from throughput_runs import SCENARIOS, SHAPE, WrongReference, settings


@pytest.fixture(autouse=True)
def libraries():
    environment.prepare(offline=True, verbose=False)


@pytest.fixture
def console():
    return Console(record=True, width=100)


def run(asked, console, **options) -> suite.Result:
    *_, result = suite.run(asked, console, **options)
    return result


def test_both_sides_are_timed_and_ours_is_right(console, seed):
    result = run(settings(seed=seed), console, commit="abc")
    assert result.contestants.attention_zeros == pytest.approx(0.7, abs=0.06)
    assert result.contestants.machine["commit"] == "abc"
    assert list(result.timings) == list(result.verdicts) == [s.name for s in SCENARIOS]
    for paired in result.timings.values():
        assert len(paired.ours) == len(paired.theirs) == 2
        assert min(paired.ours + paired.theirs) > 0
    for name, verdict in result.verdicts.items():
        print(name, verdict)
        assert verdict.fault is None
    assert "check: decode" in console.export_text()


def test_wrong_output_is_not_timed(console, seed, monkeypatch):
    monkeypatch.setattr(suite, "Reference", WrongReference)
    monkeypatch.setattr(suite, "_time", lambda *_: pytest.fail("timed"))
    with pytest.raises(suite.WrongOutput, match="prefill: log-probabilities are off by"):
        run(settings(seed=seed, scenarios=SCENARIOS[:1]), console)


def test_what_is_no_checkpoint_is_refused(console, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "asynct", "hidden_act": "silu"}')
    with pytest.raises(InputError, match=f"--checkpoint {tmp_path}: .*hidden_act"):
        run(settings(shape=None, checkpoint=tmp_path), console)


def test_the_program_leaves_a_report_and_a_plot(tmp_path, monkeypatch, capfd, seed):
    import torch

    weights.save_asynct(AsyncTConfig(**SHAPE), tmp_path / "mine", zeros=0.8, dtype=torch.bfloat16,
                        seed=seed)
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    with flagsaver.flagsaver():
        flags.FLAGS(["throughput", "--try_out", "--checkpoint=mine", "--rounds=1", "--commit=abc",
                     "--queued", "--scenarios=mixed_b64", "--output=out/here.json"])
        main.main(["throughput"])
    report = json.loads((tmp_path / "out" / "here.json").read_text())
    (row,) = report["rows"]
    assert row["scenario"] == "mixed_b64" and row["model"] == "mine" and row["rounds"] == 1
    assert row["ratio"] == pytest.approx(row["ours_s"] / row["fa3_s"])
    assert row["attention_zeros"] == pytest.approx(0.8, abs=0.06)
    assert report["machine"]["commit"] == "abc"
    assert (tmp_path / "out" / "here.png").exists()
    printed = capfd.readouterr().out
    assert "where GPU time cannot be broken down" in printed and f"{row['ratio']:.3f}" in printed
