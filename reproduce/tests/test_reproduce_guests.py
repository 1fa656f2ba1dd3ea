"""What traces tell of guests, on traces of a few records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from laxity import tracefile
from laxity_reproduce.rt_xen.on_xen import guests

US = 1000
TICK = {"period_ns": 4_000 * US, "offset_ns": 1_000 * US}

TRACES: dict[Path, np.ndarray] = {}


@pytest.fixture(autouse=True)
def _traces(monkeypatch: pytest.MonkeyPatch) -> None:
    TRACES.clear()
    monkeypatch.setattr(tracefile, "records", TRACES.__getitem__)


def trace(*events: tuple[int, str, int]) -> Path:
    """A trace of domain 0; an event is its time in us, kind and argument."""
    path = Path(str(len(TRACES)))
    records = [
        (time_us * US, argument, 0, 0, 0, tracefile.number_of(kind), 0)
        for time_us, kind, argument in events
    ]
    TRACES[path] = np.array(records, tracefile.RECORD)
    return path


def served(wake_us: int, runs_us: int, decision_ns: int = 0) -> list[tuple[int, str, int]]:
    """A VCPU wakes, runs and blocks."""
    start_us, end_us = wake_us + 10, wake_us + 10 + runs_us
    return [
        (wake_us, "wake", 0),
        (start_us, "schedule", decision_ns),
        (start_us, "run", 0),
        (end_us, "block", 0),
        (end_us, "stop", 0),
    ]


def test_a_tick_takes_what_an_idle_guest_ran_for_it() -> None:
    at_the_tick = served(5_003, 28, decision_ns=8_000)
    for_a_job = [(9_000, "release", 0), *served(9_003, 500), (9_400, "complete", 0)]
    between = served(11_000, 70)
    preempted = [event for event in served(13_003, 28) if event[1] != "block"]
    path = trace(*at_the_tick, *for_a_job, *between, *preempted)
    assert guests.tick_costs_ns(path, [TICK]) == [20 * US]
    assert guests.tick_costs_ns(trace(), [TICK]) == []


def test_a_job_takes_what_a_guest_without_any_left_ran_longer() -> None:
    def run(longer_us: int) -> Path:
        done = [
            event
            for start_us in (0, 10_000)
            for event in (
                (start_us, "release", 0),
                (start_us, "run", 0),
                (start_us + 500 + longer_us, "complete", 0),
                (start_us + 500 + longer_us, "stop", 0),
            )
        ]
        # A job that is not complete in the end: it takes what it gets.
        return trace(*done, (20_000, "release", 0), (20_000 + longer_us, "run", 0))

    assert guests.job_cost_ns(run(0), run(50), 1) == 50 * US
    assert guests.job_cost_ns(run(0), trace(), 1) == 0


def test_budgets_that_come_before_a_wake_for_the_same_instant() -> None:
    def order(*kinds: str, apart_us: int = 5) -> list[tuple[int, str, int]]:
        return [(apart_us * place, kind, 0) for place, kind in enumerate(kinds)]

    dropped = trace(*order("release", "release", "replenish", "wake"))
    assert guests.budgets_before_wakes(dropped, 0) == 1
    assert guests.budgets_before_wakes(dropped, 1) == 0
    kept = trace(*order("release", "wake", "replenish"))
    assert guests.budgets_before_wakes(kept, 0) == 0
    # The job was done at once; the VCPU woke for something else.
    later = trace(*order("release", "replenish", "wake", apart_us=5_000))
    assert guests.budgets_before_wakes(later, 0) == 0


def test_turns_that_end_late() -> None:
    path = trace(
        *((0, "run", 1_000 * US), (1_002, "stop", 1)),
        # By something else: early, or long after an end that was put off.
        *((2_000, "run", 3_000 * US), (2_500, "stop", 1)),
        *((3_000, "run", 4_000 * US), (5_000, "stop", 1)),
    )
    assert guests.late_ends_ns(path) == [2 * US]
