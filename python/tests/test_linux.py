"""Real packets on this machine: what a host becomes; that a run works and leaves nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import jsonschema
import laxity
import numpy as np
import pytest
from attempts import first_unspoiled, require
from laxity import _core, cli, programs
from laxity.errors import InputError
from laxity.namespaces import groups as control_groups
from laxity.namespaces import network, process
from laxity.namespaces.groups import Share
from laxity.results.measured import PACKET, kept_streams, lost_in_network, telephony_of_report
from laxity.results.streams import LOST
from laxity.servers import MediaProgram, control, media_server, signalling
from laxity.servers.signalling import Traffic
from laxity.substrates.linux import media, run
from laxity.substrates.linux.scene import (
    Calls,
    Neighbour,
    Party,
    Scene,
    Server,
    Signalling,
    scene,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.slow

MS = 1_000_000


SHARE = Share(256, 0, tuple(os.sched_getaffinity(0)))


def test_more_calls_than_ports_are_refused() -> None:
    with pytest.raises(InputError, match="at most 5691 calls, 11382 streams"):
        Calls(20 * MS, streams=2 * signalling.CALLS_MAX + 2)
    with pytest.raises(InputError, match="6000 calls at once are more"):
        Calls(20 * MS, rate_per_s=100.0, hold_ns=60_000 * MS)
    with pytest.raises(InputError, match="rtpengine does no work"):
        Scene(Calls(20 * MS, 2), Server("media", SHARE, 1, work_ns=1, program="rtpengine"))


def test_who_speaks_when() -> None:
    there = list(Calls(10_000 * MS, streams=3).parties_there())
    assert there == [
        Party(0, 0, 0, 10_000 * MS),
        Party(0, 1, 0, 10_000 * MS),
        Party(1, 0, 0, 10_000 * MS),
    ]
    calls = Calls(10_000 * MS, streams=3, rate_per_s=4.0, hold_ns=3_000 * MS)
    coming = list(calls.parties_coming())
    assert len(coming) == 2 * calls.placed == 80
    assert coming[2] == Party(3, 0, 250 * MS, 3_250 * MS)
    # The party that speaks when the run ends speaks to its end.
    assert coming[-1] == Party(41, 1, 9_750 * MS, 10_000 * MS)
    server, proxy = Server("media", SHARE, threads=1), Signalling("proxy", SHARE)
    assert list(Scene(calls, server).parties()) == [*calls.parties_there(), *coming]
    # Those whom SIP sets up speak when it has.
    by_sip = Scene(calls, server, signalling=proxy)
    assert list(by_sip.parties()) == list(calls.parties_there())
    assert by_sip.traffic == Traffic(40, 4.0, 3_000 * MS, first=2)
    assert by_sip.traffic.users == 13
    past = replace(calls, through_media_server=False)
    assert list(past.parties_coming()) == []
    assert by_sip.has_voice_by_sip
    assert not Scene(past, server, signalling=proxy).has_voice_by_sip


def test_parties_have_ports_of_their_own() -> None:
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


def test_small_caps_have_longer_periods() -> None:
    def maximum(cap: int) -> str:
        return control_groups.settings_v2({"a": Share(256, cap, (0,))})["a"]["cpu.max"]

    # The kernel's least is a millisecond.
    assert maximum(10) == "1000 10000"
    assert maximum(9) == "1000 11112"
    assert maximum(1) == "1000 100000"
    assert maximum(400) == "40000 10000"
    assert maximum(0) == "max 10000"


def test_great_weights_keep_their_ratio() -> None:
    shares = {"a": Share(65_535, 0, (0,)), "b": Share(256, 0, (0,))}
    settings = control_groups.settings_v2(shares)
    weights = {name: files["cpu.weight"] for name, files in settings.items()}
    assert weights == {"": "10000", "a": "9961", "b": "39"}


def test_version_2_in_a_directory_of_files(tmp_path: Path) -> None:
    """The kernel would have these files; here, writing makes them."""
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


def test_a_run_of_another_length_is_refused() -> None:
    second_ns = 1_000 * MS
    for measured_ns in (8 * second_ns, 8_080 * MS, 7_920 * MS):
        run.check_duration(8 * second_ns, measured_ns)
    for measured_ns in (26 * second_ns, 8_081 * MS, 7_919 * MS, 0):
        with pytest.raises(InputError, match="were to last 8 s") as refused:
            run.check_duration(8 * second_ns, measured_ns)
        assert f"lasted {measured_ns / second_ns:.3f} s" in refused.value.message
        assert "real-time priority" in str(refused.value.help)


def test_packets_with_impossible_times_are_said_and_cost_no_run() -> None:
    report: dict[str, Any] = {
        "load": {"wake_up_late": None, "real_time": True, "failed": 0},
        "sink": {"real_time": True, "dropped": 0, "mistimed": 3},
        "calls": {"refused": 0},
        "signalling": None,
    }
    (said,) = run.warnings(report)
    assert said.startswith("3 packets have a time of arrival before they were sent")
    report["sink"]["mistimed"] = 0
    assert run.warnings(report) == []


@pytest.fixture(scope="module")
def able() -> None:
    """Skips what this machine cannot run."""
    if programs.built(media_server.PROGRAM) is None:
        pytest.skip(f"{media_server.PROGRAM} is not built")
    try:
        media_server.program()
        process.require(media.PROGRAMS)
        with network.network():
            pass
        control_groups.Groups({"probe": Share(256, 0, (0,))}).remove()
    except InputError as error:
        pytest.skip(str(error))


def traces_of(run: int) -> list[Path]:
    """Not those of a run whose number begins with this one."""
    directories = (network.NAMESPACES, Path(tempfile.gettempdir()), control_groups.ROOT)
    return [
        path
        for directory in (*directories, *control_groups.ROOT.glob("*/"))
        for name in (f"laxity-{run}", f"laxity-{run}-*")
        for path in directory.glob(name)
    ]


def assert_accounted(result: dict[str, Any]) -> None:
    """Every packet that was sent came, or is in one of the counts of whoever lost it."""
    load, relay, sink = result["load"], result["relay"], result["sink"]
    assert load["failed"] == 0
    assert sink["received"] <= relay["forwarded"] <= relay["received"] <= load["sent"]
    assert sink["expected"] == load["sent"]
    assert sink["received"] + sink["lost"] == load["sent"]
    by_server = relay["dropped"] + relay["received"] - relay["forwarded"]
    assert sink["lost"] == by_server + sink["dropped"] + lost_in_network(result)
    assert sink["misdirected"] == sink["foreign"] == sink["duplicates"] == 0
    require(sink["received"] > 0, "no packet came in time")


def run_once(on_stage: Scene) -> dict[str, Any]:
    """A run on a machine that may be too busy for what its users do to be done in time."""
    try:
        result = media.run(on_stage)
    except InputError as error:
        require("none was answered" not in error.message, error.message)
        raise
    assert_accounted(result)
    return result


@pytest.mark.usefixtures("able")
def test_a_run_accounts_for_every_packet_and_leaves_nothing() -> None:
    cpu = min(os.sched_getaffinity(0))
    neighbour = Neighbour("batch", Share(256, 10, (cpu,)), threads=1)
    server = Server("media", Share(256, 0, (cpu,)), threads=2, work_ns=1000, transcode=True)

    def once(factor: int) -> None:
        calls = Calls(400 * factor * MS, streams=20, sample=1)
        result = run_once(Scene(calls, server, (neighbour,)))
        assert result["sink"]["streams"] == result["load"]["streams"] == 20
        assert result["relay"]["calls"] == result["calls"]["calls"] == 10
        assert result["signalling"] is None
        # A cap of a tenth of a CPU. More than half a CPU would be none.
        assert result["cpu_ns"]["batch"] < 0.5 * result["elapsed_ns"]
        packets = result["packets"]
        assert len(packets) == result["sink"]["received"]
        assert (packets["arrived_ns"] - packets["sent_ns"]).max() == pytest.approx(
            result["sink"]["delay"]["max_ns"], rel=1e-2
        )
        for domain in ("batch", "media"):
            require(result["cpu_ns"][domain] > 0, f"{domain} had no CPU")
        require(set(packets["stream"]) == set(range(20)), "of some stream nothing came")

    first_unspoiled(once)
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("transcode", [False, True])
def test_rtpengine_stands_in_for_the_media_server(transcode: bool) -> None:
    need(media_server.PACKAGES)
    server = Server("media", SHARE, threads=2, transcode=transcode, program="rtpengine")

    def once(factor: int) -> None:
        result = run_once(Scene(Calls(400 * factor * MS, streams=12), server))
        assert result["sink"]["streams"] == 12
        assert result["relay"]["calls"] == 6
        assert set(result["packets"]["stream"]) <= {0, 1, 8, 9}

    first_unspoiled(once)
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("program", ["laxity", "rtpengine"])
def test_calls_are_set_up_by_sip(program: MediaProgram) -> None:
    need(signalling.PROGRAMS | (media_server.PACKAGES if program == "rtpengine" else {}))
    server = Server("media", SHARE, threads=2, program=program)

    def once(factor: int) -> None:
        calls = Calls(3_000 * factor * MS, rate_per_s=4.0 / factor, hold_ns=1_000 * factor * MS)
        result = run_once(Scene(calls, server, signalling=Signalling("proxy", SHARE)))
        registrations, placed = result["signalling"]["registrations"], result["signalling"]["calls"]
        assert registrations["sent"] == 5
        assert placed["attempted"] >= placed["established"] > 0
        # SIPp gives up what it has sent again for half a minute.
        require(registrations["succeeded"] == 5, f"registrations: {registrations}")
        require(registrations["failed"] == placed["failed"] == 0, f"calls: {placed}")
        # Calls and their media are one: those who were answered spoke, both ways. SIPp counts a
        # little longer than the parties speak, so that the end may come before a caller or only a
        # callee.
        setup, streams = result["calls"]["setup"], result["load"]["streams"]
        answered = 0 if setup is None else setup["count"]
        assert answered <= placed["established"] <= result["relay"]["calls"] <= placed["attempted"]
        assert answered <= streams <= 2 * placed["established"]
        require(answered < streams <= 2 * answered, f"{answered} calls, {streams} streams")
        directions = {stream % 2 for stream in result["packets"]["stream"]}
        require(directions == {0, 1}, f"only one way: {directions}")
        assert result["cpu_ns"]["proxy"] > 0

    first_unspoiled(once)
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
def test_calls_come_and_go_without_sip_and_sip_without_voice() -> None:
    need(signalling.PROGRAMS)
    server = Server("media", SHARE, threads=1)

    def coming(factor: int) -> None:
        calls = Calls(1_000 * factor * MS, rate_per_s=10.0 / factor, hold_ns=300 * factor * MS)
        result = run_once(Scene(calls, server))
        assert result["relay"]["calls"] == 10
        assert 2 <= result["calls"]["streams_most"] <= result["load"]["streams"] <= 20
        assert result["signalling"] is None
        # The last call comes when a tenth of the time is left.
        require(result["load"]["streams"] == 20, "a call came too late to be heard")

    def beside(factor: int) -> None:
        calls = Calls(
            2_000 * factor * MS, streams=5, rate_per_s=5.0 / factor, through_media_server=False
        )
        result = run_once(Scene(calls, server, signalling=Signalling("proxy", SHARE)))
        assert result["load"]["streams"] == result["calls"]["streams_most"] == 5
        assert result["relay"]["calls"] == result["calls"]["calls"] == 3
        assert result["signalling"]["calls"]["established"] > 0

    first_unspoiled(coming)
    first_unspoiled(beside)


@pytest.mark.usefixtures("able")
def test_a_media_server_that_is_late_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "WAIT_S", 0.02)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def answer_late() -> None:
            *_, (question, asker) = (server.recvfrom(1000) for _ in range(20))
            cookie, _, _ = question.partition(b" ")
            server.sendto(cookie + b' {"result": "pong"}', asker)

        answering = Thread(target=answer_late)
        answering.start()
        with closing(control.Control(Path("/proc/self/ns/net"), *server.getsockname())) as asking:
            assert asking.ask("ping")["result"] == "pong"
        answering.join()


@pytest.mark.usefixtures("able")
def test_who_did_not_register_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    need(signalling.PROGRAMS)
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
    with pytest.raises(
        InputError, match="laxity-media does not listen: error: a pool cannot have 0"
    ):
        media.run(Scene(calls, Server("media", SHARE, threads=0)))
    assert traces_of(os.getpid()) == []


def need(programs: Mapping[str, str]) -> None:
    """Skips what this machine lacks."""
    try:
        process.require(programs)
    except InputError as error:
        pytest.skip(str(error))


RUN_TO_KILL = """if True:
    import sys
    from contextlib import nullcontext
    from laxity.substrates.linux import media
    from laxity.namespaces.groups import Share
    from laxity.substrates.linux.scene import Calls, Neighbour, Scene, Server, Signalling
    if sys.argv[1] == "unattended":
        media.remover = lambda *_: nullcontext()
    share = Share(256, 0, (0,))
    server = Server("media", share, threads=1)
    neighbour = Neighbour("batch", share, threads=1)
    calls = Calls(3_600_000_000_000, streams=2)
    media.run(Scene(calls, server, (neighbour,), Signalling("proxy", share)))
