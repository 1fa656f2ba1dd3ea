"""What parts runs on Xen from the simulator's under some policies, from their traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from laxity import tracefile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    Records = np.ndarray[tuple[int], np.dtype[Any]]

LATE_NS = 100_000
"""How much later than what causes it something may come that is held to be of that cause."""

RELEASE, WAKE, RUN, STOP, REPLENISH = (
    tracefile.number_of(kind) for kind in ("release", "wake", "run", "stop", "replenish")
)

DROPPED = (RELEASE, REPLENISH, WAKE)
"""What a trace has of a budget that comes before its VCPU has woken for a job."""


def budgets_before_wakes(trace: Path, domain: int) -> int:
    """How often a domain with one VCPU got its budget after a job was released and before it woke.

    A polling server drops it then. In the simulator, releases come first at an instant.
    """
    records = tracefile.records(trace)
    chosen = (records["domain"] == domain) & np.isin(records["kind"], (RELEASE, REPLENISH, WAKE))
    kinds, times_ns = records["kind"][chosen], records["time_ns"][chosen]
    at = _places(kinds, DROPPED)
    return int((times_ns[at + len(DROPPED) - 1] - times_ns[at] < LATE_NS).sum())


def late_ends_ns(trace: Path) -> list[int]:
    """By how much the turns of VCPUs ended later than the decision that began them said.

    Only turns count that a timer ended, and not something else. The host has one CPU.
    """
    records = tracefile.records(trace)
    turns = records[np.isin(records["kind"], (RUN, STOP))]
    begins = _places(turns["kind"], (RUN, STOP))
    late_ns = turns["time_ns"][begins + 1] - turns["argument"][begins]
    return [int(late) for late in late_ns if 0 <= late < LATE_NS]


def _places(kinds: Records, pattern: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Where the pattern begins."""
    if len(kinds) < len(pattern):
        return np.empty(0, np.intp)
    windows = np.lib.stride_tricks.sliding_window_view(kinds, len(pattern))
    return np.flatnonzero((windows == pattern).all(axis=1))
