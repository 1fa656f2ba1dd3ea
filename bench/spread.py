"""Numbers that were measured several times."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Spread:
    """One number, measured several times."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The one in the middle."""
        return median(self.values)

    @property
    def least(self) -> float:
        """The least."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The greatest."""
        return max(self.values)
