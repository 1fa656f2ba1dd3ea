"""What a host did, from who ran when: its host file, and the run that the trace tells."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from attempts import first_unspoiled, require
from conftest import EXAMPLES, HOST, UNSHARE, can_trace
from laxity import Host, _core, tracefile, tracefs
from laxity.directory import Manifest
from laxity.observe import here, threads
from laxity.observe.known import Configuration
from laxity.observe.observed import NO_SOCKETS, NO_WORKERS, NOT_SEEN, observe_trace
from laxity.results.run import Run
from laxity.substrates import of
from laxity.substrates.kernel import Kernel
from laxity.substrates.xen.boot import RUN
from laxity.substrates.xen.collect import SUMMARY
from laxity.tracefs import MAGIC, TRACING

if TYPE_CHECKING:
    from conftest import Laxity

MS = 1_000_000


@pytest.fixture
def out(laxity: Laxity, tmp_path: Path) -> Path:
    words = ("--duration", "10 s", "-o", tmp_path / "out")
    laxity("run", EXAMPLES / "overload.toml", *words)
    return tmp_path / "out"


def tasks(host: Path) -> dict[str, list[tuple[int, int]]]:
    """Period and cost of the tasks of each domain."""
    domains = Host.load(host).resolved()["domains"]
    return {
        domain["name"]: sorted((task["period_ns"], task["cost_ns"]) for task in domain["tasks"])
        for domain in domains
    }


def test_an_example_is_found_again(laxity: Laxity, out: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    said = laxity("observe", out, "-o", seen).stdout
    assert "Observed on sim, under deferrable, 10 s" in said
    found = tasks(seen / "host.toml")
    assert found["control"] == [(5 * MS, MS // 2), (20 * MS, 3 * MS // 2)]
    text = (seen / "host.toml").read_text()
    given = tomllib.loads(text)
    assert given["domain"][2]["workload"] == {"kind": "cpu-bound"}
    values = [
        line
        for line in text.splitlines()
        if " = " in line and not line.startswith((" ", "name = ", "tasks = ["))
    ]
    assert all("  # " in line for line in values), "each value says where it comes from"
    # The run that the trace tells is the run that was.
    was, told = Run.load(out), Run.load(seen)
    control, seen_control = was.domains[0], told.domains[0]
    assert (control.jobs, control.missed) == (seen_control.jobs, seen_control.missed)
    assert sum(part.cpu_ns for part in was.domains) == sum(part.cpu_ns for part in told.domains)
    laxity("check", seen / "host.toml")
    assert json.loads(laxity("run", seen / "host.toml", "--json").stdout)["domains"]
    assert "None of 2,500 jobs was late" in laxity("why", seen).stdout


def test_a_bare_trace_tells_policy_and_budgets(laxity: Laxity, out: Path, tmp_path: Path) -> None:
    content: dict[str, Any] = json.loads(
        laxity("observe", out / "trace.laxtrace", "-o", tmp_path / "seen", "--json").stdout
    )
    assert content["domains"][2]["vcpus"][0]["load"] == {"kind": "endless"}
    host = Host.load(tmp_path / "seen" / "host.toml").resolved()
    assert host["policy"] == "deferrable"
    assert [domain["parameters"]["budget_ns"] for domain in host["domains"]] == [
        600_000,
        4 * MS,
        2 * MS,
    ]


def test_what_is_no_trace_is_refused(laxity: Laxity, tmp_path: Path) -> None:
    (tmp_path / "no.laxtrace").write_bytes(b"LAXTRACE and no more")
    done = laxity("observe", tmp_path / "no.laxtrace", code=2)
    assert "no.laxtrace" in done.stderr
    assert "there is no file" in laxity("observe", tmp_path / "none", code=2).stderr


def test_the_name_of_a_trace_writes_nothing_into_the_host_file(
    laxity: Laxity, tmp_path: Path
) -> None:
    trace, named = tmp_path / "a.laxtrace", tmp_path / "b\nseed = 7\n#\x01.laxtrace"
    Host.parse(HOST).run(trace=trace)
    trace.rename(named)
    laxity("observe", named, "-o", tmp_path / "seen")
    text = (tmp_path / "seen/host.toml").read_text("utf-8")
    assert r"b\nseed = 7\n#\x01.laxtrace." in text
    assert Host.parse(text).resolved()["seed"] == 1


SHARING = b"""
duration = "1 s"
[host]
cpus = 1
policy = "credit"
accounting-phase = "12.345678 ms"
[[domain]]
name = "one"
tasks = [{ name = "work", cost = "9 ms", period = "20 ms" }]
[[domain]]
name = "loop"
workload = { kind = "cpu-bound" }
"""


def test_a_bare_trace_tells_when_credits_come(laxity: Laxity, tmp_path: Path) -> None:
    trace, seen = tmp_path / "a.laxtrace", tmp_path / "seen"
    Host(SHARING, "host.toml").run(trace=trace)
    laxity("observe", trace, "-o", seen)
    settings = Host.load(seen / "host.toml").resolved()["settings"]
    assert settings["accounting_phase_ns"] == 12_345_678


@pytest.mark.parametrize(
    ("came", "latency_ns", "phase_ns"),
    [
        ("7 us", 2_000, 7_000),
        # The other domain's job arrives 5 us later, which is nearer than the job 7 us earlier.
        ("7 us", 4_000, 0),
        ("29.997 ms", 2_000, 0),
    ],
)
def test_credits_that_come_as_late_as_timers_come_with_a_job(
    tmp_path: Path, came: str, latency_ns: int, phase_ns: int
) -> None:
    trace = tmp_path / "a.laxtrace"
    late = b'[{ name = "work", cost = "2 ms", period = "30 ms", offset = "12 us" }]'
    text = SHARING.replace(b'workload = { kind = "cpu-bound" }', b"tasks = " + late)
    host = Host(text, "host.toml").resolve([f"host.accounting-phase={came}"])
    of("sim").run(host, trace=trace, say=lambda _: None)
    known = Configuration({"credit": "known"}, kernel=Kernel(timer_latency_ns=latency_ns))
    found = observe_trace(trace, tmp_path / "seen.laxtrace", known, "a").host.resolve()
    assert found.host["settings"]["accounting_phase_ns"] == phase_ns


TICKING = b"""
duration = "2 s"
host = { cpus = 1, policy = "credit" }
[[domain]]
name = "one"
tasks = [{ name = "work", cost = "900 us", period = "20 ms" }]
tick = { period = "4 ms", cost = "10 us", offset = "1.25 ms", wake = "30 us" }
"""


def test_what_kernels_are_known_to_take_is_in_no_cost_but_in_ticks(tmp_path: Path) -> None:
    trace = tmp_path / "a.laxtrace"
    host = Host(TICKING, "host.toml").resolve([])
    of("sim").run(host, trace=trace, say=lambda _: None)
    tick = {"period": 4 * MS, "cost": 10_000, "wake": 30_000}
    known = Configuration(
        {"credit": "known"}, kernel=Kernel(interrupt_ns=10_000, wake_ns=30_000, tick=tick)
    )
    (found,) = observe_trace(trace, tmp_path / "b.laxtrace", known, "a").host.resolved()["domains"]
    (expected,) = host.host["domains"]
    assert found["tick"] == expected["tick"]
    (task,) = found["tasks"]
    assert task["cost_ns"] == pytest.approx(900_000, abs=100)
    assert task["period_ns"] == 20 * MS


@pytest.mark.parametrize("mode", ["repeatable", "live"])
@pytest.mark.parametrize(
    ("on", "policy", "settings"), [("xen", "rtds", set()), ("kvm", "credit", {"time_slice_ns"})]
)
def test_a_run_of_a_lab_is_observed_with_what_is_known_of_it(
    laxity: Laxity, tmp_path: Path, on: str, policy: str, settings: set[str], mode: str
) -> None:
    """A simulated run stands for one of the lab."""
    text = TICKING.replace(b"\ntick =", b'\nbudget = "5 ms"\nperiod = "10 ms"\ntick =')
    host = Host(text, "host.toml").resolve([f"host.policy={policy}"])
    ran = of("sim").run(host, trace=tmp_path / "a.laxtrace", say=lambda _: None)
    out = ran.save(tmp_path / "out")
    options = ("--on", on, "--mode", mode)
    Manifest("run", "host.toml", (f"host.policy={policy}",), options).save(out)
    (out / on).mkdir()
    summary = {"deadlines_ns": [[23 * MS]]}
    (out / on / f"{RUN}{SUMMARY}").write_text(json.dumps(summary), "utf-8")
    laxity("observe", out, "-o", tmp_path / "seen", code=0)
    found = Host.load(tmp_path / "seen" / "host.toml").resolved()

    is_known = mode == "repeatable"
    given = host.changed(of(on).machine(host)).host if is_known else host.host
    for key in ("costs", "timer_latency_ns", "settings"):
        assert found[key] == given[key]
    changed = {name for name, ns in given["settings"].items() if host.host["settings"][name] != ns}
    assert changed == (settings if is_known else set())
    assert (found["costs"] != host.host["costs"]) == is_known
    (domain,) = found["domains"]
    assert domain["parameters"]["phase_ns"] == (3 * MS if on == "xen" else 0)
    assert (domain["tick"] is not None) == (is_known and on == "xen")
    if is_known:
        kernel = of(on).kernel(host)
        own_ns = kernel.arrival_ns + kernel.interrupt_ns + kernel.wake_ns
        taken_ns = 900_000 + 10_000 + 30_000
        largest = max(task["cost_ns"] for task in domain["tasks"])
        assert largest == pytest.approx((taken_ns - own_ns) / (1 + kernel.stolen), abs=12_000)


def test_the_host_file_says_what_a_kernel_takes_at_a_wake(laxity: Laxity, tmp_path: Path) -> None:
    """Two tasks come both alone and together; 40 us of each busy period are of neither."""
    events: list[Any] = [[0, switch(0, 0, 42)], [1, switch(42, 1, 0)]]
    for ms in range(10, 1_990, 10):
        work_us = sum(us for us, every in ((500, 20), (800, 30)) if ms % every == 0)
        if work_us:
            begin_us = ms * 1_000
            end_us = begin_us + work_us + 40
            events += [[begin_us, wakeup(42)], [begin_us, switch(0, 0, 42)]]
            events += [[end_us, switch(42, 1, 0)]]
    file, seen = tmp_path / "trace.dat", tmp_path / "seen"
    file.write_bytes(version_7([pages(events)]))
    laxity("observe", file, "--domain", "one=42", "-o", seen)
    assert tasks(seen / "host.toml") == {"one": [(20 * MS, 500_000), (30 * MS, 800_000)]}
    text = (seen / "host.toml").read_text("utf-8")
    assert "At each wake of VCPU 0 its kernel takes 40 us more, which is in no cost." in text


PAGE = 4096
SWITCH = """name: sched_switch
ID: 372
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;
\tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;
\tfield:char next_comm[16];\toffset:24;\tsize:16;\tsigned:0;
\tfield:pid_t next_pid;\toffset:40;\tsize:4;\tsigned:1;
\tfield:int next_prio;\toffset:44;\tsize:4;\tsigned:1;
"""
WAKEUP = """name: sched_wakeup
ID: 374
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;
"""
HEAD = """name: {name}
ID: {number}
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

