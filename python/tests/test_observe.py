"""What a host did, from who ran when: its host file, and the run that the trace tells."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from attempts import first_unspoiled, require
from conftest import EXAMPLES, HOST, UNSHARE, can_trace
from laxity import Host
from laxity.observe import here, threads
from laxity.results.run import Run
from laxity.tracefs import MAGIC, TRACING

if TYPE_CHECKING:
    from pathlib import Path

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
START_NS = 7_000_000_000_000
NAMES = {0: b"", 41: b"CPU 0/KVM", 42: b"CPU 1/KVM", 77: b"CPU 0/KVM"}


def switch(before: int, state: int, after: int) -> bytes:
    head = struct.pack("<H6xi4xq", 372, before, state)
    return head + NAMES[after].ljust(16, b"\0") + struct.pack("<ii", after, 120 if after else 0)


def wakeup(thread: int) -> bytes:
    return struct.pack("<H6xi", 374, thread)


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


def formats() -> bytes:
    texts = (SWITCH, WAKEUP)
    return struct.pack("<I6sI", 1, b"sched\0", 2) + b"".join(block(t.encode()) for t in texts)


def version_6(cpus: list[bytes]) -> bytes:
    clock = b"local [mono] x86-tsc\0"
    head = MAGIC + b"6\0" + bytes([0, 8]) + struct.pack("<I", PAGE)
    head += b"header_page\0" + block(b"") + b"header_event\0" + block(b"")
    head += struct.pack("<I", 0) + formats() + struct.pack("<II", 0, 0) + block(b"41 CPU 0/KVM\n")
    head += struct.pack("<I", len(cpus)) + b"options  \0"
    head += struct.pack("<HI", 4, len(clock)) + clock + struct.pack("<H", 0) + b"flyrecord\0"
    offset, places = len(head) + 16 * len(cpus), b""
    for cpu in cpus:
        places += struct.pack("<QQ", offset, len(cpu))
        offset += len(cpu)
    return head + places + b"".join(cpus)


def version_7(cpus: list[bytes], flags: int = 0) -> bytes:
    def section(number: int, content: bytes) -> bytes:
        return struct.pack("<HHIQ", number, flags, 0, len(content)) + content

    file = MAGIC + b"7\0" + bytes([0, 8]) + struct.pack("<I", PAGE) + b"none\0\0"
    file += struct.pack(
        "<Q", len(file) + 8 + len(section(18, formats())) + 16 + sum(map(len, cpus))
    )
    formats_at = len(file)
    file += section(18, formats())
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
    assert "versions other than 6 and 7" in error(whole.replace(b"6\0", b"5\0", 1))
    assert "sched_switch" in error(version_6([b""]))


def test_machines_of_qemu_begin_at_their_first_vcpu() -> None:
    named = [{"thread": number, "name": name.decode()} for number, name in NAMES.items() if name]
    assert threads.of_qemu(named) == [
        threads.Machine("vm-41", (41, 42)),
        threads.Machine("vm-77", (77,)),
    ]


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
        seen = first_unspoiled(lambda factor: _observe_loop(process.pid, factor, tmp_path))
    finally:
        process.kill()
        process.wait()
    host = Host.load(seen / "host.toml").resolved()
    assert host["domains"][0]["name"] == "loop"
    assert (seen / "trace.dat").read_bytes().startswith(MAGIC)


def _observe_loop(process: int, duration_s: int, directory: Path) -> Path:
    """Observes a process for so long, and leaves what was seen in the directory, and no more.

    On a busy machine the process may get no CPU for a while, and the kernel may lose events.
    """
    seen = directory / f"seen-{duration_s}"
    mount = f'mount -t tracefs nodev {TRACING} && exec "$@"'
    command = [sys.executable, "-c", "from laxity.cli import main; main()", "observe"]
    command += ["--duration", f"{duration_s} s", "-o", str(seen)]
    command += ["--domain", f"loop={process}", "--json"]
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
    work_ns = json.loads(said)["domains"][0]["vcpus"][0]["work_ns"]
    require(work_ns > 0, "the loop did not work")
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
