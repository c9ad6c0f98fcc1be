"""Problem files: what is read, what is refused and by which words, and who serves as an example."""

import json
import random

import pytest
from asynct_evals import data
from asynct_evals.data import InputError
from asynct_tiny import problems as generator


@pytest.fixture
def problems(seed):
    return generator.generate(12, seed, "test")


@pytest.fixture
def path(tmp_path, problems):
    path = tmp_path / "problems.jsonl"
    generator.write_jsonl(path, problems)
    return path


def test_read_gives_back_what_was_written(path, problems):
    assert data.read(path) == problems


def test_blank_lines_are_skipped_but_counted(path, problems):
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "", "  ", *lines[1:], ""]))
    assert data.read(path) == problems
    path.write_text("\n".join([lines[0], "", "  ", "{"]))
    with pytest.raises(InputError, match="line 4"):
        data.read(path)


@pytest.mark.parametrize(
    "broken, why",
    [
        (b'{"question": "How many?", "answer": "#### 1"', "not JSON"),
        (b'{"question": "How many\xff?", "answer": "#### 1"}', "not JSON"),
        (b'["How many?", "#### 1"]', "expected an object"),
        (b'{"answer": "#### 1"}', "'question' must be a non-empty string"),
        (b'{"question": " ", "answer": "#### 1"}', "'question' must be a non-empty string"),
        (b'{"question": "How many?"}', "'answer' must be a non-empty string"),
        (b'{"question": "How many?", "answer": 1}', "'answer' must be a non-empty string"),
        (b'{"question": "How many?", "answer": "It is 1."}', "must end in '#### N'"),
        (b'{"question": "How many?", "answer": "It is one. #### one"}', "must end in '#### N'"),
        (b'{"question": "How many?", "answer": "#### 1 or 2"}', "must end in '#### N'"),
    ],
)
def test_a_broken_line_is_named_by_its_number(path, seed, broken, why):
    lines = path.read_bytes().splitlines()
    number = random.Random(seed).randrange(len(lines))
    lines[number] = broken
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(InputError) as error:
        data.read(path)
    assert f"{path}, line {number + 1}: " in str(error.value)
    assert why in str(error.value)


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(InputError, match="cannot read .*nowhere.jsonl: No such file"):
        data.read(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(InputError, match="empty.jsonl has no problems"):
        data.read(tmp_path / "empty.jsonl")


def test_the_first_problems_serve_as_examples_and_are_not_asked(path, problems):
    found = data.from_files(path, None, num_fewshot=5, limit=4)
    assert found.fewshot == problems[:5]
    assert found.problems == problems[5:9]
    assert "first 5 problems as few-shot examples and not asked" in str(found)


def test_examples_of_another_file(path, problems, tmp_path, seed):
    others = generator.generate(5, seed, "train")
    generator.write_jsonl(tmp_path / "others.jsonl", others)
    found = data.from_files(path, tmp_path / "others.jsonl", num_fewshot=5, limit=None)
    assert (found.problems, found.fewshot) == (problems, others)
    with pytest.raises(InputError, match="--num_fewshot 6: .*others.jsonl has only 5 problems"):
        data.from_files(path, tmp_path / "others.jsonl", num_fewshot=6, limit=None)


def test_no_problem_is_left_to_ask(path):
    with pytest.raises(InputError, match="only 12 problems, all taken by --num_fewshot 12"):
        data.from_files(path, None, num_fewshot=12, limit=None)


def test_fewer_problems_than_asked_for_are_refused(path):
    with pytest.raises(InputError, match="--limit 8: .* has only 7 problems to ask"):
        data.from_files(path, None, num_fewshot=5, limit=8)


def test_generated_problems_are_held_out_and_repeatable(seed):
    found = data.generated(num_fewshot=3, limit=20, seed=seed)
    assert found == data.generated(num_fewshot=3, limit=20, seed=seed)
    assert len(found.problems) == 20
    asked = {p.question for p in found.problems}
    assert asked.isdisjoint(p.question for p in found.fewshot)
    for problem in found.problems:
        assert generator.split_of(problem.question) == "test"
    for problem in found.fewshot:
        assert generator.split_of(problem.question) == "train"
    assert len(data.generated(num_fewshot=0, limit=None, seed=seed).problems) == 200


def test_the_hub_out_of_reach_says_what_to_give(monkeypatch):
    import datasets

    def unreachable(*_):
        raise ConnectionError("offline mode is enabled")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(InputError, match="with --data"):
        data.from_hub(limit=None)


def test_the_hub_dataset_becomes_problems(monkeypatch, problems):
    import datasets

    rows = [json.loads(json.dumps(p._asdict())) for p in problems]
    monkeypatch.setattr(
        datasets, "load_dataset", lambda *_: {"train": rows[:7], "test": rows[7:]}
    )
    found = data.from_hub(limit=3)
    assert (found.problems, found.fewshot) == (problems[7:10], problems[:7])
