"""What decisions and switches cost on the lab's machine, as a profile of host files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from laxity_reproduce.rt_xen.setup import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FILE = "crates/laxity-host/profiles/xen-lab.toml"
"""The profile in a checkout of the project."""

MEASURED = ("deferrable", "sporadic", "credit")
"""The policies on whose windows of Table 1 costs are calibrated."""

TAKES_FROM = {"periodic": "deferrable", "polling": "deferrable", "sedf": "deferrable"}
"""Where the others take theirs: they share that one's code."""

HEADER = """\
# What scheduling costs on the emulated machine of the lab, in its nanoseconds: an instruction takes
# two. Written by `laxity reproduce rt-xen --on xen --calibrate`, from windows of Table 1 under
# deferrable, sporadic and credit: five domains of an even share, load 70 %, five tasks each, 10 s,
# one CPU. `schedule` is the time of one call of do_schedule, `context-switch` that of one switch:
# median, 99 % quantile and maximum. Periodic, polling and sedf, whose code is deferrable's, have
# deferrable's.
source = "measured in the lab's emulated machine, where an instruction takes 2 ns"
"""


@dataclass(frozen=True)
class Quantiles:
    """The quantiles of a cost, ns."""

    median: int
    p99: int
    max: int

    @classmethod
    def of(cls, values_ns: Iterable[int]) -> Quantiles:
        """By nearest rank; of at least one value."""
        sample = np.sort(np.fromiter(values_ns, dtype=np.int64))
        ranks = (int(np.ceil(part * sample.size)) - 1 for part in (0.5, 0.99, 1.0))
        return cls(*(int(sample[max(0, rank)]) for rank in ranks))

    def __str__(self) -> str:
        """The value as host files have it."""
        return f'{{ median = "{self.median} ns", p99 = "{self.p99} ns", max = "{self.max} ns" }}'


@dataclass(frozen=True)
class Costs:
    """What a policy costs."""

    schedule: Quantiles
    """The cost of a decision."""
    context_switch: Quantiles
    """The cost of a switch, on top."""


@dataclass(frozen=True)
class Calibration:
    """What scheduling costs on the lab's machine."""

    costs: tuple[Costs, ...]
    """In the order of MEASURED."""

    def of(self, policy: str) -> Costs:
        """What a policy costs; of one that was not measured, what it shares its code with."""
        return self.costs[MEASURED.index(TAKES_FROM.get(policy, policy))]

    def profile(self) -> str:
        """The profile's text."""
        tables = (
            f"\n[{policy}]\nschedule = {self.of(policy).schedule}\n"
            f"context-switch = {self.of(policy).context_switch}\n"
            for policy in POLICIES
        )
        return HEADER + "".join(tables)

    def save(self, checkout: Path) -> Path:
        """Writes the profile into a checkout of the project, and returns where."""
        path = checkout / FILE
        path.write_text(self.profile(), "utf-8")
        return path
