"""The generator: right answers, disjoint splits, the same problems for the same seed."""

import json
import re
import zlib

import pytest
from asynct_tiny.problems import (
    DELIMITER,
    LARGEST,
    Problem,
    generate,
    prompt,
    split_of,
    worked,
    write_jsonl,
)
from asynct_tiny.templates import SCENES, THEMES

_STEP = re.compile(r"(\d+) ([-+*]) (\d+) = (\d+)")


@pytest.fixture
def sample(seed):
    return generate(3000, seed, "train") + generate(500, seed, "test")


def test_every_step_is_right_and_the_last_is_the_answer(sample):
    for problem in sample:
        *steps, final = problem.answer.split("\n")
        assert 2 <= len(steps) <= 4, problem
        for step in steps:
            left, operator, right, result = _STEP.fullmatch(step).groups()
            value = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}[operator]
            assert value(int(left), int(right)) == int(result), problem
            assert 1 <= int(result) <= LARGEST
        assert final == f"#### {result}", problem


def test_steps_use_only_what_the_question_says_or_earlier_results(sample):
    for problem in sample:
        known = set(re.findall(r"\d+", problem.question))
        known |= {"2"} if "doubles" in problem.question else set()
        known |= {"3"} if "triples" in problem.question else set()
        for left, _, right, result in _STEP.findall(problem.answer):
            assert {left, right} <= known, problem
            known.add(result)


def test_every_number_of_the_question_is_used(sample):
    for problem in sample:
        asked = re.findall(r"\d+", problem.question)
        used = [number for step in _STEP.findall(problem.answer) for number in step[::2]]
        assert not set(asked) - set(used), problem


def test_no_placeholder_is_left_and_every_template_is_drawn(sample):
    text = "\n".join(problem.question for problem in sample)
    assert not re.search(r"[{}]", text)
    for template in [theme.start for theme in THEMES] + [scene.text for scene in SCENES]:
        pattern = re.sub(r"\\{\w+\\}", r"\\w+", re.escape(template))
        assert re.search(pattern, text), template


def test_the_templates_and_operations_are_many(sample):
    assert len(THEMES) + len(SCENES) >= 15
    operators = {step[1] for problem in sample for step in _STEP.findall(problem.answer)}
    assert operators == {"+", "-", "*"}


def test_splits_are_disjoint_whatever_the_seeds(seed):
    train = {problem.question for problem in generate(5000, seed, "train")}
    test = {problem.question for s in (seed, seed + 1) for problem in generate(500, s, "test")}
    assert not train & test
    assert {split_of(question) for question in train} == {"train"}
    assert {split_of(question) for question in test} == {"test"}
    assert len(test) > 990  # hardly a repetition


def test_a_seed_gives_the_same_problems_in_every_count(seed):
    first = generate(50, seed, "test")
    assert generate(20, seed, "test") == first[:20]
    assert generate(50, seed + 1, "test") != first
    assert generate(50, seed, "train") != first
    assert generate(0, seed) == []


def test_the_problems_of_the_recorded_score_stay_the_same():
    """The checkpoint was scored on these: whoever changes the generator trains and scores anew."""
    scored = [tuple(problem) for problem in generate(500, seed=20_000, split="test")]
    assert zlib.crc32(repr(scored).encode()) == 43793719


@pytest.mark.parametrize(("count", "split", "word"), [(-1, "test", "count"), (1, "dev", "split")])
def test_bad_arguments_are_refused(count, split, word):
    with pytest.raises(ValueError, match=f"{word} is"):
        generate(count, 0, split)


def test_prompt_is_lm_evals_gsm8k_format():
    shots = [Problem("A?", "1 + 1 = 2\n#### 2"), Problem("B?", "#### 3")]
    assert prompt("C?") == "Question: C?\nAnswer:"
    assert prompt("C?", shots) == (
        "Question: A?\nAnswer: 1 + 1 = 2\n#### 2\n\n"
        "Question: B?\nAnswer: #### 3\n\n"
        "Question: C?\nAnswer:"
    )


def test_nine_problems_fit_the_trained_context(seed):
    """Eight shots, the question and its answer, with lm-eval's default room for 256 new tokens."""
    problems = generate(1800, seed, "train")
    for first in range(0, 1800, 9):
        nine = DELIMITER.join(map(worked, problems[first : first + 9]))
        assert len(nine.encode()) <= 2048 - 256 + len(problems[first + 8].answer)


def test_write_jsonl_round_trip(seed, tmp_path):
    problems = generate(20, seed)
    write_jsonl(tmp_path / "problems.jsonl", problems)
    lines = (tmp_path / "problems.jsonl").read_text().splitlines()
    assert [Problem(**json.loads(line)) for line in lines] == problems
