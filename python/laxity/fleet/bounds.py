"""Proofs without a search that there is no placement, for fleets too large for the solver.

What guests need by themselves is added up, and compared with what all hosts have that may have
them: a bound that every placement has to keep, as the continuous relaxation of bin packing does
(Martello and Toth, Knapsack Problems, 1990, section 8.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from laxity.fleet.held import EPSILON
from laxity.fleet.problem import Asked, Problem
from laxity.text import number, rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.fleet.held import Holding

SETS_MAX = 200
"""Sets of hosts that are looked at, at most: those with the fewest hosts, and all hosts."""


@dataclass(frozen=True)
class Overfull:
    """Demands of some guests that need more than all hosts have that may have them."""

    problem: Problem
    """The fleet with these demands alone; without any one of them the sums fit."""
    said: str


def confined(problem: Problem) -> Iterator[tuple[frozenset[int], list[int]]]:
    """Sets of hosts, each with the guests that may be on no other, the fewest hosts first."""
    everywhere = frozenset(range(len(problem.file.hosts)))
    allowed = {
        guest: frozenset(problem.allowed(guest))
        if Asked("hosts", (guest,)) in problem.asked
        else everywhere
        for guest in problem.guests
    }
    sets = sorted({*allowed.values()} - {everywhere}, key=lambda hosts: (len(hosts), sorted(hosts)))
    for hosts in [*sets[:SETS_MAX], everywhere]:
        yield hosts, [guest for guest, own in allowed.items() if own <= hosts]


def parts(problem: Problem) -> Iterator[Problem]:
    """The fleet with only the guests that are confined to some of its hosts, the fewest first."""
    for hosts, guests in confined(problem):
        if len(hosts) < len(problem.file.hosts):
            there = set(guests)
            yield problem.with_only(d for d in problem.asked if there.issuperset(d.guests))


def overfull(problem: Problem, holding: Holding) -> Overfull | None:
    """The fewest guests of some hosts that need more than these have; None if none do."""
    for hosts, guests in confined(problem):
        likes = holding.likes(hosts)
        shares = {guest: _least(holding, likes, guest) for guest in guests}
        cpus = sum(problem.file.hosts[host].cpus for host in hosts)
        found = _too_many(shares, cpus + EPSILON * len(hosts))
        if found:
            needed = sum(shares[guest] for guest in found)
            said = (
                f"{number(len(found), 'guest')} need at least {needed:.1f} CPUs by themselves, and "
                f"the {number(len(hosts), 'host')} that may have them have {cpus}."
                if needed < inf
                else "No values were found with which the guest holds by itself."
            )
            return _of(problem, hosts, found, ("guest",), said)
        minima = {guest: float(problem.minimum(guest)) for guest in guests}
        links = sum(map(problem.link, hosts))
        found = _too_many(minima, links)
        if found:
            promised = rate(int(sum(minima[guest] for guest in found)))
            said = (
                f"{number(len(found), 'guest')} are promised {promised}, and the links of the "
                f"{number(len(hosts), 'host')} that may have them have {rate(links)}."
            )
            return _of(problem, hosts, found, ("guest", "minimum"), said)
    return None


def _least(holding: Holding, likes: list[int], guest: int) -> float:
    """The least part of a CPU that a guest needs on hosts of these sorts."""
    shares = [holding.share(like, guest) for like in likes]
    return min((share for share in shares if share is not None), default=inf)


def _too_many(needs: dict[int, float], have: float) -> list[int]:
    """The fewest guests that need more than there is, the greatest first; none if all fit."""
    needed = 0.0
    found = []
    for guest in sorted(needs, key=lambda guest: (-needs[guest], guest)):
        found.append(guest)
        needed += needs[guest]
        if needed > have:
            return found
    return []


def _of(
    problem: Problem, hosts: frozenset[int], guests: list[int], asked: tuple[str, ...], said: str
) -> Overfull:
    kinds = asked if len(hosts) == len(problem.file.hosts) else (*asked, "hosts")
    demands = {Asked(kind, (guest,)) for kind in kinds for guest in guests}
    return Overfull(problem.with_only(demands & problem.asked), said)
