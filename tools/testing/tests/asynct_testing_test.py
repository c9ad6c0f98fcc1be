"""The plugin and the Bazel runner, seen from outside: pytest on small files that use them."""

import dataclasses
import itertools
import os
import pathlib
import xml.etree.ElementTree as ElementTree

import pytest
import pytest_main
import torch

TWO_TESTS = """
def test_one(): pass
def test_two(): pass
"""
GPU_TEST = """
import pytest
@pytest.mark.gpu
def test_on_the_card(): import torch; torch.zeros(1, device="cuda")
"""

_numbers = itertools.count()  # Python imports a module of one name only once


@dataclasses.dataclass
class Outcome:
    code: int
    output: str
    cases: list[str]  # as the XML names them


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """run(body, *arguments, **environ): pytest_main on a file with `body`, in this process."""
    monkeypatch.chdir(tmp_path)
    xml = pathlib.Path("test.xml")
    for name in list(os.environ):
        if name.startswith(("TEST", "ASYNCT", "XML")):
            monkeypatch.delenv(name)

    def run(body: str, *arguments: str, **environ: str) -> Outcome:
        with monkeypatch.context() as patch:
            for name, value in {"XML_OUTPUT_FILE": str(xml), **environ}.items():
                patch.setenv(name, value)
            xml.unlink(missing_ok=True)
            sample = pathlib.Path(f"sample{next(_numbers)}_test.py")
            sample.write_text(body)
            capfd.readouterr()
            code = pytest_main.main([str(sample), *arguments])
        cases = ElementTree.parse(xml).getroot().iter("testcase") if xml.exists() else []
        return Outcome(code, "".join(capfd.readouterr()), [case.get("name") for case in cases])

    return run


def test_results_go_to_the_xml_file(run):
    result = run(TWO_TESTS)
    assert result.code == 0
    assert result.cases == ["test_one", "test_two"]


def test_a_failure_fails(run):
    result = run("def test_wrong(): assert 1 + 1 == 3")
    assert result.code == 1


def test_no_test_at_all_fails(run):
    result = run("")
    assert result.code == pytest.ExitCode.NO_TESTS_COLLECTED != 0


def test_the_filter_selects(run):
    result = run(TWO_TESTS, TESTBRIDGE_TEST_ONLY="two")
    assert result.cases == ["test_two"]
    result = run(TWO_TESTS, TESTBRIDGE_TEST_ONLY="three")
    assert result.code != 0


def test_shards_divide_the_tests_and_a_spare_one_passes(run, tmp_path):
    seen = []
    for index in range(3):
        status = tmp_path / f"status{index}"
        result = run(TWO_TESTS, TEST_TOTAL_SHARDS="3", TEST_SHARD_INDEX=str(index),
                     TEST_SHARD_STATUS_FILE=str(status))
        assert result.code == 0
        assert status.exists()
        seen += result.cases
    assert sorted(seen) == ["test_one", "test_two"]


def test_home_and_caches_are_the_tests_own(tmp_path):
    environ = {"TEST_TMPDIR": str(tmp_path), "HOME": "/root", "HF_HUB_OFFLINE": "0"}
    pytest_main.isolate(environ)
    assert environ["HOME"] == str(tmp_path)
    assert environ["VLLM_CACHE_ROOT"].startswith(str(tmp_path))
    assert environ["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert environ["HF_HUB_OFFLINE"] == "0"  # who sets it means it


SEED_TEST = "def test_seed(seed): import torch; print('drew', torch.rand(()).item()); assert {}"


def test_the_seed_is_fresh_and_a_failure_shows_it(run):
    seeds = set()
    for _ in range(2):
        result = run(SEED_TEST.format(False))
        lines = [line for line in result.output.splitlines() if line.startswith("ASYNCT_TEST_S")]
        head, report = lines[0].split()[0], lines[1]
        assert head == report
        seeds.add(head)
    assert len(seeds) == 2


def test_the_seed_can_be_given_and_seeds_torch(run, seed):
    result = run(SEED_TEST.format("seed is None"), ASYNCT_TEST_SEED=str(seed))
    torch.manual_seed(seed)
    assert f"drew {torch.rand(()).item()}" in result.output


def test_a_passing_run_shows_the_seed_too(run):
    result = run(SEED_TEST.format(True), ASYNCT_TEST_SEED="17")
    assert result.code == 0
    assert "ASYNCT_TEST_SEED=17" in result.output


def test_a_bad_seed_is_refused(run):
    result = run(SEED_TEST.format(True), ASYNCT_TEST_SEED="seventeen")
    assert result.code == pytest.ExitCode.USAGE_ERROR
    assert "ASYNCT_TEST_SEED is 'seventeen'" in result.output


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_without_a_gpu_its_tests_are_skipped_by_name(run, no_gpu):
    result = run(GPU_TEST)
    assert result.code == 0
    assert "test_on_the_card needs a CUDA device" in result.output


def test_a_gpu_that_is_required_and_missing_fails(run, no_gpu):
    result = run(GPU_TEST, ASYNCT_REQUIRE_GPU="1")
    assert result.code == 1
    assert "ASYNCT_REQUIRE_GPU=1" in result.output


@pytest.mark.gpu
def test_with_a_gpu_its_tests_run(run):
    result = run(GPU_TEST)
    assert "1 passed" in result.output
