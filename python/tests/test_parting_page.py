"""What parts two traces first, in words (tools/pages/parting.py)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from laxity import tracefile
from laxity.host import Host

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "pages"))
import parting

HOST = """
duration = "400 ms"
host = { cpus = 1, policy = "fifo" }
[[domain]]
name = "d0"
tasks = [{ name = "one", cost = "3 ms", period = "20 ms" }]
[[domain]]
name = "d1"
[[domain.tasks]]
name = "two"
cost = "5 ms"
period = "50 ms"
deadline = "7 ms"
offset = "1 ms"
"""


@pytest.mark.parametrize(
    ("change", "at_ms", "seen"),
    [
        (
            "domain.d0.tasks.one.cost=3.4 ms",
            3.0,
            "d0 on Xen, d1 in the simulator; a job of d0 ends 400 us later on Xen",
        ),
        (
            "domain.d1.tasks.two.offset=500 us",
            50.5,
            "d1 on Xen, idle in the simulator; d1 wakes on Xen alone, then",
        ),
        (
            "domain.d1.tasks.two.cost=5.1 ms",
            None,
            "jobs that are in time on one side alone end 100 us apart (median)",
        ),
        ("domain.d1.weight=9", None, "all jobs are in time in both or in neither"),
    ],
)
def test_what_differs_first_is_said(
    tmp_path: Path, change: str, at_ms: float | None, seen: str
) -> None:
    host = Host.parse(HOST)
    host.run(trace=tmp_path / "model")
    host.run(trace=tmp_path / "real", set=[change])
    found = parting.first(tmp_path / "model", tmp_path / "real", host.resolve([]).host)
    assert found == parting.Parting(at_ms, seen)


def told(*records: tuple[int, str, int, int]) -> parting.Records:
    """Records of times in us, kinds, domains, and arguments."""
    all_of_them = np.zeros(len(records), tracefile.RECORD)
    for one, (time_us, kind, domain, argument) in zip(all_of_them, records, strict=True):
        one["time_ns"], one["kind"] = 1_000 * time_us, tracefile.number_of(kind)
        one["domain"], one["argument"] = domain, argument
    return all_of_them


def test_events_in_another_order_are_said() -> None:
    model = told((100, "wake", 1, 0), (140, "block", 0, 0), (150, "wake", 2, 0))
    real = told((90, "wake", 1, 0), (160, "block", 0, 0), (152, "wake", 2, 0))
    said = parting.events_swapped(model, real, 160_000)
    assert said == "d2 wakes 8 us before d0 blocks on Xen, and 10 us after in the simulator"
    assert parting.events_swapped(model, model, 160_000) == ""


def test_credits_of_another_class_are_said() -> None:
    model = told((0, "replenish", 0, 2_000_000), (0, "replenish", 1, -90_000))
    real = told((0, "replenish", 0, 2_500_000), (0, "replenish", 1, 130_000))
    said = parting.credits_apart(model, real, 1_000)
    assert said == "credits of d1: +0.13 ms on Xen, -0.09 in the simulator"
    assert parting.credits_apart(model, real, -1) == ""
