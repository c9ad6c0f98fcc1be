"""The description of the machine, and the commit that git knows."""

import subprocess

import machine
import pytest
import torch


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=b", *arguments],
                   check=True, capture_output=True)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    """A repository of one commit, from where `bazel run` was called."""
    git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "First")
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    return tmp_path


def test_the_commit_is_the_workspaces(workspace):
    commit = machine.describe_run()["commit"]
    assert len(commit) == 40 and int(commit, 16)
    (workspace / "file").write_text("two")
    assert machine.describe_run()["commit"] == f"{commit}-dirty"
    assert machine.describe_run("abc")["commit"] == "abc"


def test_no_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKSPACE_DIRECTORY", str(tmp_path))
    assert machine.describe_run()["commit"] == "unknown"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.describe_run()["commit"] == "unknown"


def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    described = machine.describe_machine()
    assert described["card"] == "CPU" and described["threads"] >= 1
    assert described["torch"] == torch.__version__
    assert machine.folder_name(described) == "cpu"


def test_further_packages():
    described = machine.describe_machine("pytest", "no-such-package")
    assert described["pytest"] == pytest.__version__
    assert described["no-such-package"] is None


@pytest.mark.gpu
def test_with_a_gpu():
    described = machine.describe_machine()
    assert described["card"] == torch.cuda.get_device_name()
    assert described["driver"].split(".")[0].isdecimal()


@pytest.mark.parametrize(("card", "name"), [
    ("NVIDIA H200", "h200"), ("NVIDIA H100 80GB HBM3", "h100-80gb-hbm3"), ("CPU", "cpu")])
def test_folder_name(card, name):
    assert machine.folder_name({"card": card}) == name
