"""Why jobs and packets were late, and domains out, from a trace; what helps, from runs."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from laxity import _core, tracefile
from laxity.errors import HostError, InputError, core_errors
from laxity.policies import BY_WEIGHT, PARAMETERS, TABLE
from laxity.resolved import ending
from laxity.results.records import decoded, encoded
from laxity.results.streams import LOST, PACKET_NS
from laxity.text import EXACT, time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from laxity.host import Host
    from laxity.resolved_schema import Domain, Parameters, ResolvedHost
    from laxity.results.streams import KeptStream
    from laxity.trace_schema import Metadata

Kind = Literal[
    "own-work",
    "released-late",
    "earlier-job",
    "task",
    "overhead",
    "exit",
    "budget",
    "cap",
    "cpu",
    "switch",
    "idle",
    "blocked",
    "queue",
    "coalesced",
    "pause",
    "held",
    "rate",
    "link",
    "failure",
    "silence",
    "activation",
]
What = Literal["outage", "job", "packet", "message"]
LATE_KINDS: tuple[What, ...] = get_args(What)
Place = Literal[
    "wire-in", "card", "to-guest", "socket", "from-guest", "rate", "held", "released", "wire-out"
]
Exit = Literal[
    "other",
    "interrupt",
    "timer",
    "halt",
    "register",
    "controller",
    "window",
    "port",
    "memory",
    "hypercall",
    "pause",
]
"""Why a guest was left."""
Rule = Literal["order", "back-to-back", "boost", "credits", "turn"] | Exit

BUDGET_RUNS = 10
"""Runs that look for the smallest budget with which a job is in time."""

PRIORITIES = {"priority": -1, "rt-priority": 1}
"""Parameters that are priorities, and the step from one to the next higher."""

CPUS_TRIED_MAX = 8
"""Other CPUs that are tried for a domain."""

WAY_ENDS: dict[What, int] = {
    "packet": tracefile.number_of("packet"),
    "message": tracefile.number_of("message"),
}
"""The numbers of the records that end the way of a late or lost packet or message."""

RING_PACKETS = 1024
"""A proposed ring of a card."""

LATER_NS = 2_000_000_000
"""The time after its deadline for which a run goes on that looks for a packet of a call: what is
sent in the last second has no record, and a change may let a call be set up later."""


@dataclass(frozen=True)
class Cause:
    """A cause of a job's or packet's lateness."""

    cause: Kind
    who: str | None
    """The task (`domain/task`) or the VCPU (`domain`, or `domain/vcpu`) behind it."""
    rule: Rule | None
    """Why another VCPU had the CPU, or why the guest was left."""
    ns: int
    """Its share of the lateness."""
    delay_ns: int
    """Its part of the response."""
    at: str | None = None
    """The VCPU that was to handle the packet meanwhile; None for a job."""


@dataclass(frozen=True)
class Remedy:
    """A change of the host with which it is in time, as a run of the simulator shows."""

    set: str
    """The change, in the form that `--set` takes."""
    missed: int
    """Deadlines that the whole run misses with it; for a packet or message, late and lost ones."""


@dataclass(frozen=True)
class Late:
    """A job or a packet with the causes of its lateness."""

    what: str
    """`domain/task#job`; of a packet `domain/stream-N#number`, with the media server's domain; of a
    registration's message `domain/registration-N#number`, with the signalling server's; of an
    outage `domain/outage`."""
    kind: What
    arrival_ns: int
    deadline_ns: int
    completion_ns: int | None
    """None if it was not complete at the end of the run, or is lost."""
    late_ns: int
    """For a lost packet the time that the oldest one had waited where there was no room."""
    causes: tuple[Cause, ...]
    """From the greatest share to the smallest; their `ns` sum to `late_ns`."""
    packet: Literal["late", "lost", "unfinished"] | None = None
    """What became of a packet or message; None for others."""
    lost_at: Place | None = None
    """The place that had no room for a lost packet."""
    remedies: tuple[Remedy, ...] | None = None
    """None if none were looked for, as after a host's death, or if the simulator has it in time."""


