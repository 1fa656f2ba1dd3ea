"""What parts Xen from the simulator, on traces of a few records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from laxity import tracefile
from laxity_reproduce.rt_xen.on_xen import apart

US = 1000

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


def test_budgets_that_come_before_a_wake_for_the_same_instant() -> None:
    def order(*kinds: str, apart_us: int = 5) -> list[tuple[int, str, int]]:
        return [(apart_us * place, kind, 0) for place, kind in enumerate(kinds)]

    dropped = trace(*order("release", "release", "replenish", "wake"))
    assert apart.budgets_before_wakes(dropped, 0) == 1
    assert apart.budgets_before_wakes(dropped, 1) == 0
    kept = trace(*order("release", "wake", "replenish"))
    assert apart.budgets_before_wakes(kept, 0) == 0
    # The job was done at once; the VCPU woke for something else.
    later = trace(*order("release", "replenish", "wake", apart_us=5_000))
    assert apart.budgets_before_wakes(later, 0) == 0


def test_turns_that_end_late() -> None:
    path = trace(
        *((0, "run", 1_000 * US), (1_002, "stop", 1)),
        # By something else: early, or long after an end that was put off.
        *((2_000, "run", 3_000 * US), (2_500, "stop", 1)),
        *((3_000, "run", 4_000 * US), (5_000, "stop", 1)),
    )
    assert apart.late_ends_ns(path) == [2 * US]
