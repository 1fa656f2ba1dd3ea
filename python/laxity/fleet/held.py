"""Whether a host holds with some guests: the values that `laxity design` would write.

Analysis finds them; a host whose guests have calls is simulated with them, too.

CPUs do not affect one another, so where all guests have one VCPU and no CPU of their own, each CPU
is designed by itself, and what was found for one is used wherever the same guests meet again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity.design import placement
from laxity.errors import core_errors
from laxity.fleet.calls import Judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity import _core
    from laxity.fleet.problem import FleetFile
    from laxity.workers.workers import Workers

Guests = frozenset[int]

ATTEMPTS_MAX = 12
"""Placements on the CPUs of one host that are tried, at most."""

EPSILON = 1e-9

STEPS = (2, 3, 4)
"""Needs are also counted in halves, thirds and quarters of a CPU; see `counted`."""


def counted(share: float, steps: int) -> float:
    """What a share of a CPU takes of it, if CPUs are divided by as many steps.

    No CPU has more than one of what its VCPUs are counted as: a dual feasible function (Fekete and
    Schepers, 2001). In halves, each VCPU that needs more than half a CPU has one for itself.
    """
    parts = share * steps
    nearest = round(parts)
    if abs(parts - nearest) < EPSILON * steps:
        return nearest / steps
    return int(parts) / (steps - 1)


@dataclass(frozen=True)
class Held:
    """Values with which every deadline of a host is guaranteed."""

    cpu_share: float
    """The part of all CPUs' time that is reserved as budgets."""
    values: tuple[tuple[str, str], ...]
    """Paths in the host file, and TOML."""