"""


def kill_a_run(how: str) -> int:
    """Kills a run, so that it can do nothing any more; its number."""
    started = subprocess.Popen([sys.executable, "-c", RUN_TO_KILL, how])
    try:
        groups = [f"domain-{number}" for number in range(3)]
        wait_until(lambda: all(running(started.pid, group) for group in groups))
        processes = [process for group in groups for process in running(started.pid, group)]
    finally:
        started.kill()
        started.wait()
    # The kernel kills them with their parent.
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
    return started.pid


@pytest.mark.usefixtures("able")
def test_a_killed_run_leaves_nothing() -> None:
    need(signalling.PROGRAMS)
    killed = kill_a_run("attended")
    wait_until(lambda: traces_of(killed) == [])


@pytest.mark.usefixtures("able")
def test_what_a_run_left_all_the_same_is_removed_by_the_next() -> None:
    need(signalling.PROGRAMS)

    def once(_: int) -> None:
        killed = kill_a_run("unattended")
        require(traces_of(killed) != [], "another run on this machine has removed it")
        with (
            process.workplace(),
            network.network(),
            control_groups.groups({"probe": Share(256, 0, (0,))}),
        ):
            assert traces_of(killed) == []

    first_unspoiled(once)


def test_two_runs_may_remove_the_same_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The other one is always faster: it removes what this one is about to."""
    left = tmp_path / "laxity-999999999"
    (left / "media").mkdir(parents=True)
    remove = Path.rmdir

    def removed_before(path: Path) -> None:
        remove(path)
        remove(path)

    monkeypatch.setattr(Path, "rmdir", removed_before)
    control_groups._remove(left)
    assert not left.exists()

    namespace = tmp_path / "laxity-999999998-client"
    namespace.touch()

    def refuse(*words: str) -> None:
        assert words == ("netns", "delete", namespace.name)
        namespace.unlink()
        raise InputError("cannot remove it: no such file")

    monkeypatch.setattr(network, "NAMESPACES", tmp_path)
    monkeypatch.setattr(network, "_ip", refuse)
    network._remove_left_behind()


