"""A model of lm-eval whose answers are kept on disk, so that an interrupted run goes on."""

from __future__ import annotations

import collections
import datetime
import fcntl
import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM, TemplateLM

from asynct_evals.data import InputError

_FIRST_CHUNK = 32  # requests
_CHUNK_SECONDS = 15.0  # an interruption costs at most about so much


class Answers:
    """A file of answers, {"key": ..., "answer": ...} a line, that only grows; to be closed (with).

    Raises:
      InputError: another run is writing it, or a line is broken. A last line that was cut off is
        dropped.
    """

    def __init__(self, path: pathlib.Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"another run is writing {path}") from error
        self._file.seek(0)
        content = self._file.read()
        self._file.truncate(content.rfind(b"\n") + 1)
        self._answers: dict[str, Any] = {}
        for number, line in enumerate(content.splitlines(keepends=True), start=1):
            try:
                if line.endswith(b"\n"):
                    record = json.loads(line)
                    self._answers[record["key"]] = record["answer"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{path}, line {number} is broken: delete the file") from error

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_) -> None:
        self._file.close()

    def __contains__(self, key: str) -> bool:
        return key in self._answers

    def __getitem__(self, key: str) -> Any:
        """The answer; what was a tuple is a list."""
        return self._answers[key]

    def add(self, answers: dict[str, Any]) -> None:
        """Takes answers in; they are on disk when this returns."""
        lines = [json.dumps({"key": k, "answer": a}) + "\n" for k, a in answers.items()]
        self._file.write("".join(lines).encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._answers.update(answers)


def keys(method: str, requests: Sequence[Instance]) -> list[str]:
    """A key for each request; equal ones (samples drawn repeatedly) are numbered."""
    seen: collections.Counter = collections.Counter()
    found = []
    for request in requests:
        digest = hashlib.sha256(json.dumps([method, *request.args]).encode()).hexdigest()
        found.append(f"{digest}.{seen[digest]}")
        seen[digest] += 1
    return found


class Resumable(LM):
    """Asks `engine` what the answers do not hold yet, part by part, and tells how it goes on.

    computed, kept: requests that the engine answered, and that a former run had.
    """

    def __init__(self, engine: TemplateLM, answers: Answers, say: Callable[[str], None]):
        super().__init__()
        self._engine = engine
        self._answers = answers
        self._say = say
        self.computed = self.kept = 0

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [tuple(answer) for answer in self._ask("loglikelihood", requests)]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return self._ask("loglikelihood_rolling", requests)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        return self._ask("generate_until", requests)

    def _ask(self, method: str, requests: list[Instance]) -> list:
        by_key = dict(zip(keys(method, requests), requests, strict=True))
        todo = [key for key in by_key if key not in self._answers]
        kept = len(requests) - len(todo)
        self.kept += kept
        self._say(f"{method}: {len(requests)} requests, {kept} of them answered before")
        start, done, size = time.monotonic(), 0, _FIRST_CHUNK
        while done < len(todo):
            chunk = todo[done : done + size]
            asked = [by_key[key] for key in chunk]
            found = getattr(self._engine, method)(asked, disable_tqdm=True)
            self._answers.add(dict(zip(chunk, found, strict=True)))
            done += len(chunk)
            self.computed += len(chunk)
            rate = done / (time.monotonic() - start)
            size = max(1, int(rate * _CHUNK_SECONDS))
            left = datetime.timedelta(seconds=round((len(todo) - done) / rate))
            self._say(f"{kept + done} of {len(requests)}, {rate:.2f} requests/s, {left} left")
        return [self._answers[key] for key in by_key]
