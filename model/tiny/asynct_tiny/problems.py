"""Arithmetic word problems of two to four operations, answered step by step, seeded.

Every number is between 1 and 99. A hash of its question puts a problem in the training or in the
test split, so the two share no question whatever the seeds.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from asynct_tiny.templates import ITEMS, MULTIPLIES, PEOPLE, SCENES, THEMES, Scene, Theme

Split = Literal["train", "test"]

LARGEST = 99
_LARGEST_OPERAND = 50
_LARGEST_FACTOR = 9
_ONE_DIGIT_CHANCE = 0.4
_STORY_EVENTS = (2, 3, 4)
_STORY_WEIGHTS = (50, 35, 15)
_MULTIPLY_CHANCE = 0.12
_TEST_SHARE = 16  # one question in so many is held out

# lm-eval's gsm8k prompt: QUESTION, then " answer", problems joined by DELIMITER.
QUESTION = "Question: {}\nAnswer:"
DELIMITER = "\n\n"
STOP = "Question:"


class Problem(NamedTuple):
    """A question and its worked answer, which ends in "#### N"."""

    question: str
    answer: str


def generate(count: int, seed: int | str, split: Split = "test") -> list[Problem]:
    """`count` problems of `split`; the same arguments give the same problems.

    Raises:
        ValueError: count is negative or split is not "train" or "test".
    """
    if count < 0:
        raise ValueError(f"count is {count}; it must not be negative")
    stream = problems(seed, split)
    return [next(stream) for _ in range(count)]


def problems(seed: int | str, split: Split) -> Iterator[Problem]:
    """The endless stream that `generate` takes its problems from."""
    if split not in ("train", "test"):
        raise ValueError(f"split is {split!r}; allowed are 'train' and 'test'")
    rng = Random(f"{split} {seed}")
    while True:
        problem = _draw(rng)
        if split_of(problem.question) == split:
            yield problem


def split_of(question: str) -> Split:
    """The split that a question belongs to."""
    return "train" if zlib.crc32(question.encode()) % _TEST_SHARE else "test"


def prompt(question: str, shots: Iterable[Problem] = ()) -> str:
    """The text that asks `question` after the worked `shots`."""
    return "".join(f"{worked(shot)}{DELIMITER}" for shot in shots) + QUESTION.format(question)


def worked(problem: Problem) -> str:
    """A problem with its answer, as a few-shot prompt has it."""
    return f"{QUESTION.format(problem.question)} {problem.answer}"


def write_jsonl(path: str | Path, items: Iterable[Problem]) -> None:
    """Writes one {"question", "answer"} object a line."""
    with open(path, "w", encoding="utf-8") as file:
        for item in items:
            file.write(json.dumps(item._asdict()) + "\n")


def _draw(rng: Random) -> Problem:
    (name, he), (friend, _) = rng.sample(PEOPLE, 2)
    words = dict(name=name, he=he, He=he.capitalize(), friend=friend, item=rng.choice(ITEMS))
    if rng.random() < 0.5:
        text, steps = _story(rng.choice(THEMES), rng)
    else:
        text, steps = _scene(rng.choice(SCENES), rng)
    lines = [f"{left} {operator} {right} = {result}" for left, operator, right, result in steps]
    return Problem(text.format(**words), "\n".join([*lines, f"#### {steps[-1][-1]}"]))


Step = tuple[int, str, int, int]  # left, operator, right, result


def _story(theme: Theme, rng: Random) -> tuple[str, list[Step]]:
    """A start, some events and the question; the count stays between 1 and LARGEST."""
    count = _number(_LARGEST_OPERAND, rng)
    sentences = [theme.start.replace("{n}", str(count))]
    steps: list[Step] = []
    for _ in range(rng.choices(_STORY_EVENTS, _STORY_WEIGHTS)[0]):
        sentence, step = _event(theme, count, rng)
        sentences.append(sentence)
        steps.append(step)
        count = step[-1]
    return " ".join([*sentences, theme.question]), steps


def _event(theme: Theme, count: int, rng: Random) -> tuple[str, Step]:
    sentence, factor = rng.choice(MULTIPLIES)
    if rng.random() < _MULTIPLY_CHANCE and count * factor <= LARGEST:
        return sentence, (count, "*", factor, count * factor)
    gain_limit = min(_LARGEST_OPERAND, LARGEST - count)
    loss_limit = min(_LARGEST_OPERAND, count - 1)
    if rng.random() < 0.5 and gain_limit >= 2 or loss_limit < 2:
        number = _number(gain_limit, rng)
        return _say(theme.gains, number, rng), (count, "+", number, count + number)
    number = _number(loss_limit, rng)
    return _say(theme.losses, number, rng), (count, "-", number, count - number)


def _number(largest: int, rng: Random) -> int:
    """2 to `largest`; small numbers are more frequent, as in real problems."""
    return rng.randint(2, min(largest, 9) if rng.random() < _ONE_DIGIT_CHANCE else largest)


def _say(sentences: tuple[str, ...], number: int, rng: Random) -> str:
    return rng.choice(sentences).replace("{n}", str(number))


_OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def _scene(scene: Scene, rng: Random) -> tuple[str, list[Step]]:
    """Draws a scene's numbers until every result lies between 1 and LARGEST."""
    while True:
        values = {name: _number(_LARGEST_OPERAND, rng) for name in "abcd"}
        values |= {name: rng.randint(2, _LARGEST_FACTOR) for name in "jklm"}
        text = scene.text
        for name in "abcdjklm":
            text = text.replace(f"{{{name}}}", str(values[name]))
        steps: list[Step] = []
        for index, step in enumerate(scene.steps, 1):
            left, operator, right = step.split()
            result = _OPERATIONS[operator](values[left], values[right])
            if not 1 <= result <= LARGEST:
                break
            steps.append((values[left], operator, values[right], result))
            values[f"r{index}"] = result
        else:
            return text, steps
