"""Guests for which there was no room are placed by moving those of a few hosts.

Large neighbourhood search (Shaw, 1998): the solver gets one guest more at a time, and all guests of
some hosts; every other guest stays where it is. It needs no more work for a large fleet than for a
small one, and proves nothing where it fails.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from laxity.fleet import exact
from laxity.fleet.problem import Placement
from laxity.progress import silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.fleet.cuts import Cuts
    from laxity.fleet.held import Holding
    from laxity.fleet.problem import Problem
    from laxity.progress import Say

SIZES = (3, 5, 8, 8, 12, 12)
"""Hosts whose guests may move, for each attempt to place one more guest."""

ATTEMPTS_MAX = 24
"""Attempts for all guests together."""

WORK = 1.0
"""The solver's limit for an attempt, in its own units of work."""

WAYS_OUT = 2
"""Hosts with most room that are added: guests that may be there can make room on the others."""

ROUNDS = 15
"""Placements of an attempt that analysis looks at, at most."""


def place(
    problem: Problem, holding: Holding, cuts: Cuts, looking: Say, near: Placement
) -> Placement | None:
    """Completes a placement in which every host holds; None if that was not found."""
    draw = random.Random(1)  # noqa: S311 - no secret
    left = ATTEMPTS_MAX
    near = near.without(problem.missing(near))
    while missing := problem.missing(near):
        if len(missing) > left:
            return None
        # The greatest has fewest places.
        guest = max(missing, key=lambda guest: (_need(problem, holding, guest), -guest))
        for hosts in _sets_of_hosts(problem, holding, near, guest, draw):
            looking(f"{len(missing)} guests have no room: moving those of {len(hosts)} hosts")
            places, staying = _places(problem, near, guest, hosts)
            part = problem.confined(places)
            left -= 1
            if exact.fits(part):
                found = exact.place(
                    part,
                    holding,
                    cuts,
                    silent,
                    near=near,
                    fewest=False,
                    work=WORK,
                    rounds=ROUNDS,
                    staying=staying,
                )
                if isinstance(found, Placement):
                    near = near.updated(found)
                    break
            if left == 0:
                return None
        else:
            return None
    # Each part was looked at by itself; the whole is what counts.
    return None if cuts.learn(near.loads()) else near


def _need(problem: Problem, holding: Holding, guest: int) -> float:
    return max(holding.share(host, guest) or 0.0 for host in problem.allowed(guest))


def _sets_of_hosts(
    problem: Problem, holding: Holding, near: Placement, guest: int, draw: random.Random
) -> Iterator[set[int]]:
    """Some of the hosts that may have a guest: those with most room first, then more by chance.

    With them come a few that may not have it.
    """
    allowed = set(problem.allowed(guest))
    room = {host: float(of_host.cpus) for host, of_host in enumerate(problem.file.hosts)}
    for other, host in enumerate(near.hosts):
        if host is not None:
            room[host] -= holding.share(host, other) or 0.0
    everywhere = sorted(room, key=lambda host: (-room[host], host))
    by_room = [host for host in everywhere if host in allowed]
    ways_out = set([host for host in everywhere if host not in allowed][:WAYS_OUT])
    for number, size in enumerate(SIZES):
        if number:
            # Each host's place in the order is drawn, with room as a start.
            chance = {host: draw.random() * (number + place) for place, host in enumerate(by_room)}
            yield set(sorted(by_room, key=lambda host: chance[host])[:size]) | ways_out
        else:
            yield set(by_room[:size]) | ways_out
        if size >= len(by_room):
            return


def _places(
    problem: Problem, near: Placement, guest: int, free: set[int]
) -> tuple[dict[int, set[int]], set[int]]:
    """Hosts that each guest of a part of the problem may have, and the guests that stay.

    What is on free hosts may be on any of these that may have it. Guests on hosts to which none of
    those can come are left out.
    """
    complete = {*problem.guests}.difference(problem.missing(near))
    here = {
        other: {host for host in (near.hosts[other], near.standbys[other]) if host is not None}
        for other in complete | {guest}
    }
    moving = {other for other, own in here.items() if other == guest or own & free}
    touched = free.union(*(here[other] for other in moving))
    staying = {other for other, own in here.items() if own & touched} - moving
    places = {other: here[other] | free for other in moving}
    return places | {other: here[other] for other in staying}, staying
