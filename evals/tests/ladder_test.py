"""The ladder: its workloads, a climb on the CPU, and what it leaves behind."""

import json

import pytest
from absl import flags
from absl.testing import flagsaver
from asynct_evals import data, environment
from asynct_evals.ladder import climb, main, report
from asynct_evals.ladder.climb import Step
from asynct_evals.ladder.rungs import RUNGS, Rung
from asynct_evals.ladder.workload import gsm8k
from asynct_evals.task import MAX_GEN_TOKS
from asynct_model import AsyncTConfig
from scenarios import Scenario

WORKLOAD = Scenario("work", ((30, 4), (7, 4), (50, 4)))
MACHINE = {"card": "NVIDIA X1"}


@pytest.fixture(autouse=True)
def libraries(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    environment.prepare(offline=True, verbose=False)


def run_program(*arguments: str) -> None:
    with flagsaver.flagsaver():
        flags.FLAGS(["ladder", *arguments])
        main.main(["ladder"])


@pytest.mark.parametrize("shots", [0, 3])
def test_gsm8k_is_as_long_as_its_prompts_and_answers_may_be(shots, seed):
    problems = data.generated(num_fewshot=4, limit=5, seed=seed)
    scenario = gsm8k(problems, num_fewshot=shots, seed=seed)
    assert scenario.outputs == [MAX_GEN_TOKS] * 5
    for (prompt, _), problem in zip(scenario.lengths, problems.problems):
        # A token is at least a byte, and here at most some words.
        assert len(problem.question) / 20 * (1 + shots) < prompt < 400 * (1 + shots)


def test_a_cpu_climbs_and_leaves_a_report_and_a_plot(tmp_path, capfd):
    run_program("--try_out", "--workload=balanced_b16", "--limit=2", "--commit=abc",
                "--rungs=Hugging Face,gather", "--output=out/ladder.json")
    written = json.loads((tmp_path / "out" / "ladder.json").read_text())
    assert [row["rung"] for row in written["rows"]] == ["Hugging Face", "gather"]
    for row in written["rows"]:
        assert row["requests"] == 2 and row["whole_s"] == row["seconds"] > 0
        assert row["fault"] is None and not row["extrapolated"]
    assert written["workload"]["requests"] == 2 and written["machine"]["commit"] == "abc"
    assert (tmp_path / "out" / "ladder.png").exists()
    assert "balanced_b16 by try-out on CPU" in capfd.readouterr().out


class Engine:
    """In the place of a rung's process."""

    def __init__(self):
        self.asked = []

    def call(self, method: str, scenario: Scenario, seed: int) -> float:
        self.asked.append(scenario)
        if len(scenario.lengths) > 2:
            raise MemoryError("too long")
        return 3.0


def test_a_part_is_extrapolated_after_a_warm_up():
    engine, part = Engine(), Scenario("work", WORKLOAD.lengths[:2])
    assert climb._time(engine, part, 6, seed=1) == Step(2, 3.0, 9.0)
    warm_up, timed = engine.asked
    assert timed == part and len(warm_up.lengths) == 2


def test_a_rung_that_fails_is_told_and_plotted_over(tmp_path, capfd):
    steps = {"gather": climb._time(Engine(), WORKLOAD, 3, seed=1), "CUDA": Step(1, 2.0, 6.0)}
    assert steps["gather"] == Step(3, None, None, "MemoryError: too long")
    report.save(steps, WORKLOAD, "model", MACHINE, 1, tmp_path / "ladder.json")
    failed, whole = json.loads((tmp_path / "ladder.json").read_text())["rows"]
    assert failed["fault"] and not failed["extrapolated"] and whole["extrapolated"]
    columns = report.table(steps, WORKLOAD, "model", MACHINE).columns
    assert list(columns[3].cells) == ["-", "~6.0"]


def test_the_cache_has_room_for_the_longest_requests_at_once():
    shape = AsyncTConfig(num_hidden_layers=2, num_key_value_heads=2, head_dim=64, hidden_size=64,
                         num_attention_heads=4)
    many = Scenario("many", ((10, 10),) * 300 + ((90, 10),))
    assert climb._cache_bytes(many, shape) == int(1.1 * (255 * 20 + 100) * 2 * 2 * 2 * 64 * 2)


def test_the_rungs_lead_from_hugging_face_to_graphs():
    assert list(RUNGS) == ["Hugging Face", "loop", "padded", "bucketed", "gather", "Triton",
                           "CUDA", "CUDA with graphs"]
    assert RUNGS["CUDA with graphs"] == Rung({})  # what users have, on everything


@pytest.mark.parametrize("arguments, words", [
    (["--rungs=moon"], "--rungs moon: must be of Hugging Face, loop"),
    ([], "--workload gsm8k needs --data"),
    (["--data=nowhere.jsonl"], "cannot read .*nowhere.jsonl"),
])  # fmt: skip
def test_what_cannot_be_climbed_is_refused(arguments, words):
    with pytest.raises(SystemExit, match=words):
        run_program("--try_out", *arguments)
