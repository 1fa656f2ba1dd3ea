"""The three intervals that results are judged by. All are 95 % ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

RESAMPLES = 2000
"""Resamples of the bootstrap. More change the third digit of an interval's ends."""

RESAMPLING_SEED = 20111009
"""Fixed, so that the same runs give the same page."""


class Interval(NamedTuple):
    """From `low` to `high`, both included."""

    low: float
    high: float

    def holds(self, value: float, tolerance: float = 0.0) -> bool:
        """Whether `value` is inside, or outside by `tolerance` at most."""
        return self.low - tolerance <= value <= self.high + tolerance


def of_mean(values: ArrayLike) -> Interval:
    """Confidence interval of the mean of independent values: percentile bootstrap."""
    found = stats.bootstrap(
        (np.asarray(values, dtype=float),),
        np.mean,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(RESAMPLING_SEED),
    )
    return Interval(*map(float, found.confidence_interval))


def of_single(values: ArrayLike) -> Interval:
    """Where one more such value is to be expected: the central 95 % of the values."""
    sample = np.asarray(values, dtype=float)
    low = np.quantile(sample, 0.025, method="lower")
    high = np.quantile(sample, 0.975, method="higher")
    return Interval(float(low), float(high))


def of_share(count: int, total: int) -> Interval:
    """Confidence interval of a probability, from `count` of `total` tries: Wilson's."""
    found = stats.binomtest(count, total).proportion_ci(method="wilson")
    return Interval(float(found.low), float(found.high))