"""
SKB = """\tfield:void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int len;\toffset:16;\tsize:4;\tsigned:0;
"""
READY = """\tfield:const void * skaddr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:__u16 protocol;\toffset:16;\tsize:2;\tsigned:0;
"""
ASKED = """\tfield:void * sk;\toffset:8;\tsize:8;\tsigned:0;
\tfield:__u16 protocol;\toffset:16;\tsize:2;\tsigned:0;
\tfield:int ret;\toffset:20;\tsize:4;\tsigned:1;
\tfield:int flags;\toffset:24;\tsize:4;\tsigned:1;
"""
CARDS = {
    "net": {"netif_receive_skb": (500, SKB), "net_dev_queue": (501, SKB)},
    "skb": {
        "skb_copy_datagram_iovec": (502, SKB),
        "kfree_skb": (503, SKB),
        "consume_skb": (504, SKB),
    },
}
NETWORK = {**CARDS, "sock": {"sk_data_ready": (505, READY), "sock_recv_length": (506, ASKED)}}
CAME, QUEUED, COPIED, DROPPED, CONSUMED = range(500, 505)
UDP, TCP = 17, 6
START_NS = 7_000_000_000_000
NAMES = {0: b"", 40: b"vhost-39", 41: b"CPU 0/KVM", 42: b"CPU 1/KVM", 77: b"CPU 0/KVM"}


def switch(before: int, state: int, after: int) -> bytes:
    head = struct.pack("<H6xi4xq", 372, before, state)
    return head + NAMES[after].ljust(16, b"\0") + struct.pack("<ii", after, 120 if after else 0)


def wakeup(thread: int) -> bytes:
    return struct.pack("<H6xi", 374, thread)


def skb(event: int, thread: int, buffer: int, length: int = 0) -> bytes:
    return struct.pack("<H2xiqi", event, thread, buffer, length)


def ready(socket: int, protocol: int = UDP) -> bytes:
    return struct.pack("<H6xqH2x", 505, socket, protocol)


def asked(thread: int, socket: int, result: int, flags: int = 0, protocol: int = UDP) -> bytes:
    return struct.pack("<H2xiqH2xii", 506, thread, socket, protocol, result, flags)


def busy(thread: int, period_us: int, cost_us: int, offset_us: int, end_us: int) -> list[Any]:
    """The times, in us, and the events of a thread that has its CPU for itself."""
    events: list[Any] = []
    for start in range(offset_us, end_us - cost_us, period_us):
        events += [(start, wakeup(thread)), (start, switch(0, 0, thread))]
        events.append((start + cost_us, switch(thread, 1, 0)))
    return events


def pages(events: list[Any]) -> bytes:
    """The events of a CPU as the kernel's ring buffer has them."""
    written, data, begun_ns, last_ns = b"", b"", 0, 0
    for time_us, event in events:
        time_ns = START_NS + 1000 * time_us
        extended = time_ns - last_ns >= 1 << 27
        if not data or len(data) + len(event) + 12 > PAGE - 16:
            written += _page(begun_ns, data)
            data, begun_ns, last_ns, extended = b"", time_ns, time_ns, False
        delta = time_ns - last_ns
        if extended:
            data += struct.pack("<II", (delta & (1 << 27) - 1) << 5 | 30, delta >> 27)
            delta = 0
        data += struct.pack("<I", delta << 5 | len(event) // 4) + event
        last_ns = time_ns
    return written + _page(begun_ns, data)


def _page(begun_ns: int, data: bytes) -> bytes:
    return (struct.pack("<QQ", begun_ns, len(data)) + data).ljust(PAGE, b"\0") if data else b""


def block(content: bytes) -> bytes:
    return struct.pack("<Q", len(content)) + content


Network = dict[str, dict[str, tuple[int, str]]]
"""The numbers and fields of events of packets, by system and name."""


def formats(network: Network) -> bytes:
    texts = {"sched": [SWITCH, WAKEUP]}
    for system, events in network.items():
        texts[system] = [
            HEAD.format(name=name, number=number) + fields
            for name, (number, fields) in events.items()
        ]
    written = struct.pack("<I", len(texts))
    for system, own in texts.items():
        written += system.encode() + b"\0" + struct.pack("<I", len(own))
        written += b"".join(block(text.encode()) for text in own)
    return written


def version_6(cpus: list[bytes], network: Network | None = None) -> bytes:
    clock = b"local [mono] x86-tsc\0"
    head = MAGIC + b"6\0" + bytes([0, 8]) + struct.pack("<I", PAGE)
    head += b"header_page\0" + block(b"") + b"header_event\0" + block(b"")
    head += struct.pack("<I", 0) + formats(network or {}) + struct.pack("<II", 0, 0)
    head += block(b"41 CPU 0/KVM\n")
    head += struct.pack("<I", len(cpus)) + b"options  \0"
    head += struct.pack("<HI", 4, len(clock)) + clock + struct.pack("<H", 0) + b"flyrecord\0"
    offset, places = len(head) + 16 * len(cpus), b""
    for cpu in cpus:
        places += struct.pack("<QQ", offset, len(cpu))
        offset += len(cpu)
    return head + places + b"".join(cpus)


def version_7(cpus: list[bytes], network: Network | None = None, flags: int = 0) -> bytes:
    def section(number: int, content: bytes) -> bytes:
        return struct.pack("<HHIQ", number, flags, 0, len(content)) + content

    told = section(18, formats(network or {}))
    file = MAGIC + b"7\0" + bytes([0, 8]) + struct.pack("<I", PAGE) + b"none\0\0"
    file += struct.pack("<Q", len(file) + 8 + len(told) + 16 + sum(map(len, cpus)))
    formats_at = len(file)
    file += told
    buffer_at, offset = len(file), len(file) + 16
    file += section(3, b"".join(cpus))
    buffer = struct.pack("<Q", buffer_at) + b"\0mono\0" + struct.pack("<II", PAGE, len(cpus))
    for number, cpu in enumerate(cpus):
        buffer += struct.pack("<IQQ", number, offset, len(cpu))
        offset += len(cpu)
    options = struct.pack("<HIQ", 18, 8, formats_at)
    options += struct.pack("<HI", 3, len(buffer)) + buffer + struct.pack("<HIQ", 0, 8, 0)
    return file + section(0, options)


@pytest.fixture
def cpus() -> list[bytes]:
    """Two seconds of two CPUs; the first virtual machine has two VCPUs, one on each."""
    first = busy(41, 5_000, 1_000, 1_000, 2_000_000)
    second = busy(42, 20_000, 4_000, 3_000, 2_000_000)
    other = busy(77, 60_000, 5_000, 8_000, 2_000_000)
    return [pages(first), pages(sorted(second + other, key=lambda event: event[0]))]


@pytest.mark.parametrize("layout", [version_6, version_7])
def test_a_file_of_trace_cmd(
    laxity: Laxity, tmp_path: Path, cpus: list[bytes], layout: Any
) -> None:
    (tmp_path / "trace.dat").write_bytes(layout(cpus))
    seen = tmp_path / "seen"
    laxity("observe", tmp_path / "trace.dat", "-o", seen)
    found = tasks(seen / "host.toml")
    assert found == {
        "vm-41": [(5 * MS, MS), (20 * MS, 4 * MS)],
        "vm-77": [(60 * MS, 5 * MS)],
    }
    host = Host.load(seen / "host.toml").resolved()
    assert (host["policy"], host["cpus"]) == ("eevdf", 2)
    assert host["domains"][1]["vcpus"][0]["affinity"] == [1]
    words = ("--domain", "one=42", "--json")
    content = json.loads(laxity("observe", tmp_path / "trace.dat", *words).stdout)
    assert [domain["name"] for domain in content["domains"]] == ["one"]


AMD, INTEL = 2, 1
HALT, INTERRUPT = 0x78, 1
VCPU = "\tfield:unsigned int vcpu_id;\toffset:8;\tsize:4;\tsigned:0;\n"
REASON = """\tfield:unsigned int exit_reason;\toffset:8;\tsize:4;\tsigned:0;
\tfield:u32 isa;\toffset:12;\tsize:4;\tsigned:0;
"""
GUESTS = {"kvm": {"kvm_entry": (510, VCPU), "kvm_exit": (511, REASON)}}


def entry(thread: int) -> bytes:
    return struct.pack("<H2xiI", 510, thread, 0)


def left(thread: int, isa: int, reason: int) -> bytes:
    return struct.pack("<H2xiII", 511, thread, reason, isa)


@pytest.mark.parametrize("layout", [version_6, version_7])
def test_exits_of_guests(laxity: Laxity, tmp_path: Path, layout: Any) -> None:
    """The guest is entered 10 us after its thread comes and halts 20 us before it goes.

    Once it is interrupted for 300 us. The same host file is found as without these events.
    """
    events = busy(41, 5_000, 1_000, 1_000, 2_000_000)
    comes = [time_us for time_us, event in events if event == switch(0, 0, 41)]
    guest = [(time_us + 10, entry(41)) for time_us in comes]
    guest += [(time_us + 980, left(41, AMD, HALT)) for time_us in comes]
    guest += [(comes[7] + 200, left(41, INTEL, INTERRUPT)), (comes[7] + 500, entry(41))]
    both = sorted(events + guest, key=lambda event: event[0])
    seen = {}
    for name, written, network in (("with", both, GUESTS), ("without", events, None)):
        (tmp_path / f"{name}.dat").write_bytes(layout([pages(written)], network))
        seen[name] = tmp_path / name
        laxity("observe", tmp_path / f"{name}.dat", "-o", seen[name])
    text = [(seen[name] / "host.toml").read_text().split("\n", 3)[3] for name in seen]
    assert text[0] == text[1]
    records = {name: tracefile.records(seen[name] / "trace.laxtrace") for name in seen}
    of_guest = np.isin(records["with"]["kind"], [*map(tracefile.number_of, ("exit", "enter"))])
    assert (records["with"][~of_guest] == records["without"]).all()
    found = json.loads(laxity("why", seen["with"], "--json", "--every-job").stdout)
    (told,) = found["guests"]
    ran_ns = 1000 * 1_000 * len(comes)
    halts_ns = 1000 * (10 + 20) * len(comes)
    # The recording begins when the thread comes for the first time, after an exit that it has not.
    assert (told["vcpu"], told["ran_ns"]) == ("vm-41", ran_ns)
    assert told["exits"] == [
        {"reason": "halt", "count": len(comes), "ns": halts_ns - 10_000},
        {"reason": "interrupt", "count": 1, "ns": 300_000},
        {"reason": "other", "count": 0, "ns": 10_000},
    ]
    (interrupted,) = (
        {(cause["cause"], cause["rule"]): cause["delay_ns"] for cause in late["causes"]}
        for late in found["late"]
        if any(cause["rule"] == "interrupt" for cause in late["causes"])
    )
    assert interrupted == {
        ("own-work", None): 670_000,
        ("exit", "interrupt"): 300_000,
        ("exit", "halt"): 30_000,
    }
    said = laxity("observe", tmp_path / "with.dat", "--exits", code=2).stderr
    assert "leave --exits out" in said


@pytest.fixture
def packets() -> bytes:
    """Packets on one CPU: for the machine of thread 41, which thread 40 serves, and for sockets."""
    return pages(
        [
            (0, switch(0, 0, 77)),
            # A card hands it up, and a bridge puts it into the queue of the machine's card.
            (1_000, skb(CAME, 77, 1, 200)),
            (1_010, skb(QUEUED, 77, 1, 214)),
            (1_020, wakeup(40)),
            # The same for one that its card drops, whose buffer is another's later.
            (2_000, skb(QUEUED, 77, 2, 214)),
            (2_001, skb(DROPPED, 77, 2)),
            (3_000, switch(77, 0, 40)),
            (3_010, skb(COPIED, 40, 1, 214)),
            (3_011, skb(CONSUMED, 40, 1)),
            (3_012, skb(COPIED, 40, 2, 214)),
            (3_020, wakeup(41)),
            (3_030, switch(40, 1, 77)),
            (4_000, switch(77, 0, 41)),
            # In time, since the machine runs.
            (4_100, skb(QUEUED, 41, 3, 214)),
            (4_200, switch(41, 0, 40)),
            (4_500, skb(COPIED, 40, 3, 214)),
            (4_600, switch(40, 1, 41)),
            (5_000, switch(41, 1, 77)),
            # For a socket of thread 77, which leaves it there for a while.
            (5_100, skb(CAME, 77, 4, 200)),
            (5_101, ready(9)),
            (5_200, asked(77, 9, 172, 0x2)),
            (5_300, asked(77, 9, 172, protocol=TCP)),
            (7_101, asked(77, 9, 172)),
            (8_000, asked(77, 9, -11)),
            (9_000, switch(77, 1, 0)),
        ]
    )


@pytest.mark.parametrize("layout", [version_6, version_7])
def test_late_packets_of_a_file_of_trace_cmd(
    laxity: Laxity, tmp_path: Path, packets: bytes, layout: Any
) -> None:
    file, seen = tmp_path / "trace.dat", tmp_path / "seen"
    file.write_bytes(layout([packets], NETWORK))
    told = laxity("observe", file, "--packet-delay", "1.5 ms", "-o", seen, "--json").stdout
    # In time or late; the recording is 9 ms long.
    assert json.loads(told)["packets"] == {"vm-41": 2, "vm-77": 1}
    text = (seen / "host.toml").read_text()
    assert "# It had 2 packets in the trace, 222.2 a second." in text
    assert "# It had 1 packet in the trace, 111.1 a second." in text
    answer = json.loads(laxity("why", seen, "--json").stdout)
    assert answer["late_packets"] == 2
    assert (answer["lost_packets"], answer["late_jobs"]) == (0, 0)
    assert answer["not_seen"] == [*NOT_SEEN, NO_WORKERS.format("vm-77")]
    late = {each["what"]: each for each in answer["late"]}
    assert set(late) == {"vm-41/stream-0#0", "vm-77/stream-0#0"}

    card = late["vm-41/stream-0#0"]
    assert (card["kind"], card["packet"]) == ("packet", "late")
    assert (card["arrival_ns"], card["completion_ns"]) == (1_010_000, 4 * MS)
    assert card["late_ns"] == 2_990_000 - 1_500_000
    assert delays(card) == {
        ("blocked", None, "(vhost-39)"): 10_000,
        ("cpu", "vm-77", "(vhost-39)"): 1_980_000,
        ("queue", "(vhost-39)", "(vhost-39)"): 10_000,
        # Its machine is woken, and does not run yet.
        ("blocked", None, "vm-41"): 10_000,
        ("cpu", "(vhost-39)", "vm-41"): 10_000,
        ("cpu", "vm-77", "vm-41"): 970_000,
    }

    socket = late["vm-77/stream-0#0"]
    assert (socket["arrival_ns"], socket["completion_ns"]) == (5_100_000, 7_101_000)
    assert delays(socket) == {("queue", "vm-77", "vm-77"): 2_001_000}
    for each in late.values():
        assert sum(cause["ns"] for cause in each["causes"]) == each["late_ns"]

    told = " ".join(laxity("why", seen).stdout.split())
    assert "2 packets late under eevdf" in told
    assert "vm-77/stream-0#0 was 501 us late" in told
    # The host file has the machines alone, and other commands take what was observed.
    assert set(tasks(seen / "host.toml")) == {"vm-41", "vm-77"}
    against = ("fidelity", seen / "host.toml", "--against", seen, "--json")
    told_of = json.loads(laxity(*against).stdout)["agreement"]["domains"]
    assert [domain["name"] for domain in told_of] == ["vm-41", "vm-77"]
    again = tmp_path / "again"
    laxity("observe", seen, "-o", again)
    assert Host.load(again / "host.toml").resolved() == Host.load(seen / "host.toml").resolved()


def delays(late: dict[str, Any]) -> dict[tuple[str, str | None, str | None], int]:
    return {(each["cause"], each["who"], each["at"]): each["delay_ns"] for each in late["causes"]}


def test_packets_that_a_recording_does_not_tell(
    laxity: Laxity, tmp_path: Path, packets: bytes
) -> None:
    file, seen = tmp_path / "trace.dat", tmp_path / "seen"

    def observed(*words: str) -> dict[str, Any]:
        laxity("observe", file, *words, "-o", seen)
        answer: dict[str, Any] = json.loads(laxity("why", seen, "--json").stdout)
        return answer

    limit = ("--packet-delay", "1.5 ms")
    file.write_bytes(version_6([packets], CARDS))
    cards = observed(*limit)
    assert [each["what"] for each in cards["late"]] == ["vm-41/stream-0#0"]
    assert cards["not_seen"] == [*NOT_SEEN, NO_SOCKETS, NO_WORKERS.format("vm-77")]
    # Without a limit there are none, and no programs beside the domains.
    assert observed()["not_seen"] == []
    assert "a second" not in (seen / "host.toml").read_text()
    metadata = tracefile.metadata(seen / "trace.laxtrace")
    assert "calls" not in metadata
    assert [domain["name"] for domain in metadata["domains"]] == ["vm-41", "vm-77"]
    # Threads that are named take packets for whom people say.
    other = observed(*limit, "--domain", "other=77+40")
    assert [each["what"] for each in other["late"]] == ["other/stream-0#0"]
    assert other["not_seen"] == [*NOT_SEEN, NO_SOCKETS]
    # Nobody's who is not named.
    assert observed(*limit, "--domain", "own=41")["late"] == []
    # An older recording.
    file.write_bytes(version_6([packets]))
    refused = laxity("observe", file, *limit, code=2).stderr
    assert "has no packets" in refused
    assert "-e net:netif_receive_skb -e net:net_dev_queue" in refused
    assert observed()["late"] == []
    # A format without a field is another kernel's; an event that is too short is damage.
    lacking = {**CARDS, "net": {**CARDS["net"], "net_dev_queue": (501, READY)}}
    file.write_bytes(version_6([packets], lacking))
    assert "net_dev_queue has no skbaddr" in laxity("observe", file, *limit, code=2).stderr
    short = pages(
        [(0, switch(0, 0, 77)), (1, struct.pack("<H2xi", CAME, 77)), (2, switch(77, 1, 0))]
    )
    file.write_bytes(version_6([short], NETWORK))
    assert "event 500 has 8 bytes" in laxity("observe", file, *limit, code=2).stderr


def test_a_limit_for_packets_is_refused_where_there_are_none(laxity: Laxity, out: Path) -> None:
    limit = ("--packet-delay", "1 ms")
    assert "limit of its own" in laxity("observe", out, *limit, code=2).stderr
    wrong = laxity("observe", out, "--packet-delay", "1 parsec", code=2).stderr
    assert "write --packet-delay '1 ms'" in wrong


@pytest.mark.slow
def test_files_of_trace_cmd_that_are_refused(
    laxity: Laxity, tmp_path: Path, cpus: list[bytes]
) -> None:
    file = tmp_path / "trace.dat"

    def error(content: bytes, *words: object) -> str:
        file.write_bytes(content)
        return laxity("observe", file, *words, code=2).stderr

    whole = version_6(cpus)
    assert "convert" in error(version_7(cpus, flags=1))
    for length in range(20, len(whole) - len(cpus[1]), 61):
        assert error(whole[:length])
    assert "thread 9 of domain a never ran" in error(whole, "--domain", "a=9")
    assert "names no threads" in error(whole, "--domain", "a")
    assert "names no threads" in error(whole, "--domain", "a=" + "9" * 5000)
    for worker in ("a=41+", "a=+41", "a=41+b", "a=41+42+77"):
        assert "names no threads" in error(whole, "--domain", worker)
    assert "names in parentheses" in error(whole, "--domain", "(a)=41")
    assert "is one of a, too" in error(whole, "--domain", "a=41+42", "--domain", "b=42")
    assert "versions other than 6 and 7" in error(whole.replace(b"6\0", b"5\0", 1))
    assert "sched_switch" in error(version_6([b""]))
    # The kernel had no room for events before the second page.
    lost = bytearray(cpus[0])
    lost[PAGE + 11] |= 0x80
    assert "lost" in error(version_6([bytes(lost), cpus[1]]), "--packet-delay", "1 ms")


def test_machines_of_qemu_begin_at_their_first_vcpu() -> None:
    names = {number: name.decode() for number, name in NAMES.items() if name}

    def found(more: dict[int, str]) -> list[threads.Machine]:
        every = {**names, **more}
        return threads.of_qemu(
            [{"thread": number, "name": name, "priority": 120} for number, name in every.items()]
        )

    first = threads.Machine("vm-41", (41, 42), workers=(40,))
    assert found({}) == [first, threads.Machine("vm-77", (77,))]
    assert found({70: "vhost-69"}) == [first, threads.Machine("vm-77", (77,), workers=(70,))]
    own = {39: "qemu-system-x86", 69: "qemu-system-x86", 78: "vhost-69", 79: "vhost-69"}
    assert found(own) == [
        threads.Machine("vm-41", (41, 42), workers=(39, 40)),
        threads.Machine("vm-77", (77,), workers=(69, 78, 79)),
    ]


def test_threads_of_running_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Linux 6.4 the threads of vhost were the kernel's own."""
    names = {
        "39": "qemu-system-x86",
        "39/task/39": "qemu-system-x86",
        "39/task/42": "CPU 1/KVM",
        "39/task/41": "CPU 0/KVM",
        "39/task/43": "vhost-39",
        "50": "vhost-39",
        "50/task/50": "vhost-39",
        "60": "sshd",
        "60/task/60": "sshd",
    }
    for place, name in names.items():
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "comm").write_text(f"{name}\n")
    (tmp_path / "39/cmdline").write_bytes(b"qemu\0-name\0guest=pbx,debug-threads=on\0")
    monkeypatch.setattr(here, "PROC", tmp_path)
    assert here.machines() == [threads.Machine("pbx", (41, 42), 39, (39, 43, 50))]


