"""Two sides timed in turn, and the interval of the median of their ratios."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterator, Sequence

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Interval:
    """A median, and two samples between which the true one lies with at least `confidence`."""

    median: float
    low: float
    high: float
    confidence: float


@dataclasses.dataclass(frozen=True)
class Paired:
    """Seconds of both sides, by round."""

    ours: list[float]
    theirs: list[float]

    @property
    def ratio(self) -> Interval:
        """Of our time over theirs, round by round."""
        return median_interval([a / b for a, b in zip(self.ours, self.theirs, strict=True)])


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The interval between order statistics, which presumes no distribution.

    Of n samples the k-th smallest and the k-th largest hold the median between them unless fewer
    than k lie on one side of it: twice the lower tail of a binomial distribution. k is the largest
    that `confidence` allows; too few samples have k = 1, and the confidence that it gives.
    """
    ordered, count = sorted(samples), len(samples)
    k, outside = 1, 2.0 * math.comb(count, 0) / 2**count
    while (more := outside + 2 * math.comb(count, k) / 2**count) <= 1 - confidence:
        k, outside = k + 1, more
    return Interval(
        statistics.median(ordered), ordered[k - 1], ordered[-k], max(1 - outside, 0.0)
    )


def alternate(
    ours: Callable[[int], float], theirs: Callable[[int], float], *, rounds: int, seconds: float
) -> Iterator[tuple[Paired, int]]:
    """Times both sides in turn, the first of a round being the second of the next.

    Each is called with the round's number and returns seconds. There are `rounds` rounds, or as
    many more as `seconds` of them take.

    Yields:
      After each round: what was timed so far, and the number of rounds that there will be.
    """
    paired, total = Paired([], []), rounds
    while len(paired.ours) < total:
        index = len(paired.ours)
        sides = [(ours, paired.ours), (theirs, paired.theirs)]
        for side, samples in sides[:: -1 if index % 2 else 1]:
            samples.append(side(index))
        spent = sum(paired.ours) + sum(paired.theirs)
        total = max(rounds, math.ceil(seconds / (spent / (index + 1))))
        yield paired, total
