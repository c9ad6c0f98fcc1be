"""The counters of one kernel, by an ncu that is a script."""

import os
import stat
import sys

import kernel_counters
import pytest
from absl import flags
from absl.testing import flagsaver

NCU = """#!{python}
import subprocess, sys
open({log!r}, "w").write("\\n".join(sys.argv[1:]))
print("==PROF== Connected to process 1")
print("a line of the command")
print('"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"')
print('"0","Decode<128, 4>","gpu__time_duration.sum","us","41.5"')
print("another")
print('"0","Decode<128, 4>","lts__t_sector_hit_rate.pct","%","12.25"')
print('"1","Decode<64, 2>","gpu__time_duration.sum","us","9"')
"""


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    path = tmp_path / "bin" / "ncu"
    path.parent.mkdir()
    path.write_text(NCU.format(python=sys.executable, log=str(tmp_path / "arguments")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "120")
    return path


def run(*arguments: str) -> None:
    with flagsaver.flagsaver():
        kernel_counters.main(flags.FLAGS(["kernel_counters", "--kernel=Decode", *arguments]))


def test_it_counts_the_named_kernel_of_a_command(ncu, tmp_path, capsys):
    run("--skip=7", "--launches=2", "--", "python3", "run.py", "--fast")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[-3:] == ["python3", "run.py", "--fast"]
    assert "regex:Decode" in arguments
    assert arguments[arguments.index("--launch-skip") + 1] == "7"
    assert arguments[arguments.index("--launch-count") + 1] == "2"
    printed = capsys.readouterr().out
    assert "0: Decode<128, 4>" in printed and "1: Decode<64, 2>" in printed
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines()]
    time, hits = (row for row in rows if row[:1] in (["time"], ["L2 hits"]))
    assert time == ["time", "41.5 us", "9 us"] and hits == ["L2 hits", "12.25 %", "-"]


def test_a_kernel_that_was_not_launched_is_told(ncu):
    ncu.write_text("".join(line for line in ncu.read_text().splitlines(keepends=True)
                           if "Decode<" not in line))
    with pytest.raises(SystemExit, match="counted nothing. It said:\n==PROF=="):
        run("--", "true")


def test_a_machine_without_ncu_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="ncu is not on the PATH"):
        run("--", "true")
