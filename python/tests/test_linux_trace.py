"""The trace of a run on this machine, with its late packets and why they were."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from attempts import first_unspoiled, require
from conftest import UNSHARE, can_trace
from laxity import Host, Run, programs
from laxity.namespaces import groups as control_groups
from laxity.namespaces.groups import Share
from laxity.results.measured import PACKET, PASSAGE
from laxity.results.streams import LOST
from laxity.servers import media_server
from laxity.substrates.linux import trace
from laxity.substrates.linux.media import Seen
from laxity.tracefs import TRACING

if TYPE_CHECKING:
    from pathlib import Path

HOST = """\
duration = "1 s"
[host]
cpus = 1
policy = "credit"
[[nic]]
name = "eth0"
[[domain]]
name = "dom0"
workload = { kind = "driver" }
[[domain]]
name = "media"
cap = 50
workload = { kind = "media-server", threads = 2, work = "20 us" }
[[domain]]
name = "batch"
workload = { kind = "cpu-bound" }
[calls]
streams = 10
media-server = "media"
sample = 1
acceptance = { delay = "1 us" }
"""
"""Every packet is late: none goes over two cables and a server in 1 us, on any machine."""

ARRIVED = 100


def thread(number: int, name: str, priority: int = 120) -> dict[str, Any]:
    return {"thread": number, "name": name, "priority": priority}


def test_programs_beside_the_domains_are_domains() -> None:
    recorded = [
        thread(7, "laxity-media"),
        thread(8, "laxity-media"),
        thread(20, "laxity-media", 98),
        thread(21, "laxity-media"),
        thread(30, "ksoftirqd/0"),
        thread(31, "ksoftirqd/1"),
        thread(40, "a\x1bb"),
        thread(41, "migration/0", 0),
        thread(42, "deadline", -1),
    ]
    seen = Seen(threads={"media": [7, 8], "batch": [9]}, phones=[20, 21, 22])
    domains, threads = trace.domains_of(recorded, ["dom0", "media", "batch"], seen)
    assert dict(zip([each["name"] for each in domains], threads, strict=True)) == {
        "dom0": [],
        "media": [7, 8],
        "batch": [9],
        "(a?b)": [40],
        "(deadline)": [42],
        "(ksoftirqd)": [30, 31],
        "(migration, real-time)": [41],
        "(phones)": [21],
        "(phones, real-time)": [20],
    }
    assert [each["vcpus"] for each in domains] == [len(each) for each in threads]
    first = {each["name"] for each in domains if each.get("real_time")}
    assert first == {"(migration, real-time)", "(phones, real-time)"}


def packets(*rows: tuple[int, int, int, int]) -> np.ndarray[Any, Any]:
    return np.array(list(rows), PACKET)


def test_late_packets_have_the_ways_that_the_server_wrote() -> None:
    """In time; late; late by a ns; late and at a thread that is not the server's; unwritten."""
    sent = packets((0, 0, 1_000, 1_100), (1, 0, 1_000, 1_300), (1, 1, 1_500, 1_601))
    sent = np.concatenate([sent, packets((2, 9, 2_000, 9_000), (3, 0, 2_000, 2_500))])
    written = np.array(
        [
            (3, 1, 71, 1, 2, 3),
            (1, 1, 71, 1_510, 1_600, 7),
            (1, 0, 70, 1_010, 1_290, -1),
            (0, 0, 70, 1_010, 1_090, 9),
            (2, 9, 99, 2_010, 8_990, 9),
        ],
        np.dtype([(name, "<i8") for name in (PASSAGE.names or ())[:6]]),
    )
    passages = np.zeros(written.size, PASSAGE)
    for name in written.dtype.names or ():
        passages[name] = written[name]
    ways, untold = trace.late_ways(sent, passages, ARRIVED, 1_000, 4, [70, 71])
    assert ways.tolist() == [
        [1, 0, 4, 0, 0, 10, 290, 300, 0],
        [1, 1, 4, 1, 500, 510, 600, 601, 7],
    ]
    assert untold == 2
    assert ways.dtype == np.dtype("<i8")
    ways, untold = trace.late_ways(sent, passages[:0], ARRIVED, 0, 4, [70])
    assert (ways.shape, untold) == ((0, 9), 4)
    ways, untold = trace.late_ways(sent[:0], passages, ARRIVED, 0, 4, [70])
    assert (ways.shape, untold) == ((0, 9), 0)


