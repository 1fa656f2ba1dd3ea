"""Real packets on this machine: what a host becomes; that a run works and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from laxity.errors import InputError
from laxity.linux import control, media, media_server, network, process, signalling
from laxity.linux import groups as control_groups
from laxity.linux.scene import (
    Calls,
    MediaProgram,
    Neighbour,
    Scene,
    Server,
    Share,
    Signalling,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MS = 1_000_000


SHARE = Share(256, 0, tuple(os.sched_getaffinity(0)))


def test_what_is_no_scene_is_refused() -> None:
    server = Server("media", SHARE, threads=1)
    for streams in (0, 1, 801):
        with pytest.raises(InputError, match=rf"{streams} streams [\s\S]* even number"):
            Calls(20 * MS, streams=streams)
    with pytest.raises(InputError, match="or a rate and a hold time"):
        Calls(20 * MS)
    with pytest.raises(InputError, match="at most 5691 calls, 11382 streams"):
        Calls(20 * MS, streams=2 * signalling.CALLS_MAX + 2)
    with pytest.raises(InputError, match="more calls at once than ports"):
        Calls(20 * MS, rate_per_s=100.0, hold_ns=60_000 * MS)
    with pytest.raises(InputError, match="set up by SIP"):
        Scene(Calls(20 * MS, rate_per_s=1.0, hold_ns=20 * MS), server)
    with pytest.raises(InputError, match="rtpengine does no work"):
        Scene(Calls(20 * MS, streams=2), replace(server, program="rtpengine", work_ns=1))


def test_calls_are_placed_as_they_are_asked_for() -> None:
    traffic = Calls(10_000 * MS, rate_per_s=4.0, hold_ns=3_000 * MS).traffic
    assert (traffic.calls, traffic.rate_per_s, traffic.users) == (40, 4.0, 13)
    there = Calls(10_000 * MS, streams=800).traffic
    assert there.calls == there.users == 400
    # The last call begins while the first still has all of the run before it.
    assert there.hold_ns > 400 / there.rate_per_s * 1e9 + 10_000 * MS
    ports = [port for call in range(signalling.CALLS_MAX) for port in signalling.ports(call)]
    assert len(set(ports)) == len(ports)
    assert all(port % 2 == 0 for port in ports)
    assert max(ports) < media_server.PORT
    assert signalling.ports(signalling.CALLS_MAX) == signalling.ports(0)


def test_a_session_description_is_read_as_it_is_written() -> None:
    media = control.Media("192.0.2.1", 10_000, 8)
    assert control.media_of(control.description(media)) == media
    with pytest.raises(InputError, match="describes no voice"):
        control.media_of("v=0\r\nm=video 1 RTP/AVP 31\r\n")


def test_quantiles_are_times_that_were_measured() -> None:
    assert signalling.quantiles([]) is None
    found = signalling.quantiles([4.0, 1.0, 2.0, 3.0])
    assert found is not None
    assert (found["count"], found["mean_ns"]) == (4, 2.5 * MS)
    assert (found["p50_ns"], found["p99_ns"], found["max_ns"]) == (2 * MS, 4 * MS, 4 * MS)


def test_settings_of_both_versions() -> None:
    shares = {"a": Share(512, 0, (0,)), "b": Share(256, 40, (0, 1))}
    assert control_groups.settings_v2(shares) == {
        "": {"cpu.weight": "300"},
        "a": {"cpu.weight": "200", "cpu.max": "max 10000", "cpuset.cpus": "0"},
        "b": {"cpu.weight": "100", "cpu.max": "4000 10000", "cpuset.cpus": "0,1"},
    }
    first = control_groups.settings_v1(shares)
    assert first[""] == {"cpu/cpu.shares": "3072"}
    assert first["a"]["cpu/cpu.cfs_quota_us"] == "-1"
    assert first["b"] == {
        "cpu/cpu.shares": "1024",
        "cpu/cpu.cfs_period_us": "10000",
        "cpu/cpu.cfs_quota_us": "4000",
        "cpuset/cpuset.cpus": "0,1",
    }


def test_great_weights_keep_their_ratio() -> None:
    shares = {"a": Share(65_535, 0, (0,)), "b": Share(256, 0, (0,))}
    settings = control_groups.settings_v2(shares)
    weights = {name: files["cpu.weight"] for name, files in settings.items()}
    assert weights == {"": "10000", "a": "9961", "b": "39"}


def test_version_2_in_a_directory_of_files(tmp_path: Path) -> None:
    """As files that the kernel would have; here, writing makes them."""
    (tmp_path / "cgroup.controllers").touch()
    left = tmp_path / "laxity-999999999"
    left.mkdir()
    made = control_groups.Groups({"a": Share(256, 50, (1,))}, tmp_path)
    run = tmp_path / f"laxity-{os.getpid()}"
    assert not left.exists()
    assert (run / "a" / "cpu.max").read_text() == "5000 10000"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu +cpuset"
    assert (run / "cgroup.subtree_control").read_text() == "+cpu +cpuset"
    assert made.entries("a") == [run / "a" / "cgroup.procs"]
    (run / "a" / "cpu.stat").write_text("nr_periods 3\nusage_usec 1234\nuser_usec 1\n")
    assert made.cpu_ns("a") == 1_234_000


@pytest.fixture(scope="module")
def able() -> None:
    """Skips what this machine cannot run."""
    try:
        media_server.program()
        process.require(media.PROGRAMS)
        with network.network():
            pass
        control_groups.Groups({"probe": Share(256, 0, (0,))}).remove()
    except InputError as error:
        pytest.skip(str(error))


def traces_of(run: int) -> list[Path]:
    name = f"laxity-{run}*"
    return [
        *network.NAMESPACES.glob(name),
        *Path(tempfile.gettempdir()).glob(name),
        *control_groups.ROOT.glob(name),
        *control_groups.ROOT.glob(f"*/{name}"),
    ]


def assert_accounted(result: dict[str, Any]) -> None:
    """Every packet that was sent came, or is in one of the counts of whoever lost it."""
    load, relay, sink = result["load"], result["relay"], result["sink"]
    assert load["sent"] > 0
    assert load["failed"] == 0
    assert 0 < sink["received"] <= relay["forwarded"] <= relay["received"] <= load["sent"]
    assert sink["expected"] == load["sent"]
    assert sink["received"] + sink["lost"] == load["sent"]
    by_server = relay["dropped"] + relay["received"] - relay["forwarded"]
    assert sink["lost"] == by_server + sink["dropped"] + result["lost_in_network"]
    assert sink["misdirected"] == sink["foreign"] == sink["duplicates"] == 0


@pytest.mark.usefixtures("able")
def test_a_run_accounts_for_every_packet_and_leaves_nothing() -> None:
    cpu = min(os.sched_getaffinity(0))
    neighbour = Neighbour("batch", Share(256, 10, (cpu,)), threads=1)
    server = Server("media", Share(256, 0, (cpu,)), threads=2, work_ns=1000, transcode=True)
    result = media.run(Scene(Calls(400 * MS, streams=20, sample=1), server, (neighbour,)))
    assert_accounted(result)
    assert result["sink"]["streams"] == result["load"]["streams"] == 20
    assert result["relay"]["calls"] == result["calls"]["calls"] == 10
    assert result["signalling"] is None
    # A cap of a tenth of a CPU. More than half a CPU would be none.
    assert 0.0 < result["cpu_ns"]["batch"] < 0.5 * result["elapsed_ns"]
    assert result["cpu_ns"]["media"] > 0
    packets = result["packets"]
    assert len(packets) == result["sink"]["received"]
    assert set(packets["stream"]) == set(range(20))
    assert (packets["arrived_ns"] - packets["sent_ns"]).max() == pytest.approx(
        result["sink"]["delay"]["max_ns"], rel=1e-2
    )
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("transcode", [False, True])
def test_rtpengine_stands_in_for_the_media_server(transcode: bool) -> None:
    require(media_server.PACKAGES)
    server = Server("media", SHARE, threads=2, transcode=transcode, program="rtpengine")
    result = media.run(Scene(Calls(400 * MS, streams=12), server))
    assert_accounted(result)
    assert result["sink"]["streams"] == 12
    assert result["relay"]["calls"] == 6
    assert set(result["packets"]["stream"]) <= {0, 1, 8, 9}
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("program", ["laxity", "rtpengine"])
def test_calls_are_set_up_by_sip(program: MediaProgram) -> None:
    require(signalling.PROGRAMS | (media_server.PACKAGES if program == "rtpengine" else {}))
    server = Server("media", SHARE, threads=2, program=program)
    calls = Calls(3_000 * MS, rate_per_s=4.0, hold_ns=1_000 * MS)
    result = media.run(Scene(calls, server, signalling=Signalling("proxy", SHARE)))
    registrations, placed = result["signalling"]["registrations"], result["signalling"]["calls"]
    assert registrations["sent"] == registrations["succeeded"] == 5
    assert registrations["failed"] == placed["failed"] == 0
    assert placed["attempted"] >= placed["established"] > 0
    # Calls and their media are one: those who were answered spoke, both ways.
    assert result["load"]["streams"] == 2 * placed["established"]
    assert result["relay"]["calls"] == placed["attempted"]
    assert result["calls"]["setup"]["count"] == placed["established"]
    assert result["cpu_ns"]["proxy"] > 0
    assert_accounted(result)
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
def test_who_did_not_register_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    require(signalling.PROGRAMS)
    monkeypatch.setattr(signalling, "register", lambda *_: {})
    server = Server("media", SHARE, threads=1)
    calls = Calls(1_000 * MS, rate_per_s=4.0, hold_ns=1_000 * MS)
    with pytest.raises(InputError, match="of the calls that SIPp placed, none was answered"):
        media.run(Scene(calls, server, signalling=Signalling("proxy", SHARE)))
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
def test_a_run_that_fails_leaves_nothing() -> None:
    calls = Calls(20 * MS, streams=2)
    with pytest.raises(InputError, match="control groups"):
        media.run(Scene(calls, Server("media", Share(256, 0, (4095,)), threads=1)))
    with pytest.raises(InputError, match="laxity-media does not listen: error: a pool of 0"):
        media.run(Scene(calls, Server("media", SHARE, threads=0)))
    assert traces_of(os.getpid()) == []


def require(programs: Mapping[str, str]) -> None:
    """Skips what this machine lacks."""
    try:
        process.require(programs)
    except InputError as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("able")
def test_what_a_killed_run_left_is_removed_by_the_next() -> None:
    require(signalling.PROGRAMS)
    code = """if True:
        from laxity.linux import media
        from laxity.linux.scene import Calls, Neighbour, Scene, Server, Share, Signalling
        share = Share(256, 0, (0,))
        server = Server("media", share, threads=1)
        neighbour = Neighbour("batch", share, threads=1)
        calls = Calls(3_600_000_000_000, streams=2)
        media.run(Scene(calls, server, (neighbour,), Signalling("proxy", share)))
    """
    run = subprocess.Popen([sys.executable, "-c", code])
    try:
        groups = [f"domain-{number}" for number in range(3)]
        wait_until(lambda: all(running(run.pid, group) for group in groups))
        processes = [process for group in groups for process in running(run.pid, group)]
    finally:
        run.kill()
        run.wait()
    # The kernel kills them with their parent.
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
    assert traces_of(run.pid) != []
    with (
        process.workplace(),
        network.network(),
        control_groups.groups({"probe": Share(256, 0, (0,))}),
    ):
        assert traces_of(run.pid) == []


def running(run: int, group: str) -> list[str]:
    """The processes in a group of a run."""
    paths = control_groups.ROOT.glob(f"**/laxity-{run}/{group}/cgroup.procs")
    return sorted({process for path in paths for process in path.read_text().split()})


def wait_until(met: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
