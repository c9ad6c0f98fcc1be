"""pytest plugin of all our tests: the `seed` fixture and the `gpu` marker.

Outside Bazel: `python -m pytest -p asynct_testing FILE`, with this folder on PYTHONPATH.
"""

import os

import pytest

SEED_VARIABLE = "ASYNCT_TEST_SEED"
REQUIRE_GPU_VARIABLE = "ASYNCT_REQUIRE_GPU"

_SEED = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"gpu: needs a CUDA device; without one the test is skipped, "
        f"or fails if {REQUIRE_GPU_VARIABLE}=1")
    given = os.environ.get(SEED_VARIABLE)
    try:
        config.stash[_SEED] = int(given) if given else int.from_bytes(os.urandom(4), "little")
    except ValueError:
        raise pytest.UsageError(f"{SEED_VARIABLE} is {given!r}: it must be an integer") from None


def pytest_report_header(config: pytest.Config) -> str:
    return f"{SEED_VARIABLE}={config.stash[_SEED]} (set it to repeat this run)"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """This run's seed, with torch's generators seeded by it.

    Fresh in every run unless ASYNCT_TEST_SEED is set. The log's head has it, and so has the
    report of a test that fails.
    """
    import torch

    value = request.config.stash[_SEED]
    print(f"{SEED_VARIABLE}={value}")
    torch.manual_seed(value)
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") is None:
        return
    import torch

    if torch.cuda.is_available():
        return
    reason = f"{item.name} needs a CUDA device, and torch sees none"
    if os.environ.get(REQUIRE_GPU_VARIABLE) == "1":
        pytest.fail(f"{reason} ({REQUIRE_GPU_VARIABLE}=1)", pytrace=False)
    pytest.skip(reason)
