"""Whether what clients saw of a user is possible: a checker of concurrent operations.

A user is one object: the contacts under which the user is registered, and the calls to the user
that stand. Several clients act on the object at once. Their history is *linearizable* (Herlihy and
Wing 1990) if each operation could have taken effect at one instant between its invocation and its
answer. An operation without an answer may have taken effect at any time since its invocation, or
never. The search is that of Wing and Gong (1993), and remembers where it has been (Lowe 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PLACES_MAX = 2_000_000
"""How many places a search remembers, some 400 bytes each."""

Kind = Literal["register", "unregister", "lookup", "invite", "bye"]
Seen = frozenset[str] | str | bool | None
"""What an operation was told: see `after`."""


@dataclass(frozen=True)
class Operation:
    """An operation on one user, as the client saw it."""

    kind: Kind
    about: str
    """The contact of `register`, and the call of `invite` and `bye`."""
    seen: Seen
    begin: float
    end: float = math.inf
    """The time of the answer; infinite without one."""

    @property
    def is_answered(self) -> bool:
        return self.end < math.inf


@dataclass(frozen=True)
class State:
    """A user."""

    contacts: frozenset[str] = field(default_factory=frozenset)
    calls: frozenset[str] = field(default_factory=frozenset)


def after(state: State, operation: Operation) -> State | None:
    """The state after an operation; None if the operation cannot have been told what it was.

    `register` adds a contact, and `unregister` removes all of them. `lookup` is told the contacts,
    `invite` the contact that it reached, or None if there was none, and `bye` whether the call
    stood. An operation without an answer was told nothing.
    """
    contacts, calls, seen = state.contacts, state.calls, operation.seen
    is_possible = True
    match operation.kind:
        case "register":
            contacts |= {operation.about}
        case "unregister":
            contacts = frozenset()
        case "lookup":
            is_possible = seen == contacts
        case "invite":
            is_possible = seen in contacts if contacts else seen is None
            calls |= {operation.about} if contacts else set()
        case "bye":
            is_possible = seen == (operation.about in calls)
            calls -= {operation.about}
    return State(contacts, calls) if is_possible or not operation.is_answered else None


class SearchError(Exception):
    """The search has been at more places than it can remember."""


def is_linearizable(history: Sequence[Operation], initial: State | None = None) -> bool:
    """Whether there is an order of the operations that explains all that was seen.

    Raises SearchError if too many orders had to be looked at to tell.
    """
    # A question without an answer explains nothing. What was answered first is tried first, since
    # it is put on the stack last. Those without an answer come in the order in which they began.
    operations = [each for each in history if each.is_answered or each.kind != "lookup"]
    operations.sort(key=lambda each: (-each.end, each.begin))
    answered = sum(1 << at for at, each in enumerate(operations) if each.is_answered)
    reached = {(0, initial or State())}
    unexplored = list(reached)
    while unexplored:
        done, state = unexplored.pop()
        if done & answered == answered:
            return True
        left = [(at, each) for at, each in enumerate(operations) if not done >> at & 1]
        # Whatever begins after an answer comes after the answered operation.
        until = min(each.end for _, each in left)
        alike: set[tuple[Kind, str]] = set()
        for at, each in left:
            if each.begin > until:
                continue
            next_state = after(state, each)
            if next_state is None:
                continue
            if not each.is_answered:
                # One that changes nothing here may as well have no effect, and of several that do
                # the same, the one that began first is as good as any.
                if next_state == state or (each.kind, each.about) in alike:
                    continue
                alike.add((each.kind, each.about))
            place = (done | 1 << at, next_state)
            if place not in reached:
                reached.add(place)
                unexplored.append(place)
        if len(reached) > PLACES_MAX:
            raise SearchError(f"{len(reached)} places for {len(operations)} operations")
    return False


def first_impossible(
    history: Iterable[Operation], initial: State | None = None
) -> Operation | None:
    """The first answer that the operations before it cannot explain; None if there is none.

    A prefix of a linearizable history is linearizable.
    """
    operations = sorted(history, key=lambda each: each.begin)
    answered = sorted((each for each in operations if each.is_answered), key=lambda each: each.end)

    def is_possible(number: int) -> bool:
        """Whether the history up to the answer with this number is linearizable."""
        now = answered[number].end
        seen = [
            each if each.end <= now else Operation(each.kind, each.about, None, each.begin)
            for each in operations
            if each.begin <= now
        ]
        return is_linearizable(seen, initial)

    possible, impossible = -1, len(answered)
    while possible + 1 < impossible:
        middle = (possible + impossible) // 2
        if is_possible(middle):
            possible = middle
        else:
            impossible = middle
    return answered[impossible] if impossible < len(answered) else None
