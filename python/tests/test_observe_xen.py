"""A Xen host that runs, observed: by programs that stand in for xl and laxity-trace."""

from __future__ import annotations

import json
import os
import struct
import tomllib
from typing import TYPE_CHECKING

import pytest
from laxity import Host
from laxity.lab import image
from laxity.observe import live, xen
from laxity.observe.known import Configuration, Known, with_phases
from laxity.shell import Shell
from laxity.substrates.xen import told
from laxity.substrates.xen.watch import DURATION_S_MAX, watch

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity

MS = 1_000_000
START_NS = 1_767_225_600_000_000_000
DURATION_NS = 1000 * MS
SWITCH, WAKE, BLOCK = 0x2800A, 0x28004, 0x28006
IDLE, DOM0, MEDIA = (0x7FFF, 0), (0, 0), (3, 0)

INFO = """\
nr_cpus                : 2
xen_scheduler          : {scheduler}
"""
VCPUS = """\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
Domain-0                             0     0    0   r--     103.4  all / all
Domain-0                             0     1    -   --p       0.1  all / all
media server                         3     0    1   -b-       9.0  1 / all
(null)                           32754     0    -   --p       0.1  all / all
"""
POOLS = """\
Name               CPUs   Sched     Active   Domain count
Pool-0               2  credit2       y          2
"""
TOLD = {
    "credit2": """\
Cpupool Pool-0: ratelimit=1000us
Name                                ID Weight  Cap
Domain-0                             0    256    0
media server                         3    512   40
""",
    "credit": """\
Cpupool Pool-0: tslice=5ms ratelimit=1000us migration-delay=0us
Name                                ID Weight  Cap
Domain-0                             0    256    0
media server                         3    512   40
""",
    "rtds": """\
Cpupool Pool-0: sched=RTDS
Name                                ID VCPU    Period    Budget  Extratime
Domain-0                             0    0     10000      4000        yes
media server                         3    0     20000      5000         no
media server                         3    1     30000      1000        yes
""",
}
LAXITY = {
    "pools": [{"id": 0, "scheduler": "laxity", "policy": "deferrable", "quantum_ns": MS}],
    "domains": [
        {"id": 0, "budget_ns": 4 * MS, "period_ns": 10 * MS, "priority": 1},
        {"id": 3, "budget_ns": 2 * MS, "period_ns": 20 * MS, "priority": 2, "extratime": True},
    ],
}

XL = """\
#!/bin/sh
echo "xl $*" >>"$STATE/diary"
[ "$1" = vcpu-list ] && [ -f "$STATE/ended" ] && [ -f "$STATE/later" ] && exec cat "$STATE/later"
cat "$STATE/$1"
"""
TRACE = """\
#!/bin/sh
echo "laxity-trace $*" >>"$STATE/diary"
echo recording 0 0
[ ! -f "$STATE/full" ] || { echo "laxity-trace: CPU 0's buffer was full" >&2; exit 1; }
while [ $# -gt 1 ]; do
    [ "$1" != --kernel ] || cp "$STATE/kernel" "$2"
    shift
done
cp "$STATE/buffers" "$1"
touch "$STATE/ended"
"""
SCHED = """\
#!/bin/sh
cat "$STATE/laxity"
"""


def record(time_ns: int, event: int, *words: int) -> bytes:
    """One of Xen's, by a clock of a cycle a ns."""
    header = 1 << 31 | len(words) << 28 | event
    return struct.pack(f"<IQ{len(words)}I", header, time_ns + MS, *words)


