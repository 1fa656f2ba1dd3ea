"""What a fleet file asks for: hosts, guests, and demands that may be dropped one by one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Loads = dict[tuple[int, int | None], frozenset[int]]
"""The guests that a host runs, after the failure of another or with none (None)."""


@dataclass(frozen=True)
class FleetHost:
    """A host, as crates/laxity-host/src/fleet.rs has it."""

    name: str
    like: int
    cpus: int
    policy: bool
    link_bit_s: int | None


@dataclass(frozen=True)
class FleetGuest:
    """A guest, as crates/laxity-host/src/fleet.rs has it."""

    name: str
    host: int | None
    standby: int | None
    protected: bool
    hosts: tuple[int, ...]
    minimum_bit_s: int
    vcpus: int
    affinity: bool
    streams: int
    budget: bool
    period_ns: int | None


@dataclass(frozen=True)
class FleetFile:
    """A fleet file, as crates/laxity-host/src/fleet.rs has it."""

    hosts: tuple[FleetHost, ...]
    guests: tuple[FleetGuest, ...]
    apart: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, order=True)
class Asked:
    """A demand of a fleet file: `guest`, `protected`, `hosts`, `minimum` or `apart`, and of whom.

    All that is asked of a guest falls with the demand that it runs.
    """

    what: str
    guests: tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    """Where guests are, and their standbys; None if they are nowhere."""

    hosts: tuple[int | None, ...]
    standbys: tuple[int | None, ...]

    def without(self, guests: Iterable[int]) -> Placement:
        """The same with some guests nowhere."""
        left_out = set(guests)
        hosts, standbys = (
            tuple(None if guest in left_out else host for guest, host in enumerate(places))
            for places in (self.hosts, self.standbys)
        )
        return Placement(hosts, standbys)

    def updated(self, other: Placement) -> Placement:
        """The same with the guests of another placement where that has them."""
        new = {guest for guest, host in enumerate(other.hosts) if host is not None}

        def chosen(
            own: tuple[int | None, ...], others: tuple[int | None, ...]
        ) -> tuple[int | None, ...]:
            both = enumerate(zip(own, others, strict=True))
            return tuple(after if n in new else before for n, (before, after) in both)

        return Placement(chosen(self.hosts, other.hosts), chosen(self.standbys, other.standbys))

    def loads(self) -> Loads:
        """What each host runs, with no failure and after each failure that brings it a guest."""
        own: dict[int, set[int]] = defaultdict(set)
        taken: dict[tuple[int, int], set[int]] = defaultdict(set)
        for guest, (host, standby) in enumerate(zip(self.hosts, self.standbys, strict=True)):
            if host is not None:
                own[host].add(guest)
                if standby is not None:
                    taken[standby, host].add(guest)
        loads: Loads = {(host, None): frozenset(guests) for host, guests in own.items()}
        for (host, failed), guests in taken.items():
            loads[host, failed] = frozenset(own[host] | guests)
        return loads


@dataclass(frozen=True)
class Problem:
    """A fleet, and what is asked of it; demands are dropped by leaving them out of `asked`."""

    file: FleetFile
    asked: frozenset[Asked]

    @classmethod
    def of(cls, file: FleetFile) -> Problem:
        """All that a fleet file asks for."""
        return cls(file, frozenset(_asked(file)))

    def with_only(self, asked: Iterable[Asked]) -> Problem:
        """The same with other demands; those of guests that need not run are dropped."""
        kept = set(asked)
        running = {demand.guests[0] for demand in kept if demand.what == "guest"}
        return replace(self, asked=frozenset(d for d in kept if running.issuperset(d.guests)))

    def confined(self, places: dict[int, set[int]]) -> Problem:
        """The same for these guests alone, each only where it may be and where this says."""
        guests = list(self.file.guests)
        for guest, hosts in places.items():
            there = tuple(host for host in self.allowed(guest) if host in hosts)
            guests[guest] = replace(guests[guest], hosts=there)
        asked = {demand for demand in self.asked if set(demand.guests) <= places.keys()}
        asked |= {Asked("hosts", (guest,)) for guest in places}
        return Problem(replace(self.file, guests=tuple(guests)), frozenset(asked))

    @property
    def guests(self) -> list[int]:
        """The guests that must run."""
        return sorted(demand.guests[0] for demand in self.asked if demand.what == "guest")

    def protected(self, guest: int) -> bool:
        """Whether a guest needs a standby."""
        return Asked("protected", (guest,)) in self.asked

    def missing(self, placement: Placement) -> list[int]:
        """The guests that a placement leaves out, or leaves without the standby that they need."""
        return [
            guest
            for guest in self.guests
            if placement.hosts[guest] is None
            or (self.protected(guest) and placement.standbys[guest] is None)
        ]

    def allowed(self, guest: int) -> tuple[int, ...]:
        """The hosts that may have a guest or its standby."""
        if Asked("hosts", (guest,)) in self.asked:
            return self.file.guests[guest].hosts
        return tuple(range(len(self.file.hosts)))

    def minimum(self, guest: int) -> int:
        """The rate that a guest is promised of its host's link, in bit/s."""
        asked = Asked("minimum", (guest,)) in self.asked
        return self.file.guests[guest].minimum_bit_s if asked else 0

    def link(self, host: int) -> int:
        """The rate that a host's link has for such promises, in bit/s."""
        return self.file.hosts[host].link_bit_s or 0

    def apart(self) -> dict[int, set[int]]:
        """The guests that may not share a host with each guest that has such."""
        found: dict[int, set[int]] = defaultdict(set)
        # The order of a set depends on the process, and that of constraints on what is found.
        for demand in sorted(demand for demand in self.asked if demand.what == "apart"):
            one, other = demand.guests
            found[one].add(other)
            found[other].add(one)
        return found

    def today_of(self, guest: int) -> list[int]:
        """The hosts that have a guest or its standby today, the guest's own first."""
        of_guest = self.file.guests[guest]
        return [host for host in (of_guest.host, of_guest.standby) if host is not None]

    def today(self) -> Placement:
        """Where guests that must run are today."""
        running = set(self.guests)
        guests = list(enumerate(self.file.guests))
        return Placement(
            tuple(guest.host if number in running else None for number, guest in guests),
            tuple(guest.standby if self.protected(number) else None for number, guest in guests),
        )


def _asked(file: FleetFile) -> Iterator[Asked]:
    for number, guest in enumerate(file.guests):
        yield Asked("guest", (number,))
        if guest.protected:
            yield Asked("protected", (number,))
        if len(guest.hosts) < len(file.hosts):
            yield Asked("hosts", (number,))
        if guest.minimum_bit_s:
            yield Asked("minimum", (number,))
    for guests in file.apart:
        for pair in combinations(guests, 2):
            yield Asked("apart", pair)
