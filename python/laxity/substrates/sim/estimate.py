"""What runs will take, told before they run; and what is more than this machine has."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity._core import TIME_NS_MAX
from laxity.errors import InputError

if TYPE_CHECKING:
    from laxity.workers.workers import Workers

MEMORY = Path("/proc/meminfo")
SAID_NS = 10_000_000_000
"""What takes less long is not announced."""


@dataclass(frozen=True)
class Resources:
    """CPUs, memory and disk that runs may use."""

    cpus: int
    memory_bytes: int
    disk_bytes: int | None
    """Where the trace is written; None without a trace."""

    @classmethod
    def free(cls, trace: Path | None = None, workers: Workers | None = None) -> Resources:
        """Returns what nobody uses of this machine's resources, or those of workers."""
        _, _, available = MEMORY.read_bytes().partition(b"MemAvailable:")
        # A directory that is not there is refused where the trace is opened.
        disk = None
        if trace is not None and trace.parent.is_dir():
            disk = shutil.disk_usage(trace.parent).free
        cpus, memory_bytes = (
            len(os.sched_getaffinity(0)),
            1024 * int(available.split(maxsplit=1)[0]),
        )
        if workers is not None:
            cpus, memory_bytes = workers.count, workers.memory_bytes or memory_bytes
        return cls(cpus, memory_bytes, disk)


@dataclass(frozen=True)
class Estimate:
    """What one run takes, or several (crates/laxity-sim)."""

    runs: int
    tasks: int
    """The tasks of the run that has most."""
    jobs: int
    """The jobs of all runs."""
    packets: int
    """The packets of voice of all runs."""
    events: int
    """The events of all runs."""
    cpu_ns: int
    """The time on one CPU that all runs take."""
    memory_bytes: int
    """The memory of the run that needs most."""
    trace_bytes: int
    """The size of the largest trace of a run."""

    def time_ns(self, resources: Resources) -> int:
        """How long they take, as many at a time as there are CPUs."""
        return self.cpu_ns // max(1, min(resources.cpus, self.runs))

    def say(self, resources: Resources) -> str:
        """One line for people, before it begins."""
        work = [
            f"{count:,} {what}"
            for count, what in (
                (self.runs if self.runs > 1 else 0, "runs"),
                (self.jobs, "jobs"),
                (self.packets, "packets of voice"),
                (self.events, "events"),
            )
            if count
        ]
        takes = [f"{_size(self._memory_bytes(resources))} of memory"]
        if resources.disk_bytes is not None:
            takes.append(f"{_size(self.trace_bytes)} of trace")
        return f"about {_long(self.time_ns(resources))}: {', '.join(work)}; {', '.join(takes)}"

    def excess(self, resources: Resources, *, long: bool) -> InputError | None:
        """Says what they take beyond what the machine has, or, unless `long`, beyond an hour."""
        time_ns, memory_bytes = self.time_ns(resources), self._memory_bytes(resources)
        if memory_bytes > resources.memory_bytes:
            return InputError(
                f"this needs {_size(memory_bytes)} of memory, and {_size(resources.memory_bytes)} "
                f"are free ({self.say(resources)})",
                f"describe fewer tasks and VCPUs: there are {self.tasks:,} tasks",
            )
        if resources.disk_bytes is not None and self.trace_bytes > resources.disk_bytes:
            return InputError(
                f"the trace would have {_size(self.trace_bytes)}, and "
                f"{_size(resources.disk_bytes)} of the disk are free ({self.say(resources)})",
                "add --no-trace, or take a shorter --duration",
            )
        if time_ns > TIME_NS_MAX and not long:
            return InputError(
                f"this takes {self.say(resources)}",
                f"take {_share(TIME_NS_MAX / time_ns)} of the duration, fewer tasks or fewer runs; "
                "or add --long, if that is meant",
            )
        return None

    def _memory_bytes(self, resources: Resources) -> int:
        return self.memory_bytes * max(1, min(resources.cpus, self.runs))


def _long(ns: int) -> str:
    seconds = ns / 1e9
    for unit, unit_s in (("years", 31_557_600), ("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:,.0f} {unit}"
    return f"{seconds:,.0f} s"


def _size(count: int) -> str:
    for unit, unit_bytes in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if count >= unit_bytes:
            return f"{count / unit_bytes:,.0f} {unit}"
    return f"{count / 1e3:,.0f} kB"


def _share(ratio: float) -> str:
    return f"a {1 / ratio:,.0f}th" if ratio < 0.1 else f"{100 * ratio:.0f} %"  # noqa: PLR2004
