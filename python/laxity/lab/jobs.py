"""What a guest reports of a run: when each job was complete.

Pure: from the text of a guest's console to numbers. The format stands in `guest/report.h`.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from laxity.lab.errors import LabError

if TYPE_CHECKING:
    Completions = np.ndarray[tuple[int], np.dtype[np.int64]]

HEAD = "laxity-report"
END = "laxity-report-end"


@dataclass(frozen=True)
class TaskReport:
    """A task's jobs, in the order of their releases."""

    jobs: int
    """Those released before the end of the run."""
    completions_ns: Completions
    """From the start of the run; rising, and as many as were complete by the end of the run."""


@dataclass(frozen=True)
class TickReport:
    """When the guest's kernel ticks, if it does."""

    period_ns: int
    offset_ns: int
    """The time of the first tick from the start of the run; it is less than the period."""


@dataclass(frozen=True)
class VcpuReport:
    """CPU time of a VCPU's threads as its guest counts it: with what other domains took meanwhile.

    What is more than the cost of the jobs of a guest that is alone is the guest's own overhead.
    """

    tasks_ns: int
    cpu_bound_ns: int


@dataclass(frozen=True)
class GuestReport:
    """A guest's run."""

    run: str
    duration_ns: int
    iterations_per_ms: int
    """How fast the guest found its CPU: iterations of its loop."""
    job_ns: int
    """What a job without work takes, which is part of a job's cost."""
    tick: TickReport | None
    """None for a guest without a kernel."""
    notes: tuple[str, ...]
    """What was not as it should be, for people."""
    tasks: tuple[TaskReport, ...]
    """In the order in which the guest was given them."""
    vcpus: tuple[VcpuReport, ...]


def parse(text: str, run: str) -> GuestReport:
    """Finds the report of a run in the text of a guest's console, whatever else stands there.

    Raises LabError if there is no such report, or more than one, or if it is cut off or was changed
    on its way (another program wrote between, a line was lost): never returns part of one.
    """
    lines = [line.rstrip("\r") for line in text.split("\n")]
    begins = [index for index, line in enumerate(lines) if line.split(" ")[:2] == [HEAD, run]]
    if not begins:
        raise LabError(
            f"the guest's console has no report of run {run!r}",
            "look at the console's end for why the guest did not come so far",
        )
    if len(begins) > 1:
        raise LabError(
            f"the guest's console has {len(begins)} reports of run {run!r}",
            "give every run of a guest its own name",
        )
    begin = begins[0]
    try:
        end = lines.index(f"{END} {run}", begin)
    except ValueError:
        raise LabError(
            f"the report of run {run!r} is cut off after {len(lines) - begin} lines: "
            f"there is no line {END!r}",
            "wait for the guest to say that it is done before its console is read",
        ) from None
    body, crc_line = lines[begin : end - 1], lines[end - 1]
    crc = zlib.crc32("".join(line + "\n" for line in body).encode("utf-8", "surrogateescape"))
    if crc_line != f"laxity-crc {crc:08x}":
        raise LabError(
            f"the report of run {run!r} was changed on its way: its last line is {crc_line!r} and "
            f"must be 'laxity-crc {crc:08x}'",
            "look into the console for what was written between its lines",
        )
    return _Lines(body, run).report()


class _Lines:
    """The lines of a report, from the first on; what they say has arrived as it was written."""

    def __init__(self, lines: list[str], run: str) -> None:
        self._lines = lines
        self._run = run
        self._next = 0

    def report(self) -> GuestReport:
        duration_ns, tasks, vcpus = self._take(f"{HEAD} {self._run}", 3)
        iterations_per_ms, job_ns = self._take("laxity-speed", 2)
        tick = None
        if self._peek().startswith("laxity-tick "):
            tick = TickReport(*self._take("laxity-tick", 2))
            if not 0 <= tick.offset_ns < tick.period_ns:
                raise self._contradiction("its ticks")
        notes = []
        while self._peek().startswith("laxity-note "):
            notes.append(self._peek().removeprefix("laxity-note "))
            self._next += 1
        report = GuestReport(
            self._run,
            duration_ns,
            iterations_per_ms,
            job_ns,
            tick,
            tuple(notes),
            tuple(self._task(number, duration_ns) for number in range(tasks)),
            tuple(self._vcpu(number) for number in range(vcpus)),
        )
        if self._next != len(self._lines):
            raise self._wrong("the line with the CRC")
        return report

    def _task(self, number: int, duration_ns: int) -> TaskReport:
        which, jobs, completed = self._take("laxity-task", 3)
        gaps: list[int] = []
        while len(gaps) < completed:
            line = self._peek()
            try:
                gaps += map(int, line.split(" "))
            except ValueError:
                raise self._wrong(f"times of task {number}") from None
            self._next += 1
        completions_ns = np.cumsum(np.array(gaps, dtype=np.int64))
        is_sound = (
            which == number
            and len(gaps) == completed <= jobs
            and all(gap > 0 for gap in gaps)
            and (not gaps or int(completions_ns[-1]) <= duration_ns)
        )
        if not is_sound:
            raise self._contradiction(f"task {number}")
        return TaskReport(jobs, completions_ns)

    def _vcpu(self, number: int) -> VcpuReport:
        which, tasks_ns, cpu_bound_ns = self._take("laxity-vcpu", 3)
        if which != number:
            raise self._wrong(f"VCPU {number}")
        return VcpuReport(tasks_ns, cpu_bound_ns)

    def _peek(self) -> str:
        return self._lines[self._next] if self._next < len(self._lines) else "laxity-crc"

    def _take(self, key: str, count: int) -> list[int]:
        """The numbers of the next line, which must be `count` after `key`."""
        line = self._peek()
        try:
            numbers = [int(word) for word in line.removeprefix(f"{key} ").split(" ")]
        except ValueError:
            raise self._wrong(key) from None
        if len(numbers) != count:
            raise self._wrong(key)
        self._next += 1
        return numbers

    def _contradiction(self, where: str) -> LabError:
        return LabError(
            f"the report of run {self._run!r} contradicts itself in {where}",
            "build the guest's program and this from one source: `make -C xen/programs`",
        )

    def _wrong(self, expected: str) -> LabError:
        return LabError(
            f"the report of run {self._run!r} has {self._peek()!r} where {expected} is expected",
            "build the guest's program and this from one source: `make -C xen/programs`",
        )
