"""The same with the daemon, the kernel's traffic control and real packets, in network namespaces.

A tenth of the paper's seconds and Mbit/s. The scenes are the benchmark of `laxity-bandwidth`, which
this runs through cargo in a checkout, as root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import pandas as pd
from laxity.errors import InputError

from laxity_reproduce.bandwidth import plots
from laxity_reproduce.bandwidth.setup import FACTS
from laxity_reproduce.bandwidth.throughput import LIFTED, LOSS_TOLERANCE, least_loss_percent
from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity_reproduce.reproduction import Value

ROOT = Path(__file__).parents[3]
SCALE = 10
"""The paper's seconds and Mbit/s are divided by this."""
EXPERIMENTS = {
    "figure-4": "paper",
    "figure-5": "periods",
    "drops": "drops",
    "wake": "wake",
    "random": "random",
    "look": "look",
    "cost": "cost",
}
"""What there is, and the benchmark's part that measures it."""

WAKE_MS = 10
SHORT_PERCENT = 1
COST_PERCENT = {(1_000, 10): 20, (1_000, 100): 2, (10_000, 10): 5}
"""Goals: of a core, by the number of interfaces and the period in ms."""
BUSY_MAX = 50
"""The goals are for at most so many busy interfaces."""

SAME = 0.1
"""CPU times that differ by less count as the same."""
MUCH_PERCENT = 10
"""A difference of this part of a core is much."""
MORE = 1.1
"""Times as many interrupts as without are more."""

PROFILE = "bench"
"""Cargo's, in which the scenes are built."""


class Part(TypedDict, total=False):
    """What a part of the benchmark measured (crates/laxity-bandwidth/benches/daemon).

    Each part has some of these keys, always the same.
    """

    part: str
    active_us: float
    all_us: float
    busy: int
    busy_seconds_of_machines: int
    class_1_loss_percent: float
    cpu_percent: float
    daemon_cpu_percent: float
    every_s: float
    interfaces: int
    load: float
    loop_ms: float
    loop_ms_max: float
    loss_of_schedule_percent: float
    loss_percent: float
    machines: int
    max_ms: float
    max_us: float
    maxima_mbit_s: list[int] | None
    """None: without an allocator."""
    mbit_s: list[list[float]]
    """What each machine got, in each `every_s`."""
    median_ms: float
    median_us: float
    min_us: float
    p90_ms: float
    packets: int
    packets_cpu_percent: float
    period_ms: int | None
    """None: without an allocator."""
    periods: int
    periods_missed: int
    place: str
    rounds: int
    seconds: int
    shorter: float
    timer_interrupts_s: int | None
    """None where they are not counted."""
    unheard: int
    violations: int
    what: str
    """What the busy interfaces do; empty if their machines send at random."""
    worst_percent: float


