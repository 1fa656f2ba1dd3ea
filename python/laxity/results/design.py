"""The result of `laxity design`: a host file that holds, or demands that cannot hold together."""

from __future__ import annotations

from dataclasses import dataclass

from laxity.results.records import encoded


@dataclass(frozen=True)
class DomainDesign:
    """The values of a domain."""

    name: str
    budget_ns: int
    """The budget of each of its VCPUs."""
    period_ns: int
    priority: int
    share: float
    """The part of one CPU that its budgets are."""
    load: float
    """The part of one CPU that its tasks need."""


@dataclass(frozen=True)
class Binding:
    """Why a domain's budget is not less."""

    domain: str
    too_little_ns: int
    """The budget that would not be enough."""
    task: str
    """The first task whose deadline would not be guaranteed with it."""
    deadline_ns: int
    limits: tuple[str, ...]
    """`deadline`, `cost`: each, if relaxed by a twentieth, lets the budget be less."""


@dataclass(frozen=True)
class Room:
    """How much a task may still grow by itself, with the budgets as they are."""

    domain: str
    task: str
    cost_ns: int
    most_ns: int


@dataclass(frozen=True)
class Alternative:
    """What another choice would have cost."""

    choice: str
    """A policy, or `any-phase`: a guarantee for whatever offsets the tasks have."""
    cpu_share: float | None
    """The part of all CPUs' time that its budgets would be; None if nothing was found."""


@dataclass(frozen=True)
class Point:
    """What so much room to grow costs: no other point has more of it for as much CPU time."""

    room_factor: float
    """The factor by which every cost may be greater."""
    cpu_share: float
    """The part of all CPUs' time that budgets reserve then."""


@dataclass(frozen=True)
class Demand:
    """A deadline that cannot hold together with others."""

    domain: str
    task: str
    cost_ns: int
    period_ns: int
    deadline_ns: int


@dataclass(frozen=True)
class Relief:
    """A lower cost of one task with which every deadline can be guaranteed."""

    domain: str
    task: str
    cost_ns: int
    part: float
    """The part of its cost that the task gives up."""
    policy: str
    """The policy under which that is enough."""


@dataclass(frozen=True)
class Remedy:
    """A change to a host with calls, and the streams that it carries."""

    what: str
    streams: int
    """In short runs, loss and delay within the limits; of the change that was chosen, as checked
    with other seeds."""


@dataclass(frozen=True)
class Choice:
    """Values for what is open under a policy that goes by weights, and the room that they leave."""

    what: str
    room_factor: float
    """The factor by which every cost may be greater: in short runs; of what was chosen, as checked
    with other seeds and phases."""


@dataclass(frozen=True)
class Simulated:
    """The simulation that the result was checked by, with other seeds and phases."""

    seeds: tuple[int, ...]
    duration_ns: int
    """The duration of each run."""
    jobs: int
    missed: int
    miss_ratio_max: float
    """The greatest part of one task's jobs that missed their deadlines in one run."""


@dataclass(frozen=True, repr=False)
class Design:
    """What was found. `to_json()` is the object that `laxity design --json` prints."""

    verdict: str
    """`holds`; `impossible`; or `unknown`: nothing was found that holds, of the CPUs that domains
    may have or within a limit of misses, and it is not proved that there is nothing."""
    policy: str
    """`?` if it is open and nothing was found under any."""
    host: str | None
    """The host file with all values; None if nothing holds."""
    cpu_share: float | None
    """The part of all CPUs' time that is reserved as budgets."""
    load: float
    """The part of all CPUs' time that the tasks need; what demands in conflict need, in CPUs."""
    guaranteed: int
    """The tasks whose deadlines are guaranteed by analysis."""
    reasons: tuple[str, ...]
    domains: tuple[DomainDesign, ...] = ()
    bindings: tuple[Binding, ...] = ()
    rooms: tuple[Room, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    room_factor: float | None = None
    """The factor by which every cost may be greater, where room was asked for, or is the aim."""
    front: tuple[Point, ...] = ()
    """What room costs, from none to the most."""
    missed_max: float | None = None
    """The part of each task's jobs that may miss in each simulated run; None if all deadlines are
    guaranteed."""
    simulated: Simulated | None = None
    policies: tuple[str, ...] = ()
    """The policies under each of which nothing was found."""
    conflict: tuple[Demand, ...] = ()
    """Demands that cannot hold together, under any of these policies and on any CPUs that their
    domains may have."""
    given: tuple[str, ...] = ()
    """Domains whose budgets, which the file gives, are part of the conflict."""
    is_minimal: bool | None = None
    """Whether the others are known to hold without any one of them; None without a conflict."""
    reliefs: tuple[Relief, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    """What was tried for a host with calls, the best first."""
    choices: tuple[Choice, ...] = ()
    """What was tried under a policy that goes by weights, the best first."""

    @property
    def holds(self) -> bool:
        """Whether there is a host file that holds."""
        return self.verdict == "holds"

    def to_json(self) -> dict[str, object]:
        """Returns the object as the command line prints it."""
        return encoded(self)

    def __repr__(self) -> str:
        """One line: the verdict, the budgets."""
        share = "" if self.cpu_share is None else f", {100 * self.cpu_share:.1f} % reserved"
        return f"<laxity.Design {self.policy}: {self.verdict}{share}>"
