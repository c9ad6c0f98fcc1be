"""Two results on the same prompts: which answers are right, and where the tokens part ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from asynct_evals.engines import Generation
from asynct_evals.evaluation import STRICT, Result


@dataclasses.dataclass(frozen=True)
class Divergence:
    """The first token at which two greedy answers to one problem differ.

    position: its index in the answers.
    tokens, texts: the two tokens there, the first engine's first; None where an answer has ended.
    logprob_gap: by how much the engine that reports log-probabilities prefers its token to the
      other; None if the other is not its second choice. A small gap is a near tie.
    """

    id: int
    position: int
    tokens: tuple[int | None, int | None]
    texts: tuple[str | None, str | None]
    logprob_gap: float | None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What two engines made of the same prompts.

    judged_differently: ids of the problems that one got right (strict match) and the other wrong.
    divergences: of the problems whose answers differ.
    token_agreement: the fraction of all tokens (of the longer answer of each pair) that come
      before the first difference.
    """

    results: tuple[Result, Result]
    judged_differently: list[int]
    divergences: list[Divergence]
    token_agreement: float


def compare(first: Result, second: Result, decode: Callable[[int], str]) -> Comparison:
    """Compares two results; `decode` gives a token's text.

    Raises:
      ValueError: they are not of the same problems and prompts.
    """
    asked = [[(s.question, s.answer, s.prompt_tokens) for s in r.samples] for r in (first, second)]
    if asked[0] != asked[1]:
        raise ValueError("the two results are not of the same problems and prompts")
    judged_differently, divergences = [], []
    agreeing = total = 0
    for a, b in zip(first.samples, second.samples, strict=True):
        if a.correct[STRICT] != b.correct[STRICT]:
            judged_differently.append(a.id)
        position = _parting(a.generation.tokens, b.generation.tokens)
        total += max(len(a.generation.tokens), len(b.generation.tokens))
        agreeing += len(a.generation.tokens) if position is None else position
        if position is not None:
            divergences.append(_divergence(a.id, position, a.generation, b.generation, decode))
    return Comparison((first, second), judged_differently, divergences, agreeing / total)


def _parting(a: list[int], b: list[int]) -> int | None:
    """The index of the first difference, None for equal lists."""
    if a == b:
        return None
    shorter = min(len(a), len(b))
    return next((i for i in range(shorter) if a[i] != b[i]), shorter)


def _divergence(
    problem: int, position: int, a: Generation, b: Generation, decode: Callable[[int], str]
) -> Divergence:
    tokens = tuple(g.tokens[position] if position < len(g.tokens) else None for g in (a, b))
    gap = None
    for generation, (own, other) in ((a, tokens), (b, tokens[::-1])):
        if position < len(generation.likeliest):
            likeliest = generation.likeliest[position]
            if own in likeliest and other in likeliest:
                gap = likeliest[own] - likeliest[other]
    texts = tuple(None if token is None else decode(token) for token in tokens)
    return Divergence(problem, position, tokens, texts, gap)
