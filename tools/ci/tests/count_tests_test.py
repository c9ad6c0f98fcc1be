"""The line that closes a CI run counts every case of every target once."""

import io
import random

import count_tests
import pytest

SUMMARY = """\
WARNING: errors encountered while analyzing target '//evals:cli_test': it will not be built
INFO: Build completed, 4 tests FAILED, 20 total actions
//kernels/tests:gate_test                                       (cached) PASSED in 0.2s
//kernels/tests:cc_test                                                  PASSED in 0.0s
//backend/tests:paths_test                                               FAILED in 3.7s
  /home/user/.cache/bazel/testlogs/backend/tests/paths_test/test.log
//backend/tests:stuck_test                                              TIMEOUT in 61.4s
//model/tests:broken_test                                       FAILED TO BUILD
//model/tests:later_test                                              NO STATUS

Executed 3 out of 6 tests: 2 tests pass, 1 fails to build, 2 fail locally and 1 was skipped.
"""


def write_xml(folder, passed: int, failed: int = 0, errors: int = 0, skipped: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    cases = ("<testcase/>" * passed + "<testcase><failure/></testcase>" * failed
             + "<testcase><error/></testcase>" * errors
             + "<testcase><skipped/></testcase>" * skipped)
    (folder / "test.xml").write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def test_cases_of_xml_files_and_targets_without_one(tmp_path):
    random_source = random.SystemRandom()
    passed, failed, skipped = (random_source.randrange(1, 99) for _ in range(3))
    write_xml(tmp_path / "kernels/tests/gate_test", passed, skipped=skipped)
    write_xml(tmp_path / "backend/tests/paths_test", 4, failed=failed, errors=1)
    write_xml(tmp_path / "backend/tests/stuck_test", 50)  # of an earlier run
    write_xml(tmp_path / "kernels/tests/removed_test", 1000)
    total = count_tests.count(SUMMARY, tmp_path)
    # Whole targets: cc_test passed; cli_test, stuck_test, broken_test and later_test did not.
    assert total == {"passed": passed + 4 + 1, "failed": failed + 1 + 4, "skipped": skipped}


def test_a_failed_target_counts_though_all_its_cases_passed(tmp_path):
    write_xml(tmp_path / "a/b_test", 3)
    assert count_tests.count("//a:b_test  FAILED in 1.0s\n", tmp_path) == \
        {"passed": 3, "failed": 1}


def test_a_target_of_skipped_cases_is_no_pass(tmp_path):
    write_xml(tmp_path / "a/b_test", 0, skipped=2)
    assert count_tests.count("//a:b_test  PASSED in 1.0s\n", tmp_path) == {"skipped": 2}


def test_shards_are_added(tmp_path):
    write_xml(tmp_path / "a/b_test/shard_1_of_2", 3)
    write_xml(tmp_path / "a/b_test/shard_2_of_2", 4)
    assert count_tests.count("//a:b_test  (cached) PASSED in 1.0s\n", tmp_path) == {"passed": 7}


@pytest.mark.parametrize("output, code", [(SUMMARY, 0), ("ERROR: no such target\n", 1)])
def test_a_run_without_tests_is_an_error(tmp_path, monkeypatch, capsys, output, code):
    monkeypatch.setattr("sys.stdin", io.StringIO(output))
    assert count_tests.main(["--testlogs", str(tmp_path)]) == code
    assert capsys.readouterr().out.count(" passed, ") == 1
