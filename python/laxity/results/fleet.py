"""The result of `laxity design` for a fleet: where guests go, or demands that cannot hold."""

from __future__ import annotations

from dataclasses import dataclass

from laxity.results.records import encoded


@dataclass(frozen=True)
class PlacedHost:
    """A host with its guests."""

    name: str
    guests: tuple[str, ...]
    standbys: tuple[str, ...]
    """The guests that run here once their own host has failed."""
    cpu_share: float
    """The part of all CPUs' time that is reserved as budgets."""
    cpu_share_most: float
    """The same after the failure that costs the host most; `cpu_share` if none does."""
    failures: int
    """The hosts whose failure brings guests here; every deadline holds after each of them."""
    guaranteed: int
    """The tasks whose deadlines are guaranteed by analysis."""
    minimum_bit_s: int
    """What is promised of the link, after the failure that promises most."""
    link_bit_s: int | None
    host: str | None
    """The host file with all values; None if the host has no guest."""


@dataclass(frozen=True)
class Move:
    """A guest or a standby that does not stay where it is."""

    guest: str
    what: str
    """`guest` or `standby`."""
    here: str | None
    """The host where it is today; None if it is nowhere yet."""
    to: str


@dataclass(frozen=True)
class Conflict:
    """One of the demands that cannot hold together."""

    what: str
    """`guest` (it runs), `protected`, `hosts`, `minimum` or `apart`."""
    guests: tuple[str, ...]
    said: str
    """The demand in words."""


@dataclass(frozen=True)
class TooMuch:
    """Guests that cannot share a host: no values were found with which it holds.

    Without any one of them, some were.
    """

    hosts: tuple[str, ...]
    """All hosts of that sort."""
    guests: tuple[str, ...]
    """One guest that a host cannot have at all, or several."""
    is_proved: bool
    """Whether they hold on no CPUs that they may have there; otherwise the search for CPUs came to
    its end, or calls were not accepted in simulation."""


@dataclass(frozen=True, repr=False)
class FleetDesign:
    """What was found. `to_json()` is the object that `laxity design --json` prints."""

    verdict: str
    """`holds`, `impossible`, or `unknown`: nothing was found, and nothing proved."""
    hosts: tuple[PlacedHost, ...] = ()
    moves: tuple[Move, ...] = ()
    moves_least: int | None = None
    """No placement has fewer moves of what is somewhere today."""
    reasons: tuple[str, ...] = ()
    conflict: tuple[Conflict, ...] = ()
    """Demands that cannot hold together. With the verdict `unknown`, demands for which no placement
    was found, which proves nothing."""
    is_minimal: bool | None = None
    """Whether the others are known to hold without any one of them; None without a conflict."""
    too_much: tuple[TooMuch, ...] = ()
    """Guests that cannot share a host, as far as the search met them."""
    left_out: tuple[str, ...] = ()
    """With the verdict `unknown`, the guests for which the first placement had no room."""

    @property
    def holds(self) -> bool:
        """Whether there is a placement."""
        return self.verdict == "holds"

    @property
    def moved(self) -> int:
        """The moves of what is somewhere today."""
        return sum(move.here is not None for move in self.moves)

    def to_json(self) -> dict[str, object]:
        """Returns the object as the command line prints it."""
        return encoded(self)

    def __repr__(self) -> str:
        """One line: the verdict, the hosts, the moves."""
        return f"<laxity.FleetDesign {self.verdict}: {len(self.hosts)} hosts, {self.moved} moves>"
