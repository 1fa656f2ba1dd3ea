"""Proofs without a search that there is no placement, for fleets too large for the solver.

What guests need by themselves is added up, and compared with what all hosts have that may have
them: a bound that every placement has to keep, as the continuous relaxation of bin packing does
(Martello and Toth, Knapsack Problems, 1990, section 8.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from laxity.fleet.held import EPSILON, STEPS
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
        cpus = sum(problem.file.hosts[host].cpus for host in hosts)
        have = f"{number(len(hosts), 'host')} that may have them have"
        for standing in _standing(problem, hosts, guests):
            also = ("protected",) if standing else ()
            while_down = " while any one host is down" if standing else ""
            for kind, needs in enumerate(_least(holding, hosts, guests)):
                found, needed = _too_many(needs, standing, cpus + EPSILON * len(hosts))
                if found:
                    by = f", counted in {STEPS[kind - 1]} parts of a CPU" if kind else ""
                    said = (
                        f"{number(len(found), 'guest')} need at least {needed:.1f} CPUs by "
                        f"themselves{while_down}{by}, and the {have} {cpus}."
                        if needed < inf
                        else "No values were found with which the guest holds by itself."
                    )
                    return _of(problem, hosts, found, ("guest", *also), said)
            minima = {guest: float(problem.minimum(guest)) for guest in guests}
            links = sum(map(problem.link, hosts))
            found, promised = _too_many(minima, standing, links)
            if found:
                said = (
                    f"{number(len(found), 'guest')} are promised {rate(int(promised))}"
                    f"{while_down}, and the links of the {have} {rate(links)}."
                )
                return _of(problem, hosts, found, ("guest", "minimum", *also), said)
    return None


def _standing(
    problem: Problem, hosts: frozenset[int], guests: list[int]
) -> Iterator[dict[int, float]]:
    """Factors by which guests count more than once: none does at first.

    Each of n hosts fails in turn: each host is then there n - 1 times, a protected
    guest runs n times, and another guest n - 1 times.
    """
    yield {}
    protected = [guest for guest in guests if problem.protected(guest)]
    if protected and len(hosts) > 1:
        yield dict.fromkeys(protected, len(hosts) / (len(hosts) - 1))


def _least(holding: Holding, hosts: frozenset[int], guests: list[int]) -> list[dict[int, float]]:
    """The least that guests need on any of these hosts, in each way in which needs are counted."""
    likes = holding.likes(hosts)
    nothing_is_enough = (inf,) * (1 + len(STEPS))
    all_needs = {
        guest: [holding.needs(like, guest) or nothing_is_enough for like in likes]
        for guest in guests
    }
    return [
        {guest: min(needs[kind] for needs in of_likes) for guest, of_likes in all_needs.items()}
        for kind in range(1 + len(STEPS))
    ]


def _too_many(
    needs: dict[int, float], factors: dict[int, float], have: float
) -> tuple[list[int], float]:
    """The fewest guests that need more than there is, and what they need; none if all fit."""
    whole = {guest: need * factors.get(guest, 1.0) for guest, need in needs.items()}
    needed = 0.0
    found = []
    for guest in sorted(whole, key=lambda guest: (-whole[guest], guest)):
        found.append(guest)
        needed += whole[guest]
        if needed > have * (1 + EPSILON):
            return found, needed
    return [], needed


def _of(
    problem: Problem, hosts: frozenset[int], guests: list[int], asked: tuple[str, ...], said: str
) -> Overfull:
    kinds = asked if len(hosts) == len(problem.file.hosts) else (*asked, "hosts")
    demands = {Asked(kind, (guest,)) for kind in kinds for guest in guests}
    return Overfull(problem.with_only(demands & problem.asked), said)
