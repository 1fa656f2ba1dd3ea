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
        count = number(len(hosts), "host")
        for standing in _standing(problem, hosts, guests):
            share = (len(hosts) - 1) / len(hosts) if standing else 1.0
            when = "With each host down in turn, " if standing else ""
            those = "the hosts that are left" if standing else f"the {count} that may have them"
            have = f"have{' on average' if standing else ''}"
            for kind, needs in enumerate(_least(holding, hosts, guests)):
                over = _too_many(needs, standing, cpus + EPSILON * len(hosts))
                if over is not None:
                    by = f", counted in {STEPS[kind - 1]} parts of a CPU" if kind else ""
                    said = (
                        f"{when}{number(len(over.guests), 'guest')} need at least "
                        f"{over.needed * share:.1f} CPUs by themselves{by}, and {those} {have} "
                        f"{cpus * share:.4g}."
                        if over.needed < inf
                        else "No values were found with which the guest holds by itself."
                    )
                    return _of(problem, hosts, over, ("guest",), said)
            minima = {guest: float(problem.minimum(guest)) for guest in guests}
            links = sum(map(problem.link, hosts))
            over = _too_many(minima, standing, links)
            if over is not None:
                said = (
                    f"{when}{number(len(over.guests), 'guest')} are promised "
                    f"{rate(int(over.needed * share))}, and the links of {those} {have} "
                    f"{rate(int(links * share))}."
                )
                return _of(problem, hosts, over, ("guest", "minimum"), said)
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


@dataclass(frozen=True)
class _TooMany:
    """Guests that need more than there is; without any of them the others fit."""

    guests: list[int]
    standing: set[int]
    """Those of them whose standby counts: without any of these standbys all fit."""
    needed: float


def _too_many(needs: dict[int, float], factors: dict[int, float], have: float) -> _TooMany | None:
    """The fewest guests that need more than there is, and the fewest standbys; None if all fit."""
    have *= 1 + EPSILON

    def whole(guest: int) -> float:
        return needs[guest] * factors.get(guest, 1.0)

    needed = 0.0
    found: list[int] = []
    for guest in sorted(needs, key=lambda guest: (-whole(guest), guest)):
        found.append(guest)
        needed += whole(guest)
        if needed > have:
            break
    else:
        return None
    standing = set(found).intersection(factors)
    for guest in sorted(standing, key=lambda guest: (needs[guest], guest)):
        without = needed - whole(guest) + needs[guest]
        if without > have:
            needed = without
            standing.remove(guest)
    return _TooMany(found, standing, needed)


def _of(
    problem: Problem, hosts: frozenset[int], over: _TooMany, asked: tuple[str, ...], said: str
) -> Overfull:
    kinds = asked if len(hosts) == len(problem.file.hosts) else (*asked, "hosts")
    demands = {Asked(kind, (guest,)) for kind in kinds for guest in over.guests}
    demands |= {Asked("protected", (guest,)) for guest in over.standing}
    return Overfull(problem.with_only(demands & problem.asked), said)
