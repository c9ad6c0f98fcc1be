"""The README's tables are those of the recorded run."""

import json
from pathlib import Path

from asynct_tiny.record import PLOT_FILE, RECORD_FILE, write
from asynct_tiny.report import markdown

TINY = Path(__file__).parent.parent
RECORD = json.loads((TINY / "results" / RECORD_FILE).read_text())


def test_readme_has_the_tables_of_the_record():
    assert markdown(RECORD) in (TINY / "README.md").read_text()


def test_tables_follow_the_record():
    changed = json.loads(json.dumps(RECORD))
    changed["final"]["8"] = 0.875
    changed["sparsity"][2]["mlp"] = 0.123
    lines = markdown(changed).splitlines()
    assert "| 8 | 87.5% |" in lines
    assert any(line.startswith("| 2 |") and line.endswith("| 12.3% |") for line in lines)


def test_record_and_plot_are_written(tmp_path):
    write(tmp_path, RECORD)
    assert json.loads((tmp_path / RECORD_FILE).read_text()) == RECORD
    assert (tmp_path / PLOT_FILE).read_bytes().startswith(b"\x89PNG")


def test_a_run_without_a_curve_has_no_plot(tmp_path):
    write(tmp_path, RECORD | {"curve": []})
    assert not (tmp_path / PLOT_FILE).exists()
