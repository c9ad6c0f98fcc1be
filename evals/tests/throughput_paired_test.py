"""The interval of a median, and the order of turns."""

import random
import statistics

import pytest
from asynct_evals.throughput.paired import Paired, alternate, median_interval


@pytest.mark.parametrize(
    "count, rank, confidence",
    # Order statistics and their exact coverage, as tables of the sign test have them.
    [(1, 1, 0.0), (2, 1, 0.5), (5, 1, 0.9375), (6, 1, 0.96875), (20, 6, 0.9586), (100, 40, 0.9648)],
)
def test_ranks(count, rank, confidence, seed):
    samples = list(range(1, count + 1))
    random.Random(seed).shuffle(samples)
    interval = median_interval(samples)
    assert interval.median == (count + 1) / 2
    assert (interval.low, interval.high) == (rank, count + 1 - rank)
    assert interval.confidence == pytest.approx(confidence, abs=1e-4)


def test_the_interval_covers_the_median_as_often_as_it_says(seed):
    draw = random.Random(seed)
    trials, covered = 4000, 0
    for _ in range(trials):
        interval = median_interval([draw.expovariate(1.0) for _ in range(20)])
        covered += interval.low <= 0.693147 <= interval.high
    deviation = (0.9586 * 0.0414 / trials) ** 0.5
    assert abs(covered / trials - 0.9586) < 5 * deviation


def test_ratios_are_of_the_rounds():
    ratio = Paired([1.0, 30.0, 4.0], [2.0, 10.0, 4.0]).ratio
    assert (ratio.low, ratio.median, ratio.high) == (0.5, 1.0, 3.0)


def test_the_sides_take_turns_and_swap(seed):
    turns = []

    def side(name: str, seconds: float):
        return lambda index: turns.append((name, index)) or seconds + index

    rounds = list(alternate(side("a", 1.0), side("b", 5.0), rounds=3, seconds=0.0))
    assert turns == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert [total for _, total in rounds] == [3, 3, 3]
    assert rounds[-1][0] == Paired([1.0, 2.0, 3.0], [5.0, 6.0, 7.0])


def test_short_rounds_are_repeated_until_they_have_taken_the_time():
    rounds = list(alternate(lambda _: 0.1, lambda _: 0.15, rounds=2, seconds=2.5))
    assert len(rounds) == rounds[0][1] == 10
    assert statistics.median(rounds[-1][0].ours) == 0.1
