"""What is measured; nothing here prints."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, TypedDict

import laxity
import numpy as np
from laxity import tracefile
from laxity.policies import TABLE
from laxity.why import why

from bench import simso_flat
from bench.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent
FLAT = ROOT / "examples" / "flat.toml"
TELEPHONY = ROOT / "examples" / "telephony.toml"
RT_XEN = ROOT / "examples" / "rt-xen.toml"
OVERLOAD = ROOT / "examples" / "overload.toml"
POLICIES = tuple(
    name
    for name, policy in TABLE.items()
    if policy.family != "scheduler-s" and policy.own_of is None
)

ROUNDS = 5
"""How often what is compared takes turns."""
SPEED_ROUNDS = 15
"""How often SimSo and each host of Laxity take turns: SimSo is up to a quarter faster in one round
than in another."""
WORST = 10
"""Late jobs that are explained one by one."""
STREAMS = (200, 800, 1600)
TRACED = (
    ("flat", FLAT, ["duration=1500 s"]),
    ("RT-Xen", RT_XEN, ["duration=300 s"]),
)
RUNS_A_ROUND = 5
"""Runs of Laxity are a thousandth as long as SimSo's: of several, the median counts."""


@dataclass(frozen=True)
class Speed:
    """How fast a host runs, in model seconds a second."""

    host: str
    public: Spread
    """By the clock, around `laxity.Host.run`: all that a user waits for."""
    engine: Spread
    """By `engine.wall_ns` of the result: the simulation itself."""
    ratio: Spread
    """`public`, as a multiple of SimSo on the flat host in the same round."""


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _turn(host: laxity.Host, set: list[str]) -> tuple[float, float]:
    """The medians of some runs: model seconds a second by the clock and by the engine."""
    public, engine = [], []
    for _ in range(RUNS_A_ROUND):
        start = time.perf_counter()
        run = host.run(set=set)
        public.append(run.duration_ns / 1e9 / (time.perf_counter() - start))
        engine.append(run.duration_ns / run.engine.wall_ns)
    return median(public), median(engine)


def speed_hosts() -> list[tuple[str, Path, list[str]]]:
    """Both hosts of `examples/`: a name, the file, and what is changed in it."""
    hosts = [("flat", FLAT, ["duration=300 s"])]
    for policy in POLICIES:
        key, values = ("quantum", ["0 ms", "1 ms"])
        if TABLE[policy].uses("time-slice"):
            key, values = ("time-slice", ["30 ms", "1 ms"])
        elif not TABLE[policy].uses("quantum"):
            values = ["0 ms"]
        for value in values:
            how = "event-driven" if value == "0 ms" else f"{key} {value}"
            set = ["duration=300 s", f"host.policy={policy}", f"host.{key}={value}"]
            hosts.append((f"RT-Xen, {policy}, {how}", RT_XEN, set))
    return hosts


def speeds() -> tuple[Spread, list[Speed]]:
    """SimSo's speed on the flat host, and Laxity's on both hosts of `examples/`, by turns."""
    resolved = laxity.Host.load(FLAT).resolved()
    hosts = [(name, laxity.Host.load(file), set) for name, file, set in speed_hosts()]
    simso: list[float] = []
    turns: dict[str, list[tuple[float, float, float]]] = {name: [] for name, _, _ in hosts}
    for _ in range(SPEED_ROUNDS):
        simso.append(simso_flat.speed(resolved))
        for name, host, set in hosts:
            public, engine = _turn(host, set)
            turns[name].append((public, engine, public / simso[-1]))
    return Spread(tuple(simso)), [
        Speed(name, *(Spread(values) for values in zip(*turns[name], strict=True)))
        for name, _, _ in hosts
    ]


@dataclass(frozen=True)
class CallSpeed:
    """How fast calls are simulated."""

    streams: int
    public: Spread
    """Model seconds a second, by the clock around `laxity.Host.run`."""
    packet_ns: Spread
    """Time on the wall for each packet that a phone sent, on all of its way."""


