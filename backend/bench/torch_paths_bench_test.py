"""The benchmark measures paths that agree, and gives no time when one does not."""

import json

import pytest
import torch_paths_bench
from absl import flags
from absl.testing import flagsaver

from asynct_kernels.reference import attention
from asynct_vllm.torch_paths import gather


@pytest.fixture
def output(tmp_path):
    """The file that a small run writes."""
    flags.FLAGS(["torch_paths_bench"])
    path = tmp_path / "times.json"
    with flagsaver.flagsaver(
        requests=5, prefills=2, max_len=64, head_size=16, repeats=2, output=str(path)
    ):
        yield path


def test_measures_every_path(output, capsys):
    torch_paths_bench.main(["torch_paths_bench"])
    rows = json.loads(output.read_text())["rows"]
    assert [row["path"] for row in rows] == ["loop", "padded", "bucketed", "gather"]
    assert all(0 < row["low_s"] <= row["layer_s"] <= row["high_s"] for row in rows)
    assert "layer ms" in capsys.readouterr().out


def test_gives_no_time_when_a_path_is_wrong(output, capsys, monkeypatch):
    def wrong(*arguments, **keywords):
        return 1.001 * attention(*arguments, **keywords)

    monkeypatch.setattr(gather, "attention", wrong)
    with pytest.raises(SystemExit, match="no times.*'gather'"):
        torch_paths_bench.main(["torch_paths_bench"])
    assert not output.exists()
    assert "layer ms" not in capsys.readouterr().out
