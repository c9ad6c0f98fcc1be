"""The gate of continuous integration: green on the CPU's paths, red for whatever is wrong."""

import dataclasses
import json

import pytest
from absl import flags
from absl.testing import flagsaver
from asynct_evals import environment
from asynct_evals.smoke import gate, main
from asynct_evals.smoke.paths import paths
from asynct_evals.smoke.serving import Served
from asynct_evals.throughput.paired import median_interval
from asynct_evals.throughput.reference import Verdict
from smoke_serving import serve_wrongly

RIGHT = Verdict(error=0.01, eager=0.01, broken=1.0)
GRAPHS = {path.name: path for path in paths(gpu=True)}["graphs"]
SERVED = Served([], {name: (9, 900) for name in GRAPHS.kernels}, 0.99, 1400,
                {"hp1_decode_paged": (9, 900)})


@pytest.fixture(autouse=True)
def libraries():
    environment.prepare(offline=True, verbose=False)


class Judge:
    """In the place of the reference's process."""

    def __init__(self, verdict: Verdict):
        self.call = lambda *_: verdict


def faults(served: Served | Exception, verdict: Verdict = RIGHT) -> tuple[str, ...]:
    return gate._judge(GRAPHS, served, Judge(verdict)).faults


def test_what_is_right_has_no_fault():
    assert faults(SERVED) == ()
    assert faults(dataclasses.replace(SERVED, kernels=SERVED.kernels | {
        "hp1_prefill_mma": (1, 9)})) == ()


@pytest.mark.parametrize("changed, words", [
    ({"accuracy": 0.94}, "accuracy 0.940: must be 0.95 or more"),
    ({"accuracy": float("nan")}, "accuracy nan"),
    ({"longest": 1024}, "the longest problem has 1024 tokens"),
    ({"kernels": {"hp1_decode_paged": (9, 900)}},
     "not served by hp1_prefill_super_page, hp1_prefill_wgmma"),
    ({"kernels": SERVED.kernels | {"gather": (1, 1)}}, "served by gather, which is not this path"),
    ({"problem_kernels": {}}, "not served by hp1_decode_paged"),
    ({"problem_kernels": {"triton_decode": (1, 1)}}, "served by triton_decode"),
])  # fmt: skip
def test_each_thing_that_is_wrong_is_told(changed, words):
    (fault,) = faults(dataclasses.replace(SERVED, **changed))
    assert words in fault


@pytest.mark.parametrize("error", [0.021, float("nan")])
def test_log_probabilities_that_are_off_are_told(error):
    (fault,) = faults(SERVED, dataclasses.replace(RIGHT, error=error))
    assert "log-probabilities are off" in fault


def test_a_path_that_crashes_is_told():
    assert faults(RuntimeError("no memory")) == ("RuntimeError: no memory",)


@pytest.mark.parametrize("ratio, slow", [(1.2, False), (1.3, True), (float("nan"), True)])
def test_throughput_has_a_floor(ratio, slow):
    found = list(gate._slow({"decode": median_interval([ratio] * 9)}, min_speed=0.8))
    assert bool(found) == slow
    assert all(line.startswith("decode: ") for line in found)


def test_every_kernel_that_a_plan_can_choose_must_serve_some_path():
    from asynct_vllm.plan import DECODE_KERNELS, PREFILL_KERNELS

    required = set().union(*(path.kernels for path in paths(gpu=True)))
    assert required >= {*DECODE_KERNELS, *PREFILL_KERNELS, "loop", "padded", "bucketed", "gather"}


def run_program(*arguments: str) -> None:
    with flagsaver.flagsaver():
        flags.FLAGS(["smoke", *arguments])
        main.main(["smoke"])


def test_the_cpu_paths_are_right_and_leave_a_report(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    run_program("--paths=gather", "--commit=abc", "--output=out/smoke.json")
    report = json.loads((tmp_path / "out" / "smoke.json").read_text())
    path = report["paths"]["gather"]
    assert path["served"]["kernels"].keys() == {"gather"} and path["faults"] == []
    assert path["served"]["accuracy"] == 1 and path["served"]["longest"] > 1024
    assert report["rows"][0]["ratio"] > 0
    assert report["faults"] == [] and report["machine"]["commit"] == "abc"
    assert "gather: right" in capfd.readouterr().out


def test_wrong_paths_turn_it_red(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    run = gate.run
    monkeypatch.setattr(gate, "run", lambda *a, **o: run(*a, **o, serve=serve_wrongly))
    with pytest.raises(SystemExit) as end:
        run_program("--paths=loop,padded", "--notime", "--output=smoke.json")
    assert "smoke: padded: RuntimeError: an illegal memory access" in end.value.code
    assert "smoke: loop: log-probabilities are off by" in end.value.code
    assert "smoke: loop: accuracy" in end.value.code
    assert json.loads((tmp_path / "smoke.json").read_text())["faults"]


def test_a_path_that_there_is_not_is_refused():
    with pytest.raises(SystemExit, match="--paths fast: must be of loop, padded"):
        run_program("--paths=fast")
