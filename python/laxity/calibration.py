"""What Laxity's own media server takes for a packet on this machine, step by step.

Real packets go through the media server as they do with `--on linux`. It writes down when each one
was there, and what CPU time its thread took for each step.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.design.answered import answered
from laxity.errors import InputError
from laxity.namespaces.groups import WEIGHT_DEFAULT, Share
from laxity.resolved import network_of
from laxity.results.streams import PACKET_NS
from laxity.substrates.linux import media
from laxity.substrates.linux.run import check_duration
from laxity.substrates.linux.scene import Calls, Scene, Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from laxity.host import Host
    from laxity.progress import Progress
    from laxity.resolved_schema import ResolvedHost
    from laxity.substrates.linux.media import SceneReport

    Array = npt.NDArray[Any]

STREAMS = 100
"""Streams whose packets are measured."""
SIZED_STREAMS = 4 * STREAMS
"""Streams with which the CPU time of a packet is measured for the table of sizes: a thread that is
busy takes less for a packet than one that has to be woken for each."""
DURATION_NS = 15_000_000_000
ROUNDS = 5
"""Times that everything is measured."""
ROUND_NS_MIN = 4 * PACKET_NS
PARTS = {"relay": 4, "transcode": 2, "sized relay": 2, "sized transcode": 2}
"""What a round measures, each with its part of the round's time."""
THREADS = 4
"""The media server's, the default of a host file."""
CPU_PART = 0.5
"""The part of a CPU that a server of voice should take at most, for the table of sizes."""
QUANTILES = (0.5, 0.9, 0.99, 0.999, 1)
PACKET_BITS = 32
"""Bits of a key that hold a packet's number; its stream stands above them."""

KERNEL, THREAD, LATENCY = "sent to arrived", "CPU time", "arrived to run"
STEPS = {
    "receive": KERNEL,
    "socket-receive": THREAD,
    "wake-up-latency": LATENCY,
    "relay": THREAD,
    "transcode": THREAD,
    "socket-send": KERNEL,
    "after-send": THREAD,
}
"""The steps of `[host] network` that a packet takes on this machine, and how each is measured."""


@dataclass(frozen=True)
class Step:
    """What one step of a packet takes."""

    name: str
    """Its key in `[host] network`."""
    median_ns: int
    p90_ns: int
    p99_ns: int
    p999_ns: int
    max_ns: int
    packets: int
    """How many were measured."""

    @staticmethod
    def of(name: str, rounds_ns: Sequence[Array]) -> Step:
        """The quantiles of times, each the median of those of the rounds.

        Other work that disturbs one round does therefore not count. Raises InputError for a round
        without times.
        """
        if not all(times_ns.size for times_ns in rounds_ns):
            raise InputError(
                f"no packet shows what {name} takes",
                "give a longer --duration, or let less run on this machine",
            )
        quantiles = np.array(
            # Two clocks that are read one after the other may seem to go backwards.
            [np.quantile(np.maximum(times_ns, 0), QUANTILES) for times_ns in rounds_ns]
        )
        packets = sum(times_ns.size for times_ns in rounds_ns)
        median, p90, p99, p999, most = map(int, np.median(quantiles, axis=0))
        return Step(name, median, p90, p99, p999, most, packets)

    @property
    def measured_by(self) -> str:
        """How the step is measured."""
        return STEPS[self.name]

    @property
    def toml(self) -> str:
        """The cost as a host file takes it."""
        named = {"median": self.median_ns, "p90": self.p90_ns, "p99": self.p99_ns}
        return _table_toml(named | {"p999": self.p999_ns, "max": self.max_ns})

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints of it."""
        return {
            "name": self.name,
            "median_ns": self.median_ns,
            "p90_ns": self.p90_ns,
            "p99_ns": self.p99_ns,
            "p999_ns": self.p999_ns,
            "max_ns": self.max_ns,
            "measured_by": self.measured_by,
            "packets": self.packets,
        }


@dataclass(frozen=True)
class Size:
    """What a packet takes in all, and how many streams a CPU therefore carries."""

    does: str
    """What the media server does: relay or transcode."""
    packet_cpu_ns: float
    """CPU time of the media server for a packet, all steps and wake-ups together."""

    @property
    def streams(self) -> int:
        """Streams that take `CPU_PART` of a CPU."""
        return int(CPU_PART * PACKET_NS / self.packet_cpu_ns)

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints of it."""
        return {
            "does": self.does,
            "packet_cpu_ns": self.packet_cpu_ns,
            "cpu_part": CPU_PART,
            "streams": self.streams,
        }


