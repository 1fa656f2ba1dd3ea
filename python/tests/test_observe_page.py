"""What the page of observing says of hosts that no trace tells apart, by its own hosts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from laxity import tracefile
from laxity.host import Host

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "pages"))
import observe as page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Laxity

MS = 1_000_000


@pytest.mark.parametrize(
    ("policy", "seed"),
    [
        ("deferrable", 9013),
        ("credit", 9013),
        ("sedf", 9017),
        ("sedf", 8659),
        ("deferrable", 8679),
    ],
)
def test_another_host_does_the_same(laxity: Laxity, tmp_path: Path, policy: str, seed: int) -> None:
    """In the simulator a host is found with other tasks, and does the same to the nanosecond."""
    own, run, seen, model = (tmp_path / name for name in ("host.toml", "run", "seen", "model"))
    own.write_text(page.text(seed, policy)[0])
    laxity("run", own, "-o", run)
    laxity("observe", run, "-o", seen)
    found = seen / "host.toml"
    assert tasks(found) != tasks(own)
    laxity("run", found, "-o", model)
    assert who_ran(model) == who_ran(run) != []


Form = tuple[int, int, dict[int, int]]
"""A task that was found: period and offset in ms, and the jobs that it costs, by their periods."""

IN_LABS: list[tuple[str, int, dict[str, list[Form]]]] = [
    (
        "sedf",
        9017,
        {
            "d0": [(200, 0, {200: 1, 40: 4, 100: 2}), (200, 160, {40: 1})],
            "d2": [(100, 0, {100: 1, 25: 3}), (100, 75, {25: 1})],
        },
    ),
    ("sedf", 9017, {"d0": [(200, 0, {200: 1, 40: 4, 100: 2}), (200, 160, {40: 1})]}),
    ("credit", 9013, {"d0": [(40, 0, {40: 1, 20: 2})]}),
    ("deferrable", 9013, {"d0": [(40, 0, {40: 1, 20: 2})]}),
    (
        "deferrable",
        9019,
        {"d1": [(20, 0, {20: 1}), (200, 0, {200: 1, 80: 2}), (400, 160, {80: 1})]},
    ),
]
"""What is found of the page's hosts on Xen or KVM in place of a domain's own tasks."""


@pytest.mark.parametrize(("policy", "seed", "found"), IN_LABS)
def test_what_labs_tell_does_the_same(
    laxity: Laxity, tmp_path: Path, policy: str, seed: int, found: dict[str, list[Form]]
) -> None:
    """A task costs as much as the jobs of the host that come with its own."""
    host, own, other = (tmp_path / name for name in ("host.toml", "own", "other"))
    host.write_text(page.text(seed, policy)[0])
    changes = []
    for domain in Host.load(host).resolve().host["domains"]:
        costs_ns = {task["period_ns"] // MS: task["cost_ns"] for task in domain["tasks"]}
        given = [
            f"{{ name = 't{number}', period = '{period} ms', offset = '{offset} ms', "
            f"cost = '{sum(costs_ns[each] * jobs for each, jobs in of.items())} ns' }}"
            for number, (period, offset, of) in enumerate(found.get(domain["name"], []))
        ]
        if given:
            changes += ["--set", f"domain.{domain['name']}.tasks=[{', '.join(given)}]"]
    laxity("run", host, "-o", own)
    laxity("run", host, *changes, "-o", other)
    assert tasks(host, changes[1::2]) != tasks(host)
    assert who_ran(other) == who_ran(own) != []


def tasks(path: Path, changes: Sequence[str] = ()) -> list[page.Tasks]:
    return [sorted(of_domain) for of_domain in page.tasks(Host.load(path).resolve(changes))]


def who_ran(run: Path) -> list[tuple[int, ...]]:
    """Each time at which a VCPU woke, began to run, stopped or blocked."""
    records = tracefile.records(tracefile.find(run))
    kinds = [tracefile.number_of(kind) for kind in ("wake", "run", "stop", "block")]
    own = records[np.isin(records["kind"], kinds)]
    return list(zip(*(own[name].tolist() for name in ("time_ns", "kind", "domain")), strict=True))