def buffers() -> bytes:
    """Two CPUs: dom0 runs always on the first, and media 2 ms of every 10 on the second."""
    first = record(0, SWITCH, *IDLE, *DOM0)
    second = b""
    for job in range(DURATION_NS // (10 * MS)):
        begin_ns = job * 10 * MS + 3 * MS
        second += record(begin_ns, WAKE, *MEDIA) + record(begin_ns, SWITCH, *IDLE, *MEDIA)
        end_ns = begin_ns + 2 * MS
        second += record(end_ns, BLOCK, *MEDIA) + record(end_ns, SWITCH, *MEDIA, *IDLE)
    pairs = (0, START_NS - MS, DURATION_NS + 2 * MS, START_NS + DURATION_NS + MS)
    sections = b"".join(
        struct.pack("<IIQ", cpu, 0, len(content)) + content
        for cpu, content in enumerate((first, second))
    )
    return b"LAXITYXT" + struct.pack("<II4Q", 1, 2, *pairs) + sections


PAGE_BYTES = 128
COMMON = """\
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
"""
BUFFER = "\tfield:void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;\n"
FORMATS = {
    "sched_switch": """\
\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:24;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:40;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:44;\tsize:4;\tsigned:1;
""",
    "sched_wakeup": """\
\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;
\tfield:int target_cpu;\toffset:12;\tsize:4;\tsigned:1;
""",
    "net_dev_queue": BUFFER + "\tfield:unsigned int len;\toffset:16;\tsize:4;\tsigned:0;\n",
    "kfree_skb": BUFFER,
    "consume_skb": BUFFER,
    "netback_copied": "",
}
NETBACK, LOAD = (70, b"vif3.0-q0-guest", 120), (71, b"load", 89)
"""Threads of dom0, with their names and priorities, as the kernel has them."""


def event(time_ns: int, name: str, thread: int, layout: str = "", *values: object) -> bytes:
    """A page of the kernel's buffer with one event; times are from when Xen began to trace."""
    number = 100 + list(FORMATS).index(name)
    data = struct.pack(f"<HBBi{layout}", number, 0, 0, thread, *values)
    data += bytes(-len(data) % 4)
    page = struct.pack("<QQI", time_ns, 4 + len(data), len(data) // 4) + data
    return page.ljust(PAGE_BYTES, b"\0")


def switch(time_ns: int, before: int, state: int, after: tuple[int, bytes, int]) -> bytes:
    number, name, priority = after
    fields = (before, state, name, number, priority)
    return event(time_ns, "sched_switch", before, "i4xq16sii", *fields)


def kernel(from_ns: int = 5 * MS) -> bytes:
    """A packet for the media server comes to dom0 then, and netback waits for a load."""
    taken_ns = from_ns + 4 * MS
    pages = (
        switch(from_ns, 0, 0, LOAD),
        event(from_ns, "net_dev_queue", LOAD[0], "QI", 0x1000, 222),
        event(from_ns, "sched_wakeup", LOAD[0], "ii", NETBACK[0], 0),
        switch(taken_ns, LOAD[0], 1, NETBACK),
        event(taken_ns + MS // 10, "netback_copied", NETBACK[0]),
        event(taken_ns + MS // 5, "kfree_skb", NETBACK[0], "Q", 0x1000),
        switch(taken_ns + MS, NETBACK[0], 1, (0, b"swapper/0", 120)),
    )
    texts = [
        f"name: {name}\nID: {100 + place}\nformat:\n{COMMON}\n{fields}"
        for place, (name, fields) in enumerate(FORMATS.items())
    ]
    told = b"".join(struct.pack("<I", len(text)) + text.encode() for text in texts)
    head = struct.pack("<IIQQQI", 1, 1, 0, 0, DURATION_NS + 2 * MS, len(texts))
    buffer = struct.pack("<IIQQ", 0, PAGE_BYTES, 0, len(pages) * PAGE_BYTES) + b"".join(pages)
    return b"LAXITYLT" + head + told + buffer


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the programs that stand in tell, and where they write what they were asked."""
    directory, programs = tmp_path / "state", tmp_path / "bin"
    directory.mkdir()
    programs.mkdir()
    for name, text in (("xl", XL), ("laxity-trace", TRACE), ("laxity-sched", SCHED)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    scheduled(directory, "credit2")
    (directory / "vcpu-list").write_text(VCPUS)
    (directory / "cpupool-list").write_text(POOLS)
    (directory / "laxity").write_text(json.dumps(LAXITY))
    (directory / "buffers").write_bytes(buffers())
    monkeypatch.setenv("STATE", str(directory))
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(image, "programs", lambda _: programs)
    monkeypatch.setattr(live, "is_dom0", lambda _: True)
    return directory


def scheduled(state: Path, scheduler: str) -> None:
    (state / "info").write_text(INFO.format(scheduler=scheduler))
    (state / f"sched-{scheduler}").write_text(TOLD.get(scheduler, ""))


def test_a_host_file_of_a_xen_host(state: Path, laxity: Laxity, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    done = laxity("observe", "--at", "local", "--duration", "1 s", "-o", seen)
    assert "Observed on xen, under credit2, 1 s" in done.stdout
    assert "watching this machine for 1 s" in done.stderr
    host = Host.load(seen / "host.toml").resolved()
    assert (host["cpus"], host["policy"]) == (2, "credit2")
    dom0, media = host["domains"]
    assert (dom0["name"], dom0["parameters"]["weight"]) == ("Domain-0", 256)
    text = (seen / "host.toml").read_text()
    assert tomllib.loads(text)["domain"][0]["workload"] == {"kind": "cpu-bound"}
    assert (media["name"], media["parameters"]["weight"]) == ("media-server", 512)
    assert media["parameters"]["cap_percent"] == 40
    assert media["vcpus"][0]["affinity"] == [1]
    assert [(each["period_ns"], each["cost_ns"]) for each in media["tasks"]] == [(10 * MS, 2 * MS)]
    assert "weight = 512  # as Xen's tools tell" in text
    laxity("why", seen)
    laxity("check", seen / "host.toml", code=1)
    diary = (state / "diary").read_text().splitlines()
    (traced,) = (line for line in diary if line.startswith("laxity-trace"))
    assert "record --events sched,laxity --for 1000000000" in traced
    # Nothing is set: xl is asked only for what tells.
    words = {tuple(line.split()[1:]) for line in diary if line.startswith("xl ")}
    assert words == {("info",), ("cpupool-list",), ("vcpu-list",), ("sched-credit2",)}


def test_late_packets_of_netback(state: Path, laxity: Laxity, tmp_path: Path) -> None:
    (state / "kernel").write_bytes(kernel())
    seen, words = tmp_path / "seen", ("--at", "local", "--duration", "1 s")
    laxity("observe", *words, "--packet-delay", "1 ms", "-o", seen)
    assert "--kernel" in (state / "diary").read_text()
    answer = json.loads(laxity("why", seen, "--json").stdout)
    (late,) = (each for each in answer["late"] if each["packet"] == "late")
    assert late["what"] == "media-server/stream-0#0"
    # The media server runs at 14 ms.
    assert (late["arrival_ns"], late["completion_ns"]) == (5 * MS, 14 * MS)
    netback = "(vif3.0-q0-guest)"
    causes = {
        (each["cause"], each["who"], each["rule"], each["at"]): each["delay_ns"]
        for each in late["causes"]
    }
    assert causes == {
        ("cpu", "(load, real-time)", "order", netback): 4 * MS,
        ("queue", netback, None, netback): MS // 10,
        ("blocked", None, None, "media-server"): 14 * MS - 9 * MS - MS // 10,
    }
    said = " ".join(laxity("why", seen).stdout.split())
    assert "(load, real-time) had the CPU (its kernel: it comes first)" in said
    assert "packets from domains" in said
    # What runs in dom0 is no matter of the host file, nor of how well it predicts.
    assert len(Host.load(seen / "host.toml").resolved()["domains"]) == 2
    laxity("fidelity", seen / "host.toml", "--against", seen)
    laxity("report", seen)

    # Without the option the kernel records nothing.
    (state / "diary").unlink()
    laxity("observe", *words, "-o", tmp_path / "bare")
    assert "--kernel" not in (state / "diary").read_text()


def test_a_kernel_with_another_clock_is_refused(
    state: Path, laxity: Laxity, tmp_path: Path
) -> None:
    # dom0's VCPU has its CPU from 1 ms on.
    (state / "kernel").write_bytes(kernel(from_ns=MS // 2))
    words = ("--at", "local", "--duration", "1 s", "--packet-delay", "1 ms")
    said = laxity("observe", *words, "-o", tmp_path / "seen", code=2).stderr
    assert "clocks differ" in " ".join(said.split()), said


def test_a_host_that_runs_goes_to_the_doctor(state: Path, laxity: Laxity) -> None:
    done = laxity("doctor", "--at", "local", "--duration", "1 s", "--json")
    assert isinstance(json.loads(done.stdout)["findings"], list)
    assert "laxity-trace record" in (state / "diary").read_text()
    assert "one host is asked for" in laxity("doctor", code=2).stderr


@pytest.mark.parametrize(
    ("scheduler", "settings", "of_media"),
    [
        ("credit", {"time-slice": 5 * MS}, {"weight": 512, "cap": 40}),
        ("rtds", {}, {"period": 20 * MS, "budget": 5 * MS}),
        ("null", {}, {}),
        ("(null)", {"quantum": MS}, None),
    ],
)
def test_each_scheduler_is_told(
    state: Path,
    tmp_path: Path,
    scheduler: str,
    settings: dict[str, int],
    of_media: dict[str, int] | None,
) -> None:
    scheduled(state, scheduler)
    known = xen.configuration(watch(Shell.at("local"), 0.5, tmp_path, lambda _: None))
    if of_media is None:
        of_media = {"budget": 2 * MS, "period": 20 * MS, "priority": 2, "extratime": True}
    assert {name: each.value for name, each in known.settings.items()} == settings
    media = known.domains["media-server"]
    assert {name: each.value for name, each in media.items()} == of_media
    assert known.policy_name == {"(null)": "deferrable"}.get(scheduler, scheduler)
    assert known.affinity == {"media-server": (1,)}


@pytest.mark.parametrize(("policy", "phase_ns"), [("rtds", 3 * MS), ("deferrable", None)])
def test_periods_begin_when_the_buffers_tell_of_deadlines(
    policy: str, phase_ns: int | None
) -> None:
    period = {"period": Known(20 * MS, "xl")}
    known = Configuration({policy: "xl"}, domains={"one": period, "untold": period})
    known = with_phases(known, ("one", "untold", "dom0"), [[43 * MS, 50 * MS], [None], [MS]])
    phase = known.domains["one"].get("phase")
    assert (phase and phase.value) == phase_ns
    assert known.domains["untold"] == period
    assert "dom0" not in known.domains
    assert with_phases(known, ("one", "untold"), ()) == known


def test_what_cannot_be_observed_is_refused(state: Path, laxity: Laxity, tmp_path: Path) -> None:
    def refused(*words: str, code: int = 2) -> str:
        done = laxity("observe", "--at", "local", "-o", tmp_path / "seen", *words, code=code)
        assert not (tmp_path / "seen").exists()
        return done.stderr

    assert "leave --domain out" in refused("--domain", "media=1")
    assert "not both" in refused(str(tmp_path))
    assert f"at most {DURATION_S_MAX} s" in refused("--duration", f"{DURATION_S_MAX + 1} s")
    (state / "full").touch()
    assert "CPU 0's buffer was full" in refused(code=3)
    (state / "full").unlink()
    (state / "later").write_text(VCPUS.replace("9.0  1 ", "9.0  0 "))
    assert "came, went or were pinned" in refused(code=3)
    (state / "ended").unlink()
    (state / "cpupool-list").write_text(POOLS + "Pool-1    1   rtds   y   1\n")
    assert "2 CPU pools (Pool-0, Pool-1)" in refused()
    (state / "info").write_text("")
    assert "is not a Xen host" in refused()


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("all", [0, 1, 2, 3]), ("0-2,^1", [0, 2]), ("3", [3]), ("2-9", [2, 3]), ("", []), ("x", [])],
)
def test_lists_of_cpus(text: str, cpus: list[int]) -> None:
    assert list(told.cpus_of(text, 4)) == cpus
