"""The benchmark on one card: both sides are right, and no time is given when one is not."""

import json

import context_parallel_bench
import context_parallel_sides
import pytest
from absl import flags
from absl.testing import flagsaver

pytestmark = pytest.mark.gpu


@pytest.fixture
def output(tmp_path):
    flags.FLAGS(["context_parallel_bench"])
    path = tmp_path / "times.json"
    with flagsaver.flagsaver(contexts=["5000"], heads=["2"], rounds=2, output=str(path)):
        yield path


def test_measures_both_sides(output):
    context_parallel_bench.main(["context_parallel_bench"])
    rows = json.loads(output.read_text())["rows"]
    assert [row["side"] for row in rows] == list(context_parallel_sides.SIDES)
    assert all(row["step_us"] > 0 and row["cache_bytes"] == 10 * 512 * 512 for row in rows)


def test_gives_no_time_when_a_side_is_wrong(output):
    with flagsaver.flagsaver(tolerance=1e-6), pytest.raises(SystemExit, match="no times"):
        context_parallel_bench.main(["context_parallel_bench"])
    assert not output.exists()
