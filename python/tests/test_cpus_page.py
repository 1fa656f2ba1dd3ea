"""The hosts of the page about 1 to 64 CPUs: what is drawn, and where guests are placed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "pages"))
import cpus

if TYPE_CHECKING:
    from laxity import Host

LOADS = (30, 75, 95)


def utilization(guest: cpus.Guest) -> float:
    return sum(cost_us / period_us for cost_us, period_us, _ in guest.tasks)


def budgets_ns(hosts: list[Host]) -> list[int]:
    domains = [domain for host in hosts for domain in host.resolved()["domains"]]
    return sorted(domain["parameters"]["budget_ns"] for domain in domains)


@pytest.mark.parametrize("seed", cpus.SEEDS)
@pytest.mark.parametrize("count", [1, 8, 64])
def test_tasks_use_what_is_asked_and_budgets_more(count: int, seed: int) -> None:
    for percent in LOADS:
        guests = cpus.drawn(count, percent, seed)
        assert len(guests) == cpus.VCPUS_PER_CPU * count
        # Costs are whole microseconds, of tasks of at least 20 ms.
        assert sum(map(utilization, guests)) / count == pytest.approx(percent / 100, abs=1e-3)
        for guest in guests:
            above = guest.share / utilization(guest)
            assert above == pytest.approx(1 + cpus.RESERVE_PERCENT / 100, abs=0.02)


def test_a_load_changes_costs_and_budgets_alone() -> None:
    low, high = cpus.drawn(4, 30, 1), cpus.drawn(4, 90, 1)
    assert [guest.period_us for guest in low] == [guest.period_us for guest in high]
    assert [task[1:] for guest in low for task in guest.tasks] == [
        task[1:] for guest in high for task in guest.tasks
    ]


@pytest.mark.parametrize("seed", cpus.SEEDS)
def test_no_cpu_has_more_than_is_admitted(seed: int) -> None:
    for percent in LOADS:
        guests = cpus.drawn(8, percent, seed)
        used = [0.0] * 8
        places = cpus.placed(guests, 8)
        if places is None:
            # Then even the mean of all CPUs is not far below what is admitted.
            assert percent == LOADS[-1]
            continue
        for guest, place in zip(guests, places, strict=True):
            used[place] += guest.share
        assert max(used) <= cpus.ADMITTED_PERCENT / 100


def test_worst_fit_takes_the_largest_first() -> None:
    guests = [cpus.Guest(share, 10, ()) for share in (4, 5, 6)]
    assert cpus.placed(guests, 2) == [1, 1, 0]
    assert cpus.placed(guests, 1) is None


def test_pools_have_the_guests_of_their_cpu() -> None:
    bound = cpus.hosts_of("rtds", cpus.PARTITIONED, 4, 60, 1)
    pools = cpus.hosts_of("rtds", cpus.POOLS, 4, 60, 1)
    assert bound is not None
    assert pools is not None
    assert budgets_ns(bound) == budgets_ns(pools)
    assert [host.resolved()["cpus"] for host in pools] == [1] * 4