def test_what_a_killed_run_left_and_still_uses_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cgroup.controllers").touch()
    # The kernel refuses to remove a group with a process in it, and here a directory with a file.
    used = tmp_path / "laxity-999999999"
    used.mkdir()
    (used / "process").touch()
    monkeypatch.setattr(control_groups, "LEFT_BEHIND_S_MAX", 0.0)
    made = control_groups.Groups({"a": Share(256, 50, (1,))}, tmp_path)
    assert made.entries("a")[0].parent.is_dir()
    assert used.exists()


def running(run: int, group: str) -> list[str]:
    """The processes in a group of a run."""
    paths = control_groups.ROOT.glob(f"**/laxity-{run}/{group}/cgroup.procs")
    return sorted({process for path in paths for process in path.read_text().split()})


def wait_until(met: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 600
    while not met():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def domain(name: str, workload: dict[str, object] | None = None, **keys: object) -> dict[str, Any]:
    """A domain as a resolved host has it."""
    return {
        "name": name,
        "parameters": {
            "weight": 256,
            "cap_percent": 0,
            "quota_ns": 0,
            "quota_period_ns": 100 * MS,
            "quota_burst_ns": 0,
        },
        "vcpus": [{"cpu": 0, "affinity": [0, 1]}],
        "tasks": [],
        "cpu_bound": False,
        "workload": workload,
        "helper_of": None,
        **keys,
    }


def host(**keys: object) -> dict[str, Any]:
    """A resolved host with calls."""
    media_server = {"kind": "media-server", "threads": 3, "transcode": True, "own_work": None}
    card = {"name": "eth0", "rate_bit_s": 10**9, "domain": 0, "ring": 256, "coalesce_ns": 0}
    return {
        "cpus": 2,
        "policy": "credit",
        "duration_ns": 1_000 * MS,
        "caches": [],
        "domains": [
            domain("dom0", {"kind": "driver"}),
            domain("media", media_server, parameters={"weight": 512, "cap_percent": 50}),
            domain("proxy", {"kind": "signalling-server", "threads": 5, "own_work": None}),
            domain("batch", cpu_bound=True, vcpus=[{"affinity": [1]}, {"affinity": [1]}]),
            domain("now-and-then", {"kind": "bursts", "run_ns": 5, "idle_ns": 7}),
            domain("idle"),
        ],
        "network": {"nics": [card]},
        "calls": {
            "streams": 3,
            "rate": {"millionths_per_hour": 4 * 3_600_000_000},
            "hold_ns": 500 * MS,
            "media_server": 1,
            "signalling_server": 2,
            "call_control": None,
            "through_media_server": 1.0,
            "sample": 2,
        },
        **keys,
    }


def test_a_host_becomes_a_scene() -> None:
    assert scene(host(), "rtpengine", cpus=2) == Scene(
        Calls(1_000 * MS, streams=3, rate_per_s=4.0, hold_ns=500 * MS, sample=2),
        Server("media", Share(512, 50, (0, 1)), 3, 0, transcode=True, program="rtpengine"),
        (
            Neighbour("batch", Share(256, 0, (1,)), threads=2),
            Neighbour("now-and-then", Share(256, 0, (0, 1)), 1, run_ns=5, idle_ns=7),
        ),
        Signalling("proxy", Share(256, 0, (0, 1)), processes=5),
    )
    there = host()
    there["calls"] |= {
        "rate": None,
        "signalling_server": None,
        "through_media_server": 0.0,
    }
    there["domains"][1]["workload"]["own_work"] = {"ns": 5_000}
    made = scene(there, "laxity", cpus=4)
    hold_ns = 500 * MS
    assert made.calls == Calls(1_000 * MS, 3, 0.0, hold_ns, through_media_server=False, sample=2)
    assert made.server.work_ns == 5_000
    assert made.signalling is made.traffic is None


def test_what_linux_cannot_do_is_refused() -> None:
    def refusal(**keys: object) -> str:
        with pytest.raises(InputError) as refused:
            scene(host(**keys), "laxity", cpus=2)
        return str(refused.value)

    def changed(part: str, **keys: object) -> dict[str, Any]:
        return {part: host()[part] | keys}

    def with_domain(number: int, **keys: object) -> dict[str, Any]:
        domains = host()["domains"]
        domains[number] = domains[number] | keys
        return {"domains": domains}

    assert "this host has no calls" in refusal(calls=None)
    assert "`host.policy` is sporadic" in refusal(policy="sporadic")
    assert "--set host.cpus=2" in refusal(cpus=4)
    assert "`calls.through-media-server`" in refusal(**changed("calls", through_media_server=0.1))
    assert "`calls.call-control`" in refusal(**changed("calls", call_control=5))
    assert "`domain.idle` has tasks" in refusal(**with_domain(5, tasks=[{"name": "loop"}]))
    card = host()["network"]["nics"][0]
    own = {"nics": [card | {"domain": 1}]}
    assert "`nic.eth0` is media's own (VMM bypass)" in refusal(network=own)
    assert "several cards" in refusal(network={"nics": [card, card]})
    assert "coalescing" in refusal(network={"nics": [card | {"coalesce_ns": 40_000}]})
    kept = host()["domains"][1]["parameters"] | {"quota_burst_ns": 1}
    own = with_domain(1, parameters=kept)
    assert "`domain.media.quota-burst`" in refusal(policy="eevdf", **own)
    work = host()["domains"][1]["workload"] | {"own_work": {"median_ns": 1}}
    assert "`domain.media.workload.work`" in refusal(**with_domain(1, workload=work))
    work = host()["domains"][1]["workload"] | {"processing": ["srtp"]}
    assert "`domain.media.workload.srtp`" in refusal(**with_domain(1, workload=work))
    work = host()["domains"][2]["workload"] | {"own_work": {"ns": 1}}
    assert "`domain.proxy.workload.work`" in refusal(**with_domain(2, workload=work))


def test_a_quota_under_the_model_of_linux_is_the_groups() -> None:
    given = host()
    for domain in given["domains"]:
        domain["parameters"] |= {"quota_ns": 3 * MS, "quota_period_ns": 20 * MS}
        domain["parameters"] |= {"quota_burst_ns": 0, "cap_percent": 7}
    share = scene(given | {"policy": "eevdf"}, "laxity", cpus=2).server.share
    assert (share.quota_us, share.cap_percent) == ((3_000, 20_000), 0)
    assert control_groups.settings_v2({"media": share})["media"]["cpu.max"] == "3000 20000"
    share = scene(given, "laxity", cpus=2).server.share
    assert (share.quota_us, share.cap_percent) == (None, 7)


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match=r"need root[\s\S]*run it as root"):
        media.run(Scene(Calls(20 * MS, streams=2), Server("media", SHARE, threads=1)))


