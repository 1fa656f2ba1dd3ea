"""Settings of a KVM host, and the changes from those that are seen to those that are wanted. Pure.

A setting stands in a place: `what` it is, and `of` what, with what tells that thing from a later
one of the same number or name. All of this is JSON.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple, TypedDict  # noqa: UP035 - for Python 3.9

SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_DEADLINE, SCHED_EXT = 0, 1, 2, 6, 7
RESET_ON_FORK = 1
"""A flag of sched_setattr: threads that the thread makes are ordinary ones."""
RECLAIM = 2
"""A flag of sched_setattr: the thread uses the time that other SCHED_DEADLINE threads leave."""

LOADS, FREES, MOVES, TAKES, DIVIDES, UNLOADS = range(6)
"""The order of changes: a policy is loaded before threads ask for it, and taken off after them;
time of SCHED_DEADLINE is freed before any is taken, and a thread may run on all CPUs before it
takes some."""


class Scheduling(TypedDict, total=False):
    """The scheduling of a thread, as sched_setattr takes it."""

    policy: int
    flags: int
    nice: int
    """Also of a real-time thread, which has it for later."""
    priority: int
    runtime_ns: int
    """The budget under SCHED_DEADLINE. An ordinary thread has its slice here, 0 by default."""
    deadline_ns: int
    period_ns: int
    vcpu: str
    """The VCPU that the thread is to a policy of Laxity, `NAME NUMBER`; of no other threads."""


class Thread(TypedDict):
    """A thread of a guest."""

    tid: int
    start: int
    """The start in clock ticks after boot; no other thread has this number and start."""
    name: str
    vcpu: int | None
    """The number of the VCPU; None for a helper: emulator, iothread, vhost."""
    scheduling: Scheduling
    affinity: list[int]
    allowed: list[int]
    """The CPUs to which control groups restrict the thread."""


class Group(TypedDict):
    """The control group of a guest."""

    path: str
    id: int
    """The inode; no other group since boot has it."""
    files: dict[str, str]
    """Its settings of the CPU controller; empty if the controller is off."""
    is_own: bool
    """Whether nothing else than the guest is in it."""


class Guest(TypedDict):
    """A virtual machine."""

    name: str
    pid: int
    threads: list[Thread]
    group: Group | None


class Interrupt(TypedDict):
    """An interrupt of a network interface."""

    irq: int
    affinity: list[int]


class LoadedDomain(TypedDict):
    """A guest as a policy of Laxity has it."""

    parameters: str
    cpus: list[int]
    """Where each VCPU begins."""


class Loaded(TypedDict):
    """A policy of Laxity that schedules; parameters and settings as laxity-scx takes them."""

    policy: str
    cpus: int
    settings: str
    domains: dict[str, LoadedDomain]


class SchedExt(TypedDict):
    """The kernel's sched_ext."""

    possible: bool
    loaded: str | None
    given: Loaded | None
    """What ours was given; None while nothing of ours is loaded."""


class Seen(TypedDict):
    """A machine."""

    boot: str
    cpus: list[int]
    """Those that are online."""
    rt_runtime_us: int
    """-1: real-time threads may have all of a CPU."""
    rt_period_us: int
    deadline_period_us: list[int]
    """The least and the greatest period of SCHED_DEADLINE."""
    deadlines: list[tuple[int, int, int]]
    """Thread, budget and period in ns of each SCHED_DEADLINE thread of the machine."""
    guests: list[Guest]
    unnamed: list[str]
    """Guests whose threads have no names: QEMU runs without debug-threads=on."""
    strangers: list[str]
    """Names of guests that ordinary users run, who can name a process as they like."""
    interrupts: dict[str, list[Interrupt] | None]
    """By the name of the interface; None for one that is not there."""
    scheduler: SchedExt


class WantedVcpu(TypedDict, total=False):
    """What is wanted of a VCPU; what is left out stays as it is."""

    scheduling: Scheduling
    """The nice value is kept where it has no effect."""
    affinity: list[int]


class WantedDomain(TypedDict):
    """What is wanted of a guest."""

    vcpus: list[WantedVcpu]
    helpers: list[int] | None
    """The CPUs of all other threads; None: those that they have."""
    group: dict[str, str]


class Wanted(TypedDict):
    """What is wanted of a machine."""

    domains: dict[str, WantedDomain]
    interrupts: dict[str, list[int]]
    scheduler: Loaded | None
    """None: Linux's own schedulers schedule."""


class Of(TypedDict, total=False):
    """What a setting is of, with what tells that thing from a later one of its number or name."""

    tid: int
    start: int
    path: str
    id: int
    """The inode of the control group at `path`."""
    file: str
    nic: str
    irq: int
    directories: str
    """Those that are made for the hook at `path`."""


class Change(TypedDict):
    """A setting that becomes another one."""

    what: str
    """`scheduler`, `scheduling`, `affinity`, `group`, `interrupt` or `hook`."""
    of: Of
    label: str
    """What it is the setting of, for people."""
    old: Any
    new: Any


class Failed(TypedDict):
    """A setting that could not be put back."""

    label: str
    why: str


class Refused(TypedDict):
    """A change that the kernel has refused."""

    change: Change
    why: str


class Request(TypedDict, total=False):
    """What the agent is asked to do: `observe`, `plan`, `apply`, `plan-revert` or `revert`."""

    do: str
    nics: list[str]
    wanted: Wanted
    keep: bool
    persist: bool


