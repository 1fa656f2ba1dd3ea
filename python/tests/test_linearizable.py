"""The checker of what clients saw of a user, against a reference that tries every order."""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from itertools import chain, combinations, permutations
from typing import TYPE_CHECKING

import pytest
from linearizable import Operation, first_impossible, is_linearizable

if TYPE_CHECKING:
    from collections.abc import Sequence

SEED = int(os.environ.get("LAXITY_SEED", "0"))
HISTORIES = 2000
KINDS = ("register", "unregister", "lookup", "invite", "bye")


def sees(kind: str, about: str, before: Sequence[Operation]) -> object:
    """What an operation is told after others, found by looking back, one question at a time."""
    since = max((n + 1 for n, each in enumerate(before) if each.kind == "unregister"), default=0)
    contacts = {each.about for each in before[since:] if each.kind == "register"}
    if kind == "lookup":
        return frozenset(contacts)
    if kind == "invite":
        return contacts or {None}
    stands = False
    for number, each in enumerate(before):
        if each.about == about and each.kind == "bye":
            stands = False
        elif each.about == about and each.kind == "invite":
            stands = stands or None not in sees("invite", about, before[:number])  # type: ignore[operator]
    return stands


def explains(order: Sequence[Operation]) -> bool:
    """Whether operations one after the other are told what these were, and in this order."""
    for number, each in enumerate(order):
        if any(later.end < each.begin for later in order[number + 1 :]):
            return False
        if each.end == math.inf or each.kind in {"register", "unregister"}:
            continue
        told = sees(each.kind, each.about, order[:number])
        if not (each.seen in told if each.kind == "invite" else each.seen == told):  # type: ignore[operator]
            return False
    return True


def by_brute_force(history: Sequence[Operation]) -> bool:
    answered = [each for each in history if each.end < math.inf]
    others = [each for each in history if each.end == math.inf]
    subsets = chain.from_iterable(combinations(others, size) for size in range(len(others) + 1))
    return any(
        explains(order) for subset in subsets for order in permutations([*answered, *subset])
    )


def made_up(
    draw: random.Random, size: int, clients: int, answered: float = 0.8, sure: str = ""
) -> list[Operation]:
    """A history of a user who exists: each operation takes effect between its two ends.

    A share of the operations is answered, and all of the kind `sure`.
    """
    free = [0.0] * clients
    planned = []
    for _ in range(size):
        client = draw.randrange(clients)
        begin = free[client] + draw.random()
        effect = begin + draw.random()
        end = effect + draw.random()
        free[client] = end
        kind = draw.choice(KINDS)
        about = draw.choice("ab") if kind == "register" else draw.choice("xyz")
        is_answered = draw.random() < answered or kind == sure
        if is_answered or draw.random() < 0.5:
            planned.append((effect, Operation(kind, about, None, begin, end), is_answered))
    planned.sort(key=lambda each: each[0])
    history: list[Operation] = []
    for _, operation, _ in planned:
        told = sees(operation.kind, operation.about, history)
        if operation.kind == "invite":
            told = draw.choice(sorted(told, key=str))  # type: ignore[call-overload]
        seen = None if operation.kind in {"register", "unregister"} else told
        history.append(replace(operation, seen=seen))  # type: ignore[arg-type]
    for number, (_, _, is_answered) in enumerate(planned):
        if not is_answered:
            history[number] = replace(history[number], seen=None, end=math.inf)
    draw.shuffle(history)
    return history


def spoilt(draw: random.Random, history: list[Operation]) -> list[Operation]:
    """A history in which one answer is another one, which may be possible all the same."""
    at = draw.randrange(len(history))
    other = {
        "lookup": draw.choice([frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")]),
        "invite": draw.choice(["a", "b", None]),
        "bye": draw.choice([False, True]),
    }.get(history[at].kind)
    return [*history[:at], replace(history[at], seen=other), *history[at + 1 :]]


def test_it_agrees_with_every_order_tried() -> None:
    draw = random.Random(SEED)  # noqa: S311 - no secret
    verdicts = {True: 0, False: 0}
    for number in range(HISTORIES):
        history = made_up(draw, draw.randint(1, 6), draw.randint(1, 3)) or [
            Operation("lookup", "", frozenset(), 0, 1)
        ]
        assert is_linearizable(history), (SEED, number, history)
        changed = spoilt(draw, history)
        expected = by_brute_force(changed)
        assert is_linearizable(changed) == expected, (SEED, number, changed)
        assert (first_impossible(changed) is None) == expected, (SEED, number, changed)
        verdicts[expected] += 1
    assert min(verdicts.values()) > HISTORIES // 10, (SEED, verdicts)


def test_long_histories_are_possible_until_a_registration_is_forgotten() -> None:
    draw = random.Random(SEED)  # noqa: S311 - no secret
    for number in range(3):
        # A user whom nobody answered that the user is gone may go later.
        history = made_up(draw, 150, 6, answered=0.97, sure="unregister")
        assert first_impossible(history) is None, (SEED, number)
        later = max(each.end for each in history if each.end < math.inf) + 1
        kept = Operation("register", "kept", None, later, later + 1)
        found = Operation("lookup", "", frozenset(), later + 2, later + 3)
        assert first_impossible([*history, kept, found]) == found, (SEED, number)


@pytest.mark.slow
def test_what_nobody_answered_for_long_is_searched_soon() -> None:
    """After a takeover that took minutes, each client has given up again and again."""
    unanswered = [
        Operation(kind, about, None, begin)
        for begin in range(40)
        for kind, about in (("register", "a"), ("register", "b"), ("unregister", ""))
    ]
    found = Operation("lookup", "", frozenset("ab"), 50, 51)
    assert is_linearizable([*unanswered, found])
    never = Operation("lookup", "", frozenset("c"), 52, 53)
    assert first_impossible([*unanswered, found, never]) == never


def test_an_answer_that_came_to_nobody_may_have_taken_effect() -> None:
    register = Operation("register", "a", None, 0)
    there = Operation("lookup", "", frozenset("a"), 1, 2)
    not_there = Operation("lookup", "", frozenset(), 3, 4)
    assert is_linearizable([register, there])
    assert is_linearizable([register, not_there])
    assert first_impossible([register, there, not_there]) == not_there


def test_a_call_is_ended_once() -> None:
    registered = Operation("register", "a", None, 0, 1)
    call = Operation("invite", "x", "a", 2, 3)
    ended = Operation("bye", "x", seen=True, begin=4, end=5)
    again = Operation("bye", "x", seen=True, begin=4.5, end=6)
    assert is_linearizable([registered, call, ended])
    assert first_impossible([registered, call, ended, again]) == again
    assert first_impossible([call]) == call
