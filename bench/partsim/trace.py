"""Jobs, from what PARTSim writes: its text trace, and the lines of our program beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NUMBER = r"\d{1,18}"  # below 2^63, so that PARTSim can have counted up to it
_LINE = re.compile(rf"\[Time:({NUMBER})\]\t(.+)")
_ARRIVED = re.compile(rf"(\S+) arrived at ({NUMBER})")
_ENDED = re.compile(rf"(\S+) ended, its arrival was ({NUMBER}), its period was {NUMBER}, .+")
_MISSED = re.compile(rf"(\S+) missed its arrival was ({NUMBER})")
_STOPPED = re.compile(rf"(\S+) descheduled its arrival was {NUMBER}")
_STARTED = re.compile(rf"(\S+) scheduled on CPU .+ its arrival was {NUMBER}")
_OF_NO_INTEREST = re.compile(
    r"\w+\(.*\) ended for Task \S+"
    r"|Server\w+ for \S+"
)
_JOB = re.compile(rf"(\S+) ({NUMBER}) ({NUMBER})")
_CPU = re.compile(rf"cpu_ns ({NUMBER})")


class TraceError(ValueError):
    """What was read is not what PARTSim writes of tasks whose jobs all run to their end."""


@dataclass
class Job:
    """One job of a task; times in ticks of PARTSim."""

    arrival: int
    end: int | None = None
    """None if it had not ended when the run did."""
    said_missed: bool = False
    """PARTSim has said that the job missed its deadline."""


@dataclass
class Trace:
    """What the text trace of one CPU says."""

    jobs: dict[str, list[Job]] = field(default_factory=dict)
    """Each task's, in the order in which they arrived."""
    together: int = 0
    """How often a task was scheduled while another was on the CPU."""


def parsed(trace: bytes) -> Trace:
    """Reads PARTSim's text trace.

    The jobs of a task end in the order in which they arrived. All that PARTSim would not write is
    a TraceError, with the line: a line of another form or a part of one, time that runs backwards,
    a job that ends without having arrived, or another than the first that has not ended.
    """
    reader = _Reader()
    for number, text in enumerate(_lines(trace), 1):
        try:
            reader.read(text)
        except TraceError as error:
            raise TraceError(f"line {number}: {error}") from None
    return reader.trace


class _Reader:
    """Takes the lines one by one."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._now = 0
        self._ended: dict[str, int] = {}
        """How many jobs of a task have."""
        self._running: set[str] = set()

    def read(self, text: str) -> None:
        """A line; TraceError if it cannot follow the others."""
        line = _LINE.fullmatch(text)
        if line is None:
            raise TraceError(f"no time: {text[:80]!r}")
        time, what = int(line[1]), line[2]
        if time < self._now:
            raise TraceError(f"{time} comes after {self._now}")
        self._now = time
        if match := _ARRIVED.fullmatch(what):
            if int(match[2]) > time:
                raise TraceError("an arrival that is still to come")
            # The number is the arrival of the job that the task is at, which may be an earlier one.
            self.trace.jobs.setdefault(match[1], []).append(Job(time))
        elif match := _ENDED.fullmatch(what):
            self._first(match[1], int(match[2])).end = time
            self._ended[match[1]] = self._ended.get(match[1], 0) + 1
            self._running.discard(match[1])
        elif match := _MISSED.fullmatch(what):
            self._first(match[1], int(match[2])).said_missed = True
        elif match := _STARTED.fullmatch(what):
            self.trace.together += bool(self._running - {match[1]})
            self._running.add(match[1])
        elif match := _STOPPED.fullmatch(what):
            self._running.discard(match[1])
        elif not _OF_NO_INTEREST.fullmatch(what):
            raise TraceError(f"not understood: {what[:80]!r}")

    def _first(self, task: str, arrival: int) -> Job:
        """The task's first job that has not ended, if it arrived then."""
        jobs, first = self.trace.jobs.get(task, []), self._ended.get(task, 0)
        if first == len(jobs) or jobs[first].arrival != arrival:
            raise TraceError(f"{task} has no such job to end: {arrival}")
        return jobs[first]


def driven(output: bytes) -> tuple[int, dict[str, list[Job]]]:
    """What our program says: the CPU time of the simulation, in ns, and the jobs that ended."""
    first, *rest = _lines(output) or [""]
    cpu = _CPU.fullmatch(first)
    if cpu is None:
        raise TraceError(f"line 1: no time: {first[:80]!r}")
    found: dict[str, list[Job]] = {}
    for number, text in enumerate(rest, 2):
        job = _JOB.fullmatch(text)
        if job is None or int(job[2]) > int(job[3]):
            raise TraceError(f"line {number}: no job: {text[:80]!r}")
        found.setdefault(job[1], []).append(Job(int(job[2]), int(job[3])))
    return int(cpu[1]), found


def _lines(output: bytes) -> list[str]:
    try:
        text = output.decode("ascii")
    except UnicodeDecodeError as error:
        raise TraceError(f"byte {error.start}: not ASCII") from None
    if text and not text.endswith("\n"):
        raise TraceError("the last line is not whole")
    return text.split("\n")[:-1]