def test_without_the_program_it_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    with pytest.raises(InputError, match="no `laxity-media`, and no cargo"):
        media_server.program()
    monkeypatch.setattr(media_server, "program", lambda: tmp_path)
    monkeypatch.setattr(media, "program", lambda: tmp_path)
    with pytest.raises(InputError, match=r"there is no `ip`[\s\S]*package iproute2"):
        media.run(Scene(Calls(20 * MS, streams=2), Server("media", SHARE, threads=1)))


def test_sampled_packets_become_streams() -> None:
    """Two streams; the first lost its first packet, the second, longer than a piece, its last."""
    rows = [
        (0, 1, 20 * MS + 7, 20 * MS + 9),
        *((5, n, 3 + n * 20 * MS, 4 + n * 20 * MS) for n in range(1600)),
    ]
    per_stream = [
        {"stream": 0, "expected": 2},
        {"stream": 2, "expected": 9},
        {"stream": 5, "expected": 1601},
    ]
    report = {"packets": np.array(rows, PACKET), "sink": {"per_stream": per_stream}}
    first, second, third = kept_streams(report, 1)
    assert (first.stream, first.call, first.start_ns) == (0, None, 4)
    # The load's lateness is not in it: two nanoseconds on the way.
    assert list(first.arrived_ns) == [LOST, 4 + 20 * MS + 2]
    assert (second.stream, second.call, second.start_ns) == (5, 1, 0)
    assert len(second.arrived_ns) == 1500
    assert third.start_ns == 1500 * 20 * MS
    assert list(third.arrived_ns[[0, -2, -1]]) == [third.start_ns + 1, 1599 * 20 * MS + 1, LOST]
    report["packets"] = np.array([], PACKET)
    assert not list(kept_streams(report, 1))


