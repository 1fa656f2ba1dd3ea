"""Parameters of guests that run: told as a host file calls them, and changed one by one. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laxity import _core
from laxity.apply.agent.settings import (
    RECLAIM,
    SCHED_DEADLINE,
    SCHED_FIFO,
    SCHED_OTHER,
    Wanted,
    WantedDomain,
)
from laxity.apply.wanted import cpus_of, listed, refuse_group, scheduling
from laxity.errors import InputError
from laxity.policies import PARAMETERS, TABLE
from laxity.substrates.kvm.plan import OWNER, group_settings, refuse_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laxity.apply.agent.settings import (
        Group,
        Guest,
        Loaded,
        LoadedDomain,
        Seen,
        Thread,
        WantedVcpu,
    )

POLICIES = {SCHED_OTHER: "eevdf", SCHED_FIFO: "fifo", SCHED_DEADLINE: "deadline"}
"""The policies of host files, by Linux's."""
OTHERS = {2: "rr", 3: "batch", 5: "idle", 7: "ext"}
"""Those that host files do not have."""

OF_POLICIES = ("budget", "period", "reclaim", "rt-priority")
"""The keys of a VCPU that belong to one of the policies."""
OF_VCPUS = ("policy", "affinity", *OF_POLICIES)
OF_LAXITY = ("priority", "extratime", "cap", "laxity")
"""Those of a whole guest under Laxity's policies, which also have some of the others."""
OF_GROUP = {"weight": "cpu.weight", "quota": "cpu.max", "quota-period": "cpu.max"}
OF_GROUP["quota-burst"] = "cpu.max.burst"
"""The keys of a whole guest, with the settings of its control group."""
KEYS = (*OF_VCPUS, *OF_GROUP, *OF_LAXITY)

FLAGS = {"false": False, "true": True, "0": False, "1": True}
"""Flags as host files have them, and as laxity-sched takes them on Xen."""
MICROSECOND_NS = 1_000
PERIOD_US = "100000"
"""The period of cpu.max that the kernel begins with."""

USAGE = f"""\
on a KVM host, laxity sched get [--json] [DOMAIN[/VCPU]]
            or laxity sched set DOMAIN[/VCPU] KEY=VALUE...
keys of a VCPU: {", ".join(OF_VCPUS)}
keys of a guest: {", ".join(OF_GROUP)}
under a policy of Laxity, its parameters are keys of a guest"""


@dataclass(frozen=True)
class Words:
    """What `laxity sched` was told."""

    command: str
    """`get` or `set`."""
    guest: str | None = None
    vcpu: int | None = None
    """None: all VCPUs of the guest."""
    as_json: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    """Those to set, by key."""


@dataclass(frozen=True)
class VcpuParameters:
    """What a VCPU has."""

    vcpu: int
    policy: str
    values: dict[str, int]
    """Its parameters by their fields in resolved hosts, or its nice value."""
    affinity: list[int]

    def to_json(self) -> dict[str, object]:
        """Returns the object of a VCPU that `laxity sched get --json` prints."""
        values = {"policy": self.policy, **self.values}
        return {"id": self.vcpu, **values, "affinity": self.affinity}


@dataclass(frozen=True)
class GuestParameters:
    """What a guest has."""

    name: str
    group: dict[str, int]
    """The settings of its control group, by their fields in resolved hosts."""
    vcpus: list[VcpuParameters]

    def to_json(self) -> dict[str, object]:
        """Returns the object of a guest that `laxity sched get --json` prints."""
        vcpus = [vcpu.to_json() for vcpu in self.vcpus]
        return {"name": self.name, **self.group, "vcpu": vcpus}


def parse(words: Sequence[str]) -> Words:
    """Takes the words apart. Raises InputError for what is no such command."""
    command, *others = words
    as_json = command == "get" and "--json" in others
    named = [word for word in others if not (as_json and word == "--json")]
    if command not in ("get", "set") or any(word.startswith("-") for word in named):
        raise InputError(f"laxity sched {' '.join(words)} is no command for a KVM host", USAGE)
    if (command == "get" and len(named) > 1) or (command == "set" and len(named) < 2):  # noqa: PLR2004 - DOMAIN KEY=VALUE
        raise InputError(f"laxity sched {' '.join(words)} has too many or too few words", USAGE)
    guest, vcpu = None, None
    if named:
        found = re.fullmatch(r"(.+)/(\d+)", named[0])
        guest, vcpu = (found[1], int(found[2])) if found else (named[0], None)
    values: dict[str, str] = {}
    for word in named[1:]:
        key, equals, value = word.partition("=")
        if key not in KEYS or not equals or key in values:
            raise InputError(f"{word!r} is not KEY=VALUE with a key once", USAGE)
        values[key] = value
    return Words(command, guest, vcpu, as_json, values)


