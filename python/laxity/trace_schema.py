"""What traces say, and what is made of them and measured beside them, as JSON.

Written by tools/build/python_types.py. Do not edit.
"""

# ruff: noqa: D209

from __future__ import annotations

from typing import NotRequired, TypedDict


class TaskMetadata(TypedDict):
    """A task of a domain."""

    name: str
    """Name in the host file."""
    vcpu: int
    """The VCPU that it runs on."""
    cost_ns: int
    """CPU time of every job."""
    period_ns: int
    """Between arrivals."""
    deadline_ns: int
    """Relative to the arrival."""
    offset_ns: int
    """Arrival of the first job."""


class DomainMetadata(TypedDict):
    """A domain of the run."""

    name: str
    """Name in the host file; in parentheses that of a program which ran beside it."""
    vcpus: int
    """Number of VCPUs."""
    budget_ns: int
    """Budget of each VCPU; 0 where there is none."""
    period_ns: int
    """Period of the budget; 0 where there is none."""
    real_time: NotRequired[bool]
    """Whether its VCPUs run before all those that are not real-time."""
    tasks: list[TaskMetadata]
    """In the order of the host file."""


class CallsMetadata(TypedDict):
    """The calls of the run."""

    delay_ns: int
    """A packet of voice that takes longer is late."""
    answer_waits_ns: NotRequired[list[int]]
    """How long a phone waits for the answer to each copy of a registration's message; none where
    nobody registers."""
    not_seen: NotRequired[list[str]]
    """What of the calls the trace does not tell, as sentences without their full stops."""


class Metadata(TypedDict):
    """The run that a trace is of; JSON at the beginning of the file."""

    substrate: str
    """`sim`, `xen` or `linux`."""
    policy: str
    """The policy's name in host files."""
    seed: int
    """Where the run's randomness came from."""
    duration_ns: int
    """How long the run lasts."""
    cpus: int
    """Number of physical CPUs."""
    domains: list[DomainMetadata]
    """In the order of the host file."""
    calls: NotRequired[CallsMetadata]
    """The calls; a trace with them tells of late and lost packets."""
    programs_in: NotRequired[int]
    """The domain in which the programs beside the domains run, by its place: their CPUs are its
    VCPUs, which records number behind the physical ones. Where it is not there, these programs run
    on the physical CPUs."""


class Occupancy(TypedDict):
    """A VCPU ran on a CPU."""

    cpu: int
    """The physical CPU."""
    domain: int
    """The VCPU's domain."""
    vcpu: int
    """The VCPU."""
    start_ns: int
    """From here."""
    end_ns: int
    """To here; later than the start."""
    ran_ns: int
    """The part of that time: all, but for what [`Timeline::coarser`] put together."""


class Budget(TypedDict):
    """The budget (credit: the credits) of a VCPU."""

    domain: int
    """The VCPU's domain."""
    vcpu: int
    """The VCPU."""
    points: list[list[int]]
    """Time and value in ns, from the window's beginning to its end. Straight lines between the
    points are the budget; two points at one time are a step."""


class JobPoint(TypedDict):
    """Something about a job."""

    time_ns: int
    """When."""
    domain: int
    """The task's domain."""
    task: int
    """The task."""
    job: int
    """The job's number, from 0."""
    count: int
    """How many there are: one, but for what [`Timeline::coarser`] put together."""


class Timeline(TypedDict):
    """What happened within a window. Domains, VCPUs and tasks are their places in the metadata."""

    from_ns: int
    """Where the window begins."""
    to_ns: int
    """Where it ends."""
    occupancy: list[Occupancy]
    """The runs of VCPUs, in the order of their ends. Cut off at the window's ends."""
    budgets: list[Budget]
    """One for each VCPU, in the order of the metadata."""
    releases: list[JobPoint]
    """Jobs that arrived."""
    completions: list[JobPoint]
    """Jobs that ended."""
    misses: list[JobPoint]
    """Jobs that were not complete at their deadline, at their deadline."""


class Quantiles(TypedDict):
    """Quantiles of absolute differences, by nearest rank; null where there are none."""

    count: int
    """How many there are."""
    p50: int | None
    """Median."""
    p90: int | None
    """90 % are at most this."""
    p99: int | None
    """99 % are at most this."""
    max: int | None
    """The greatest."""


class TaskAgreement(TypedDict):
    """A task in both traces."""

    name: str
    """Name in the host file."""
    jobs: int
    """Jobs that arrived in either trace, with their deadline within the run."""
    missed_a: int
    """Those that had not completed at their deadline in the first trace."""
    missed_b: int
    """Those that had not in the second."""
    missed_only_a: int
    """Those that had not in the first, and had in the second."""
    missed_only_b: int
    """Those that had not in the second, and had in the first."""
    completion_difference_ns: Quantiles
    """Between the completions of jobs that completed in both within the run."""


class DomainAgreement(TypedDict):
    """A domain in both traces."""

    name: str
    """Name in the host file."""
    cpu_ns_a: int
    """CPU time in the first trace."""
    cpu_ns_b: int
    """CPU time in the second trace."""
    tasks: list[TaskAgreement]
    """In the order of the metadata."""


