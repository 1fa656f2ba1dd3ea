"""Guests placed one after the other, and moved where analysis refuses a host.

A guest stays where it is if it can. The others go, the greatest first, to the host with most room.
What a host needs is first added up from what its guests need by themselves, which analysis never
undercuts; then analysis looks at all hosts, and of guests that cannot be together one has to go.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from typing import TYPE_CHECKING

from laxity.fleet.held import EPSILON
from laxity.fleet.problem import Placement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.fleet.cuts import Cuts
    from laxity.fleet.held import Holding
    from laxity.fleet.problem import Problem
    from laxity.progress import Say

ROUNDS_MAX = 60
"""Rounds of analysis and moves, at most."""


def place(problem: Problem, holding: Holding, cuts: Cuts, looking: Say) -> Placement:
    """Places guests so that every host holds, also after any failure; not all, if some do not fit.

    What does not fit after `ROUNDS_MAX` rounds is left out.
    """
    state = _State(problem, holding, cuts)
    state.keep_today()
    for number in range(2 * ROUNDS_MAX):
        if number < ROUNDS_MAX:
            state.place_rest()
        placement = state.placement()
        looking(f"placing: {len(cuts)} sets of guests cannot be together")
        conflicts = cuts.learn(placement.loads())
        if not conflicts:
            return placement
        for host, guests in conflicts:
            state.remove_one(host, guests)
    return state.placement()


class _State:
    """A placement that grows, with what each host has."""

    def __init__(self, problem: Problem, holding: Holding, cuts: Cuts) -> None:
        self._problem, self._holding, self._cuts = problem, holding, cuts
        self._apart = problem.apart()
        self._minima = [problem.minimum(guest) for guest in range(len(problem.file.guests))]
        self._links = [problem.link(host) for host in range(len(problem.file.hosts))]
        self._cpus = [host.cpus + EPSILON for host in problem.file.hosts]
        self._hosts: dict[int, int] = {}
        self._standbys: dict[int, int] = {}
        self._own: list[set[int]] = [set() for _ in self._cpus]
        self._of: list[dict[int, set[int]]] = [defaultdict(set) for _ in self._cpus]
        """For each host the standbys on it, by the host that must fail for them."""
        everywhere = frozenset(range(len(self._cpus)))
        self._allowed = {
            guest: everywhere if len(hosts) == len(everywhere) else frozenset(hosts)
            for guest, hosts in ((guest, problem.allowed(guest)) for guest in problem.guests)
        }
        likes = {hosts: holding.likes(hosts) for hosts in set(self._allowed.values())}
        self._needed = {
            guest: max((holding.share(like, guest) or 0.0 for like in likes[hosts]), default=0.0)
            for guest, hosts in self._allowed.items()
        }
        self._loads = [0.0] * len(self._cpus)
        """The part of each host that is needed after the worst failure."""
        self._by_load = [(0.0, host) for host in range(len(self._cpus))]
        """The same with the hosts, ascending."""

    def placement(self) -> Placement:
        count = len(self._problem.file.guests)
        return Placement(
            tuple(self._hosts.get(guest) for guest in range(count)),
            tuple(self._standbys.get(guest) for guest in range(count)),
        )

    def keep_today(self) -> None:
        """Leaves guests where they are, as far as that can be: the smallest first."""
        today = self._problem.today()
        smallest_first = sorted(self._needed, key=lambda guest: (self._needed[guest], guest))
        for guest in smallest_first:
            host = today.hosts[guest]
            if host is not None and self._takes(host, guest):
                self._put(guest, host)
        for guest in smallest_first:
            standby = today.standbys[guest]
            if standby is not None and guest in self._hosts and self._takes_standby(standby, guest):
                self._put_standby(guest, standby)

    def place_rest(self) -> None:
        """Places guests that are nowhere, and missing standbys, as far as they fit."""
        greatest_first = sorted(self._needed, key=lambda guest: (-self._needed[guest], guest))
        for guest in greatest_first:
            if guest in self._hosts:
                continue
            host = next((h for h in self._by_room(guest) if self._takes(h, guest)), None)
            if host is None:
                continue
            self._put(guest, host)
            standby = self._standbys.pop(guest, None)
            if standby is not None and self._takes_standby(standby, guest):
                self._put_standby(guest, standby)
        for guest in greatest_first:
            if (
                guest not in self._hosts
                or guest in self._standbys
                or not self._problem.protected(guest)
            ):
                continue
            standby = next((h for h in self._by_room(guest) if self._takes_standby(h, guest)), None)
            if standby is not None:
                self._put_standby(guest, standby)

    def remove_one(self, host: int, guests: frozenset[int]) -> None:
        """Takes one of guests that cannot be together away from a host."""
        there = [
            guest
            for guest in guests
            if guest in self._hosts and host in (self._hosts[guest], self._standbys.get(guest))
        ]
        if len(there) < len(guests):
            return  # Another conflict took one away already.
        # A guest that is there today costs a move, and the greatest makes most room.
        today = self._problem.today()

        def cost(guest: int) -> tuple[bool, float, int]:
            stays = host in (today.hosts[guest], today.standbys[guest])
            return stays, -self._needed[guest], guest

        victim = min(there, key=cost)
        standby = self._standbys.pop(victim, None)
        if standby is not None:
            self._of[standby][self._hosts[victim]].discard(victim)
            self._add_up(standby)
        if standby != host:
            self._own[host].discard(victim)
            self._add_up(host)
            del self._hosts[victim]
            if standby is not None:
                self._standbys[victim] = standby  # It stays, if it can, once the guest has a host.

    def _by_room(self, guest: int) -> Iterator[int]:
        """The hosts that may have a guest, where it is today first, then by room."""
        allowed = self._allowed[guest]
        today = self._problem.today_of(guest)
        yield from (host for host in today if host in allowed)
        yield from (host for _, host in self._by_load if host in allowed)

    def _add_up(self, host: int) -> None:
        """Works out what a host needs, whenever its guests or standbys change."""
        taken = [self._sum(host, guests) for guests in self._of[host].values()]
        needed = self._sum(host, self._own[host]) + max(taken, default=0.0)
        del self._by_load[bisect_left(self._by_load, (self._loads[host], host))]
        self._loads[host] = needed / self._cpus[host]
        insort(self._by_load, (self._loads[host], host))

    def _sum(self, host: int, guests: set[int]) -> float:
        return sum(self._holding.share(host, guest) or 0.0 for guest in guests)

    def _takes(self, host: int, guest: int) -> bool:
        """Whether a host may have room for a guest."""
        if host not in self._allowed[guest] or self._standbys.get(guest) == host:
            return False
        apart = self._apart.get(guest, ())
        if any(self._hosts.get(o) == host or self._standbys.get(o) == host for o in apart):
            return False
        groups = list(self._of[host].values()) or [set()]
        return all(self._fits(host, self._own[host] | group | {guest}) for group in groups)

    def _takes_standby(self, host: int, guest: int) -> bool:
        """Whether a host may have room for a guest whose own host fails."""
        own = self._hosts[guest]
        if host == own or host not in self._allowed[guest]:
            return False
        if any(self._hosts.get(other) == host for other in self._apart.get(guest, ())):
            return False
        return self._fits(host, self._own[host] | self._of[host][own] | {guest})

    def _fits(self, host: int, guests: set[int]) -> bool:
        if not self._holding.fits(host, guests):
            return False
        if sum(self._minima[guest] for guest in guests) > self._links[host]:
            return False
        return self._cuts.allow(host, guests)

    def _put(self, guest: int, host: int) -> None:
        self._hosts[guest] = host
        self._own[host].add(guest)
        self._add_up(host)

    def _put_standby(self, guest: int, standby: int) -> None:
        self._standbys[guest] = standby
        self._of[standby][self._hosts[guest]].add(guest)
        self._add_up(standby)
