"""What a run on Xen tells the simulator that it is held against."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from laxity.host import Host
from laxity.policies import POLICIES
from laxity.substrates.xen import known
from laxity.substrates.xen.collect import begun, phases

if TYPE_CHECKING:
    from pathlib import Path

# The name of the second domain could be taken for the number of the first.
HOST = b"""
duration = "1 s"

[host]
cpus = 1
policy = "sedf"

[[domain]]
name = "ticks.too"
budget = "1 ms"
period = "10 ms"
tick = { period = "10 ms", cost = "20 us" }

[[domain]]
name = "0"
budget = "1 ms"
period = "10 ms"
"""

REPORTED = [
    {"period_ns": 4_000_000, "offset_ns": 3_999_999},
    {"period_ns": 4_000_000, "offset_ns": 5},
]


def test_ticks_come_when_the_guest_said_so_where_there_are_any() -> None:
    host = Host(HOST, "host.toml")
    overrides = phases(host.resolved(), REPORTED)
    ticking, silent = host.resolved(overrides)["domains"]
    assert ticking["tick"] == {**REPORTED[0], "cost_ns": 20_000}
    assert silent["tick"] is None


def test_ticks_that_a_file_leaves_out_cost_what_is_known_of_the_lab() -> None:
    host = Host(HOST, "host.toml")
    cost_ns = known.tick_cost_ns("sedf")
    ticking, silent = host.resolved(phases(host.resolved(), REPORTED, cost_ns))["domains"]
    assert ticking["tick"] == {**REPORTED[0], "cost_ns": 20_000}
    assert silent["tick"] == {**REPORTED[1], "cost_ns": cost_ns}
    assert cost_ns > 1_000


def test_periods_begin_when_the_scheduler_said_so(tmp_path: Path) -> None:
    summary = tmp_path / "run.summary.json"
    summary.write_text(json.dumps({"deadlines_ns": [[-3_999_999, None], [None]]}))
    host = Host(HOST.replace(b'"sedf"', b'"rtds"'), "host.toml")
    overrides = begun(host.resolved(), summary)
    assert overrides == ["domain.ticks.too.phase=6000001 ns"]
    told, silent = host.resolved(overrides)["domains"]
    assert (told["parameters"]["phase_ns"], silent["parameters"]["phase_ns"]) == (6_000_001, 0)
    assert begun(Host(HOST, "host.toml").resolved(), summary) == []


def test_credits_are_those_that_the_scheduler_told(tmp_path: Path) -> None:
    summary = tmp_path / "run.summary.json"
    summary.write_text(json.dumps({"credits_ns": [[7_000_001], [-5]]}))
    host = Host(HOST.replace(b'"sedf"', b'"credit2"'), "host.toml")
    overrides = begun(host.resolved(), summary)
    assert overrides == ["domain.ticks.too.credit=7000001 ns", "domain.0.credit=0 ns"]
    credits = [each["parameters"]["credit_ns"] for each in host.resolved(overrides)["domains"]]
    assert credits == [7_000_001, 0]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_has_a_known_tick(policy: str) -> None:
    assert known.tick_cost_ns(policy) > 1_000


def test_costs_that_a_file_gives_are_followed() -> None:
    host = Host(HOST, "host.toml")
    bare = host.resolve([])
    assert known.costs(bare) == ["host.costs=xen-lab"]
    assert (
        bare.changed(known.costs(bare)).host["costs"]["schedule"] != bare.host["costs"]["schedule"]
    )
    assert known.costs(host.resolve(['host.costs.schedule="1 us"'])) == []
    given = HOST.replace(b"cpus = 1\n", b'cpus = 1\ncosts = { schedule = "0 ns" }\n')
    assert known.costs(Host(given, "host.toml").resolve([])) == []
