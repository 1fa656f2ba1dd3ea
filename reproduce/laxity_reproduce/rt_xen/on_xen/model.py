"""What the simulator takes for the costs of the lab's machine: read, fitted, written."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from laxity_reproduce.rt_xen.setup import POLICIES
from laxity_reproduce.rt_xen.written import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from laxity.host import Host

    from laxity_reproduce.rt_xen.on_xen.window import Window

FILE = "calibrated.toml"
"""Beside this module."""

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

JOB_HEADER = """
# What a guest takes on top of the cost of its jobs and of its kernel's ticks. For each job (its
# wake, the guest's switches between tasks, the hypervisor's interrupts): what domains ran longer on
# Xen than in the simulator with these costs, by the number of their jobs.
"""

TICK_HEADER = """
# What a tick of a guest's kernel costs: the median of what idle guests took that woke for one.
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

    @classmethod
    def parse(cls, table: Mapping[str, str]) -> Quantiles:
        """From a table as `str` writes it."""
        values = (table[key].removesuffix(" ns") for key in ("median", "p99", "max"))
        return cls(*map(int, values))


@dataclass(frozen=True)
class Costs:
    """What a policy costs."""

    schedule: Quantiles
    """The cost of a decision."""
    context_switch: Quantiles
    """The cost of a switch, on top."""
    job_ns: int
    """The overhead of a job, on top of its cost and outside of both."""
    tick_ns: int
    """The cost of a tick of a guest's kernel."""

    def __str__(self) -> str:
        """The value of `host.costs`."""
        return f"{{ schedule = {self.schedule}, context-switch = {self.context_switch} }}"


@dataclass(frozen=True)
class Calibration:
    """What things cost on the lab's machine."""

    costs: tuple[Costs, ...]
    """In the order of MEASURED."""

    def of(self, policy: str) -> Costs:
        """What a policy costs; of one that was not measured, what it shares its code with."""
        return self.costs[MEASURED.index(TAKES_FROM.get(policy, policy))]

    def host(self, window: Window, ticks: Sequence[Mapping[str, int]]) -> Host:
        """A window's host as the simulator takes it: complete, with these costs.

        `ticks` are those that the guests of the domains reported, with `period_ns` and `offset_ns`.
        """
        resolved = window.host.resolved(window.overrides)
        costs = self.of(resolved["policy"])
        of_kernels = [
            {
                "period_ns": tick["period_ns"],
                "cost_ns": costs.tick_ns,
                "offset_ns": tick["offset_ns"],
            }
            if costs.tick_ns > 0
            else None
            for tick in ticks
        ]
        return written(
            resolved,
            f"{window.name}.toml",
            str(costs),
            lambda task: task["cost_ns"] + costs.job_ns,
            of_kernels,
        )

    def longer(self, by_ns: int) -> Calibration:
        """The same, but that each job takes so much longer (less than 0: shorter)."""
        return Calibration(
            tuple(replace(costs, job_ns=costs.job_ns + by_ns) for costs in self.costs)
        )

    @classmethod
    def free(cls) -> Calibration:
        """The one in which nothing costs anything."""
        nothing = Quantiles(0, 0, 0)
        return cls((Costs(nothing, nothing, 0, 0),) * len(MEASURED))

    @classmethod
    def shipped(cls) -> Calibration | None:
        """The one of FILE, if it is there."""
        path = files(__package__).joinpath(FILE)
        if not path.is_file():
            return None
        return cls.parse(path.read_text("utf-8"))

    @classmethod
    def parse(cls, text: str) -> Calibration:
        """From what `text` returns."""
        content = tomllib.loads(text)
        costs = (
            Costs(
                Quantiles.parse(content[policy]["schedule"]),
                Quantiles.parse(content[policy]["context-switch"]),
                *(int(content[what][policy].removesuffix(" ns")) for what in ("job", "tick")),
            )
            for policy in MEASURED
        )
        return cls(tuple(costs))

    def profile(self) -> str:
        """The same costs as a profile of crates/laxity-host/profiles, without the guest's."""
        tables = (
            f"\n[{policy}]\nschedule = {self.of(policy).schedule}\n"
            f"context-switch = {self.of(policy).context_switch}\n"
            for policy in POLICIES
        )
        return HEADER + "".join(tables)

    def text(self) -> str:
        """All of it, for FILE."""
        jobs = (f'{policy} = "{self.of(policy).job_ns} ns"\n' for policy in POLICIES)
        ticks = (f'{policy} = "{self.of(policy).tick_ns} ns"\n' for policy in POLICIES)
        of_guests = f"{JOB_HEADER}[job]\n{''.join(jobs)}{TICK_HEADER}[tick]\n{''.join(ticks)}"
        return self.profile() + of_guests

    def save(self, checkout: Path) -> list[Path]:
        """Writes all files into a checkout of the project."""
        contents = {
            checkout / "reproduce/laxity_reproduce/rt_xen/on_xen" / FILE: self.text(),
            checkout / "crates/laxity-host/profiles/xen-lab.toml": self.profile(),
        }
        for path, content in contents.items():
            path.write_text(content, "utf-8")
        return list(contents)