@dataclass(frozen=True)
class Calibration:
    """What packets take on this machine."""

    streams: int
    """Streams whose packets were measured."""
    steps: tuple[Step, ...]
    sizes: tuple[Size, ...]
    """With `SIZED_STREAMS` streams."""
    load_average: float
    """The greatest load average when a measurement began: the machine's other work."""
    real_time: bool
    """Whether the phones ran before everything that is not real-time."""

    @property
    def toml(self) -> str:
        """The table `[host.network]` of a host file."""
        lines = [f"{step.name} = {step.toml}" for step in self.steps]
        comment = "# Measured by `laxity calibrate` on one machine; steps that it lacks are free."
        return "\n".join([comment, "[host.network]", *lines])

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints."""
        return {
            "streams": self.streams,
            "steps": [step.to_json() for step in self.steps],
            "sized_streams": SIZED_STREAMS,
            "sizes": [size.to_json() for size in self.sizes],
            "load_average": self.load_average,
            "real_time": self.real_time,
        }

    def calibrated(self, host: Host) -> Host:
        """The host file with these costs of packets, whose servers are processes of this machine.

        What is not on the way of voice, such as signalling, costs what it did before. Raises
        HostError if the file has no place for it.
        """
        resolved = host.resolve()
        costs: Mapping[str, Any] = {**network_of(resolved.host)["costs"]}
        table = {step.name: step.toml for step in self.steps}
        table |= {
            name: _cost_toml(costs[name.replace("-", "_")]) for name in _beside_voice(resolved.host)
        }
        written = ", ".join(f"{name} = {cost}" for name, cost in table.items())
        values = [("host.network", f"{{ {written} }}"), ("host.native", "true")]
        return type(host)(answered(resolved, (), values).text, host.name)


def _beside_voice(host: ResolvedHost) -> list[str]:
    """The steps of a host that are not on the way of voice."""
    steps = []
    if host["calls"] is not None and host["calls"]["signalling_server"] is not None:
        steps += ["signalling", "disk", "disk-latency"]
    if network_of(host).get("link") is not None:
        steps += ["look"]
    return steps


def _cost_toml(cost: Mapping[str, int]) -> str:
    """A resolved cost as a host file takes it."""
    if "ns" in cost:
        return f'"{cost["ns"]} ns"'
    return _table_toml({key.removesuffix("_ns"): ns for key, ns in cost.items()})


def _table_toml(times: Mapping[str, int]) -> str:
    """Times by name, as an inline table."""
    written = ", ".join(f'{name} = "{ns} ns"' for name, ns in times.items())
    return f"{{ {written} }}"


def calibrate(
    *,
    streams: int = STREAMS,
    duration_ns: int = DURATION_NS,
    progress: Progress | None = None,
) -> Calibration:
    """Measures what packets take on this machine, for about so long, as root; leaves nothing.

    Raises InputError without the rights for it, and if the machine cannot keep the time.
    """
    if duration_ns // ROUNDS * min(PARTS.values()) // sum(PARTS.values()) < ROUND_NS_MIN:
        least_ns = ROUNDS * ROUND_NS_MIN * sum(PARTS.values()) // min(PARTS.values())
        raise InputError(
            f"{duration_ns / 1e9:g} s are too short to measure every step",
            f"give --duration '{least_ns / 1e9:g} s' or more",
        )
    reports: dict[str, list[SceneReport]] = {part: [] for part in PARTS}
    parts = list(_parts(duration_ns))
    for done, (part, part_ns) in enumerate(parts):
        if progress is not None:
            progress(done, len(parts))
        is_sized = part.startswith("sized")
        server = Server(
            "media",
            Share(WEIGHT_DEFAULT, 0, tuple(sorted(os.sched_getaffinity(0)))),
            THREADS,
            transcode=part.endswith("transcode"),
        )
        calls = Calls(part_ns, SIZED_STREAMS if is_sized else streams)
        report = media.run(Scene(calls, server), with_passages=not is_sized)
        check_duration(part_ns, report["load"]["measured_duration_ns"])
        reports[part].append(report)
    every = [report for of_part in reports.values() for report in of_part]
    return Calibration(
        streams,
        tuple(steps_of(reports["relay"], reports["transcode"])),
        tuple(_size(does, reports[f"sized {does}"]) for does in ("relay", "transcode")),
        max(report["load_average"] for report in every),
        all(report["load"]["real_time"] and report["sink"]["real_time"] for report in every),
    )


def _parts(duration_ns: int) -> Iterator[tuple[str, int]]:
    """What is measured one after the other, and for how long: whole packets of each stream."""
    for _ in range(ROUNDS):
        for part, weight in PARTS.items():
            part_ns = duration_ns * weight // (ROUNDS * sum(PARTS.values()))
            yield part, part_ns // PACKET_NS * PACKET_NS


def _size(does: str, reports: list[SceneReport]) -> Size:
    cpu_ns = sum(sum(report["cpu_ns"].values()) for report in reports)
    received = sum(report["relay"]["received"] for report in reports)
    if not received:
        raise InputError(f"no packet came to a server that is to {does}", "let less run beside it")
    return Size(does, cpu_ns / received)


def steps_of(relayed: list[SceneReport], transcoded: list[SceneReport]) -> Iterator[Step]:
    """The steps of packets that were relayed, and of transcoding from those that were transcoded.

    Both have a report for each round.
    """
    rounds = [
        _times_ns(relay, transcode["passages"])
        for relay, transcode in zip(relayed, transcoded, strict=True)
    ]
    for name in STEPS:
        yield Step.of(name, [times_ns[name] for times_ns in rounds])


def _times_ns(report: SceneReport, transcoded: Array) -> dict[str, Array]:
    """What each step took in a round.

    The system call that sends a packet through the cable also receives it at the other end and
    wakes who waits there. Sending ends when the packet arrives there, and what the thread does
    then, also to see that its socket has no other packet, comes after. A thread that is preempted
    while it sends has worked at most for the CPU time of the call.
    """
    sent, seen = _told(report)
    passages = report["passages"]
    woke = passages[passages["arrived_ns"] > passages["waited_ns"]]
    work_ns = passages["process_cpu_ns"]
    send_ns = np.minimum(sent["arrived_ns"] - seen["sent_ns"], seen["send_cpu_ns"])
    without_ns = int(np.median(work_ns)) if work_ns.size else 0
    return {
        "receive": seen["arrived_ns"] - sent["sent_ns"],
        "socket-receive": passages["receive_cpu_ns"],
        "wake-up-latency": woke["woken_ns"] - woke["arrived_ns"],
        "relay": work_ns,
        "transcode": transcoded["process_cpu_ns"] - without_ns,
        "socket-send": send_ns,
        "after-send": seen["send_cpu_ns"] - send_ns + seen["end_cpu_ns"],
    }


def _told(report: SceneReport) -> tuple[Array, Array]:
    """The packets that phones and the media server both tell of, as each does."""
    sent, seen = report["packets"], report["passages"]
    sent = sent[np.argsort(_keys(sent))]
    places = np.searchsorted(_keys(sent), _keys(seen))
    is_told = places < sent.size
    is_told[is_told] = _keys(sent)[places[is_told]] == _keys(seen)[is_told]
    return sent[places[is_told]], seen[is_told]


def _keys(packets: Array) -> Array:
    return np.asarray(packets["stream"] << PACKET_BITS | packets["packet"])
