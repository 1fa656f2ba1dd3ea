"""What a run on Xen tells the simulator that it is held against."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from laxity import tracefile
from laxity.errors import InputError
from laxity.host import Host
from laxity.substrates import of
from laxity.substrates.xen import known
from laxity.substrates.xen.collect import _accounting_phase_ns, begun, phases

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

SHARING = b"""
duration = "1 s"
host = { cpus = 1, policy = "credit" }

[[domain]]
name = "worker"
tasks = [{ name = "work", cost = "3 ms", period = "20 ms" }]

[[domain]]
name = "batch"
workload = { kind = "cpu-bound" }
"""

TOGETHER = b"""
duration = "10 ms"
host = { cpus = 1, policy = "fifo" }

[[domain]]
name = "first"
tasks = [{ name = "work", cost = "1 ms", period = "20 ms" }]

[[domain]]
name = "second"
tasks = [{ name = "work", cost = "1 ms", period = "20 ms" }]
"""

REPORTED = [
    {"period_ns": 4_000_000, "offset_ns": 3_999_999},
    {"period_ns": 4_000_000, "offset_ns": 5},
]


def test_ticks_come_when_the_guest_said_so_where_there_are_any() -> None:
    host = Host(HOST, "host.toml")
    overrides = phases(host.resolved(), REPORTED)
    ticking, silent = host.resolved(overrides)["domains"]
    assert ticking["tick"] == {**REPORTED[0], "cost_ns": 20_000, "min_delta_ns": 0, "wake_ns": 0}
    assert silent["tick"] is None


def test_ticks_that_a_file_leaves_out_are_as_is_known_of_the_lab(tmp_path: Path) -> None:
    summary = tmp_path / "run.summary.json"
    summary.write_text(json.dumps({"ticks": REPORTED}))
    host = Host(HOST, "host.toml").resolve([])
    ticking, silent = host.changed(known.settled(host, summary)).host["domains"]
    assert ticking["tick"] == {**REPORTED[0], "cost_ns": 20_000, "min_delta_ns": 0, "wake_ns": 0}
    of_lab = {
        "cost_ns": known.INTERRUPT_NS,
        "min_delta_ns": known.MIN_DELTA_NS,
        "wake_ns": known.WAKE_NS,
    }
    assert silent["tick"] == {**REPORTED[1], **of_lab}
    assert min(of_lab.values()) > 1_000


def test_periods_begin_when_the_scheduler_said_so(tmp_path: Path) -> None:
    summary = tmp_path / "run.summary.json"
    summary.write_text(json.dumps({"deadlines_ns": [[-3_999_999, None], [None]]}))
    host = Host(HOST.replace(b'"sedf"', b'"rtds"'), "host.toml")
    overrides = begun(host.resolved(), summary)
    assert overrides == ["domain.ticks.too.phase=6000001 ns"]
    told, silent = host.resolved(overrides)["domains"]
    assert (told["parameters"]["phase_ns"], silent["parameters"]["phase_ns"]) == (6_000_001, 0)
    assert begun(Host(HOST, "host.toml").resolved(), summary) == []


def test_accounting_comes_when_the_trace_says_so(tmp_path: Path) -> None:
    """A run in the simulator stands for one on Xen whose clock was not ours to set."""
    host = Host(SHARING, "host.toml").resolve([])
    trace = tmp_path / "run.laxtrace"
    for phase_ns in (0, 29_999_999, 12_345_678):
        really = f"host.accounting-phase={phase_ns} ns"
        of("sim").run(host.changed([really]), trace=trace, say=lambda _: None)
        assert _accounting_phase_ns(host.host, trace) == phase_ns
    summary = tmp_path / "run.summary.json"
    summary.write_text(json.dumps({"accounting_phase_ns": 5}))
    assert begun(host.host, summary) == ["host.accounting-phase=5 ns"]


def test_guests_wake_in_the_order_of_the_trace(tmp_path: Path) -> None:
    """A trace in which the second of two guests wakes first has the simulator do the same."""
    host = Host(TOGETHER, "host.toml")
    trace, told, again = (tmp_path / name for name in ("trace", "told", "again"))
    host.run(trace=trace)
    records = np.array(tracefile.records(trace))
    # Each one's release and wake.
    assert list(records["domain"][:4]) == [0, 0, 1, 1]
    assert list(records["time_ns"][:4]) == [0] * 4
    records[:4] = records[[2, 3, 0, 1]]
    header = trace.read_bytes()[: -records.nbytes]
    told.write_bytes(header + records.tobytes())
    host.run(trace=again, seen=told)
    for path, order in ((trace, [0, 1]), (again, [1, 0])):
        records = tracefile.records(path)
        runs = records["domain"][records["kind"] == tracefile.number_of("run")]
        assert list(runs) == order
    told.write_bytes(header + b"no record")
    with pytest.raises(InputError, match="told: "):
        host.run(seen=told)


def test_credits_are_those_that_the_scheduler_told(tmp_path: Path) -> None:
    summary = tmp_path / "run.summary.json"
    summary.write_text(json.dumps({"credits_ns": [[7_000_001], [-5]]}))
    host = Host(HOST.replace(b'"sedf"', b'"credit2"'), "host.toml")
    overrides = begun(host.resolved(), summary)
    assert overrides == ["domain.ticks.too.credit=7000001 ns", "domain.0.credit=0 ns"]
    credits = [each["parameters"]["credit_ns"] for each in host.resolved(overrides)["domains"]]
    assert credits == [7_000_001, 0]


def test_costs_that_a_file_gives_are_followed() -> None:
    host = Host(HOST, "host.toml")
    bare = host.resolve([])
    of_lab = bare.changed(known.costs(bare)).host["costs"]
    of_xen = bare.changed([f"host.costs={known.COSTS}"]).host["costs"]
    assert of_lab["schedule"] == of_xen["schedule"] != bare.host["costs"]["schedule"]
    for quantile, of_switch_ns in of_xen["context_switch"].items():
        assert of_lab["context_switch"][quantile] == of_switch_ns + known.ARRIVAL_NS
    assert known.costs(host.resolve(['host.costs.schedule="1 us"'])) == []
    given = HOST.replace(b"cpus = 1\n", b'cpus = 1\ncosts = { schedule = "0 ns" }\n')
    assert known.costs(Host(given, "host.toml").resolve([])) == []


def test_timers_are_as_late_as_a_file_says() -> None:
    host = Host(HOST, "host.toml")
    bare = host.resolve([])
    late = bare.changed(known.timers(bare)).host["timer_latency_ns"]
    assert late == known.TIMER_LATENCY_NS > bare.host["timer_latency_ns"] == 0
    assert known.timers(host.resolve(["host.timer-latency=0 ns"])) == []
    shares = host.resolve(["host.policy=credit", "host.time-slice=1 ms"])
    late_slices = shares.changed(known.timers(shares)).host
    assert late_slices["settings"]["time_slice_ns"] == 1_000_000 + known.SLICE_LATENCY_NS
    assert late_slices["timer_latency_ns"] == 0
