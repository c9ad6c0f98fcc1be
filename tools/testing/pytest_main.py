"""Runs pytest as a Bazel test: `pytest_main.py TEST_FILE ... [PYTEST_ARGUMENT ...]`.

Understands Bazel's side of the bargain: where the XML goes, --test_filter (as pytest's -k), shards,
and a folder of the test's own in the place of the user's home and caches.
"""

import os
import pathlib
import sys

import pytest


def isolate(environ: dict[str, str]) -> None:
    """Points home and caches to the test's own folder, and keeps libraries off the network."""
    folder = environ.get("TEST_TMPDIR")
    if folder is None:
        return
    environ["HOME"] = folder
    for variable in ("HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT",
                     "XDG_CACHE_HOME"):
        environ.setdefault(variable, os.path.join(folder, variable.lower()))
    environ.setdefault("HF_HUB_OFFLINE", "1")
    environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads starve the other tests
    environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; vLLM aborts when it is unset


class Shard:
    """Keeps every TEST_TOTAL_SHARDS-th test, from TEST_SHARD_INDEX on."""

    def __init__(self, index: int, total: int):
        self.index = index
        self.total = total
        self.spare = False  # there are fewer tests than shards

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]):
        kept = items[self.index::self.total]
        self.spare = bool(items) and not kept
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def main(argv: list[str]) -> int:
    isolate(os.environ)
    arguments = ["-p", "asynct_testing", "-p", "no:cacheprovider", "--import-mode=importlib",
                 "--rootdir=.", "-ra", "--durations=5", "--durations-min=1"]
    if xml := os.environ.get("XML_OUTPUT_FILE"):
        arguments.append(f"--junit-xml={xml}")
    if wanted := os.environ.get("TESTBRIDGE_TEST_ONLY"):
        arguments += ["-k", wanted]
    if folder := os.environ.get("TEST_TMPDIR"):
        arguments.append(f"--basetemp={folder}/pytest")
    shard = Shard(int(os.environ.get("TEST_SHARD_INDEX", 0)),
                  int(os.environ.get("TEST_TOTAL_SHARDS", 1)))
    if status_file := os.environ.get("TEST_SHARD_STATUS_FILE"):
        pathlib.Path(status_file).touch()
    code = pytest.main([*arguments, *argv], plugins=[shard])
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and shard.spare:
        return 0
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