def parameters(seen: Seen, words: Words) -> list[GuestParameters]:
    """Returns what guests have: those that are named, or all; times in ns, as laxity-sched does."""
    guests = seen["guests"] if words.guest is None else [_guest(seen, words.guest)]
    return [
        GuestParameters(
            guest["name"],
            _of_group(guest["group"]) if guest["group"] else {},
            [_of_thread(thread, seen) for thread in _vcpus(guest, words)],
        )
        for guest in guests
    ]


def change(seen: Seen, words: Words) -> Wanted:
    """Returns what is wanted of the guest that is named, and of nothing else.

    Keys that are not named stay as they are. Raises InputError for values that do not fit.
    """
    guest = _guest(seen, words.guest or "")
    if "policy" not in words.values and any(_is_ours(thread) for thread in _vcpus(guest, words)):
        return _change_of_ours(seen, guest, words)
    count = 1 + max(thread["vcpu"] or 0 for thread in guest["threads"])
    vcpus: list[WantedVcpu] = [{} for _ in range(count)]
    for thread in _vcpus(guest, words):
        assert thread["vcpu"] is not None  # noqa: S101 - for the types
        vcpus[thread["vcpu"]] = _changed_thread(guest, thread, words, seen)
    wanted = WantedDomain(vcpus=vcpus, helpers=None, group=_changed_group(words, guest))
    return Wanted(domains={guest["name"]: wanted}, interrupts={}, scheduler=None)


def _is_ours(thread: Thread) -> bool:
    """Whether a policy of Laxity schedules a thread."""
    return "vcpu" in thread["scheduling"]


def _given(seen: Seen) -> Loaded:
    """Returns the policy of Laxity that schedules threads of a machine."""
    given = seen["scheduler"]["given"]
    assert given is not None  # noqa: S101, for the types: a thread is a VCPU to it.
    return given


def _given_to(thread: Thread, seen: Seen) -> tuple[str, dict[str, int]]:
    """Returns the policy of Laxity that schedules a thread, and the parameters of its guest."""
    given = _given(seen)
    domain = given["domains"][thread["scheduling"]["vcpu"].split()[0]]
    pairs = [pair.split("=") for pair in domain["parameters"].split()]
    return given["policy"], {key: int(value) for key, value in pairs}


def _change_of_ours(seen: Seen, guest: Guest, words: Words) -> Wanted:
    """Returns what is wanted of a guest whose VCPUs a policy of Laxity schedules."""
    threads = _vcpus(guest, words)
    policy, had = _given_to(next(thread for thread in threads if _is_ours(thread)), seen)
    named = [key for key in words.values if key != "affinity"]
    for key in named:
        if key not in had:
            raise InputError(
                f"{key} is no parameter of the policy {policy!r}", f"it has {', '.join(had)}"
            )
    if named and words.vcpu is not None:
        raise InputError(f"{named[0]} is of the whole guest", f"set {guest['name']} {named[0]}=…")
    values = had | {key: _value(key, words.values[key]) for key in named}
    if values.get("budget", 0) > values.get("period", 0):
        raise InputError("the budget is longer than the period", "make it shorter")
    given = _given(seen)
    name = guest["name"]
    parameters = " ".join(f"{key}={int(value)}" for key, value in values.items())
    changed: LoadedDomain = {**given["domains"][name], "parameters": parameters}
    domains = {**given["domains"], name: changed}
    vcpus: list[WantedVcpu] = [{} for _ in range(1 + max(t["vcpu"] or 0 for t in threads))]
    if "affinity" in words.values:
        for thread in threads:
            cpus = list(cpus_of(words.values["affinity"], "affinity"))
            vcpus[thread["vcpu"] or 0] = {"affinity": cpus}
    return Wanted(
        domains={name: WantedDomain(vcpus=vcpus, helpers=None, group={})},
        interrupts={},
        scheduler={**given, "domains": domains},
    )


def _guest(seen: Seen, name: str) -> Guest:
    found = [guest for guest in seen["guests"] if guest["name"] == name]
    if len(found) != 1:
        running = ", ".join(sorted(guest["name"] for guest in seen["guests"])) or "none"
        raise InputError(
            f"{len(found) or 'no'} guests on the machine are called {name!r}",
            f"the guests there are: {running}",
        )
    return found[0]


def _vcpus(guest: Guest, words: Words) -> list[Thread]:
    """Returns the threads of the VCPUs that are named."""
    threads = [thread for thread in guest["threads"] if thread["vcpu"] is not None]
    found = [thread for thread in threads if words.vcpu in (None, thread["vcpu"])]
    if not found:
        there = listed([thread["vcpu"] or 0 for thread in threads])
        raise InputError(f"guest {guest['name']!r} has no VCPU {words.vcpu}", f"it has {there}")
    return sorted(found, key=lambda thread: thread["vcpu"] or 0)


