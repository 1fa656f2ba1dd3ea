"""Whether calls were good enough: the limits of a host, and what a run found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """One thing that a run must keep to be accepted."""

    name: str
    """`loss`, `delay` or `MOS`."""
    limit: float
    found: float | None
    """None where nothing was measured: no packet came."""
    held: bool
