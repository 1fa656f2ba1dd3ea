"""The three intervals that results are judged by. All are 95 % ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

RESAMPLES = 2000
"""Resamples of the bootstrap. More change the third digit of an interval's ends."""

RESAMPLING_SEED = 20111009
"""Fixed, so that the same runs give the same page."""

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


class Interval(NamedTuple):
    """From `low` to `high`, both included."""

    low: float
    high: float

    def holds(self, value: float, tolerance: float = 0.0) -> bool:
        """Whether `value` is inside, or outside by `tolerance` at most."""
        return self.low - tolerance <= value <= self.high + tolerance


def of_mean(values: ArrayLike) -> Interval:
    """Confidence interval of the mean of independent values: percentile bootstrap."""
    sample = np.asarray(values, dtype=float)
    random = np.random.default_rng(RESAMPLING_SEED)
    picked = random.integers(0, sample.size, (RESAMPLES, sample.size))
    means = sample[picked].mean(axis=1)
    return Interval(*(float(end) for end in np.quantile(means, (0.025, 0.975))))


def of_single(values: ArrayLike) -> Interval:
    """Where one more such value is to be expected: the central 95 % of the values."""
    sample = np.asarray(values, dtype=float)
    low = np.quantile(sample, 0.025, method="lower")
    high = np.quantile(sample, 0.975, method="higher")
    return Interval(float(low), float(high))


def of_share(count: int, total: int) -> Interval:
    """Confidence interval of a probability, from `count` of `total` tries: Wilson's."""
    share = count / total
    centre = share + Z**2 / (2 * total)
    half = Z * float(np.sqrt(share * (1 - share) / total + Z**2 / (4 * total**2)))
    scale = 1 + Z**2 / total
    # Exact at the ends, where rounding would leave a trace.
    low = 0.0 if count == 0 else (centre - half) / scale
    high = 1.0 if count == total else (centre + half) / scale
    return Interval(low, high)
