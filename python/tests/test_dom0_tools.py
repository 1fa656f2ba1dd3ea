"""laxity-sched and laxity-trace, on any machine: with a small Xen inside."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "xen" / "programs"
SHARED = PROGRAMS.parents[1] / "guest"
SOURCES = {
    "laxity-sched": ("laxity-sched.c", "text.c", "pools.c", "privcmd.c"),
    "laxity-trace": ("laxity-trace.c", "clock.c", "privcmd.c", SHARED / "ftrace.c"),
}
POLICY = PROGRAMS.parents[1] / "policy"
HEADERS = ("-I", SHARED, "-I", PROGRAMS.parent / "include", "-I", POLICY / "include", "-I", POLICY)

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not Path("/usr/include/xen/sysctl.h").exists(),
    reason="needs gcc and libxen-dev",
)


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with both programs, linked with a Xen of our own, under sanitizers."""
    directory = tmp_path_factory.mktemp("dom0")
    for name, sources in SOURCES.items():
        subprocess.run(
            [
                *("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"),
                *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
                *(*HEADERS, "-Wl,--wrap=open,--wrap=ioctl", "-o", directory / name),
                *(PROGRAMS / source for source in (*sources, "test/hypervisor.c")),
            ],
            check=True,
        )
    return directory


def run(
    program: Path, *words: object, code: int = 0, **environment: object
) -> subprocess.CompletedProcess[str]:
    """The text that a program keeps until it ends is no leak."""
    fakes = {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        [program, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, **fakes, "ASAN_OPTIONS": "detect_leaks=0"},
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def sched(tools: Path) -> Path:
    return tools / "laxity-sched"


@pytest.fixture
def trace(tools: Path) -> Path:
    return tools / "laxity-trace"


@pytest.mark.skipif(Path("/dev/xen/privcmd").exists(), reason="this is a Xen host")
def test_without_xen(tmp_path: Path) -> None:
    for name, words in (("laxity-sched", ("get",)), ("laxity-trace", ("record", "file"))):
        program = tmp_path / name
        subprocess.run(
            [
                *("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-static", *HEADERS, "-o", program),
                *(PROGRAMS / source for source in SOURCES[name]),
                *("-lxenstore", "-lxentoolcore"),
            ],
            check=True,
        )
        said = run(program, *words, code=1).stderr
        assert said == f"{name}: no /dev/xen/privcmd: this is not a Xen dom0\n"


def test_another_interface_is_named(sched: Path) -> None:
    said = run(sched, "get", code=1, FAKE_INTERFACE=0x14).stderr
    assert "Xen 4.11" in said
    assert "for Xen 4.17 to 4.20" in said


WRONG = [
    ("", "usage"),
    ("gte", "no command 'gte'; did you mean 'get'?"),
    ("get --jsn", "no option here '--jsn'; did you mean '--json'?"),
    ("get --pool", "--pool needs a value"),
    ("get --pool 0 control", "usage"),
    ("get a b", "usage"),
    ("get control/x", "'x' is not a VCPU's number"),
    ("get /0", "the domain is missing"),
    ("set control", "usage"),
    ("set control budget", "'budget' is not KEY=VALUE"),
    ("set control bugdet=2ms", "no key 'bugdet'; did you mean 'budget'?"),
    ("set control xyzzy=2", "no key 'xyzzy'\n"),
    ("set control quantum=1ms", "set --pool POOL quantum=..."),
    ("set --pool 0 budget=1ms", "set DOMAIN budget=..."),
    ("set control budget=1ms budget=2ms", "budget is given twice"),
    ("set control priority=1.5", "priority is wrong: '1.5'; right is 1 to 1000000"),
    ("set control priority=4294967296", "priority is wrong"),
    ("set control extratime=2", "extratime is wrong: '2'; right is 0 to 1"),
    ("set --pool 0 policy=defferable", "did you mean 'deferrable'?"),
    ("set --pool 0 policy=global-sedf", "there is no policy 'global-sedf'"),
    ("pool", "usage"),
    ("pool crate", "did you mean 'create'?"),
    ("pool create 7", "cannot be a pool's name"),
    ("pool create a/b", "cannot be a pool's name"),
    ("pool add-cpu red x", "'x' is not a CPU's number"),
    ("get contrl", "no domain 'contrl'; did you mean 'control'?"),
    ("get 7", "no domain '7'"),
    ("get control/2", "domain 3 has no VCPU 2"),
    ("get --json control/2", "domain 3 has no VCPU 2"),
    ("get --pool stok", "no CPU pool 'stok'; did you mean 'stock'?"),
    ("get --pool 1", "pool 1 has the scheduler credit2, not laxity"),
    ("set 5 budget=1ms", "pool 1 has the scheduler credit2, not laxity"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_words_are_refused(sched: Path, words: str, message: str) -> None:
    done = run(sched, *words.split(), code=2)
    assert message in done.stderr
    assert done.stdout == ""


def budget_set(sched: Path, value: str, code: int = 0) -> str:
    return run(sched, "set", "control", f"budget={value}", "period=3600s", code=code).stderr


TIMES = {
    "2 ms": 2_000_000,
    "2ms": 2_000_000,
    "500us": 500_000,
    "1.5 ms": 1_500_000,
    "0.000001s": 1_000,
    "0.001 us": 1,
    "2000000": 2_000_000,
    "1.50000000000000000000 ms": 1_500_000,
    "007 ms": 7_000_000,
    "0": 0,
}


@pytest.mark.parametrize(("value", "ns"), TIMES.items())
def test_times(sched: Path, value: str, ns: int) -> None:
    assert budget_set(sched, value) == f"domain 3/0: {ns} 3600000000000 0 4 256 0 0\n"


NO_TIMES = ("", " ", "ms", "-1 ms", "+1ms", "1,5 ms", "1.ms", ".5 ms", "1.2.3 ms", "2 m", "2 ms ")
TOO_FINE_OR_LONG = ("1.5", "0.5 ns", "0.0001 us", "9223372037 s", "9223372036854775808", "1e3 ms")


@pytest.mark.parametrize("value", [*NO_TIMES, *TOO_FINE_OR_LONG])
def test_no_times(sched: Path, value: str) -> None:
    said = budget_set(sched, value, code=2)
    assert f"budget is wrong: '{value}'; right is 1 ns to 3600 s" in said


def test_random_times(sched: Path) -> None:
    seed = int(os.environ.get("LAXITY_SEED", "0")) or random.SystemRandom().getrandbits(32)
    print(f"LAXITY_SEED={seed}")
    generator = random.Random(seed)  # noqa: S311
    units = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    for _ in range(100):
        unit = generator.choice(list(units))
        number = str(generator.randrange(4000))
        if generator.random() < 0.7:
            number += "." + "".join(generator.choices("0123456789", k=generator.randint(1, 9)))
        ns = Fraction(number) * units[unit]
        right = ns.denominator == 1
        # The budget is the hypervisor's to refuse, when it is above the period.
        said = budget_set(sched, number + unit, code=0 if right and ns <= 3600 * 10**9 else 2)
        assert said.startswith(f"domain 3/0: {ns} " if right else "laxity-sched: budget is wrong")


def test_set_reads_changes_and_writes_once(sched: Path) -> None:
    said = run(sched, "set", "control/1", "priority=9", "extratime=1", "cap=50").stderr
    assert said == "VCPU 3/1: 1234567 10000000 0 9 256 50 1\n"
    said = run(sched, "set", "3", "budget=500 us", "weight=1").stderr
    assert said == "domain 3/0: 500000 10000000 0 4 1 0 0\n"
    said = run(sched, "set", "3", "laxity=10 us").stderr
    assert said == "domain 3/0: 2000000 10000000 10000 4 256 0 0\n"
    said = run(sched, "set", "--pool", "Pool-0", "quantum=1ms", "tick=5 ms").stderr
    assert said == "settings 1000000 30000000 5000000 30000000\n"


def test_the_hypervisor_refuses(sched: Path) -> None:
    said = run(sched, "set", "control", "budget=11ms", code=2).stderr.splitlines()[-1]
    assert "domain control: the hypervisor refused budget = 11 ms" in said
    assert "at most the period (10 ms). Nothing changed" in said
    said = run(sched, "set", "--pool", "0", "policy=credit", "tick=1ms", code=2).stderr
    assert said.startswith("policy credit\n")
    assert "settings" not in said
    assert "among deferrable, periodic and polling" in said


def test_a_policy_is_taken_back_when_its_settings_are_refused(sched: Path) -> None:
    said = run(sched, "set", "--pool", "0", "policy=polling", "tick=1s", code=2).stderr
    assert [line for line in said.splitlines() if line.startswith("policy")] == [
        "policy polling",
        "policy deferrable",
    ]
    assert "refused tick = 1 s" in said


def test_get_as_tables(sched: Path) -> None:
    for words in (("get",), ("get", "control"), ("get", "3/1"), ("pool", "list")):
        text = run(sched, *words).stdout
        assert all(len(line) <= 80 for line in text.splitlines()), text
    text = run(sched, "get").stdout
    assert "a-name-tha" in text
    assert "other" not in text
    assert "quantum 0 (0: event-driven), time-slice 30 ms" in text
    assert "accounting-phase 0\n" in text
    assert "1234.567 us" in run(sched, "get", "control").stdout


def test_get_as_json(sched: Path) -> None:
    everything = json.loads(run(sched, "get", "--json").stdout)
    assert [domain["id"] for domain in everything["domains"]] == [0, 3, 4]
    assert everything["pools"][0] == {
        "id": 0,
        "name": "Pool-0",
        "scheduler": "laxity",
        "domains": 3,
        "cpus": [0],
        "policy": "deferrable",
        "quantum_ns": 0,
        "time_slice_ns": 30_000_000,
        "tick_ns": 10_000_000,
        "accounting_ns": 30_000_000,
        "accounting_phase_ns": 0,
        "decisions": 7,
        "switches": 0,
        "timers": 0,
        "wakes": 0,
    }
    (control,) = json.loads(run(sched, "get", "control/1", "--json").stdout)["domains"]
    (vcpu,) = control.pop("vcpu")
    parameters = {
        "budget_ns": 2_000_000,
        "period_ns": 10_000_000,
        "priority": 4,
        "weight": 256,
        "cap_percent": 0,
        "laxity_ns": 0,
        "extratime": False,
    }
    assert control == {"id": 3, "name": "control", "pool": 0, "vcpus": 2, **parameters}
    assert vcpu == {"id": 1, **parameters, "budget_ns": 1_234_567, "cpu": 1, "runnable": True}
    pools = json.loads(run(sched, "pool", "list", "--json").stdout)["pools"]
    assert [pool["scheduler"] for pool in pools] == ["laxity", "credit2"]


def test_pools(sched: Path) -> None:
    created = run(sched, "pool", "create", "red")
    assert created.stdout == "2\n"
    assert "scheduler 76" in created.stderr
    assert "xenstore /local/pool/2/name = red" in created.stderr
    assert "name = Pool-2" in run(sched, "pool", "create").stderr
    assert "already" in run(sched, "pool", "create", "stock", code=2).stderr
    assert run(sched, "pool", "move", "control", "stock").stderr.startswith("cpupool 6: pool 1")
    assert "not free" in run(sched, "pool", "add-cpu", "stock", 9, code=2).stderr
    assert "1 domains in it" in run(sched, "pool", "destroy", "stock", code=2).stderr


def recorded(path: Path) -> tuple[tuple[Any, ...], dict[int, bytes]]:
    content = path.read_bytes()
    magic, version, sections, *times = struct.unpack_from("<8sIIQQQQ", content)
    assert (magic, version) == (b"LAXITYXT", 1)
    start, rings = 48, {}
    for _ in range(sections):
        cpu, zero, size = struct.unpack_from("<IIQ", content, start)
        assert zero == 0
        rings[cpu] = content[start + 16 : start + 16 + size]
        start += 16 + size
    assert start == len(content)
    return tuple(times), rings


SHORT = ("--for", 1_000_000)


def soon_ns() -> int:
    """Time enough for a program to begin on a busy computer."""
    return time.time_ns() + 10_000_000_000


@pytest.mark.slow
def test_a_ring_is_emptied_recorded_and_unrolled(trace: Path, tmp_path: Path) -> None:
    until = soon_ns()
    # 64 bytes before the ring's end, and over it, into pages that lie backwards in memory.
    done = run(
        *(trace, "record", "--events", "sched,laxity", "--until", until, tmp_path / "t"),
        FAKE_PAGES=3,
        FAKE_BYTES=8000,
    )
    times, rings = recorded(tmp_path / "t")
    assert done.stdout == f"recording {times[0]} {times[1]}\n"
    assert times[0] < times[2]
    assert times[1] < until <= times[3] < time.time_ns()
    assert rings[2] == b""
    records = [(header, number) for header, number in struct.iter_unpack("<II", rings[0])]
    assert records == [(0x10028000, number) for number in range(1000)]
    assert done.stderr.splitlines() == [
        *("trace off", "trace CPUs 3 ff", "trace mask 2a000", "trace on"),
        *("trace off", "trace mask 1234000"),
    ]


def test_a_full_ring_is_an_error_and_says_so_in_the_file(trace: Path, tmp_path: Path) -> None:
    full = 3 * 4096 - 8
    for size, code in ((full - 80, 0), (full - 72, 1), (full, 1)):
        done = run(
            *(trace, "record", *SHORT, tmp_path / "t"), code=code, FAKE_PAGES=3, FAKE_BYTES=size
        )
        assert ("CPU 0's buffer of 3 pages was full" in done.stderr) == bool(code)
        times, rings = recorded(tmp_path / "t")
        rest = rings[0][size:]
        assert len(rest) == (28 if code else 0)
        if code:
            header, tsc = struct.unpack_from("<IQ", rest)
            assert header == 1 << 31 | 4 << 28 | 0x1F001
            assert tsc == times[2]


def test_a_trace_lasts_as_long_as_it_is_told(trace: Path, tmp_path: Path) -> None:
    run(trace, "record", "--for", 300_000_000, tmp_path / "t", FAKE_BYTES=64)
    times, _ = recorded(tmp_path / "t")
    assert times[3] - times[1] >= 300_000_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(trace: Path, tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [trace, "record", tmp_path / "t"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FAKE_BYTES": "64", "ASAN_OPTIONS": "detect_leaks=0"},
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("recording ")
    process.send_signal(number)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0
    # Room for a minute of 5,000 records of 40 bytes.
    assert said.startswith("trace size 2930\n")
    assert said.endswith("trace off\ntrace mask 1234000\n")
    assert len(recorded(tmp_path / "t")[1][0]) == 64


TRACE_WRONG = [
    ("", "usage"),
    ("record", "usage"),
    ("recrd FILE", "usage"),
    ("record --evnts sched FILE", "usage"),
    ("record --events sched,laxty FILE", "--events is wrong: 'sched,laxty'"),
    ("record --events sched, FILE", "--events is wrong"),
    ("record --events 0x1 FILE", "--events is wrong"),
    ("record --events 0x20000 FILE", "--events is wrong"),
    ("record --events 0xfffff000 FILE", "--events is wrong"),
    ("record --until soon FILE", "--until is wrong"),
    ("record --until 0 FILE", "--until is wrong"),
    ("record --until 5 FILE", "--until is in the past"),
    ("record --for 1s FILE", "--for is wrong"),
    ("record --for 0 FILE", "--for is wrong"),
    ("record --for 86400000000001 FILE", "--for is wrong"),
    ("record --for 5 --until 5 FILE", "usage"),
    ("record --pages 0 FILE", "--pages is wrong"),
    ("record --pages 65536 FILE", "--pages is wrong"),
    # The words of the table, less its head, for all CPUs before the last.
    ("record --pages 31744 FILE", "on a host of up to 3 CPUs"),
    ("record --pages 31743 FILE", "Xen has 64 MiB free"),
]


@pytest.mark.parametrize(("words", "message"), TRACE_WRONG)
def test_wrong_words_are_refused_by_trace(
    trace: Path, tmp_path: Path, words: str, message: str
) -> None:
    path = tmp_path / "t"
    said = run(trace, *words.replace("FILE", str(path)).split(), code=2).stderr
    assert message in said
    assert "trace on" not in said
    assert not path.exists()


def test_buffers_stay_as_large_as_they_are(trace: Path, tmp_path: Path) -> None:
    words = (trace, "record", *SHORT, "--pages")
    said = run(*words, 4, tmp_path / "t", code=2, FAKE_PAGES=3).stderr
    assert "Xen's trace buffers have 3 pages a CPU" in said
    run(*words, 3, tmp_path / "t", FAKE_PAGES=3)
