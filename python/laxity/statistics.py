"""Means over seeds, and how sure they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Mean:
    """A mean over seeds, with the half width of its 95 % confidence interval (Student's t)."""

    mean: float
    half_width_95: float | None
    """None for a single seed."""


T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""The 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom, from any table of it."""


def student_t_95(degrees: int) -> float:
    """The 97.5 % quantile of Student's t.

    From the table; beyond it Fisher's expansion, with an error below 0.0002.
    """
    if degrees <= len(T_95):
        return T_95[degrees - 1]
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / degrees + second / degrees**2


def mean(values: Sequence[float]) -> Mean:
    """The mean of at least one value, and how sure it is."""
    count = len(values)
    average = math.fsum(values) / count
    if count == 1:
        return Mean(average, None)
    variance = math.fsum((value - average) ** 2 for value in values) / (count - 1)
    return Mean(average, student_t_95(count - 1) * math.sqrt(variance / count))
