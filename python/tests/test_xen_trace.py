"""What real Xen leaves behind, through the bindings: trace buffers and guests' reports."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from laxity import _core, tracefile
from laxity.why import why

if TYPE_CHECKING:
    from pathlib import Path

MS = 1_000_000
SWITCH = 0x2800A
START_REALTIME_NS = 1_767_225_600_000_000_000
IDLE = (0x7FFF, 0)
CONTROL = (3, 0)
BATCH = (7, 0)
DOMIDS = json.dumps({"control": 3, "batch": 7})
UNFINISHED = np.iinfo(np.int64).max

HOST = b"""
duration = "20 ms"
[host]
cpus = 1
policy = "deferrable"
[[domain]]
name = "control"
budget = "5 ms"
period = "10 ms"
tasks = [{ name = "loop", cost = "2 ms", period = "10 ms" }]
[[domain]]
name = "batch"
budget = "5 ms"
period = "10 ms"
workload = { kind = "cpu-bound" }
"""


def dump(path: Path, switches: list[tuple[int, tuple[int, int], tuple[int, int]]]) -> str:
    """A dump of one CPU that counts a cycle a ns, traced from 1 ms before the run to 1 ms after."""
    buffer = b""
    for time_ns, before, after in switches:
        header = 1 << 31 | 4 << 28 | SWITCH
        buffer += struct.pack("<IQ4I", header, time_ns + MS, *before, *after)
    pairs = struct.pack("<4Q", 0, START_REALTIME_NS - MS, 22 * MS, START_REALTIME_NS + 21 * MS)
    head = b"LAXITYXT" + struct.pack("<II", 1, 1) + pairs
    path.write_bytes(head + struct.pack("<IIQ", 0, 0, len(buffer)) + buffer)
    return str(path)


def times(*completions_ns: int) -> list[list[bytes]]:
    """The completion times of *control*'s task."""
    return [[np.array(completions_ns, "<i8").tobytes()], []]


@pytest.fixture
def host() -> _core.CompleteHost:
    return _core.HostFile(HOST, "host.toml").complete([])


@pytest.fixture
def as_simulated(tmp_path: Path) -> str:
    """The schedule that the simulator makes of the host."""
    return dump(
        tmp_path / "trace.bin",
        [
            (0, IDLE, CONTROL),
            (2 * MS, CONTROL, BATCH),
            (7 * MS, BATCH, IDLE),
            (10 * MS, IDLE, CONTROL),
            (12 * MS, CONTROL, BATCH),
            (17 * MS, BATCH, IDLE),
        ],
    )


def test_a_run_as_simulated(host: _core.CompleteHost, as_simulated: str, tmp_path: Path) -> None:
    simulated, imported = str(tmp_path / "sim"), str(tmp_path / "xen")
    result, responses, _ = host.run(simulated)
    completions = times(2 * MS, 12 * MS)
    metadata = host.trace_metadata("xen")
    summary = json.loads(
        _core.import_xen(as_simulated, imported, metadata, DOMIDS, completions, START_REALTIME_NS)
    )
    assert summary["cpu_ns"] == [[4 * MS], [10 * MS]]
    assert (summary["decisions"], summary["switches"]) == (6, 6)
    assert tracefile.metadata(tmp_path / "xen")["substrate"] == "xen"

    agreement = json.loads(_core.agreement(simulated, imported))
    assert agreement["same_ratio"] == 1.0
    assert agreement["domains"][0]["tasks"][0]["missed_b"] == 0
    assert agreement["completion_difference_ns"]["max"] == 0
    needs = json.loads(_core.needs(imported))
    assert needs["decisions"] == needs["needed_decisions"] == 6

    measured = {
        "cpu_ns": [sum(vcpus) for vcpus in summary["cpu_ns"]],
        "schedule_calls": summary["decisions"],
        "context_switches": summary["switches"],
        "schedule_ns": sum(summary["decision_ns"]),
        "context_switch_ns": sum(summary["switch_ns"]),
        "events": 0,
        "wall_ns": 0,
    }
    on_xen, responses_on_xen, _ = host.result_of_jobs("xen", completions, json.dumps(measured))
    assert responses_on_xen == responses
    simulated_domains = json.loads(result)["domains"]
    for domain in simulated_domains:
        domain["waits"] = None  # jobs do not tell them
    assert json.loads(on_xen)["domains"] == simulated_domains


def test_what_is_wrong_is_told(host: _core.CompleteHost, as_simulated: str, tmp_path: Path) -> None:
    metadata = host.trace_metadata("xen")

    def refused(
        domids: str = DOMIDS,
        completions: list[list[bytes]] | None = None,
        start_ns: int = START_REALTIME_NS,
    ) -> str:
        out = tmp_path / "out"
        with pytest.raises(ValueError) as error:  # noqa: PT011 - the text is looked at
            _core.import_xen(
                as_simulated, str(out), metadata, domids, completions or times(), start_ns
            )
        assert not out.exists()
        return str(error.value)

    assert refused(domids='{"control": 3}') == "nothing names domain batch"
    more = json.dumps({"control": 3, "batch": 7, "dom0": 0})
    assert refused(domids=more) == "dom0 is named, but it is not a domain of the run"
    assert "8 bytes each" in refused(completions=[[b"1"], []])
    assert "job 0 cannot have completed at -1 ns" in refused(completions=times(-1))
    assert "is not within the traced time" in refused(start_ns=START_REALTIME_NS + 2 * MS)
    with pytest.raises(ValueError, match="what was measured: missing field"):
        host.result_of_jobs("xen", times(UNFINISHED), "{}")


def test_why_a_job_on_xen_was_late(host: _core.CompleteHost, tmp_path: Path) -> None:
    """The first job waits 9 ms for the other domain, and runs for 0.5 ms longer than its cost."""
    dumped = dump(
        tmp_path / "late.bin",
        [(0, IDLE, BATCH), (9 * MS, BATCH, CONTROL), (14 * MS, CONTROL, IDLE)],
    )
    trace = tmp_path / "xen"
    completions = times(11 * MS + MS // 2, 14 * MS)
    metadata = host.trace_metadata("xen")
    _core.import_xen(dumped, str(trace), metadata, DOMIDS, completions, START_REALTIME_NS)
    (late,) = why(trace).late
    assert (late.what, late.late_ns) == ("control/loop#0", 1_500_000)
    delays = {(cause.cause, cause.who, cause.rule): cause.delay_ns for cause in late.causes}
    assert delays == {
        ("cpu", "batch", "order"): 9 * MS,
        ("own-work", None, None): 2 * MS,
        ("overhead", None, None): MS // 2,
    }
    assert sum(cause.ns for cause in late.causes) == late.late_ns