def _of_thread(thread: Thread, seen: Seen) -> VcpuParameters:
    vcpu, affinity = thread["vcpu"], thread["affinity"]
    assert vcpu is not None  # noqa: S101, for the types: `_vcpus` returns these threads.
    if _is_ours(thread):
        policy, parameters = _given_to(thread, seen)
        values = {PARAMETERS[key].field: value for key, value in parameters.items()}
        return VcpuParameters(vcpu, policy, values, affinity)
    given = thread["scheduling"]
    number = given["policy"]
    policy = POLICIES.get(number) or OTHERS.get(number, str(number))
    if number == SCHED_DEADLINE:
        values = {"budget_ns": given["runtime_ns"], "period_ns": given["period_ns"]}
        values |= {"reclaim": bool(given["flags"] & RECLAIM)}
    elif given["priority"]:
        values = {"rt_priority": given["priority"]}
    else:
        values = {"nice": given["nice"]}
    return VcpuParameters(vcpu, policy, values, affinity)


def _of_group(group: Group) -> dict[str, int]:
    files = group["files"]
    told: dict[str, int] = {}
    if "cpu.weight" in files:
        told["weight"] = int(files["cpu.weight"])
    if "cpu.max" in files:
        quota, period = [*files["cpu.max"].split(), PERIOD_US][:2]
        told["quota_ns"] = 0 if quota == "max" else int(quota) * MICROSECOND_NS
        told["quota_period_ns"] = int(period) * MICROSECOND_NS
    if "cpu.max.burst" in files:
        told["quota_burst_ns"] = int(files["cpu.max.burst"]) * MICROSECOND_NS
    return told


def _changed_thread(guest: Guest, thread: Thread, words: Words, seen: Seen) -> WantedVcpu:
    values = words.values
    changed: WantedVcpu = {}
    if "affinity" in values:
        changed["affinity"] = list(cpus_of(values["affinity"], "affinity"))
    named = [key for key in ("policy", *OF_POLICIES) if key in values]
    if not named:
        return changed
    told = _of_thread(thread, seen)
    had = {"reclaim": 0, **told.values}
    policy = values.get("policy", told.policy)
    own = [name for name, each in TABLE.items() if each.own_of == OWNER]
    if policy not in own:
        raise InputError(f"policy is {policy!r}", f"policy is one of {', '.join(own)}")
    for key in named:
        if key != "policy" and not TABLE[policy].uses(key):
            right = next(name for name in own if TABLE[name].uses(key))
            raise InputError(
                f"{key} is no parameter of the policy {policy!r}", f"add policy={right}"
            )
    given = {
        PARAMETERS[key].field: _value(key, values[key]) if key in values else had.get(field)
        for key in OF_POLICIES
        for field in (PARAMETERS[key].field,)
    }
    missing = [
        key
        for key in OF_POLICIES
        if TABLE[policy].uses(key) and given[PARAMETERS[key].field] is None
    ]
    if missing:
        raise InputError(
            f"policy={policy} needs {' and '.join(missing)}, which the VCPU does not have yet",
            f"add {' '.join(f'{key}=VALUE' for key in missing)}",
        )
    if TABLE[policy].uses("budget"):
        if (given["budget_ns"] or 0) > (given["period_ns"] or 0):
            raise InputError("the budget is longer than the period", "make it shorter")
        refuse_parameters(guest["name"], given, policy)
    changed["scheduling"] = scheduling(given, policy)
    return changed


def _changed_group(words: Words, guest: Guest) -> dict[str, str]:
    named = [key for key in OF_GROUP if key in words.values]
    if not named:
        return {}
    if words.vcpu is not None:
        raise InputError(f"{named[0]} is of the whole guest", f"set {guest['name']} {named[0]}=…")
    burst_ns = _value("quota-burst", words.values.get("quota-burst", "0 ns"))
    group = refuse_group(guest, burst_ns=burst_ns)
    given = {PARAMETERS[key].field: 0 for key in OF_GROUP} | _of_group(group)
    given |= {PARAMETERS[key].field: _value(key, words.values[key]) for key in named}
    refuse_parameters(guest["name"], given, "eevdf")
    weight, most, burst = group_settings(given, "eevdf")
    made = {"cpu.weight": weight, "cpu.max": most, "cpu.max.burst": burst}
    return {file: made[file] for file in {OF_GROUP[key] for key in named}}


def _value(key: str, text: str) -> int:
    """Returns the value of a parameter. Raises InputError if it is none, or out of its bounds."""
    parameter = PARAMETERS[key]
    if parameter.kind == "flag":
        if text not in FLAGS:
            raise InputError(f"{key}: {text!r} is neither true nor false", f"write {key}=true")
        return FLAGS[text]
    example = "2 ms" if parameter.kind == "duration" else str(parameter.least)
    try:
        value = _core.parse_duration(text) if parameter.kind == "duration" else int(text)
    except ValueError as error:
        raise InputError(f"{key}: {str(error).splitlines()[0]}", f"write {key}={example}") from None
    if not parameter.least <= value <= parameter.most:
        raise InputError(
            f"{key}: {text} is out of bounds", f"it is {parameter.least} to {parameter.most}"
        )
    return value
