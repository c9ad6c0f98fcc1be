"""The runners' scripts in a tree of their own, whose bazelw notes its arguments."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import pytest_main

SCRIPTS = ("tools/ci/count_tests.py", "tools/ci/cpu.sh", "tools/ci/gpu.sh", "tools/ci/steps.sh",
           "tools/ci/test.sh", "tools/documents/commands.py", ".ci/run")

# `bazelw test` says that one target passed, or failed, with one case; `bazelw run` says nothing.
BAZELW = """#!/usr/bin/env bash
printf '%s\\n' "$*" >> calls
code=1; [[ $1 == test ]] && code=${TEST_CODE:-0} || code=${RUN_CODE:-0}
[[ $1 == run ]] || echo "//a:b_test  $([[ $code == 0 ]] && echo PASSED || echo FAILED) in 1.0s"
exit $code
"""

# `bazelw test --config=gpu` runs a test of the GPU by the project's runner, with the variables that
# .bazelrc gives to tests, and the GPU hidden.
GPU_BAZELW = """#!{python}
import os, pathlib, re, subprocess, sys
environ = {{**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": {path!r}}}
if sys.argv[1] == "test":
    for config in re.findall(r"--config=(\\w+)", " ".join(sys.argv)):
        lines = [line for line in pathlib.Path(".bazelrc").read_text().splitlines()
                 if line.startswith(f"test:{{config}} ")]
        environ.update(re.findall(r"--test_env=(\\w+)=(\\S+)", " ".join(lines)))
    code = subprocess.call([sys.executable, {runner!r}, "card_test.py"], env=environ)
    print("//kernels/tests:card_test ", "FAILED" if code else "PASSED", "in 1.0s")
    sys.exit(code)
"""
GPU_TEST = """
import pytest
@pytest.mark.gpu
def test_on_the_card(): pass
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A checkout of the scripts and .bazelrc alone, started from elsewhere."""
    for name in (*SCRIPTS, ".bazelrc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, tmp_path / name)
    (tmp_path / "elsewhere").mkdir()
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)  # without documents
    for name in list(os.environ):  # Bazel's, that are for this test alone
        if name.startswith(("TEST", "ASYNCT", "XML")):
            monkeypatch.delenv(name)
    write_bazelw(tmp_path, BAZELW)
    return tmp_path


def write_bazelw(tree: pathlib.Path, text: str) -> None:
    (tree / "bazelw").write_text(text)
    (tree / "bazelw").chmod(0o755)


def run(tree: pathlib.Path, script: str, **environ: str) -> tuple[int, str]:
    done = subprocess.run([tree / script], cwd=tree / "elsewhere", env={**os.environ, **environ},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def calls(tree: pathlib.Path) -> list[str]:
    return (tree / "calls").read_text().splitlines()


def test_a_runner_without_a_gpu_runs_every_test_and_the_gates(tree):
    code, said = run(tree, "tools/ci/cpu.sh")
    assert code == 0, said
    assert calls(tree) == [
        "test --config=ci //...",
        "run --config=ci //evals:gsm8k -- --at_least 0.95 --output results",
        "run --config=ci //evals:smoke"]
    assert "1 passed, 0 failed, 0 skipped" in said
    assert f"{tree}/.bazel/testlogs" in said and f"{tree}/results" in said


def test_a_runner_with_a_gpu_tests_what_runs_on_it_and_times_the_kernels(tree):
    code, said = run(tree, "tools/ci/gpu.sh")
    assert code == 0, said
    assert calls(tree) == [
        "test --config=ci --config=gpu //kernels/... //backend/... //model/...",
        "run --config=ci --config=gpu //evals:smoke",
        "run --config=ci --config=gpu //kernels/bench -- --suite attention",
        "run --config=ci //tools/ci:ratio_table -- results"]
    assert f"{tree}/results" in said


@pytest.mark.parametrize("script", ["tools/ci/cpu.sh", "tools/ci/gpu.sh"])
@pytest.mark.parametrize("broken", ["TEST_CODE", "RUN_CODE"])
def test_a_step_that_fails_fails_the_run_after_the_others(tree, script, broken):
    code, said = run(tree, script, **{broken: "3"})
    assert code == 1
    failed = {"TEST_CODE": "test ", "RUN_CODE": "run "}[broken]
    made = calls(tree)
    assert len(made) >= 2
    assert said.count("== FAILED: ") == sum(call.startswith(failed) for call in made)
    assert ("== FAILED: tools/ci/test.sh" in said) == (broken == "TEST_CODE")


@pytest.mark.parametrize("failure", [0, 3])
def test_the_plain_run_ends_with_the_count(tree, failure):
    code, said = run(tree, ".ci/run", TEST_CODE=str(failure))
    assert code == failure
    assert calls(tree) == ["test //..."]
    counts = "0 passed, 1 failed" if failure else "1 passed, 0 failed"
    assert said.splitlines()[-1] == f"{counts}, 0 skipped"


def test_without_a_gpu_the_gpu_run_fails_and_skips_nothing(tree):
    runner = pathlib.Path(pytest_main.__file__).resolve()
    write_bazelw(tree, GPU_BAZELW.format(
        python=sys.executable, runner=str(runner), path=os.pathsep.join(sys.path)))
    (tree / "card_test.py").write_text(GPU_TEST)
    code, said = run(tree, "tools/ci/gpu.sh")
    assert code == 1
    assert "needs a CUDA device, and torch sees none (ASYNCT_REQUIRE_GPU=1)" in said
    assert "0 passed, 1 failed, 0 skipped" in said