@pytest.mark.parametrize("has_sockets", [True, False])
def test_events_of_sockets_are_recorded_where_they_are(tmp_path: Path, has_sockets: bool) -> None:
    systems = {**tracefs.EVENTS, **tracefs.PACKETS, **(tracefs.SOCKETS if has_sockets else {})}
    for system, names in systems.items():
        for name in names:
            (tmp_path / "events" / system / name).mkdir(parents=True)
            (tmp_path / "events" / system / name / "enable").write_text("0\n")
    assert tracefs.wanted(tmp_path, packets=True) == systems
    assert tracefs.wanted(tmp_path, packets=False) == tracefs.EVENTS
    with_exits = {**tracefs.EVENTS, **tracefs.EXITS}
    assert tracefs.wanted(tmp_path, packets=False, exits=True) == with_exits
    assert tracefs.recorded(tmp_path) == {}
    for name in tracefs.EVENTS["sched"]:
        (tmp_path / "events" / "sched" / name / "enable").write_text("1\n")
    assert tracefs.recorded(tmp_path) == tracefs.EVENTS


def test_weights_and_quotas_of_control_groups() -> None:
    files = {
        "machine/a/cpu.weight": "300\n",
        "machine/a/cpu.max": "max 100000\n",
        "machine/a/vcpu0/cpu.weight": "100\n",
        "machine/a/vcpu0/cpu.max": "50000 100000\n",
    }
    known = here.settings_of_group("/machine/a/vcpu0", ["/machine/b/vcpu0"], files)
    assert {name: value.value for name, value in known.items()} == {
        "weight": 300,
        "quota": 50 * MS,
        "quota-period": 100 * MS,
    }
    assert known["quota"].source == "machine/a/vcpu0/cpu.max"


