"""Real packets on this machine: what a host becomes; that a run works and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from laxity.errors import InputError
from laxity.linux import groups as control_groups
from laxity.linux import media, network
from laxity.linux.scene import Neighbour, Scene, Server, Share, Streams, scene

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000


def domain(
    name: str, vcpus: int = 1, weight: int = 256, cap: int = 0, *, cpu_bound: bool = False
) -> dict[str, object]:
    return {
        "name": name,
        "parameters": {"weight": weight, "cap_percent": cap},
        "vcpus": [{"cpu": 0, "affinity": [0, 1]} for _ in range(vcpus)],
        "tasks": [],
        "cpu_bound": cpu_bound,
    }


def test_a_host_becomes_a_scene() -> None:
    host = {
        "domains": [
            domain("media", vcpus=2, weight=512),
            domain("batch", vcpus=3, cap=40, cpu_bound=True),
            domain("idle"),
        ]
    }
    made = scene(host, "media", Streams(800, 1000 * MS), work_ns=5000, transcode=True)
    assert made == Scene(
        Streams(800, 1000 * MS),
        Server(Share(512, 0, (0, 1)), threads=2, work_ns=5000, transcode=True),
        (Neighbour("batch", Share(256, 40, (0, 1)), threads=3),),
    )


def test_what_is_no_scene_is_refused() -> None:
    host = {"domains": [domain("media"), domain("control") | {"tasks": [{"name": "loop"}]}]}
    with pytest.raises(InputError, match="no domain `medai`"):
        scene(host, "medai", Streams(1, 20 * MS))
    with pytest.raises(InputError, match="`control` has tasks"):
        scene(host, "media", Streams(1, 20 * MS))


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
        media._program()
        with network.network():
            pass
        control_groups.Groups({"probe": Share(256, 0, (0,))}).remove()
    except InputError as error:
        pytest.skip(str(error))


def traces_of(run: int) -> list[Path]:
    name = f"laxity-{run}*"
    return [
        *network.NAMESPACES.glob(name),
        *control_groups.ROOT.glob(name),
        *control_groups.ROOT.glob(f"*/{name}"),
    ]


@pytest.mark.usefixtures("able")
def test_a_run_accounts_for_every_packet_and_leaves_nothing() -> None:
    cpu = min(os.sched_getaffinity(0))
    share = Share(256, 0, (cpu,))
    neighbour = Neighbour("batch", Share(256, 10, (cpu,)), threads=1)
    server = Server(share, threads=2, work_ns=1000, transcode=True)
    result = media.run(Scene(Streams(20, 400 * MS), server, (neighbour,)))
    assert result["load"]["sent"] == 400
    relay, sink = result["relay"], result["sink"]
    assert 0 < sink["received"] <= relay["forwarded"] <= relay["received"] <= 400
    assert sink["received"] + sink["lost"] == 400
    # Whoever lost it: every packet that did not arrive is in one of the counts.
    by_server = relay["dropped"] + relay["received"] - relay["forwarded"]
    assert sink["lost"] == by_server + sink["dropped"] + result["lost_in_network"]
    assert sink["streams"] == 20
    (batch,) = result["neighbours"]
    # A cap of a tenth of a CPU. More than half a CPU would be none.
    assert batch["name"] == "batch"
    assert 0.0 < batch["cpus"] < 0.5
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
def test_a_run_that_fails_leaves_nothing() -> None:
    share = Share(256, 0, tuple(os.sched_getaffinity(0)))
    server = Server(share, threads=1, work_ns=0, transcode=False)
    with pytest.raises(InputError, match="multiple of 20 ms"):
        media.run(Scene(Streams(1, 30 * MS), server, ()))
    with pytest.raises(InputError, match="control groups"):
        media.run(Scene(Streams(1, 20 * MS), Server(Share(256, 0, (4095,)), 1, 0, False), ()))
    assert traces_of(os.getpid()) == []


@pytest.mark.usefixtures("able")
def test_what_a_killed_run_left_is_removed_by_the_next() -> None:
    code = """if True:
        from laxity.linux import media
        from laxity.linux.scene import Neighbour, Scene, Server, Share, Streams
        share = Share(256, 0, (0,))
        server = Server(share, threads=1, work_ns=0, transcode=False)
        neighbour = Neighbour("batch", share, threads=1)
        media.run(Scene(Streams(1, 3_600_000_000_000), server, (neighbour,)))
    """
    run = subprocess.Popen([sys.executable, "-c", code])
    try:
        wait_until(lambda: any(running(run.pid, "neighbour-0")))
        processes = [*running(run.pid, media.MEDIA_SERVER), *running(run.pid, "neighbour-0")]
    finally:
        run.kill()
        run.wait()
    # The kernel kills them with their parent.
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
    assert traces_of(run.pid) != []
    with network.network(), control_groups.groups({"probe": Share(256, 0, (0,))}):
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