class Holding:
    """Answers whether hosts hold with guests; an answer is worked out once."""

    def __init__(
        self, core: _core.FleetFile, file: FleetFile, workers: Workers | None = None
    ) -> None:
        """Finds what each guest needs by itself, on each sort of host."""
        self._core = core
        self.file = file
        self.judge = Judge(core, file, workers)
        likes = self.likes(range(len(file.hosts)))
        with core_errors():
            shares = core.shares(likes)
        self._shares = dict(zip(likes, shares, strict=True))
        self._needs = {
            like: [self._needs_of(guest, share) for guest, share in enumerate(of_like)]
            for like, of_like in self._shares.items()
        }
        self._cpus: dict[tuple[int, Guests], Held | None] = {}
        self._hosts: dict[tuple[int, Guests], Held | None] = {}
        self._unproved: set[tuple[int, Guests]] = set()

    def likes(self, hosts: Iterable[int]) -> list[int]:
        """One host of each sort among these."""
        return sorted({self.file.hosts[host].like for host in hosts})

    def share(self, host: int, guest: int) -> float | None:
        """The least part of a CPU that a guest needs on a host; None if nothing is enough."""
        return self._shares[self.file.hosts[host].like][guest]

    def needs(self, host: int, guest: int) -> tuple[float, ...] | None:
        """The share, and the same as each of `STEPS` counts it: none may exceed a host's CPUs."""
        return self._needs[self.file.hosts[host].like][guest]

    def _needs_of(self, guest: int, share: float | None) -> tuple[float, ...] | None:
        if share is None:
            return None
        vcpus = self.file.guests[guest].vcpus
        return (share, *(vcpus * counted(share / vcpus, steps) for steps in STEPS))

    def fits(self, host: int, guests: Iterable[int]) -> bool:
        """Whether what guests need by themselves fits a host."""
        needs = [self.needs(host, guest) for guest in guests]
        known = [of_guest for of_guest in needs if of_guest is not None]
        cpus = self.file.hosts[host].cpus + EPSILON
        return len(known) == len(needs) and all(sum(of) <= cpus for of in zip(*known, strict=True))

    def holds(self, host: int, guests: Guests) -> bool:
        """Whether a host holds with these guests."""
        return self.held(host, guests) is not None

    def is_proved(self, host: int, guests: Guests) -> bool:
        """Whether a host that does not hold does so on no CPUs that its guests may have there."""
        return (self.file.hosts[host].like, guests) not in self._unproved

    def held(self, host: int, guests: Guests) -> Held | None:
        """Values with which it does; None if none were found."""
        key = self.file.hosts[host].like, guests
        if key not in self._hosts:
            self.look([(host, guests)])
        return self._hosts[key]

    def look(self, asked: Iterable[tuple[int, Guests]]) -> None:
        """Works out the answers for many hosts at once."""
        new = {(self.file.hosts[host].like, guests) for host, guests in asked}
        new = {key for key in new if key not in self._hosts}
        parted = []
        whole = []
        for like, guests in sorted(new, key=lambda key: (key[0], sorted(key[1]))):
            if not self.fits(like, guests):
                self._hosts[like, guests] = None
            elif self._is_parted(like, guests):
                parted.append((like, guests))
            else:
                whole.append((like, guests))
        self._look_whole(whole)
        places = {key: self._worst_fit(*key) for key in parted}
        self._look_cpus((like, cpu) for (like, _), cpus in places.items() for cpu in cpus)
        for key, cpus in places.items():
            self._hosts[key] = self._settled(*key, cpus)
        self._judge(sorted(new, key=lambda key: (key[0], sorted(key[1]))))

    def _judge(self, keys: list[tuple[int, Guests]]) -> None:
        """What holds by analysis and has calls must hold in simulation too."""
        asked = [
            (like, guests, held.values)
            for like, guests in keys
            if (held := self._hosts[like, guests]) and self.judge.callers(guests)
        ]
        answers = self.judge.holds(asked)
        for (like, guests, _), holds in zip(asked, answers, strict=True):
            if not holds:
                self._hosts[like, guests] = None
                self._unproved.add((like, guests))

    def _is_parted(self, like: int, guests: Guests) -> bool:
        of_guests = [self.file.guests[guest] for guest in guests]
        free = all(guest.vcpus == 1 and guest.affinity for guest in of_guests)
        return free and not self.file.hosts[like].policy

    def _worst_fit(self, like: int, guests: Guests) -> list[Guests]:
        """Guests for each CPU."""
        order = sorted(guests)
        shares = [self._shares[like][guest] or 0.0 for guest in order]
        cpus = self.file.hosts[like].cpus
        return _on_cpus(order, placement.worst_fit(shares, [0.0] * cpus), cpus)

    def _settled(self, like: int, guests: Guests, cpus: list[Guests]) -> Held | None:
        """The values of all CPUs; guests are placed anew while a CPU has too many."""
        order = sorted(guests)
        shares = [self._shares[like][guest] or 0.0 for guest in order]
        refused: list[dict[int, int]] = []
        for _ in range(ATTEMPTS_MAX):
            failed = [cpu for cpu in cpus if cpu and self._cpus[like, cpu] is None]
            if not failed:
                return self._together(like, cpus)
            refused += [
                dict.fromkeys(map(order.index, guests), cpu)
                for guests in failed
                for cpu in range(len(cpus))
            ]
            places = placement.solve(shares, [0.0] * len(cpus), refused)
            if places is placement.Outcome.IMPOSSIBLE:
                return None
            if isinstance(places, placement.Outcome):
                break
            cpus = _on_cpus(order, places, len(cpus))
            self._look_cpus((like, cpu) for cpu in cpus)
        self._unproved.add((like, guests))
        return None

    def _look_cpus(self, asked: Iterable[tuple[int, Guests]]) -> None:
        new = {key for key in asked if key[1] and key not in self._cpus}
        full = {key for key in new if self._sum(*key) > 1 + EPSILON}
        self._cpus.update(dict.fromkeys(full))
        keys = sorted(new - full, key=lambda key: (key[0], sorted(key[1])))
        one = [(like, sorted(guests), self._affinity(guests, 0)) for like, guests in keys]
        for key, found in zip(keys, self._values(one), strict=True):
            self._cpus[key] = found

    def _sum(self, like: int, guests: Guests) -> float:
        """What guests need by themselves, in CPUs; a budget that is given counts in full."""
        return sum(self._shares[like][guest] or 0.0 for guest in guests)

    def _affinity(self, guests: Iterable[int], cpu: int) -> list[str]:
        return [f"domain.{self.file.guests[guest].name}.affinity=[{cpu}]" for guest in guests]

    def _together(self, like: int, cpus: list[Guests]) -> Held:
        share = 0.0
        values: list[tuple[str, str]] = []
        for cpu, guests in enumerate(cpus):
            found = self._cpus[like, guests] if guests else None
            if found is not None:
                share += found.cpu_share
                values += found.values
                several = len(cpus) > 1
                values += [
                    (f"domain.{self.file.guests[guest].name}.affinity", f"[{cpu}]")
                    for guest in sorted(guests)
                    if several
                ]
        return Held(share, tuple(values))

    def _look_whole(self, keys: list[tuple[int, Guests]]) -> None:
        """Hosts that are no sum of their CPUs: the guests that can be placed are, worst fit."""
        asked, affinities = [], []
        for like, guests in keys:
            cpus = self.file.hosts[like].cpus
            free, used = [], 0.0
            for guest in sorted(guests):
                of_guest = self.file.guests[guest]
                if of_guest.vcpus == 1 and of_guest.affinity:
                    free.append(guest)
                else:
                    used += (self._shares[like][guest] or 0.0) / cpus
            shares = [self._shares[like][guest] or 0.0 for guest in free]
            places = placement.worst_fit(shares, [used] * cpus)
            pinned = [
                (f"domain.{self.file.guests[guest].name}.affinity", f"[{cpu}]")
                for guest, cpu in zip(free, places, strict=True)
                if cpus > 1
            ]
            affinities.append(tuple(pinned))
            asked.append((like, sorted(guests), [f"{path}={value}" for path, value in pinned]))
        found = self._values(asked)
        for key, held, pinned_values in zip(keys, found, affinities, strict=True):
            self._hosts[key] = held and Held(held.cpu_share, held.values + pinned_values)
            if held is None and self.file.hosts[key[0]].cpus > 1:
                self._unproved.add(key)  # Other CPUs were not tried.

    def _values(self, asked: list[tuple[int, list[int], list[str]]]) -> list[Held | None]:
        if not asked:
            return []
        with core_errors():
            all_found = self._core.values(asked)
        return [found and Held(found[1], tuple(found[2])) for found in all_found]


def _on_cpus(order: list[int], places: list[int], cpus: int) -> list[Guests]:
    return [
        frozenset(guest for guest, place in zip(order, places, strict=True) if place == cpu)
        for cpu in range(cpus)
    ]