def test_a_report_becomes_a_telephony_section() -> None:
    quantiles = {f"p{part}_ns": 2 for part in (25, 50, 75, 99, 999)}
    times = {"count": 3, "mean_ns": 2.0, "min_ns": 1, **quantiles, "max_ns": 3}
    streams = [
        {"stream": 0, "expected": 10, "received": 9, "lost": 1, "jitter_ns": 4.0},
        {"stream": 3, "expected": 5, "received": 4, "lost": 1, "jitter_ns": 8.0},
        {"stream": 4, "expected": 5, "received": 0, "lost": 5, "jitter_ns": None},
    ]
    report: dict[str, Any] = {
        "load": {"streams": 3, "sent": 20, "failed": 0},
        "relay": {"received": 15, "dropped": 4, "forwarded": 14, "failed": 1},
        "sink": {
            "lost": 7,
            "received": 13,
            "dropped": 1,
            "duplicates": 0,
            "delay": times,
            "per_stream": streams,
        },
        "calls": {"streams_most": 2},
        "signalling": None,
    }
    found = telephony_of_report(report, 0)
    assert found["calls"] is None
    assert found["voice"]["loss_ratio"] == pytest.approx(0.35)
    assert found["voice"]["worst"] == {"stream": 4, "call": 2, "lost": 5, "received": 0}
    assert (found["voice"]["jitter_ns_mean"], found["voice"]["jitter_ns_max"]) == (6.0, 8)
    assert found["voice"]["delay_ns"]["p50"] == 2
    assert found["voice"]["delay_ns"]["max"] == 3
    assert sum(found["drops"].values()) == report["sink"]["lost"]
    # One of them never left: a full socket refused it.
    report["load"] = {"streams": 3, "sent": 19, "failed": 1}
    again = telephony_of_report(report, 0)
    assert again["voice"] == found["voice"]
    assert again["drops"]["socket"] == found["drops"]["socket"] + 1
    assert sum(again["drops"].values()) == report["sink"]["lost"]
    placed = {"attempted": 4, "established": 3, "failed": 1, "retransmissions": 9, "setup": None}
    report["signalling"] = {"calls": placed}
    calls = telephony_of_report(report, 0)["calls"]
    assert (calls["offered"], calls["answered"], calls["retransmissions"]) == (4, 3, 9)
    assert calls["setup_ns"]["count"] == 0