@dataclass(frozen=True)
class Total:
    """What a cause adds up to over all late jobs of a task, or over all packets."""

    task: str
    """`domain/task`; for packets `domain/packets`, for messages of registrations
    `domain/registrations`, and `domain/outage`."""
    cause: Kind
    who: str | None
    rule: Rule | None
    ns: int
    jobs: int
    """Late jobs, or packets, of which it has a share."""
    at: str | None = None
    """The VCPU that was to handle packets meanwhile; None for jobs."""


@dataclass(frozen=True)
class Exits:
    """Exits of a VCPU's guest for one reason."""

    reason: Exit
    count: int
    """Without one that the run began with."""
    ns: int
    """The time after them that the host had the VCPU's CPU, until the guest was entered again."""


@dataclass(frozen=True)
class Guest:
    """The use of the time that a VCPU had its CPU."""

    vcpu: str
    """`domain`, or `domain/vcpu` if it has several."""
    ran_ns: int
    exits: tuple[Exits, ...]
    """From the reason with the most time to that with the least."""

    @property
    def exits_ns(self) -> int:
        """The time of `ran_ns` that the host had."""
        return sum(exits.ns for exits in self.exits)


@dataclass(frozen=True)
class Why:
    """Why jobs and packets of a run were late, and domains out."""

    jobs: int
    """Jobs whose deadline fell within the run."""
    late_jobs: int
    late_packets: int
    """Packets of voice, or all of an observed host, that arrived late, or were still on their way
    at the end of the run."""
    lost_packets: int
    late_messages: int
    """Messages of registrations whose answers came so late that the phones had sent them again or
    given up, or had not come by the end of the run."""
    lost_messages: int
    outages: int
    late_sum_ns: int
    late: tuple[Late, ...]
    totals: tuple[Total, ...]
    """From the greatest to the smallest."""
    guests: tuple[Guest, ...] = ()
    """The VCPUs whose guests the trace tells of."""
    not_seen: tuple[str, ...] = ()
    """What of the calls the trace does not tell, as sentences without their full stops."""

    def kinds(self) -> tuple[What, ...]:
        """The kinds of what was late or lost."""
        counts: dict[What, int] = {
            "outage": self.outages,
            "job": self.late_jobs,
            "packet": self.late_packets + self.lost_packets,
            "message": self.late_messages + self.lost_messages,
        }
        return tuple(kind for kind, count in counts.items() if count)

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity why --json` prints."""
        content = encoded(self)
        content["late"] = [
            {key: told for key, told in encoded(late).items() if (key, told) != ("remedies", None)}
            for late in self.late
        ]
        return content


def why(
    trace: Path, *, task: str | None = None, worst: int | None = None, every_job: bool = False
) -> Why:
    """Explains the late jobs of a trace.

    `task` (`domain/task`) restricts it to one task, `worst` to so many, those that are late by
    most, with an equal part for each kind, outages first; `every_job` explains jobs that were in
    time, too. Raises InputError for a damaged trace, or a task that the trace has not.
    """
    places = None if task is None else _places(tracefile.metadata(trace), task)
    with core_errors():
        answer = _core.why(str(trace), places, worst, every_job)
    return decoded(json.loads(answer), Why)


def _places(metadata: Metadata, name: str) -> tuple[int, int]:
    """The places of a task's domain and of the task, of `domain/task`."""
    names = []
    for index, domain in enumerate(metadata["domains"]):
        for place, task in enumerate(domain["tasks"]):
            names.append(f"{domain['name']}/{task['name']}")
            if names[-1] == name:
                return index, place
    known = f"the tasks are {', '.join(names[:8])}" if names else "the trace has no tasks"
    raise InputError(f"the trace has no task {name!r}", known)


def with_remedies(found: Why, host: Host, overrides: Iterable[str]) -> Why:
    """Adds to each explained job and packet the changes of the host with which it is in time."""
    settings = list(overrides)
    late = tuple(
        replace(each, remedies=remedies(host, settings, each)) if _may_be_helped(each) else each
        for each in found.late
    )
    return replace(found, late=late)


def _may_be_helped(late: Late) -> bool:
    """Whether a change of the host may help: it does not against the host's death."""
    died_with_host = late.packet == "lost" and late.lost_at is None
    return late.late_ns > 0 and late.kind != "outage" and not died_with_host


def remedies(host: Host, overrides: list[str], late: Late) -> tuple[Remedy, ...] | None:
    """Changes of the host with which it is in time: changes of values first, then policies.

    Each is run up to the deadline to see that it is, for a packet of a call until LATER_NS after
    it, and then as long as the host file says to count what else is missed. None if the simulator
    has the job in time without any change: then what changes do there says nothing about the run
    that was explained. None also for a packet of a host that was observed, and for one of a call in
    a run with so many streams that the simulator does not keep each one's packets.
    """
    same = _same_in_every_run(host, overrides, late)
    if same is None or _is_in_time(host, overrides, same):
        return None
    return tuple(
        Remedy(change, _missed(host, [*overrides, change], same))
        for change in _changes(host, overrides, same)
    )


@dataclass(frozen=True)
class _OfCall(Late):
    """A packet of a call.

    Streams of calls have numbers in the order in which they begin. A change of the host may reorder
    them; calls keep their numbers.
    """

    call: int = 0
    place: int = 0
    """The number of the packet's stream among the call's, in the order in which they begin."""


def _same_in_every_run(host: Host, overrides: list[str], late: Late) -> Late | None:
    """What is late, named so that it is the same with every change; None if nothing says that."""
    if late.kind != "packet":
        return late
    calls = host.resolved(overrides)["calls"]
    if calls is None:
        # It was observed, and the host file that was made of it has no packets.
        return None
    stream, _ = _numbers(late)
    if stream < calls["streams"]:
        return late
    for (call, place), pieces in _streams_of_calls(host, overrides, late).items():
        if pieces[0].stream == stream:
            return _OfCall(**vars(late), call=call, place=place)
    return None


def _numbers(late: Late) -> tuple[int, int]:
    """The numbers of a packet's stream, or of a registration, and of the packet or message."""
    stream, number = late.what.rsplit("-", 1)[1].split("#")
    return int(stream), int(number)


def _streams_of_calls(
    host: Host, overrides: list[str], late: Late
) -> dict[tuple[int, int], list[KeptStream]]:
    """The streams of calls up to after the deadline, by the call and their order in it, in pieces.

    There are none if the simulator does not keep every stream.
    """
    ends = ending(host.resolved(overrides), late.deadline_ns + LATER_NS)
    run = host.run(set=[*overrides, "calls.sample=1", *ends])
    pieces_of: dict[int, list[KeptStream]] = {}
    for piece in run.streams:
        pieces_of.setdefault(piece.stream, []).append(piece)
    if set(pieces_of) != set(range(len(pieces_of))):
        return {}
    streams: dict[tuple[int, int], list[KeptStream]] = {}
    for _, pieces in sorted(pieces_of.items()):
        call = pieces[0].call
        if call is not None:
            streams[call, int((call, 0) in streams)] = pieces
    return streams


def _missed(host: Host, overrides: list[str], late: Late) -> int:
    """What the whole run misses: deadlines, or packets that are late or lost."""
    if late.kind not in WAY_ENDS:
        return host.run(set=overrides).missed
    with tempfile.TemporaryDirectory(prefix="laxity.") as place:
        trace = Path(place) / "trace.laxtrace"
        host.run(set=overrides, trace=trace)
        return int((tracefile.records(trace)["kind"] == WAY_ENDS[late.kind]).sum())


def _whose(late: Late) -> str:
    """The domain whose parameters may help: a job's own, and for a packet that which was late."""
    at = next((cause.at for cause in late.causes if cause.at and cause.ns), None)
    return (at or late.what).split("/")[0]


def _network_changes(resolved: ResolvedHost, late: Late, causes: set[Kind]) -> Iterator[str]:
    """Changes of cards and of protection that may help a packet."""
    network = resolved["network"] if late.kind in WAY_ENDS else None
    if not network:
        return
    calls = resolved["calls"]
    server = calls and calls["media_server" if late.kind == "packet" else "signalling_server"]
    name = _whose(late)
    domain = next(each for each in resolved["domains"] if each["name"] == name)
    if "queue" in causes and len(domain["vcpus"]) < resolved["cpus"]:
        yield f"domain.{name}.vcpus={len(domain['vcpus']) + 1}"
    agreements = network["link"]["agreements"] if network["link"] else ()
    for place, agreement in enumerate(agreements):
        if "rate" in causes and agreement["domain"] == server:
            yield f"link.agreements.{place}.maximum={2 * agreement['maximum_bit_s']} bit/s"
    for place, nic in enumerate(network["nics"]):
        if late.lost_at in ("card", "wire-out") and nic["ring"] < RING_PACKETS:
            yield f"nic.{place}.ring={RING_PACKETS}"
        if "coalesced" in causes:
            yield f"nic.{place}.coalesce.time=100 us"
    for place, _ in enumerate(network["protect"]["domains"] if network["protect"] else ()):
        if causes & {"held", "pause"}:
            yield f"protect.domains.{place}.mode=no-net"
            yield f"protect.domains.{place}.interval=1 s"


def _changes(host: Host, overrides: list[str], late: Late) -> Iterator[str]:
    """The changes that hold."""
    resolved = host.resolved(overrides)
    name = _whose(late)
    domain = next(each for each in resolved["domains"] if each["name"] == name)
    policy, parameters = resolved["policy"], domain["parameters"]
    uses = TABLE[policy].uses
    causes = {cause.cause for cause in late.causes if cause.ns}

    def holds(change: str) -> bool:
        return _helps(host, overrides, change, late)

    if uses("budget"):
        budget_ns = _smallest_budget_ns(host, overrides, late, parameters)
        if budget_ns is not None:
            yield f"domain.{name}.budget={time(budget_ns, digits=EXACT)}"
    yield from filter(holds, _network_changes(resolved, late, causes))
    if "budget" in causes and uses("extratime") and not parameters["extratime"]:
        yield from filter(holds, (f"domain.{name}.extratime=true",))
    if "cap" in causes:
        yield from filter(holds, (f"domain.{name}.cap=0",))
    if policy in BY_WEIGHT:
        most = PARAMETERS["weight"].most
        heavier = (min(parameters["weight"] * factor, most) for factor in (2, 4, 8))
        yield from _first(holds, (f"domain.{name}.weight={weight}" for weight in heavier))
    for which in filter(uses, PRIORITIES):
        yield from _first(holds, _higher_priorities(resolved, name, which))
    yield from filter(holds, _other_cpus(resolved, domain))
    for other in host.policies(overrides):
        if other != policy and holds(f"host.policy={other}"):
            yield f"host.policy={other}"


def _helps(host: Host, overrides: list[str], change: str, late: Late) -> bool:
    """Whether it is in time with the change, and has the same to do.

    Tasks that are drawn are drawn for the budget of their domain: with another one they are others.
    """
    try:
        changed = host.resolved([*overrides, change])
    except HostError:
        # The host file does not allow it.
        return False
    same = _work(changed) == _work(host.resolved(overrides))
    return same and _is_in_time(host, [*overrides, change], late)


def _work(resolved: ResolvedHost) -> list[list[dict[str, object]]]:
    """The tasks of all domains, whichever of their VCPUs has them."""
    return [[{**task, "vcpu": None} for task in domain["tasks"]] for domain in resolved["domains"]]


def _first(holds: Callable[[str], bool], changes: Iterable[str]) -> Iterator[str]:
    """The first of changes that holds, if one does."""
    return islice(filter(holds, changes), 1)


def _higher_priorities(resolved: ResolvedHost, name: str, which: str) -> Iterator[str]:
    """Priorities of the domain above one other domain more each, as far as there are such."""
    parameter = PARAMETERS[which]
    step = PRIORITIES[which]
    values = {each["name"]: parameter.of(each["parameters"]) for each in resolved["domains"]}
    own = values.pop(name)
    above = {value for value in values.values() if value * step >= own * step}
    wanted = (value + step for value in sorted(above, key=lambda value: value * step))
    for value in wanted:
        if parameter.least <= value <= parameter.most:
            yield f"domain.{name}.{which}={value}"


def _other_cpus(resolved: ResolvedHost, domain: Domain) -> list[str]:
    """Other CPUs for a domain that has one VCPU, which is bound to some."""
    if len(domain["vcpus"]) != 1:
        return []
    bound = domain["vcpus"][0]["affinity"]
    others = [cpu for cpu in range(resolved["cpus"]) if bound and cpu not in bound]
    return [f"domain.{domain['name']}.affinity=[{cpu}]" for cpu in others[:CPUS_TRIED_MAX]]


def _smallest_budget_ns(
    host: Host, overrides: list[str], late: Late, parameters: Parameters
) -> int | None:
    """A budget above the domain's own, in few digits, with which the job is in time.

    It is the smallest as far as halving finds it; None if not even the whole period helps.
    """
    name = _whose(late)

    def holds(budget_ns: int) -> bool:
        return _helps(host, overrides, f"domain.{name}.budget={budget_ns} ns", late)

    low_ns, high_ns = int(parameters["budget_ns"]), int(parameters["period_ns"])
    if low_ns >= high_ns or not holds(high_ns):
        return None
    step_ns = int(10 ** max(0, len(str(high_ns)) - 3))
    for _ in range(BUDGET_RUNS):
        middle_ns = -(-(low_ns + high_ns) // 2 // step_ns) * step_ns
        if not low_ns < middle_ns < high_ns:
            break
        if holds(middle_ns):
            high_ns = middle_ns
        else:
            low_ns = middle_ns
    return high_ns


def _is_in_time(host: Host, overrides: list[str], late: Late) -> bool:
    """Whether it is in time in a run of the simulator that ends at its deadline."""
    if isinstance(late, _OfCall):
        return _packet_of_call_is_in_time(host, overrides, late)
    if late.kind in WAY_ENDS:
        return _packet_is_in_time(host, overrides, late)
    task, number = late.what.rsplit("#", 1)
    domain, _, name = task.partition("/")
    try:
        run = host.run(set=_until(host, overrides, late))
    except HostError:
        # The host file does not allow it.
        return False
    times = run.responses.get((domain, name))
    if times is None:
        raise InputError(
            f"{task} has so many jobs that the simulator does not keep each one's response time",
            "explain a shorter run",
        )
    return (
        len(times) > int(number) and int(times[int(number)]) <= late.deadline_ns - late.arrival_ns
    )


def _until(host: Host, overrides: list[str], late: Late) -> list[str]:
    """Overrides with which a run ends right after the deadline."""
    return [*overrides, *ending(host.resolved(overrides), late.deadline_ns + 1)]


def _packet_is_in_time(host: Host, overrides: list[str], late: Late) -> bool:
    """Whether it is neither late nor lost in a run that lasts until it would be late."""
    stream, number = _numbers(late)
    packet = (stream << tracefile.JOB_NUMBER_BITS) | number
    with tempfile.TemporaryDirectory(prefix="laxity.") as place:
        trace = Path(place) / "trace.laxtrace"
        try:
            host.run(set=_until(host, overrides, late), trace=trace)
        except HostError:
            # The host file does not allow it.
            return False
        records = tracefile.records(trace)
        ended = records[records["kind"] == WAY_ENDS[late.kind]]
        return packet not in ended["argument"]


def _packet_of_call_is_in_time(host: Host, overrides: list[str], late: _OfCall) -> bool:
    """Whether the packet arrives, and in time.

    It may be sent earlier or later than in the run that is explained, as its call is set up.
    """
    try:
        streams = _streams_of_calls(host, overrides, late)
    except HostError:
        # The host file does not allow it.
        return False
    pieces = streams.get((late.call, late.place), [])
    _, number = _numbers(late)
    for piece in pieces:
        sent_ns = pieces[0].start_ns + number * PACKET_NS
        at = (sent_ns - piece.start_ns) // PACKET_NS
        if 0 <= at < piece.arrived_ns.size:
            arrived_ns = int(piece.arrived_ns[at])
            limit_ns = late.deadline_ns - late.arrival_ns
            return arrived_ns != LOST and arrived_ns - sent_ns <= limit_ns
    return False
