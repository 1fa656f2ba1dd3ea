"""What a placement changes, and what every placement must change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.results.fleet import Move

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.fleet.cuts import Cuts
    from laxity.fleet.problem import Placement, Problem


def moves_of(problem: Problem, placement: Placement) -> Iterator[Move]:
    """Guests and standbys that do not stay where they are, or that are new."""
    today = problem.today()
    hosts = problem.file.hosts
    for guest in problem.guests:
        for what, before, after in (
            ("guest", today.hosts[guest], placement.hosts[guest]),
            ("standby", today.standbys[guest], placement.standbys[guest]),
        ):
            if after is not None and after != before:
                here = None if before is None else hosts[before].name
                yield Move(problem.file.guests[guest].name, what, here, hosts[after].name)


def least_moves(problem: Problem, cuts: Cuts) -> int:
    """The moves that every placement needs at least.

    One of each set of guests that cannot be together today must move, and so sets that have no
    guest in common need a move each.
    """
    taken: set[int] = set()
    least = 0
    for guests in _wrong_today(problem, cuts):
        if not taken & guests:
            taken |= guests
            least += 1
    return least


def _wrong_today(problem: Problem, cuts: Cuts) -> Iterator[frozenset[int] | set[int]]:
    """Sets of guests that cannot be where they are, as small as they are known."""
    today = problem.today()
    for guest in problem.guests:
        there = {today.hosts[guest], today.standbys[guest]} - {None}
        if there - set(problem.allowed(guest)):
            yield {guest}
    loads = today.loads()
    apart = problem.apart()
    for (host, _), guests in loads.items():
        for guest in guests:
            for other in apart.get(guest, set()) & guests:
                yield {guest, other}
        promised = sum(map(problem.minimum, guests))
        if promised > problem.link(host):
            yield guests
    for _, guests in cuts.learn(loads):
        yield guests