HOST = """
duration = "1 s"
[host]
cpus = 1
policy = "credit"
[[domain]]
name = "dom0"
workload = { kind = "driver" }
[[domain]]
name = "media"
weight = 512
workload = { kind = "media-server", threads = 2, transcode = true }
[[domain]]
name = "batch"
cap = 10
workload = { kind = "cpu-bound" }
[calls]
streams = 10
media-server = "media"
"""


@pytest.mark.usefixtures("able")
def test_a_host_file_runs_and_has_the_record_of_every_substrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    # The machine may be too busy to keep the time, which is not what is tested here.
    monkeypatch.setattr(run, "check_duration", lambda *durations: judged.extend(durations))

    def once(factor: int) -> laxity.Run:
        said: list[str] = []
        judged.clear()
        text = HOST.replace('duration = "1 s"', f'duration = "{factor} s"')
        result = laxity.Host.parse(text).run(on="linux", say=said.append)
        assert (result.substrate, result.policy) == ("linux", "linux")
        assert result.duration_ns == factor * 1_000 * MS
        jsonschema.validate(result.to_json(), json.loads(_core.result_schema()))
        assert judged == [result.duration_ns, result.measured_duration_ns]
        assert any(line.startswith("dom0: the kernel drives the network") for line in said)
        assert any("load average" in line for line in said)
        assert result.telephony is not None
        voice = result.telephony.voice
        assert (voice.streams, voice.streams_most) == (10, 10)
        assert voice.received + voice.lost == voice.sent > 0
        for domain in ("media", "batch"):
            require(result.domain(domain).cpu_ns > 0, f"{domain} had no CPU")
        kept = {stream.stream for stream in result.streams}
        assert kept <= {0, 1, 8, 9}
        require(kept == {0, 1, 8, 9}, f"of the streams that are kept, only {kept} came")
        return result

    result = first_unspoiled(once)
    result.save(tmp_path / "out")
    loaded = laxity.Run.load(tmp_path / "out")
    assert loaded == result
    assert len(loaded.streams) == len(result.streams)


