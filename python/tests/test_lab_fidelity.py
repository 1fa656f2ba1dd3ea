"""What a run on Xen tells the simulator that it is held against."""

from __future__ import annotations

from laxity.host import Host
from laxity.substrates.xen.collect import phases

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
name = "silent"
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
