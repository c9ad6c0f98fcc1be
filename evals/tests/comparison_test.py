"""Differences planted between two results are found, and nothing else is."""

import random

import pytest
from asynct_evals import comparison
from asynct_evals.comparison import Divergence
from results import result, sample


def pair(first: list, second: list):
    return comparison.compare(result("vllm", first), result("hf", second), decode=chr)


def test_equal_results_agree(seed):
    draw = random.Random(seed)
    samples = [
        sample(i, [draw.randrange(128) for _ in range(draw.randint(1, 9))], correct=i % 2 == 0)
        for i in range(5)
    ]
    compared = pair(samples, samples)
    assert compared.token_agreement == 1
    assert compared.divergences == []
    assert compared.judged_differently == []


def test_a_planted_token_is_found_with_its_log_prob_gap(seed):
    draw = random.Random(seed)
    tokens = [draw.randrange(32, 127) for _ in range(10)]
    position = draw.randrange(10)
    planted = draw.choice([token for token in range(32, 127) if token != tokens[position]])
    other = [*tokens[:position], planted, *tokens[position + 1 :]]
    steps = [{planted: -2.0, token: -0.5} for token in tokens]
    whole = [sample(0, tokens, correct=True), sample(1, tokens, correct=True, likeliest=steps)]
    changed = [sample(0, tokens, correct=True), sample(1, other, correct=True)]
    for first, second, both in (
        (whole, changed, (tokens[position], planted)),
        (changed, whole, (planted, tokens[position])),
    ):
        compared = pair(first, second)
        texts = tuple(map(chr, both))
        assert compared.divergences == [Divergence(1, position, both, texts, 1.5)]
        assert compared.token_agreement == (10 + position) / 20
        assert compared.judged_differently == []


def test_the_gap_is_known_only_if_the_other_token_was_second():
    compared = pair(
        [sample(0, [65], correct=True, likeliest=[{65: -0.1, 66: -3.0}])],
        [sample(0, [67], correct=True)],
    )
    assert compared.divergences[0].logprob_gap is None


def test_an_answer_that_ends_early_differs_where_it_ends():
    short, long = sample(0, [65, 66], correct=True), sample(0, [65, 66, 67, 68], correct=True)
    compared = pair([short], [long])
    assert compared.divergences == [Divergence(0, 2, (None, 67), (None, "C"), None)]
    assert compared.token_agreement == 0.5


def test_problems_that_one_engine_gets_wrong_are_named():
    samples = [sample(i, [65], correct=True) for i in range(3)]
    planted = [samples[0], sample(1, [65], correct=False), samples[2]]
    assert pair(samples, planted).judged_differently == [1]


def test_results_of_other_problems_are_not_compared():
    samples = [sample(i, [65], correct=True) for i in range(3)]
    with pytest.raises(ValueError, match="not of the same problems"):
        pair(samples, samples[:2])
    with pytest.raises(ValueError, match="not of the same problems"):
        pair(samples, samples[::-1])
