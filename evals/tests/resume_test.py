"""Answers on disk: an interrupted run goes on, and nothing else is asked again."""

import math
import random

import pytest
from asynct_evals import resume
from asynct_evals.data import InputError
from asynct_evals.resume import Answers, Resumable
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

METHODS = ("loglikelihood", "loglikelihood_rolling", "generate_until")


class Engine(LM):
    """Answers by the request's text; breaks down after `lasts` calls."""

    def __init__(self, lasts: int = 10**6):
        super().__init__()
        self.asked: list[str] = []
        self.lasts = lasts

    def _answer(self, requests, answer):
        if not self.lasts:
            raise KeyboardInterrupt
        self.lasts -= 1
        self.asked += [request.args[0] for request in requests]
        return [answer(request.args[0]) for request in requests]

    def loglikelihood(self, requests, disable_tqdm):
        return self._answer(requests, lambda text: (-float(len(text)) / 3, len(text) % 2 == 0))

    def loglikelihood_rolling(self, requests, disable_tqdm):
        return self._answer(requests, lambda text: -math.inf if "7" in text else -0.1 * len(text))

    def generate_until(self, requests, disable_tqdm):
        return self._answer(requests, str.upper)


def requests(method: str, texts: list[str]) -> list[Instance]:
    extra = {"loglikelihood": (" yes",), "loglikelihood_rolling": (),
             "generate_until": ({"until": ["\n"], "do_sample": False},)}[method]  # fmt: skip
    return [Instance(method, {}, (text, *extra), i) for i, text in enumerate(texts)]


def ask(engine, path, asked: list[Instance], said: list[str]) -> tuple[Resumable, list]:
    """One run: its model, and the answers."""
    with Answers(path) as answers:
        model = Resumable(engine, answers, said.append)
        return model, getattr(model, asked[0].request_type)(asked)


@pytest.fixture
def texts(seed) -> list[str]:
    source = random.Random(seed)
    return [f"{i} " + "é" * source.randrange(9) for i in range(100)]


@pytest.mark.parametrize("method", METHODS)
def test_after_an_interruption_only_the_rest_is_computed(tmp_path, texts, method, monkeypatch):
    monkeypatch.setattr(resume, "_CHUNK_SECONDS", 1e-9)  # a request a part after the first 32
    path = tmp_path / "sub" / "answers.jsonl"
    said: list[str] = []
    first = Engine(lasts=5)
    with pytest.raises(KeyboardInterrupt):
        ask(first, path, requests(method, texts), said)
    assert first.asked == texts[:36]

    second, said = Engine(), []
    resumed, found = ask(second, path, requests(method, texts), said)
    assert second.asked == texts[36:]
    assert (resumed.computed, resumed.kept) == (64, 36)
    assert found == getattr(Engine(), method)(requests(method, texts), disable_tqdm=True)
    assert said[0] == f"{method}: 100 requests, 36 of them answered before"
    assert said[1].startswith("68 of 100, ") and said[-1].endswith(" requests/s, 0:00:00 left")
    assert ask(Engine(lasts=0), path, requests(method, texts), said)[1] == found


def test_a_line_that_was_cut_off_is_asked_again(tmp_path, texts):
    path = tmp_path / "answers.jsonl"
    ask(Engine(), path, requests("generate_until", texts), [])
    path.write_bytes(path.read_bytes()[:-5])
    engine = Engine()
    ask(engine, path, requests("generate_until", texts), [])
    assert engine.asked == texts[-1:]
    assert len(path.read_text().splitlines()) == len(texts)


def test_samples_drawn_repeatedly_stay_apart(tmp_path):
    drawn = iter("abc")
    engine = Engine()
    engine.generate_until = lambda requests, **_: [next(drawn) for _ in requests]
    repeated = requests("generate_until", ["same"] * 3)
    for _ in range(2):
        assert ask(engine, tmp_path / "answers.jsonl", repeated, [])[1] == ["a", "b", "c"]


def test_what_is_asked_otherwise_is_asked_anew(tmp_path):
    (greedy,) = requests("generate_until", ["x"])
    longer = Instance("generate_until", {}, ("x", greedy.args[1] | {"max_gen_toks": 9}), 0)
    (scored,) = requests("loglikelihood_rolling", ["x"])
    engine = Engine()
    for request in (greedy, longer, scored):
        ask(engine, tmp_path / "answers.jsonl", [request], [])
    assert engine.asked == ["x"] * 3


def test_a_broken_file_and_one_in_use_are_named(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"key": "a", "answer": 1}\n{"key": "b"}\n')
    with pytest.raises(InputError, match="answers.jsonl, line 2 is broken"):
        Answers(path)
    path.unlink()
    with Answers(path), pytest.raises(InputError, match="another run is writing .*rs.jsonl"):
        Answers(path)
