"""What is observed of a host, as JSON.

Written by tools/build/python_types.py. Do not edit.
"""

from __future__ import annotations

from typing import Literal, TypedDict


class Costs(TypedDict):
    """What a decision costs on average, ns."""

    schedule_ns: int
    """A decision that leaves who runs."""
    context_switch_ns: int
    """What a decision costs more that changes who runs."""
    measured: int
    """The number of decisions with a cost; 0 if the trace has no costs."""


class Task(TypedDict):
    """A periodic task."""

    offset_ns: int
    """The first arrival, ns from the start of the trace, to as many digits as wakes are exact;
    below the period."""
    period_ns: int
    """Between arrivals, to as many digits as wakes tell."""
    cost_ns: int
    """The CPU time of a job, by least squares over all busy periods."""
    alone_ns: list[int] | None
    """The least and the most that a job took which was alone in its busy period, without the wake;
    none where none was."""
    arrivals: int
    """Arrivals within the trace."""
    wakes: int
    """Those of them that woke the VCPU."""
    jitter_ns: int
    """How far a wake was from its arrival at most."""


class Recognized(TypedDict):
    """The tasks of a VCPU, and how well they explain it."""

    tasks: list[Task]
    """From the shortest period to the longest."""
    explained: float
    """The part of the wakes that are arrivals."""
    rest: float
    """The part of the work that differs from what the tasks and `wake_ns` say."""
    own: float
    """The part of the work that is done in busy periods without a job: a kernel's own."""
    wake_ns: int
    """What the guest's kernel takes each time that the VCPU wakes, beside what a job takes; 0 where
    the busy periods do not tell it, so that it is part of the costs."""
    tick_offset_ns: int | None
    """The first tick of the guest's kernel, where its ticks are known and it wakes for them."""


class NothingLoad(TypedDict):
    """It never ran."""

    kind: Literal["nothing"]


class EndlessLoad(TypedDict):
    """It never slept: it takes what it gets."""

    kind: Literal["endless"]


class TasksLoad(Recognized):
    """Periodic tasks."""

    kind: Literal["tasks"]


class BurstsLoad(TypedDict):
    """It works and sleeps without a period that could be found."""

    kind: Literal["bursts"]

    run_ns: int
    """The mean work of a busy period, ns."""
    idle_ns: int
    """The mean time from one busy period to the next, ns."""


Load = NothingLoad | EndlessLoad | TasksLoad | BurstsLoad
"""What a VCPU does."""


class Vcpu(TypedDict):
    """What is known of a VCPU."""

    load: Load
    """What it does."""
    work_ns: int
    """The time that it ran, decisions not counted."""
    cpus: list[int]
    """The CPUs on which it ran."""


class Domain(TypedDict):
    """What is known of a domain."""

    name: str
    """Its name in the trace."""
    vcpus: list[Vcpu]
    """By their numbers."""


class Observation(TypedDict):
    """What a trace tells of a host."""

    duration_ns: int
    """How long the trace is."""
    costs: Costs
    """What decisions cost."""
    domains: list[Domain]
    """In the order of the trace."""


class Thread(TypedDict):
    """A thread that a recording has."""

    thread: int
    """Its number on the host."""
    name: str
    """Its name, as the kernel cuts it: 15 bytes."""
    priority: int
    """Its priority in the kernel: below 0 under `SCHED_DEADLINE`, 0 to 98 under `SCHED_FIFO` and
    `SCHED_RR`, where 0 is the highest, and from 100 on in the fair class."""


Packets = Literal["none", "cards", "cards-and-sockets"]
"""What of packets a recording tells."""


class Survey(TypedDict):
    """What a recording is of."""

    cpus: int
    """One more than the highest number of a CPU."""
    from_ns: int
    """The times of the first and of the last event, by the clock of the recording."""
    to_ns: int
    """The end."""
    threads: list[Thread]
    """The threads that ran, by number."""
    packets: Packets
    """What it tells of packets."""