class Answer(TypedDict, total=False):
    """What the agent answers: what it was asked for, or an error."""

    seen: Seen
    changes: list[Change]
    vanished: list[str]
    """The labels of settings whose thread or group had gone."""
    meanwhile: list[Change]
    """The changes whose setting somebody else had changed."""
    failed: list[Failed]
    error: str
    refused: Refused


Key = tuple[str, tuple[tuple[str, object], ...]]


def key(change: Change) -> Key:
    """Returns what tells the place of a change from all others."""
    return change["what"], tuple(sorted(change["of"].items()))


def changes(
    wanted: Wanted,
    seen: Seen,
    journal: list[Change],
    only: str | None = None,
    keep: bool = False,
) -> list[Change]:
    """Returns the changes that lead to what is wanted, in the order in which the kernel takes them.

    What an earlier `journal` has changed and is not wanted any more goes back to what it was,
    unless it is to `keep`. `only` is the name of the one guest that is changed, besides interrupts,
    and the one whose part of a policy of Laxity that is loaded is changed.
    """
    first: dict[Key, Change] = {}
    for change in journal:
        first.setdefault(key(change), change)
    found: list[Change] = []
    if only is not None:
        scheduler = _scheduler_with(only, wanted.get("scheduler"), seen["scheduler"]["given"])
        wanted = {**wanted, "scheduler": scheduler}
    for guest, place, new in _places(wanted, seen):
        was = first.get(key(place))
        goal = place["old"]
        if new is not None:
            goal = new
            if place["what"] == "scheduling" and new["policy"] != SCHED_OTHER:
                goal = {**new, "nice": place["old"]["nice"]}
        elif was and not keep:
            goal = was["old"]
        if goal != place["old"] and (guest is None or only in (None, guest)):
            found.append({**place, "new": goal})
    return sorted(found, key=_turn)


def _scheduler_with(guest: str, wanted: Loaded | None, given: Loaded | None) -> Loaded | None:
    """Returns the policy of Laxity that one guest needs; the parts of others stay as they are.

    One that is not loaded, or is another one, is loaded with all that is wanted.
    """
    if given is None:
        return wanted
    if wanted is None or guest not in wanted["domains"]:
        return given
    if given["policy"] != wanted["policy"]:
        return wanted
    return {**given, "domains": {**given["domains"], guest: wanted["domains"][guest]}}


Place = Tuple[Optional[str], Change, Any]  # noqa: UP045, UP006 - Python 3.9 reads it
"""The guest that has a setting, the setting as it is, and the value that is wanted or None."""


def _places(wanted: Wanted, seen: Seen) -> list[Place]:
    found: list[Place] = []

    def add(guest: str | None, what: str, of: Of, label: str, *values: Any) -> None:  # noqa: ANN401
        old, new = values
        found.append((guest, {"what": what, "of": of, "label": label, "old": old, "new": old}, new))

    of: Of
    for guest in seen["guests"]:
        name, group = guest["name"], guest["group"]
        asked = wanted["domains"].get(name)
        for thread in guest["threads"]:
            of = {"tid": thread["tid"], "start": thread["start"]}
            label = thread_label(name, thread)
            scheduling, affinity = _asked_of(asked, thread)
            add(name, "scheduling", of, label, thread["scheduling"], scheduling)
            add(name, "affinity", of, label, thread["affinity"], affinity)
        if group is not None:
            for file, value in group["files"].items():
                of = {"path": group["path"], "id": group["id"], "file": file}
                share = asked["group"].get(file) if asked else None
                add(name, "group", of, f"{name} {file}", value, share)
    for nic, interrupts in seen["interrupts"].items():
        for interrupt in interrupts or []:
            of = {"nic": nic, "irq": interrupt["irq"]}
            label = f"{nic} interrupt {interrupt['irq']}"
            cpus = wanted["interrupts"].get(nic)
            add(None, "interrupt", of, label, interrupt["affinity"], cpus)
    scheduler = seen["scheduler"]["given"]
    add(None, "scheduler", {}, "policy of VCPUs", scheduler, wanted.get("scheduler"))
    return found


def _asked_of(asked: WantedDomain | None, thread: Thread) -> tuple[Any, Any]:
    """Returns the scheduling and the affinity that are wanted of a thread; None where none is."""
    if asked is None:
        return None, None
    number = thread["vcpu"]
    if number is None:
        return None, asked["helpers"]
    if number >= len(asked["vcpus"]):
        return None, None
    return asked["vcpus"][number].get("scheduling"), asked["vcpus"][number].get("affinity")


def thread_label(guest: str, thread: Thread) -> str:
    """Returns how messages call a thread."""
    if thread["vcpu"] is not None:
        return f"{guest} VCPU {thread['vcpu']}"
    return f"{guest} thread {thread['tid']} ({thread['name']})"


def _turn(change: Change) -> int:
    if change["what"] == "affinity":
        return MOVES
    if change["what"] == "scheduler":
        return UNLOADS if change["new"] is None else LOADS
    if change["what"] != "scheduling":
        return DIVIDES
    return TAKES if _bandwidth(change["new"]) > _bandwidth(change["old"]) else FREES


def _bandwidth(scheduling: Scheduling) -> float:
    if scheduling["policy"] != SCHED_DEADLINE:
        return 0.0
    return scheduling["runtime_ns"] / scheduling["period_ns"]