def test_the_command_line_refuses_what_does_not_go_together(tmp_path: Path) -> None:
    path = tmp_path / "host.toml"
    path.write_text(HOST)

    def refusal(*options: str) -> str:
        with pytest.raises(InputError) as refused:
            cli.app(["run", str(path), *options], standalone_mode=False)
        return str(refused.value)

    assert "does not repeat" in refusal("--on", "linux", "--check-determinism")
    assert "add --on linux" in refusal("--media-server", "rtpengine")
    assert "--at is for Xen" in refusal("--on", "linux", "--at", "local")
    assert "`host.policy` is s-all" in refusal("--on", "linux", "--policy", "s-all")


PROCESSES = 300


def _session(leader: int) -> list[int]:
    """The processes whose session a process began."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                found.append(int(path.parent.name))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_all_processes_of_a_namespace_have_ended_when_the_first_has(tmp_path: Path) -> None:
    """There are many, so that the kernel takes some time to end them."""
    place = process.Place(Path("/proc/self/ns/net"), files=tmp_path)
    many = f"for _ in $(seq {PROCESSES}); do sleep 1000 & done; echo started; wait"
    with process.process("many", ["sh", "-c", many], place, own_processes=True) as first:
        while "started" not in (tmp_path / "many.out").read_text():
            assert first.is_running, first.complaint()
            time.sleep(0.01)
        leader = first.popen.pid
        assert len(_session(leader)) > PROCESSES
    assert _session(leader) == []
