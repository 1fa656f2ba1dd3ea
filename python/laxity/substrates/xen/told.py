"""What dom0's tools tell of a host: its domains, and how its scheduler treats them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

INFO = re.compile(r"^(\w+)\s*: (.*)$", re.MULTILINE)
"""A line of `xl info`."""
VCPU_ROW = re.compile(r"(\S.*?) +(\d+) +(\d+) +\d+ +\S+ +[\d.]+ +(\S+) / (\S+)")
"""A VCPU of `xl vcpu-list`: domain, its number, the VCPU's, and where it may and should run.

A VCPU that is switched off is on no CPU, and is none here.
"""

EVERYWHERE = "all"
"""An affinity."""
RESERVED = 0x7FF0
"""From this number on domains are Xen's own, such as the idle one: `DOMID_FIRST_RESERVED`."""
MICROSECOND_NS, MILLISECOND_NS = 1_000, 1_000_000


@dataclass
class ToldDomain:
    """A domain of a running host."""

    name: str
    domid: int
    affinity: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By VCPU, as Xen writes lists of CPUs: where it may run, and where it should."""

    @property
    def vcpus(self) -> int:
        """How many VCPUs it has, up to the last one that is switched on."""
        return max(self.affinity) + 1

    def cpus(self, count: int) -> tuple[int, ...]:
        """Returns the CPUs of a host with so many on which its VCPUs may run."""
        found: set[int] = set()
        for hard, _ in self.affinity.values():
            found.update(cpus_of(hard, count))
        return tuple(sorted(found))


def info(text: str) -> dict[str, str]:
    """Returns what `xl info` tells, by name."""
    return dict(INFO.findall(text))


def domains(text: str) -> list[ToldDomain]:
    """Returns the domains of `xl vcpu-list`, in its order."""
    found: dict[int, ToldDomain] = {}
    for line in text.splitlines():
        row = VCPU_ROW.fullmatch(line.rstrip())
        if row is None or int(row[2]) >= RESERVED:
            continue
        domain = found.setdefault(int(row[2]), ToldDomain(row[1], int(row[2])))
        domain.affinity[int(row[3])] = (row[4], row[5])
    return list(found.values())


def cpus_of(text: str, count: int) -> Iterator[int]:
    """Yields the CPUs of a list as Xen writes it, such as `0-2,^1` or `all`."""
    left = set[int]()
    for part in text.split(","):
        is_out = part.startswith("^")
        first, _, last = part.removeprefix("^").partition("-")
        if part == EVERYWHERE:
            left.update(range(count))
        elif first.isdecimal() and (last or first).isdecimal():
            named = range(int(first), min(int(last or first) + 1, count))
            left = left.difference(named) if is_out else left.union(named)
    yield from sorted(left)


class Pool(TypedDict):
    """A CPU pool as laxity-sched tells of it, which has its settings by field, too."""

    policy: str


class SchedDomain(TypedDict):
    """A domain as laxity-sched tells of it, which has its parameters by field, too."""

    id: int


class Sched(TypedDict):
    """What `laxity-sched get --json` tells."""

    pools: list[Pool]
    domains: list[SchedDomain]


def parameters(scheduler: str, text: str) -> dict[int, dict[str, int | bool]]:
    """Returns what `xl sched-SCHEDULER` tells of each domain: parameters by field, by its number.

    rtds has them for each VCPU; here they are those of the domain's first one. Schedulers without
    parameters have none.
    """
    found: dict[int, dict[str, int | bool]] = {}
    for line in text.splitlines():
        if scheduler in ("credit", "credit2"):
            row = re.fullmatch(r".*?\S +(\d+) +(\d+) +(\d+) *", line)
            if row is not None:
                found[int(row[1])] = {"weight": int(row[2]), "cap_percent": int(row[3])}
        elif scheduler == "rtds":
            row = re.fullmatch(r".*?\S +(\d+) +(\d+) +(\d+) +(\d+)(?: +(yes|no))? *", line)
            if row is not None and int(row[1]) not in found:
                found[int(row[1])] = {
                    "period_ns": int(row[3]) * MICROSECOND_NS,
                    "budget_ns": int(row[4]) * MICROSECOND_NS,
                    "extratime": row[5] == "yes",
                }
    return found


def time_slice_ns(text: str) -> int | None:
    """Returns the time slice that `xl sched-credit` tells; None if it tells none."""
    told = re.search(r"tslice=(\d+)ms", text)
    return int(told[1]) * MILLISECOND_NS if told else None


def refuse_several_pools(name: str, text: str) -> None:
    """Raises InputError if `xl cpupool-list` tells of more than one pool."""
    pools = [line.split()[0] for line in text.splitlines()[1:] if line.strip()]
    if len(pools) > 1:
        raise InputError(
            f"{name} has {len(pools)} CPU pools ({', '.join(pools)}), and a host file describes "
            "the scheduler of one",
            "observe it while there is one pool",
        )
