"""The GitHub workflow: it parses, and what it names exists."""

import pathlib
import re

import pytest
import ratio_table
import yaml

PATH = pathlib.Path(".github/workflows/ci.yml")
TEXT = PATH.read_text()
JOBS = yaml.safe_load(TEXT)["jobs"]
RUNNERS = {"cpu": "tools/ci/cpu.sh", "gpu": "tools/ci/gpu.sh"}


def commands(job: str) -> str:
    return "\n".join(step.get("run", "") for step in JOBS[job]["steps"])


def inputs(job: str, action: str) -> list[dict]:
    """The `with` of each step of `job` that uses the action."""
    return [step["with"] for step in JOBS[job]["steps"]
            if step.get("uses", "").startswith(f"actions/{action}@")]


def test_every_action_is_pinned_by_a_commit_with_its_release_beside_it():
    lines = [line for line in TEXT.splitlines() if "uses:" in line]
    assert len(lines) == sum("uses" in step for job in JOBS.values() for step in job["steps"])
    for line in lines:
        assert re.search(r"uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
    pins = {tuple(line.split("uses: ")[1].split("@")) for line in lines}
    assert len(pins) == len({action for action, _ in pins}), "one action, one release"


@pytest.mark.parametrize("job, script", RUNNERS.items())
def test_a_runner_calls_its_script_alone(job, script):
    assert commands(job).split() == [script]
    assert pathlib.Path(script).stat().st_mode & 0o111


def test_the_paths_in_expressions_exist():
    patterns = re.findall(r"hashFiles\('([^']+)'\)", TEXT)
    assert patterns
    for pattern in patterns:
        assert list(pathlib.Path().glob(pattern)), pattern


@pytest.mark.parametrize("job, kind", [("cpu", "cpu"), ("gpu", "cuda")])
def test_the_environment_is_cached_by_its_lock_and_bazels_outputs_by_the_commit(job, kind):
    environment, outputs = inputs(job, "cache")
    assert environment["path"] == "~/.cache/asynct/python"
    assert f"hashFiles('third_party/python/{kind}.lock')" in environment["key"]
    assert outputs["path"] == "~/.cache/asynct/bazel"
    assert outputs["key"] == outputs["restore-keys"] + "${{ github.sha }}"


def test_results_are_kept_even_of_a_run_that_fails():
    for job in RUNNERS:
        (kept,) = inputs(job, "upload-artifact")
        assert "results" in kept["path"].splitlines()
        assert any(".bazel/testlogs" in line for line in kept["path"].splitlines())
        assert kept["include-hidden-files"] is True  # .bazel is one
        assert JOBS[job]["steps"][-1]["if"] == "always()"


def test_the_comment_is_the_table_that_the_gpu_run_left():
    assert JOBS["comment"]["needs"] == "gpu"
    (fetched,), (kept,) = inputs("comment", "download-artifact"), inputs("gpu", "upload-artifact")
    assert fetched["name"] == kept["name"]
    assert f"--body-file results/{ratio_table.OUTPUT}" in commands("comment")
    assert "//tools/ci:ratio_table -- results" in pathlib.Path(RUNNERS["gpu"]).read_text()


def test_only_the_comment_may_write_and_no_fork_runs_on_our_own_machine():
    assert yaml.safe_load(TEXT)["permissions"] == {"contents": "read"}
    assert [job for job in JOBS if "permissions" in JOBS[job]] == ["comment"]
    assert "head.repo.full_name == github.repository" in JOBS["gpu"]["if"]
