"""Sets of guests that analysis found too much for a host: constraints of every later placement.

Sets are minimal: without any one of its guests, the host holds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.fleet.held import Guests, Holding
    from laxity.fleet.problem import Loads


class Cuts:
    """What was learned of each sort of host."""

    def __init__(self, holding: Holding) -> None:
        """Begins with nothing."""
        self._holding = holding
        self._of: dict[tuple[int, int], list[Guests]] = defaultdict(list)
        """By sort of host and the first guest."""
        self._all: set[tuple[int, Guests]] = set()

    def __len__(self) -> int:
        """How many sets there are."""
        return len(self._all)

    def __iter__(self) -> Iterator[tuple[int, Guests]]:
        """Each with the sort of host, in an order that is the same in every run."""
        return iter(sorted(self._all, key=lambda cut: (cut[0], sorted(cut[1]))))

    def allow(self, host: int, guests: set[int]) -> bool:
        """Whether no such set is among these guests."""
        like = self._holding.file.hosts[host].like
        return not any(cut <= guests for guest in guests for cut in self._of.get((like, guest), ()))

    def learn(self, loads: Loads) -> list[tuple[int, Guests]]:
        """Has every host looked at, and returns each host that does not hold with a minimal set."""
        self._holding.look((host, guests) for (host, _), guests in loads.items())
        found = []
        for (host, _), guests in loads.items():
            if not self._holding.holds(host, guests):
                cut = self._minimal(host, guests)
                self._add(host, cut)
                found.append((host, cut))
        return found

    def _add(self, host: int, cut: Guests) -> None:
        like = self._holding.file.hosts[host].like
        if (like, cut) not in self._all:
            self._all.add((like, cut))
            self._of[like, min(cut)].append(cut)

    def _minimal(self, host: int, guests: Guests) -> Guests:
        """A deletion filter (Chinneck and Dravnieks, 1991): the smallest guests go first."""
        share = self._holding.share
        for guest in sorted(guests, key=lambda guest: (share(host, guest) or 0.0, guest)):
            if len(guests) > 1 and not self._holding.holds(host, guests - {guest}):
                guests -= {guest}
        return guests
