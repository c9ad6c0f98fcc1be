"""Training rows: whole problems in lm-eval's format, with the loss where it belongs."""

import pytest
import torch
from asynct_tiny import corpus as corpus_module
from asynct_tiny.corpus import IGNORED, Corpus
from asynct_tiny.problems import split_of
from asynct_tiny.tokenizer import EOS_ID, PAD_ID

LENGTH = 256
COUNT = 400


@pytest.fixture
def corpus(seed):
    return Corpus(COUNT, seed, longest=1024, device=torch.device("cpu"))


def _targets(labels: torch.Tensor) -> str:
    """A row's labels as text: "_" where there is no loss, "$" for <eos>."""
    marks = {IGNORED: "_", EOS_ID: "$"}
    return "".join(marks[x] if x in marks else chr(x) for x in labels.tolist())


def test_labels_are_the_next_tokens(corpus):
    for rows in (corpus.single(8, LENGTH), corpus.packed(4, 1024)):
        kept = rows.labels[:, :-1] != IGNORED
        assert kept.any(dim=1).all()
        assert torch.equal(rows.labels[:, :-1][kept], rows.inputs[:, 1:][kept])


def test_single_rows_hold_one_problem_closed_by_eos(corpus):
    rows = corpus.single(50, LENGTH)
    for inputs, labels in zip(*rows):
        tokens = inputs.tolist()
        end = tokens.index(EOS_ID)
        assert set(tokens[end + 1 :]) <= {PAD_ID}
        text = bytes(tokens[:end]).decode()
        asked, answer = text.split("\nAnswer:")
        assert asked.startswith("Question: ") and asked.count("Question:") == 1
        assert split_of(asked.removeprefix("Question: ")) == "train"
        targets = _targets(labels)
        # The loss is on the answer and <eos>; the first word, which is always the same, is as well.
        assert targets.strip("_") == "uestion:" + "_" * len(asked[9:] + "\nAnswer:") + answer + "$"


def test_packed_rows_hold_problems_one_after_another(corpus):
    rows = corpus.packed(20, 1024)
    for inputs, labels in zip(*rows):
        text = bytes(inputs.tolist()).decode()
        problems = text.split("\n\n")
        assert len(problems) >= 4
        assert all(problem.startswith("Question: ") for problem in problems[:-1])
        targets = _targets(labels)
        for problem in problems[1:-2]:
            answer = problem.split("\nAnswer:")[1]
            assert f"{answer}\n\nQuestion:" in targets
        assert "How many" not in targets


def test_rows_start_at_many_different_problems(corpus):
    starts = {bytes(row[:60].tolist()) for row in corpus.single(200, LENGTH).inputs}
    assert len(starts) > 100


def test_the_seed_decides_problems_and_rows(seed, monkeypatch):
    monkeypatch.setattr(corpus_module, "_CHUNK", COUNT // 3)  # several parts, for several workers

    def make(seed: int, workers: int = 1) -> Corpus:
        return Corpus(COUNT, seed, longest=1024, device=torch.device("cpu"), workers=workers)

    first = make(seed)
    again, parallel, other = make(seed), make(seed, workers=2), make(seed + 1)
    rows = first.packed(3, 1024).inputs
    assert torch.equal(again.packed(3, 1024).inputs, rows)
    assert torch.equal(parallel.tokens, first.tokens)
    assert torch.equal(parallel.packed(3, 1024).inputs, rows)
    assert not torch.equal(other.packed(3, 1024).inputs, rows)


def test_too_few_problems_for_one_row_are_refused(seed):
    with pytest.raises(ValueError, match="3 problems.*2048"):
        Corpus(3, seed, longest=2048, device=torch.device("cpu"))
