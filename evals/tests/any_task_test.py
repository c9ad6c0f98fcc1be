"""The program on the tiny checkpoint, interrupted and started again."""

import functools
import io
import json
import os
import pathlib
import subprocess
import sys

import lm_eval.tasks
import pytest
from absl import flags
from absl.testing import flagsaver
from arc_problems import arc, write
from asynct_evals import any_task, resume
from lm_eval.tasks import TaskManager
from rich.console import Console

FOLDER = pathlib.Path(lm_eval.tasks.__file__).parent


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Runs as `bazel run` does, with few tasks: all of them take long to index."""
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    few = TaskManager(include_path=[FOLDER / "arc", FOLDER / "gsm8k"], include_defaults=False)
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", lambda: few)
    with flagsaver.flagsaver():
        yield tmp_path


def run(*arguments: str) -> str:
    """What the program prints. (vLLM does not bear that pytest's capfd takes its output.)"""
    flags.FLAGS(["lm_eval", *arguments])
    with io.StringIO() as printed, pytest.MonkeyPatch.context() as patch:
        patch.setattr(any_task, "Console", functools.partial(Console, file=printed))
        any_task.main(["lm_eval"])
        return printed.getvalue()


@pytest.mark.parametrize("engine", ["hf", "vllm"])
def test_an_interrupted_run_goes_on_where_it_was(home, monkeypatch, engine):
    monkeypatch.setattr(resume, "_CHUNK_SECONDS", 1e-9)  # a request a part after the first 32
    write(home / "arc.jsonl", arc(12))
    arguments = (f"--engine={engine}", "--tasks=arc_easy", "--data=arc_easy=arc.jsonl",
                 "--num_fewshot=1", "--output=out", "--max_length=256")  # fmt: skip

    class Interrupted(resume.Answers):
        def add(self, answers):
            super().add(answers)
            if len(self._answers) == 34:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("asynct_evals.task_run.Answers", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(*arguments)
    (kept,) = (home / "out").glob("answers-*.jsonl")
    assert len(kept.read_text().splitlines()) == 34

    said = run(*arguments)
    assert "loglikelihood: 36 requests, 34 of them answered before" in said
    assert "36 of 36, " in said and "requests/s, 0:00:00 left" in said
    (path,) = (home / "out").glob("lm_eval-*.json")
    report = json.loads(path.read_text())
    assert (report["computed"], report["kept"]) == (2, 34)
    assert 0 <= report["results"]["arc_easy"]["acc,none"] <= 1
    assert report["num_fewshot"] == {"arc_easy": 1}

    kept.unlink()
    run(*arguments)
    (other,) = set((home / "out").glob("lm_eval-*.json")) - {path}
    whole = json.loads(other.read_text())
    assert (whole["computed"], whole["kept"]) == (36, 0)
    assert whole["results"] == report["results"]


def test_the_program_runs_by_itself(home):
    """As users start it: what it sets in the environment comes before any import."""
    write(home / "arc.jsonl", arc(2))
    done = subprocess.run(
        [sys.executable, any_task.__file__, "--tasks=arc_easy", "--data=arc_easy=arc.jsonl",
         "--num_fewshot=0", "--max_length=256"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "acc" in done.stdout


def test_tasks_that_generate(home):
    write(home / "mine" / "test.jsonl", [{"question": f"What is {i} + 1?", "answer": f"#### {i}"}
                                         for i in range(3)])  # fmt: skip
    said = run("--engine=hf", "--tasks=gsm8k", "--data=gsm8k=mine", "--num_fewshot=0", "--limit=2")
    assert "generate_until: 2 requests" in said and "exact_match, strict-match" in said


@pytest.mark.parametrize(
    "arguments, why",
    [
        (["--data=arc.jsonl"], "--data arc.jsonl: it must be TASK=PATH"),
        (["--data=arc_easy=nowhere"], "nowhere: no such file or folder. Where there is a network"),
        (["--model=nothing"], "nothing: no checkpoint there"),
    ],
)
def test_bad_input_ends_the_program_with_what_is_wrong(arguments, why):
    with pytest.raises(SystemExit) as end:
        run("--tasks=arc_easy", *arguments)
    assert why in str(end.value.code)