class Disagreement(TypedDict):
    """A stretch of time in which a CPU runs one VCPU in one trace, and another in the other."""

    start_ns: int
    """From here."""
    length_ns: int
    """For so long."""
    cpu: int
    """The CPU."""
    a: str | None
    """`domain/vcpu` in the first trace; null if nobody runs."""
    b: str | None
    """The same in the second."""


class Agreement(TypedDict):
    """How far two traces of one host are apart."""

    same_ratio: float
    """The share of time, over all CPUs, in which a CPU runs the same VCPU in both, or nobody in
    both."""
    best_ratio: float
    """The greatest such share if all times of the second trace are shifted by one amount, at most
    [`SHIFT_NS_MAX`] and half of the run; of the time that both have then."""
    best_shift_ns: int
    """That amount, to be added to the second trace's times; the smallest if there are several."""
    domains: list[DomainAgreement]
    """In the order of the metadata."""
    completion_difference_ns: Quantiles
    """Between the completions of jobs that completed in both within the run."""
    disagreements: int
    """How many stretches of time there are in which a CPU runs other VCPUs in the two, each the
    same from its beginning to its end."""
    longest: list[Disagreement]
    """The longest of these, the longest first; equal ones in order of time, then CPU. Not shifted.
    """


class Causes(TypedDict):
    """What the needed decisions are for: each is counted once, by the first that is true of its
    group's first decision that is true of any."""

    completions: int
    """The VCPU that ran blocked: its last job was complete."""
    exhaustions: int
    """The VCPU that ran used up its budget."""
    releases: int
    """The VCPU that was chosen woke since the CPU's decision before: a job was released."""
    replenishments: int
    """The VCPU that was chosen was replenished since then."""
    others: int
    """The end of a turn, another CPU's queue, a foreign VCPU on real Xen, and whatever else changes
    who runs."""


class Needs(TypedDict):
    """What was decided, and what needed to be. The schedule is taken as it is: which VCPU runs on
    which CPU, when VCPUs block and when they use up their budget. The least that any scheduler
    would have done for it is counted like this, for each CPU: - The decisions within [`MERGE_NS`]
    of a first one, that one included, are a *group*: they could have been one decision. - A group
    needs a *context switch* if who runs after it is not who ran before it (nobody counts as one who
    runs). What comes and goes within a group needs none. - A group needs a *decision* if it needs a
    context switch, or if the VCPU that ran had blocked or had used up its budget since the decision
    before: then it had to be asked whether it goes on. - Nothing else does: decisions that let the
    running VCPU go on without such a reason, as ticks, quanta and wakes that do not preempt bring
    them about, are excess. A decision is a `Schedule` record; who runs after it is whom it names.
    """

    decisions: int
    """Decisions that were made."""
    needed_decisions: int
    """Decisions that the schedule needs."""
    excess_decisions_ratio: float | None
    """`decisions` / `needed_decisions` - 1; null if none are needed."""
    switches: int
    """Decisions that changed who runs on their CPU."""
    needed_switches: int
    """Context switches that the schedule needs."""
    excess_switches_ratio: float | None
    """`switches` / `needed_switches` - 1; null if none are needed."""
    causes: Causes
    """What the needed decisions are for."""


class Summary(TypedDict):
    """What the buffers say of the run, from its start to its end."""

    decisions: int
    """Decisions on the host's CPUs."""
    switches: int
    """Those of them that changed who runs."""
    foreign_decisions: int
    """Those of `decisions` that concern foreign VCPUs and none of the host's: not in the trace."""
    foreign_switches: int
    """Those of them that changed who runs."""
    foreign_ns: int
    """Time in which the host's CPUs ran foreign VCPUs."""
    idle_ns: int
    """Time in which they ran nobody."""
    cpu_ns: list[list[int]]
    """CPU time of each VCPU, by domain."""
    deadlines_ns: list[list[int | None]]
    """A deadline of each VCPU by domain, from the start of the run, where the scheduler names
    deadlines."""
    credits_ns: list[list[int | None]]
    """Credits of each VCPU by domain, at the start of the run, where the scheduler tells of
    credits."""
    decision_ns: list[int]
    """What each measured decision cost, in order of time; foreign ones, too."""
    switch_ns: list[int]
    """What each measured context switch cost, in order of time; foreign ones, too."""
    timer_ns: int
    """What the scheduler cost in timers and wakes, all in all."""
    timers: int
    """How many timers and wakes these were."""


class Measured(TypedDict):
    """What was measured of a run, beside its jobs."""

    cpu_ns: list[int]
    """CPU time of each domain, in the order of the host file."""
    schedule_calls: int | None
    """[`Overhead::schedule_calls`]; null if not measured."""
    context_switches: int | None
    """[`Overhead::context_switches`]; null if not measured."""
    schedule_ns: int | None
    """[`Overhead::schedule_ns`]; null if not measured."""
    context_switch_ns: int | None
    """[`Overhead::context_switch_ns`]; null if not measured."""
    events: int
    """[`Engine::events`]."""
    wall_ns: int
    """[`Engine::wall_ns`]."""