def call_speeds() -> list[CallSpeed]:
    """800 streams through Dom0 on four cores, with neighbours, and fewer and more."""
    host = laxity.Host.load(TELEPHONY)
    speeds = []
    for streams in STREAMS:
        public, packet_ns = [], []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            host.run(set=[f"calls.streams={streams}", "duration=20 s"])
            wall_s = time.perf_counter() - start
            public.append(20 / wall_s)
            packet_ns.append(1e9 * wall_s / (streams * 50 * 20))
        speeds.append(CallSpeed(streams, Spread(tuple(public)), Spread(tuple(packet_ns))))
    return speeds


@dataclass(frozen=True)
class TraceCost:
    """What it costs to trace a run into a file, as a multiple of the run without a trace."""

    host: str
    megabytes: float
    factor: Spread
    """Until the run returns: the records are with the operating system, to be written."""
    synced_factor: Spread
    """Until the records are on the disk."""


def trace_costs() -> list[TraceCost]:
    """For both hosts of `examples/`, runs with and without a trace by turns."""
    costs = []
    with tempfile.TemporaryDirectory(dir=ROOT) as directory:
        path = Path(directory) / "trace.laxtrace"
        for name, file, set in TRACED:
            host = laxity.Host.load(file)
            factors, synced_factors = [], []
            for _ in range(2 * ROUNDS + 1):
                untraced = seconds(partial(host.run, set=set))
                path.unlink(missing_ok=True)
                traced = seconds(partial(host.run, set=set, trace=path))
                factors.append(traced / untraced)
                synced_factors.append((traced + seconds(lambda: _sync(path))) / untraced)
            megabytes = path.stat().st_size / 1e6
            costs.append(
                TraceCost(name, megabytes, Spread(tuple(factors)), Spread(tuple(synced_factors)))
            )
    return costs


@dataclass(frozen=True)
class WhyCost:
    """What it costs to explain what was late in a trace."""

    host: str
    records: int
    late: int
    """Jobs, or packets."""
    record_ns: Spread
    """CPU time for each record of the trace."""


def why_costs() -> list[WhyCost]:
    """Traces with many late jobs, and one of calls with late packets, explained several times."""
    costs = []
    with tempfile.TemporaryDirectory(dir=ROOT) as directory:
        path = Path(directory) / "trace.laxtrace"
        for name, file, set in (
            ("overload", OVERLOAD, ["duration=300 s"]),
            ("RT-Xen, load 1", RT_XEN, ["duration=300 s", "draw.load=1.0"]),
            ("calls, 1,600 streams", TELEPHONY, ["duration=20 s", "calls.streams=1600"]),
        ):
            laxity.Host.load(file).run(set=set, trace=path)
            records = len(tracefile.records(path))
            times = []
            for _ in range(ROUNDS):
                start = time.process_time()
                found = why(path, worst=WORST)
                times.append(1e9 * (time.process_time() - start) / records)
            late = found.late_jobs + found.late_packets + found.lost_packets
            costs.append(WhyCost(name, records, late, Spread(tuple(times))))
    return costs


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


SWEEP_THREADS = 2
SWEEPS = (
    ("RT-Xen, 9,000 runs of 1 s", RT_XEN, "1 s", "draw.load=0.3..1.0:0.05", 600),
    ("RT-Xen, 300 runs of 60 s", RT_XEN, "60 s", "draw.load=0.3..1.0:0.05", 20),
    ("RT-Xen, 15 runs of 60 s", RT_XEN, "60 s", "draw.load=0.3..1.0:0.05", 1),
    ("flat, 400 runs of 60 s", FLAT, "60 s", "host.quantum=0 ms|1 ms", 200),
)


