"""The problems of a run: read, validated, and split into few-shot examples and problems asked."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re

from asynct_tiny import problems as generator
from asynct_tiny.problems import Problem

GENERATED_PROBLEMS = 200

_FINAL_NUMBER = re.compile(r"#### -?[0-9.,]+\s*$")


class InputError(ValueError):
    """What the user gave cannot be evaluated; the message says what to give instead."""


@dataclasses.dataclass(frozen=True)
class Data:
    """The problems asked, the pool from which few-shot examples are drawn, and their origin."""

    problems: list[Problem]
    fewshot: list[Problem]
    source: str

    def __str__(self) -> str:
        return f"{len(self.problems)} problems ({self.source})"


def read(path: pathlib.Path) -> list[Problem]:
    """Reads JSON lines of {"question": ..., "answer": "... #### N"}; blank lines are skipped.

    Raises:
      InputError: the file is missing or has no problems, or a line (named by its number) is not a
        JSON object with a question and an answer that ends in "#### N".
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    found = [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not found:
        raise InputError(f"{path} has no problems")
    return found


def _parse(line: bytes, where: str) -> Problem:
    try:
        record = json.loads(line)
    except ValueError as error:  # bad JSON or bad UTF-8
        raise InputError(f"{where}: not JSON ({error})") from error
    if not isinstance(record, dict):
        raise InputError(f"{where}: expected an object with question and answer, not {line!r}")
    for key in ("question", "answer"):
        if not isinstance(record.get(key), str) or not record[key].strip():
            raise InputError(f"{where}: {key!r} must be a non-empty string")
    if not _FINAL_NUMBER.search(record["answer"]):
        raise InputError(f"{where}: the answer must end in '#### N', N a number")
    return Problem(record["question"], record["answer"])


def from_files(
    path: pathlib.Path,
    fewshot_path: pathlib.Path | None,
    *,
    num_fewshot: int,
    limit: int | None,
) -> Data:
    """Problems of a file; few-shot examples of another, or else the file's own first problems.

    Problems that serve as few-shot examples are not asked.
    """
    found = read(path)
    if fewshot_path is not None:
        fewshot, source = read(fewshot_path), f"{path}, few-shot examples from {fewshot_path}"
        if len(fewshot) < num_fewshot:
            raise InputError(
                f"--num_fewshot {num_fewshot}: {fewshot_path} has only {len(fewshot)} problems"
            )
    else:
        fewshot, found = found[:num_fewshot], found[num_fewshot:]
        source = str(path)
        if num_fewshot:
            source += f", its first {num_fewshot} problems as few-shot examples and not asked"
        if not found:
            raise InputError(
                f"{path} has only {len(fewshot)} problems, all taken by --num_fewshot "
                f"{num_fewshot}: give examples with --fewshot_data or ask for fewer shots"
            )
    return Data(_first(found, limit, str(path)), fewshot, source)


def generated(*, num_fewshot: int, limit: int | None, seed: int) -> Data:
    """Held-out problems of the tiny checkpoint's generator, examples of its training split."""
    count = limit or GENERATED_PROBLEMS
    return Data(
        generator.generate(count, seed, "test"),
        # lm-eval draws each prompt's examples from a pool: large enough that prompts differ.
        generator.generate(16 * num_fewshot, seed, "train"),
        f"generated, seed {seed}",
    )


def from_hub(*, limit: int | None) -> Data:
    """openai/gsm8k: the test split asked, the train split for few-shot examples."""
    import datasets

    try:
        loaded = datasets.load_dataset("openai/gsm8k", "main")
    except (OSError, ValueError) as error:  # what datasets and the hub raise offline
        raise InputError(
            "openai/gsm8k is neither in the local cache nor can it be fetched: give a JSON-lines "
            f"file with --data, or run where the hub can be reached ({error})"
        ) from error
    train, test = (
        [Problem(row["question"], row["answer"]) for row in loaded[split]]
        for split in ("train", "test")
    )
    return Data(_first(test, limit, "openai/gsm8k"), train, "openai/gsm8k")


def _first(problems: list[Problem], limit: int | None, source: str) -> list[Problem]:
    if limit is not None and limit > len(problems):
        raise InputError(f"--limit {limit}: {source} has only {len(problems)} problems to ask")
    return problems[:limit]
