"""The table and the JSON say what the result says."""

import json

from asynct_evals import comparison, report
from asynct_evals.evaluation import FLEXIBLE, STRICT
from results import result, sample
from rich.console import Console

SAMPLES = [sample(0, [65, 66], correct=True), sample(1, [65, 66, 67], correct=False)]


def shown(*tables) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(*tables)
    return capture.get()


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if name in line)


def test_the_table():
    text = shown(report.table(result("vllm", SAMPLES)))
    assert "gsm8k: some/model" in text
    assert "data: made up" in text
    assert "vllm" in text
    assert "0.750 ± 0.250" in row(text, "strict")
    assert "1.000 " in row(text, "flexible") and "±" not in row(text, "flexible")
    assert "2.0 s, after 1.5 s to load" in row(text, "time")
    assert " 1.00 " in row(text, "problems/s")
    assert "2.5" in row(text, "output tokens/s")
    assert " 8 " in row(text, "few-shot")


def test_fewer_shots_than_asked_are_told():
    text = shown(report.table(result("vllm", SAMPLES, num_fewshot=3)))
    assert "3 (not 8: no more fit the model's context)" in row(text, "few-shot")


def test_the_json(tmp_path):
    path = report.save(report.to_json(result("hf", SAMPLES)), tmp_path / "new" / "folder", "gsm8k")
    assert path.parent == tmp_path / "new" / "folder"
    content = json.loads(path.read_text())
    assert content["task"] == "gsm8k"
    assert content["scores"][STRICT] == {"value": 0.75, "stderr": 0.25}
    assert content["scores"][FLEXIBLE] == {"value": 1.0, "stderr": None}
    assert content["settings"] == {
        "model": "some/model", "engine": "hf", "num_fewshot": 8, "seed": 7, "dtype": "auto",
        "options": {},
    }  # fmt: skip
    assert content["generation"] == {"max_gen_toks": 256}
    assert content["machine"] == {"card": "CPU", "torch": "0"}
    assert content["problems_per_second"] == 1
    assert content["output_tokens_per_second"] == 2.5
    assert content["samples"][1] == {
        "id": 1,
        "question": "question 1",
        "answer": "#### 1",
        "output": "ABC",
        "predicted": {STRICT: "1", FLEXIBLE: "1"},
        "correct": {STRICT: False, FLEXIBLE: True},
        "prompt_tokens": 11,
        "output_tokens": 3,
    }


def test_reports_are_never_overwritten(tmp_path):
    paths = {report.save({}, tmp_path, "gsm8k") for _ in range(3)}
    assert len(paths) == 3


def test_a_comparison_shows_its_differences():
    other = [sample(0, [65, 68], correct=False), SAMPLES[1]]
    compared = comparison.compare(result("vllm", SAMPLES), result("hf", other), decode=chr)
    text = shown(*report.comparison_tables(compared))
    assert "1 of 2" in row(text, "equal answers")
    assert "80.00%" in row(text, "first difference")
    assert "1 of 2: 0" in row(text, "judged differently")
    assert text.count("'B'") == text.count("'D'") == 1

    content = report.comparison_to_json(compared)
    assert json.loads(json.dumps(content)) is not None
    assert content["token_agreement"] == 0.8
    assert content["judged_differently"] == [0]
    assert content["divergences"] == [
        {"id": 0, "position": 1, "tokens": (66, 68), "texts": ("B", "D"), "logprob_gap": None}
    ]
    assert content["results"]["hf"]["samples"][0]["output"] == "AD"
