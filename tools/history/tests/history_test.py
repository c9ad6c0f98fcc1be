"""Runs are accepted one after another and drawn in that order."""

import json

import history
import pytest

COMMITS = ("0123456789abcdef0123", "fedcba9876543210fedc", "00112233445566778899")


def report(commit: str, ratio: float, *, name: str = "decode") -> dict:
    return {"machine": {"card": "NVIDIA H200", "commit": commit}, "rows": [
        {"scenario": name, "model": "0.6b", "ours_s": 1.0, "ratio": ratio, "low": ratio - 0.02,
         "high": ratio + 0.02},
        {"scenario": "wrong", "ratio": None}]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    return tmp_path


def accept(folder, *reports: dict) -> None:
    for content in reports:
        (folder / "throughput.json").write_text(json.dumps(content))
        assert history.main(["accept", "throughput.json"]) == 0


def test_runs_are_kept_in_the_order_of_acceptance(folder):
    accept(folder, *(report(commit, 0.9) for commit in COMMITS))
    assert sorted(path.name for path in (folder / "history").iterdir()) == [
        f"throughput-{number:04d}-{commit[:12]}.json" for number, commit in enumerate(COMMITS, 1)]
    runs = history.read(folder / "history")["throughput"]
    assert list(runs) == [commit[:12] for commit in COMMITS]
    assert runs[COMMITS[0][:12]] == {
        "decode 0.6b": {"ratio": 0.9, "low": 0.88, "high": 0.92}}


def test_they_are_drawn_and_what_got_worse_is_marked(folder, capsys):
    accept(folder, report(COMMITS[0], 0.9), report(COMMITS[1], 0.93), report(COMMITS[2], 0.99))
    assert history.main(["draw", "history"]) == 0
    printed = capsys.readouterr().out
    assert "| decode 0.6b | 0.900 | 0.930 | 0.990 worse |" in printed
    assert (folder / "history" / "throughput.png").stat().st_size > 0


def test_a_row_that_is_not_in_every_run_has_gaps(folder, capsys):
    accept(folder, report(COMMITS[0], 0.9), report(COMMITS[1], 0.8, name="prefill"),
           report(COMMITS[2], 0.99))
    assert history.main(["draw", "history"]) == 0
    printed = capsys.readouterr().out
    assert "| decode 0.6b | 0.900 | - | 0.990 worse |" in printed
    assert "| prefill 0.6b | - | 0.800 | - |" in printed


def test_rows_of_kernels_are_told_apart_by_their_shapes():
    row = {"kernel": "hp1_decode_paged", "B": 32, "ctx": 4096, "D": 128, "ours_us": 4.5}
    assert history._name(row) == "hp1_decode_paged B 32 ctx 4096 D 128"


@pytest.mark.parametrize("content, words", [
    (report("unknown", 0.9), "of commit 'unknown'"),
    (report(f"{COMMITS[0]}-dirty", 0.9), "only a whole commit"),
    ({"commit": COMMITS[0], "rows": []}, "has no ratio"),
])  # fmt: skip
def test_what_cannot_be_accepted_is_refused(folder, capsys, content, words):
    (folder / "throughput.json").write_text(json.dumps(content))
    assert history.main(["accept", "throughput.json"]) == 1
    assert words in capsys.readouterr().err
    assert not (folder / "history").exists()


def test_a_folder_that_there_is_not_is_told(folder, capsys):
    assert history.main(["draw", "nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