def measure(parts: Sequence[str], *, quick: bool = False) -> list[Part]:
    """Runs parts of the benchmark; what each measured.

    `quick`: for shorter times, to see that all works. Raises InputError where it cannot run:
    without root, cargo or a checkout.
    """
    if os.geteuid() != 0:
        raise InputError("network namespaces need root", "run it as root, or leave --on linux out")
    if shutil.which("cargo") is None or not (ROOT / "Cargo.toml").exists():
        message = "the scenes are built by cargo, in a checkout"
        raise InputError(message, "run it there, or leave --on linux out")
    # With the features of the whole workspace, what tests are built of is not built once more.
    command = ["cargo", "bench", "--quiet", "--profile", PROFILE, "--workspace"]
    words = [*(["--quick"] if quick else []), *parts]
    done = subprocess.run(  # noqa: S603 - words of ours
        [*command, "--bench", "daemon", "--", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    missing = next((line for line in lines if line.startswith("SKIPPED: ")), None)
    if missing is not None:
        raise InputError(missing.removeprefix("SKIPPED: "), "leave --on linux out")
    if done.returncode != 0:
        raise InputError("the scenes failed", "their own messages stand above")
    return [json.loads(line) for line in lines if line.startswith("{")]


def experiments(names: Sequence[str], *, quick: bool = False) -> list[Experiment]:
    """Those of `EXPERIMENTS` with these names, measured."""
    found = measure([EXPERIMENTS[name] for name in names], quick=quick)

    def parts(name: str) -> list[Part]:
        return [part for part in found if part["part"] == EXPERIMENTS[name]]

    made = {
        "figure-4": throughput,
        "figure-5": periods,
        "drops": drops,
        "wake": wake,
        "random": random,
        "look": look,
        "cost": cost,
    }
    return [made[name](parts(name)) for name in names]


METHOD = (
    "The driver domain, each machine and the outside world are network namespaces that veths"
    " join on a bridge; packets are UDP of 1,400 bytes. The machine is shared, so rates and"
    " times hold for it alone."
)


def _goal(what: str, goal: str, ours: Value, *, holds: bool) -> Row:
    return Row(what, goal, ours, verdict(holds=holds), "" if holds else "the goal is not reached")


def throughput(parts: list[Part]) -> Experiment:
    """Figures 3 and 4 with real packets."""
    names = {
        None: "without an allocator",
        tuple(maximum // SCALE for maximum in FACTS["max_mbit_s"]): "Laxity",
        tuple(maximum // SCALE for maximum in LIFTED): "Laxity, maxima 60, 60 and 40 Mbit/s",
    }
    by_name: dict[str, Part] = {}
    frames = []
    for part in parts:
        maxima = part["maxima_mbit_s"]
        name = names[None if maxima is None else tuple(maxima)]
        by_name[name] = part
        frames += [
            {
                "panel": name,
                "line": f"VM {vm}",
                "at_s": number * part["every_s"],
                "delivered_mbit_s": mbit_s,
            }
            for number, all_of_them in enumerate(part["mbit_s"])
            for vm, mbit_s in enumerate(all_of_them, start=1)
        ]
    native, held, lifted = (by_name[name] for name in names.values())
    published = FACTS["class_1_loss_percent"]
    least = least_loss_percent()
    loss = held["class_1_loss_percent"]
    used = _used_at_200(lifted)
    link = FACTS["link_mbit_s"] / SCALE
    unheard = (
        f"{held['unheard']:,} packets came out of the link and found no room in a listener's socket"
    )
    rows = [
        _near(
            "class 1: loss without an allocator, %", published["native"], native, _uneven(native)
        ),
        _near("class 1: loss with Laxity, %", published["allocator"], held, unheard),
        _goal(
            "class 1: loss with Laxity, % (our goal)",
            f"{least:.2f} within {LOSS_TOLERANCE}",
            loss,
            holds=abs(loss - least) <= LOSS_TOLERANCE,
        ),
        _goal(
            "maxima 60, 60, 40, VM 1 offers 20: total throughput, Mbit/s of payload and headers",
            f"at least 99 % of {link:.0f}",
            round(used, 1),
            holds=used >= 0.99 * link,
        ),
    ]
    measurements = [
        Measurement(
            f"{name}: VM 1 offers 80, 60, 50, 20: it gets, Mbit/s",
            [_while_vm1_offers(part, mbit_s)[0] for mbit_s in (800, 600, 500, 200)],
            f"{part['loss_of_schedule_percent']} % of the scheduled packets were lost;"
            f" {part['unheard']:,} found no room in a listener's socket; load average"
            f" {part['load']}",
        )
        for name, part in by_name.items()
    ]
    title = "throughput without and with the daemon"
    method = (
        f"{METHOD} Seconds and Mbit/s are a tenth of the paper's, queues hold 100 packets, and"
        " the daemon looks every 10 ms. A loss compares what the machine has sent, as its kernel"
        " counts, with what came out of the link; packets that wait in the queue at the end of a"
        " flood come out after it."
    )
    data = pd.DataFrame(frames)
    return Experiment("figure-4", title, method, rows, measurements, data, plots.throughput)


def _near(what: str, published: float, part: Part, why: str) -> Row:
    ours = part["class_1_loss_percent"]
    holds = abs(ours - published) <= LOSS_TOLERANCE
    return Row(what, published, ours, verdict(holds=holds), "" if holds else why)


def _uneven(part: Part) -> str:
    """A sentence on the losses of each machine in a queue that all share."""
    link = FACTS["link_mbit_s"] / SCALE
    others = (FACTS["vm2_offered_mbit_s"] + FACTS["vm3_offered_mbit_s"]) / SCALE
    offered = FACTS["while_vm1_offers_200"]["vm1"] / SCALE
    gets = _while_vm1_offers(part, FACTS["while_vm1_offers_200"]["vm1"])[0]
    full = _while_vm1_offers(part, FACTS["vm1_offered"][0]["mbit_s"])[0]
    return (
        f"VM 1 gets a third while all offer as much, as in the paper ({full:.1f} of {link:.0f}"
        f" Mbit/s); while it offers {offered:.0f} it gets {gets:.1f}, where drops in proportion"
        " to arrivals, as in the model of figure 3, would leave it"
        f" {link * offered / (offered + others):.1f}: a real queue does not drop in proportion to"
        " arrivals"
    )


def _used_at_200(part: Part) -> float:
    """What all got while VM 1 offered its least, without the first second of each such time."""
    return sum(_while_vm1_offers(part, FACTS["while_vm1_offers_200"]["vm1"]))


def _while_vm1_offers(part: Part, mbit_s: int) -> list[float]:
    """What each got while VM 1 offered that much, without the first second of each such time.

    `mbit_s` is the paper's.
    """
    every_s, shorter, at_s = part["every_s"], part["shorter"], 0.0
    rates: list[list[float]] = []
    for phase in FACTS["vm1_offered"]:
        end_s = at_s + phase["s"] / SCALE / shorter
        if phase["mbit_s"] == mbit_s:
            first, last = round((at_s + 1 / shorter) / every_s), round(end_s / every_s)
            rates += part["mbit_s"][first:last]
        at_s = end_s
    return [float(sum(of) / len(rates)) for of in zip(*rates, strict=True)]


def periods(parts: list[Part]) -> Experiment:
    """Figures 5 and 7: CPU time and loss against the period."""
    native = next(part for part in parts if part["period_ms"] is None)
    held = [part for part in parts if part["period_ms"] is not None]
    smallest = FACTS["smallest_useful_period_ms"]
    facts = FACTS["figure_5"]

    def whole(part: Part) -> float:
        return float(part["packets_cpu_percent"] + part["daemon_cpu_percent"])

    short = [part for part in held if part["period_ms"] < smallest]
    long = [part for part in held if part["period_ms"] >= smallest]
    dear = max(part["daemon_cpu_percent"] for part in short)
    loss = max(part["loss_percent"] for part in held)
    maximum, offered = FACTS["max_mbit_s"][0], FACTS["vm1_offered"][0]["mbit_s"]
    least = 100 * (1 - maximum / offered)
    same = all(abs(whole(part) / whole(native) - 1) <= SAME for part in long)
    rows = [
        Row(
            "the daemon's CPU time at periods below 100 ms, at most, % of a core",
            facts["short"],
            dear,
            verdict(holds=dear >= MUCH_PERCENT),
            "" if dear >= MUCH_PERCENT else "a look is a few system calls and starts no process",
        ),
        Row(
            "total CPU time at periods of 100 ms and more, % of that without an allocator",
            facts["long"],
            [round(100 * whole(part) / whole(native), 1) for part in long],
            verdict(holds=same),
            "" if same else _why_dearer(native, long),
        ),
        _goal(
            "VM 1 offers 80 Mbit/s: its greatest loss at any period, %",
            f"{least:.1f} within {LOSS_TOLERANCE}",
            loss,
            holds=abs(loss - least) <= LOSS_TOLERANCE,
        ),
    ]
    kinds = (
        ("CPU time in all", "% of a core", whole, True),
        ("CPU time of the daemon", "% of a core", lambda part: part["daemon_cpu_percent"], False),
        ("Loss of VM 1", "loss (%)", lambda part: part["loss_percent"], True),
    )
    data = [
        {"panel": panel, "unit": unit, "line": line, "period_ms": at_ms, "value": value(source)}
        for panel, unit, value, has_native in kinds
        for line in ("Laxity", "without an allocator")
        if has_native or line == "Laxity"
        for part in held
        for at_ms, source in [(part["period_ms"], part if line == "Laxity" else native)]
    ]
    counted = _timer_interrupts_s([native, *long])
    measurements = [
        Measurement(
            "timer interrupts a second of the whole machine, without an allocator, and at those"
            " periods",
            counted,
            "as the kernel counts them",
        )
    ]
    title = "CPU time and loss against the period"
    method = (
        f"{METHOD} All three machines offer 80 Mbit/s to a link of 100 Mbit/s, for 4 s at each"
        " period."
    )
    frame = pd.DataFrame(data)
    return Experiment(
        "figure-5",
        title,
        method,
        rows,
        # Not every kind of computer has them counted.
        measurements if len(counted) == 1 + len(long) else [],
        frame,
        plots.against_the_period,
    )


def _why_dearer(native: Part, held: list[Part]) -> str:
    """A reason why agreements cost more where constant senders send and deliver as many packets."""
    without = native["timer_interrupts_s"]
    with_it = _timer_interrupts_s(held)
    if without is None or min(with_it) <= MORE * without:
        return "the cause has not been measured"
    return (
        "each machine has its own shaper in the host, and the kernel's timers wake the shapers"
        f" to release packets: {min(with_it):,} to {max(with_it):,} timer interrupts a second,"
        f" {without:,} without an allocator; the daemon itself took at most"
        f" {max(part['daemon_cpu_percent'] for part in held):g} % of a core"
    )


def _timer_interrupts_s(parts: list[Part]) -> list[float]:
    """Timer interrupts a second of the parts in which they were counted."""
    counts = (part["timer_interrupts_s"] for part in parts)
    return [count for count in counts if count is not None]


def drops(parts: list[Part]) -> Experiment:
    """What a dropped packet costs, by where."""
    us = {part["place"]: part["median_us"] for part in parts}
    saved = 100 * (1 - us["guest"] / us["bridge"])
    holds = us["guest"] < us["bridge"] < us["link"]
    rows = [
        _goal(
            "CPU time of a packet that is dropped in the guest, at the bridge, at the link, us",
            "less in the guest than at the bridge, and less at the bridge than at the link",
            [us["guest"], us["bridge"], us["link"]],
            holds=holds,
        )
    ]
    measurements = [
        Measurement(
            f"dropped at the {part['place']}, us",
            part["median_us"],
            f"median of {part['rounds']} rounds of {part['packets']:,} packets,"
            f" {part['min_us']} to {part['max_us']}",
        )
        for part in parts
    ]
    measurements.append(
        Measurement("CPU time saved by a drop in the guest, % of that at the bridge", saved)
    )
    title = "CPU time of a dropped packet"
    method = (
        f"{METHOD} One run drops nearly all packets in turn at the guest's own queue, at the"
        " host's interface before the bridge, and at the link's queue. CPU time is that of the"
        " sending thread, which carries a packet all the way."
    )
    return Experiment("drops", title, method, rows, measurements, pd.DataFrame(parts))


def wake(parts: list[Part]) -> Experiment:
    """How long an idle machine waits for its minimum."""
    (part,) = parts
    rows = [
        _goal(
            "time until a machine that begins to send has its minimum, median, ms",
            f"at most {WAKE_MS}",
            part["median_ms"],
            holds=part["median_ms"] <= WAKE_MS,
        )
    ]
    measurements = [
        Measurement("the same, 90th percentile, ms", part["p90_ms"]),
        Measurement("the same, longest, ms", part["max_ms"]),
    ]
    method = (
        f"{METHOD} A machine begins to send {part['rounds']} times after a pause, while two"
        " others flood the link. The time ends at the begin of the first window of 10 ms that"
        " holds 95 % of the machine's minimum."
    )
    title = "time until an idle machine has its minimum"
    return Experiment("wake", title, method, rows, measurements, pd.DataFrame(parts))


def random(parts: list[Part]) -> Experiment:
    """A hundred random senders."""
    (part,) = parts
    worst = part["worst_percent"]
    rows = [
        _goal(
            "largest shortfall of a machine from its minimum over a second in which it asked, %",
            f"at most {SHORT_PERCENT}",
            worst,
            holds=worst <= SHORT_PERCENT,
        ),
        _goal(
            "violations that the daemon counted",
            "0",
            part["violations"],
            holds=part["violations"] == 0,
        ),
    ]
    measurements = [
        Measurement(
            "seconds in which a machine asked, over all machines", part["busy_seconds_of_machines"]
        ),
        Measurement("the longest look, ms", part["loop_ms_max"]),
        Measurement("periods missed", part["periods_missed"]),
    ]
    method = f"{METHOD} {part['machines']} random senders run for {part['seconds']} s."
    title = "100 random senders"
    return Experiment("random", title, method, rows, measurements, pd.DataFrame(parts))


def look(parts: list[Part]) -> Experiment:
    """What asking only about those who have sent saves."""
    rows = [
        _goal(
            f"{part['interfaces']:,} classes, {part['busy']} busy: CPU time of a look at all, and"
            " at those that have sent or have a queue, us",
            "less",
            [part["all_us"], part["active_us"]],
            holds=part["active_us"] < part["all_us"],
        )
        for part in parts
    ]
    measurements = [
        Measurement(
            f"{part['busy']} busy: CPU time of the second look, % of the first",
            100 * part["active_us"] / part["all_us"],
            f"medians of {part['rounds']} looks each, by turns; load average {part['load']}",
        )
        for part in parts
    ]
    method = (
        f"{METHOD} The daemon's thread only reads counters, by turns those of all classes, and"
        " those of classes that have sent or have a queue. CPU time is that of the thread,"
        " including the kernel's part."
    )
    title = "CPU time of a look"
    return Experiment("look", title, method, rows, measurements, pd.DataFrame(parts))


def cost(parts: list[Part]) -> Experiment:
    """What the daemon costs."""
    rows = []
    measurements = []
    for part in parts:
        period_ms = part["period_ms"]
        assert period_ms is not None  # noqa: S101, for the types: the daemon runs in these parts.
        what = part["what"] or "busy"
        scene = f"{part['interfaces']:,} interfaces, {part['busy']:,} {what}, every {period_ms} ms"
        missed = part["periods_missed"]
        if part["busy"] <= BUSY_MAX:
            goal = COST_PERCENT[part["interfaces"], period_ms]
            rows.append(
                _goal(
                    f"{scene}: the daemon's CPU time, % of a core",
                    f"below {goal}",
                    part["cpu_percent"],
                    holds=part["cpu_percent"] < goal,
                )
            )
        else:
            measurements.append(
                Measurement(
                    f"{scene}: the daemon's CPU time, % of a core",
                    part["cpu_percent"],
                    f"{part['periods']:,} looks, {missed:,} missed",
                )
            )
        if not part["busy"]:
            rows.append(_goal(f"{scene}: looks missed", "0", missed, holds=missed == 0))
        measurements.append(
            Measurement(
                f"{scene}: last and longest look, ms",
                [part["loop_ms"], part["loop_ms_max"]],
                f"{part['periods']:,} looks, {missed:,} missed; load average {part['load']}",
            )
        )
    method = (
        f"{METHOD} The daemon runs with the priority that its unit for systemd gives it. Busy"
        " machines send, flood and pause at random, up to what the machine carries. Where more"
        f" than {BUSY_MAX} interfaces are busy, a thread writes frames into their other ends, and"
        " the host passes these on to the link; no goal was set for them. The longest look is that"
        " since the daemon's start."
    )
    title = "CPU time of the daemon"
    return Experiment("cost", title, method, rows, measurements, pd.DataFrame(parts))