LOOP = """
import itertools, os, time
parent, start = os.getppid(), time.monotonic_ns()
for number in itertools.count(1):
    until = time.monotonic_ns() + 500_000
    while time.monotonic_ns() < until:
        pass
    time.sleep(max(0, start + number * 10_000_000 - time.monotonic_ns()) / 1e9)
    if os.getppid() != parent:
        break
"""


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="this machine does not let itself be traced")
def test_this_machine(tmp_path: Path) -> None:
    """What is found depends on what else runs here; that it is written does not."""
    process = subprocess.Popen([sys.executable, "-c", LOOP])
    try:
        seen = first_unspoiled(
            lambda factor: _observed(factor, tmp_path, f"--domain=loop={process.pid}")[0]
        )
    finally:
        process.kill()
        process.wait()
    host = Host.load(seen / "host.toml").resolved()
    assert host["domains"][0]["name"] == "loop"
    assert (seen / "trace.dat").read_bytes().startswith(MAGIC)


def _observed(duration_s: int, directory: Path, *words: str) -> tuple[Path, dict[str, Any]]:
    """Observes this machine for so long: what is left in a directory, and what was found.

    On a busy machine a process may get no CPU for a while, and the kernel may lose events.
    """
    seen = directory / f"seen-{duration_s}"
    mount = f'mount -t tracefs nodev {TRACING} && exec "$@"'
    command = [sys.executable, "-c", "from laxity.cli import main; main()", "observe"]
    command += ["--duration", f"{duration_s} s", "-o", str(seen), *words, "--json"]
    with subprocess.Popen(
        [UNSHARE, "-m", "sh", "-c", mount, "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as observing:
        said, complaint = observing.communicate()
    mounted = f"mount -t tracefs nodev {TRACING} && ls {TRACING}/instances"
    left = subprocess.run(
        [UNSHARE, "-m", "sh", "-c", mounted], capture_output=True, text=True, check=True
    )
    # Others may be tracing, too; each program of the line above has become the next.
    assert f"laxity-{observing.pid}" not in left.stdout.split()
    require("never ran" not in complaint and "kernel lost" not in complaint, complaint)
    assert observing.returncode == 0, complaint
    found: dict[str, Any] = json.loads(said)
    work_ns = found["domains"][0]["vcpus"][0]["work_ns"]
    require(work_ns > 0, "the loop did not work")
    return seen, found


Times = tuple[int, int, int]

PACKETS = """
import fcntl, os, socket, struct, sys, time

SIZE, KIND = 200, 0x88B5
directory, now = sys.argv[1], time.monotonic_ns

def up(device):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any:
        fcntl.ioctl(any, 0x8914, struct.pack("16sH14x", device, 1))

card = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(card, 0x400454CA, struct.pack("16sH14x", b"card", 0x1002))
up(b"lo")
up(b"card")
woken, wake = os.pipe()

def loop(write):
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 0))
    number = 0
    while True:
        # It leaves some of them in the socket, and up to three there.
        sent = [now()]
        for _ in range(number % 3 + 1):
            own.sendto(bytes(172), own.getsockname())
            sent.append(now())
        time.sleep(0.002)
        for begun in sent[:-1]:
            before = now()
            own.recv(2048)
            write(begun, before, now())
        number += 1
        time.sleep(0.005)

def worker(write):
    while True:
        before = now()
        frame = os.read(card, 4096)
        is_own = struct.unpack_from(">H", frame, 12)[0] == KIND
        sent = struct.unpack_from("<q", frame, 14)[0] if is_own else -1
        os.write(wake, struct.pack("<qq", sent, before))

def vcpu(write):
    while True:
        sent, before = struct.unpack("<qq", os.read(woken, 16))
        write(sent, before, now())

def sender(write):
    out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    out.bind(("card", 0))
    while True:
        out.send(bytes(12) + struct.pack(">H", KIND) + struct.pack("<q", now()) + bytes(SIZE))
        time.sleep(0.007)

processes = []
for role in (loop, worker, vcpu, sender):
    log = open(f"{directory}/{role.__name__}", "ab", 0)
    processes.append(os.fork())
    if processes[-1] == 0:
        role(lambda *times: log.write(struct.pack("<qqq", *times)))
print(*processes, flush=True)
os.wait()
"""
"""A process that sends packets to itself, and a machine of two: a worker reads packets from a card
and wakes a VCPU. They write of each packet when it was sent at the earliest, taken at the earliest,
and had at the latest."""


@pytest.mark.slow
@pytest.mark.skipif(not can_trace(), reason="this machine does not let itself be traced")
@pytest.mark.skipif(not Path("/dev/net/tun").exists(), reason="the kernel has no cards of its own")
def test_packets_of_this_machine_are_those_that_its_programs_had(tmp_path: Path) -> None:
    """Each takes more than a nanosecond, and is late."""
    logs = tmp_path / "logs"
    logs.mkdir()
    words = [UNSHARE, "-n", sys.executable, "-c", PACKETS, str(logs)]
    with subprocess.Popen(
        words, start_new_session=True, stdout=subprocess.PIPE, text=True
    ) as programs:
        try:
            assert programs.stdout is not None
            loop, worker, vcpu, _ = programs.stdout.readline().split()
            domains = (f"--domain=loop={loop}", f"--domain=machine={vcpu}+{worker}")
            seen = first_unspoiled(lambda factor: _with_packets(factor, tmp_path, *domains))
        finally:
            os.killpg(programs.pid, signal.SIGKILL)
    laxity = [sys.executable, "-c", "from laxity.cli import main; main()", "why", str(seen)]
    why = subprocess.run([*laxity, "--json"], check=True, capture_output=True, text=True)
    answer = json.loads(why.stdout)
    survey = json.loads(_core.recorded_threads(str(seen / "trace.dat")))
    start_ns, end_ns = survey["from_ns"], survey["to_ns"]
    assert answer["not_seen"] == [
        *NOT_SEEN,
        *([NO_SOCKETS] if survey["packets"] == "cards" else []),
    ]
    for domain, log in (("loop", "loop"), ("machine", "vcpu")):
        if domain == "loop" and survey["packets"] == "cards":
            continue
        found = sorted(
            (start_ns + late["arrival_ns"], start_ns + late["completion_ns"])
            for late in answer["late"]
            if late["what"].startswith(f"{domain}/") and late["packet"] == "late"
        )
        rows = _times(logs / log)
        had = [row for row in _since_empty(rows, start_ns) if row[2] < end_ns]
        assert len(had) > 10
        for sent_ns, before_ns, after_ns in had:
            own = [
                (came_ns, taken_ns)
                for came_ns, taken_ns in found
                if sent_ns <= came_ns <= after_ns and before_ns <= taken_ns <= after_ns
            ]
            # Those that waited together are taken one after the other. The kernel may send one of
            # its own between.
            assert own, (domain, sent_ns, before_ns, after_ns)
            found.remove(own[0])
        # What is left was sent or had beyond the edges, or is the kernel's own: nothing is told
        # twice.
        inside = [each for each in found if had[0][0] < each[0] and each[1] < had[-1][2]]
        kernel = [row for row in rows if row[0] < 0]
        assert len(inside) <= len(kernel)
    for late in answer["late"]:
        assert sum(cause["ns"] for cause in late["causes"]) == late["late_ns"]
        # The last one may wait until the end.
        had_ns = end_ns - start_ns if late["packet"] == "unfinished" else late["completion_ns"]
        assert sum(cause["delay_ns"] for cause in late["causes"]) == had_ns - late["arrival_ns"]


def _times(log: Path) -> list[Times]:
    written = log.read_bytes()
    return list(struct.iter_unpack("<qqq", written[: len(written) // 24 * 24]))


def _since_empty(rows: list[Times], start_ns: int) -> list[Times]:
    """The program's own packets since the first that was sent after a start while none waited."""
    own = [row for row in rows if row[0] >= 0]
    first = next(at for at in range(1, len(own)) if own[at][0] > max(start_ns, own[at - 1][2]))
    return own[first:]


def _with_packets(duration_s: int, directory: Path, *domains: str) -> Path:
    """What was seen of the programs, if they had packets meanwhile."""
    logs = [directory / "logs" / name for name in ("loop", "vcpu")]
    before = [log.stat().st_size for log in logs]
    seen, _ = _observed(duration_s, directory, *domains, "--packet-delay=1 ns")
    for log, size in zip(logs, before, strict=True):
        require(log.stat().st_size - size > 24 * 20, f"{log.name} had hardly any packets")
    return seen


def test_the_model_is_held_against_a_trace(laxity: Laxity, out: Path, tmp_path: Path) -> None:
    words = ("--duration", "10 s", "--json")
    host = EXAMPLES / "overload.toml"
    own = json.loads(laxity("fidelity", host, "--against", out, *words).stdout)
    assert own["agreement"]["same_ratio"] == 1
    assert all(domain["difference"] == 0 for domain in own["domains"])
    assert own["domains"][1]["miss_ratio_trace"] > 0, "vision is late"
    other = ("--set", "domain.vision.budget=5 ms")
    changed = json.loads(laxity("fidelity", host, "--against", out, *other, *words).stdout)
    assert changed["domains"][1]["difference"] > 0
    seen = tmp_path / "seen"
    laxity("observe", out, "-o", seen)
    said = laxity("fidelity", seen / "host.toml", "--against", seen).stdout
    assert "on sim and trace" in said
    wrong = laxity("fidelity", host, "--against", out, "--duration", "9 s", code=2)
    assert "another duration" in wrong.stderr
    wrong = laxity("fidelity", host, "--against", out, "--on", "kvm", code=2)
    assert "--against" in wrong.stderr