@dataclass(frozen=True)
class Scaling:
    """How many times as fast a sweep is on several threads as on one."""

    sweep: str
    ratio: Spread
    """By the clock, around `laxity.Host.sweep`, of sweeps that take turns."""
    possible: Spread
    """The same of as many processes, with one thread each: what the machine gives."""


def sweep_scaling() -> list[Scaling]:
    """Sweeps on one thread, on `SWEEP_THREADS`, and in as many processes, by turns."""
    scalings = []
    for name, file, duration, axis, seeds in SWEEPS:
        command = [str(file), duration, axis, str(seeds)]
        ratios, possible = [], []
        with ExitStack() as stack:
            together = stack.enter_context(_sweeper(SWEEP_THREADS, command))
            each = [stack.enter_context(_sweeper(1, command)) for _ in range(SWEEP_THREADS)]
            _turn_of_sweeps([together, *each])
            for _ in range(2 * ROUNDS + 1):
                alone = _turn_of_sweeps(each[:1])
                ratios.append(alone / _turn_of_sweeps([together]))
                possible.append(SWEEP_THREADS * alone / _turn_of_sweeps(each))
        scalings.append(Scaling(name, Spread(tuple(ratios)), Spread(tuple(possible))))
    return scalings


def _sweeper(threads: int, command: list[str]) -> subprocess.Popen[str]:
    """A process that does the sweep once for each line that it gets, and then answers."""
    return subprocess.Popen(  # noqa: S603 - words of ours
        [sys.executable, "-m", "bench.sweeper", *command],
        cwd=ROOT,
        env=os.environ | {"RAYON_NUM_THREADS": str(threads)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _turn_of_sweeps(sweepers: list[subprocess.Popen[str]]) -> float:
    """How long it takes until each has done the sweep once."""
    start = time.perf_counter()
    for sweeper in sweepers:
        assert sweeper.stdin is not None  # noqa: S101 - for the types
        sweeper.stdin.write("sweep\n")
        sweeper.stdin.flush()
    for sweeper in sweepers:
        assert sweeper.stdout is not None  # noqa: S101 - for the types
        if not sweeper.stdout.readline():
            raise RuntimeError("a sweep failed")
    return time.perf_counter() - start


@dataclass(frozen=True)
class Curve:
    """The cost of an event over the size of the host."""

    policy: str
    sizes: tuple[int, ...]
    event_ns: tuple[float, ...]
    """The least of several runs."""

    def fit(self, sizes: tuple[int, ...]) -> tuple[float, float]:
        """`a` and `b` of the line a + b log2(size) through the points of these sizes."""
        cost_ns = [self.event_ns[self.sizes.index(size)] for size in sizes]
        b, a = np.polyfit(np.log2(sizes), cost_ns, 1)
        return float(a), float(b)

    @property
    def growth(self) -> float:
        """How steep the upper half of the sizes is over log n, against the lower half.

        1 is growth as log n.
        """
        middle = len(self.sizes) // 2
        return self.fit(self.sizes[middle:])[1] / self.fit(self.sizes[: middle + 1])[1]


VCPU_COUNTS = (1, 3, 10, 30, 100, 300, 1_000)
TASK_COUNTS = (1, 10, 100, 1_000, 10_000)
CURVE_POLICIES = ("deferrable", "sporadic", "sedf", "credit")
CURVE_RUNS = 3


def many_vcpus(vcpus: int) -> str:
    """RT-Xen's even share for any number of domains, with as many events a second."""
    domains = []
    for number in range(1, vcpus + 1):
        budget_ms = 2 * ((number - 1) % 5 + 1)
        domains.append(f"""
            [[domain]]
            name = "domain-{number}"
            budget = "{budget_ms} ms"
            period = "{budget_ms * vcpus} ms"
            priority = {number}
            tasks = "drawn"
        """)
    return f"""
        duration = "1500 s"
        [host]
        cpus = 1
        policy = "deferrable"
        [draw]
        load = 0.7
        tasks = 10
        cost = ["5 ms", "10 ms"]
        {"".join(domains)}
    """


def many_tasks(tasks: int) -> str:
    """Any number of tasks in one domain, of a load of 0.7, with as many jobs a second."""
    of_domain = []
    for number in range(tasks):
        cost_us = 5_000 + 5_000 * number // tasks
        period_us = cost_us * tasks * 10 // 7 + number
        of_domain.append(
            f'{{ name = "task-{number}", cost = "{cost_us} us", period = "{period_us} us" }}'
        )
    return f"""
        duration = "3000 s"
        [host]
        cpus = 1
        policy = "deferrable"
        [[domain]]
        name = "all"
        budget = "1 s"
        period = "1 s"
        priority = 1
        tasks = [{", ".join(of_domain)}]
    """


def _curves(sizes: tuple[int, ...], host_of: Callable[[int], str]) -> list[Curve]:
    hosts = [laxity.Host.parse(host_of(size)) for size in sizes]
    least = {policy: [math.inf] * len(sizes) for policy in CURVE_POLICIES}
    for _ in range(CURVE_RUNS):
        for policy in CURVE_POLICIES:
            for at, host in enumerate(hosts):
                engine = host.run(policy=policy).engine
                least[policy][at] = min(least[policy][at], engine.wall_ns / engine.events)
    return [Curve(policy, sizes, tuple(least[policy])) for policy in CURVE_POLICIES]


def vcpu_curves() -> list[Curve]:
    """1 to 1,000 VCPUs on one CPU, with ten tasks each."""
    return _curves(VCPU_COUNTS, many_vcpus)


def task_curves() -> list[Curve]:
    """1 to 10,000 tasks on one VCPU."""
    return _curves(TASK_COUNTS, many_tasks)


class Times(TypedDict):
    """Times of one kind of call."""

    mean_ns: float
    median_ns: float
    p99_ns: float


class Calls(TypedDict):
    """What the calls of a policy take, on that many CPUs with that many VCPUs in all."""

    policy: str
    cpus: int
    vcpus: int
    schedule: Times
    wake: Times
    timer: Times
    clock_ns: float
    """What it takes to read the clock, which is taken off."""


VCPUS_PER_CPU = 8
"""Those of the hosts with several CPUs, and of one with one CPU for comparison."""


def schedule_calls() -> list[Calls]:
    """The lines that the benchmark of `laxity-policy` prints."""
    command = ["cargo", "bench", "--quiet", "--package", "laxity-policy", "--bench", "schedule"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return [json.loads(line) for line in done.stdout.splitlines()]


def _bandwidth_bench(name: str, words: list[str]) -> str:
    command = ["cargo", "bench", "--quiet", "--package", "laxity-bandwidth", "--bench", name]
    done = subprocess.run(  # noqa: S603 - words of ours
        [*command, "--", *words],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


@dataclass(frozen=True)
class Allocation:
    """How long one allocation takes, of oversubscribed claims."""

    sharing: str
    us: dict[int, float]
    """By how many claims there are; the median."""


def allocations() -> list[Allocation]:
    """What the benchmark of the allocator finds, from 10 to 100,000 claims."""
    found: dict[str, dict[int, float]] = {}
    for line in _bandwidth_bench("allocate", []).splitlines():
        timed = json.loads(line)
        found.setdefault(timed["sharing"], {})[timed["claims"]] = timed["median_ns"] / 1000
    return [Allocation(sharing, dict(sorted(us.items()))) for sharing, us in sorted(found.items())]


class Dropped(TypedDict):
    """What a packet costs that is dropped, over some rounds."""

    place: str
    rounds: int
    packets: int
    median_us: float
    min_us: float
    max_us: float


def dropped_packets() -> list[Dropped]:
    """CPU time of a packet that is dropped, by where; nothing where no namespaces can be made."""
    lines = _bandwidth_bench("daemon", ["drops"]).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]