def test_what_is_not_seen_is_said() -> None:
    host = Host.parse(HOST)
    report = {"sink": {"lost": 3}}
    lost, untold, cap, *rest = trace.not_seen(host.resolved(), report, 2)
    assert lost.startswith("where 3 packets were lost")
    assert untold.startswith("the ways of 2 late packets, since the media server")
    assert "had used up its cap" in cap
    assert tuple(rest) == trace.NOT_SEEN
    report["sink"]["lost"] = 0
    uncapped = host.resolved(["domain.media.cap=0"])
    assert tuple(trace.not_seen(uncapped, report, 0)) == trace.NOT_SEEN


def test_threads_of_groups_of_both_versions(tmp_path: Path) -> None:
    """The kernel would have these files; here, writing makes them."""
    (tmp_path / "cgroup.controllers").touch()
    made = control_groups.Groups({"a": Share(256, 0, (0,))}, tmp_path)
    (tmp_path / f"laxity-{os.getpid()}" / "a" / "cgroup.threads").write_text("12\n7\n")
    assert made.threads("a") == [7, 12]


@pytest.mark.skipif(not can_trace(), reason="this machine does not let itself be traced")
@pytest.mark.skipif(
    programs.built(media_server.PROGRAM) is None, reason="the media server is not built"
)
def test_every_late_packet_of_a_run_has_causes_that_sum_to_its_lateness(tmp_path: Path) -> None:
    (tmp_path / "host.toml").write_text(HOST)
    mount = f'mount -t tracefs nodev {TRACING} && exec "$@"'
    laxity = [sys.executable, "-c", "from laxity.cli import main; main()"]

    def once(factor: int) -> tuple[Path, str]:
        out = tmp_path / f"out-{factor}"
        command = [*laxity, "run", str(tmp_path / "host.toml"), "--on", "linux", "-o", str(out)]
        done = subprocess.run(
            [UNSHARE, "-m", "sh", "-c", mount, "sh", *command, "--duration", f"{factor} s"],
            check=False,
            capture_output=True,
            text=True,
        )
        # The machine may be too busy to keep the time, or the kernel to keep all events.
        require("could not keep the time" not in done.stderr, done.stderr)
        assert done.returncode == 0, done.stderr
        require("kernel lost" not in done.stderr, done.stderr)
        assert "no trace" not in done.stderr
        require(Run.load(out).telephony.voice.received > 0, "no packet came")  # type: ignore[union-attr]
        return out, done.stderr

    out, _ = first_unspoiled(once)
    run = Run.load(out)
    assert run.telephony is not None
    told = subprocess.run(
        [*laxity, "why", str(out), "--json"], check=True, capture_output=True, text=True
    )
    answer = json.loads(told.stdout)
    # By the record of streams, every packet that came was late, and here is each of them.
    arrived = {
        (stream.stream, number): (int(arrived_ns), stream.start_ns)
        for stream in run.streams
        for number, arrived_ns in enumerate(stream.arrived_ns)
        if arrived_ns != LOST
    }
    assert len(arrived) == run.telephony.voice.received == answer["late_packets"]
    assert answer["lost_packets"] == 0
    assert any("had used up its cap" in each for each in answer["not_seen"])
    assert {tuple(map(int, re.findall(r"\d+", each["what"]))) for each in answer["late"]} == set(
        arrived
    )
    for late in answer["late"]:
        assert (late["kind"], late["packet"]) == ("packet", "late")
        assert sum(cause["ns"] for cause in late["causes"]) == late["late_ns"]
        response_ns = late["completion_ns"] - late["arrival_ns"]
        assert sum(cause["delay_ns"] for cause in late["causes"]) == response_ns
        assert late["late_ns"] == response_ns - 1_000
        places = {cause["at"] for cause in late["causes"] if cause["at"]}
        assert all(place.startswith("media/") for place in places)
    # The thread that sent a packet on had the CPU for that.
    worked = sum(
        any(cause["cause"] == "own-work" for cause in late["causes"]) for late in answer["late"]
    )
    assert worked == len(arrived)
    # The table and the sentences are of the same.
    told = subprocess.run([*laxity, "why", str(out)], check=True, capture_output=True, text=True)
    assert f"{len(arrived):,} packets late under {trace.POLICY}" in " ".join(told.stdout.split())
    assert "Not seen: " in told.stdout
    assert sorted(path.name for path in out.iterdir() if path.name.startswith("trace")) == [
        "trace.laxtrace"
    ]
