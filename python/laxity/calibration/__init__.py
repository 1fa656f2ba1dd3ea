"""What a packet takes on this machine, step by step, and how many streams a CPU carries.

Real packets go through Laxity's own media server as they do with `--on linux`. It writes down when
each one was there, and what CPU time its thread took for each step. Beside it stands what media
servers do with packets by the libraries that they use (`processing`): codecs, SRTP, conferences,
recording.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.calibration import processing
from laxity.calibration.services import CPU_PART, Service, services_of
from laxity.calibration.step import KERNEL, LATENCY, THREAD, Step, table_toml
from laxity.design.answered import answered
from laxity.errors import InputError
from laxity.namespaces.groups import WEIGHT_DEFAULT, Share
from laxity.resolved import calls_of, network_of
from laxity.results.streams import PACKET_NS
from laxity.substrates.linux import media
from laxity.substrates.linux.run import check_duration
from laxity.substrates.linux.scene import Calls, Scene, Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt

    from laxity.calibration.processing import Processing
    from laxity.host import Host
    from laxity.progress import Progress
    from laxity.resolved_schema import ResolvedHost
    from laxity.substrates.linux.media import SceneReport

    Array = npt.NDArray[Any]

STREAMS = 100
"""Streams whose packets are measured."""
SIZED_STREAMS = 4 * STREAMS
"""Streams with which the CPU time of a packet is measured for the table of services: a thread that
is busy takes less for a packet than one that has to be woken for each."""
DURATION_NS = 15_000_000_000
ROUNDS = 5
"""Times that everything is measured."""
ROUND_NS_MIN = 4 * PACKET_NS
PARTS = {"relay": 4, "transcode": 2, "sized relay": 2, "sized transcode": 2}
"""What a round measures, each with its part of the round's time."""
THREADS = 4
"""The media server's, the default of a host file."""
PACKET_BITS = 32
"""Bits of a key that hold a packet's number; its stream stands above them."""

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

OF_THREAD = ("receive_cpu_ns", "process_cpu_ns", "send_cpu_ns", "end_cpu_ns")
"""What the media server's thread tells of the CPU time that a packet took."""


@dataclass(frozen=True, eq=False)
class Size:
    """What a packet takes of the CPU in all."""

    does: str
    """What the media server does: relay or transcode."""
    packet_cpu_ns: float
    """CPU time of the media server for a packet, all steps and wake-ups together, on the average
    with `SIZED_STREAMS` streams."""
    passages_ns: Array
    """CPU time of the steps of single packets, with fewer streams: how much packets differ."""

    @property
    def packets_ns(self) -> Array:
        """CPU time of packets, with the mean `packet_cpu_ns`, which differ as the passages do."""
        mean_ns = float(self.passages_ns.mean())
        return self.passages_ns * (self.packet_cpu_ns / mean_ns if mean_ns else 1.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """What packets take on this machine."""

    streams: int
    """Streams whose packets were measured."""
    steps: tuple[Step, ...]
    relay: Size
    transcode: Size
    """By Laxity's own media server, from one law of G.711 to the other."""
    processing: Processing
    load_average: float
    """The greatest load average when a measurement began: the machine's other work."""
    real_time: bool
    """Whether the phones ran before everything that is not real-time."""
    cpu_part: float = CPU_PART
    """The part of a CPU that a server of voice should take at most, for the table of services."""

    @property
    def services(self) -> Iterator[Service]:
        """What a media server may do with streams, and how many a CPU carries of each."""
        relay, *others = services_of(self.relay.packets_ns, self.processing)
        yield relay
        yield Service("transcode mu-law, A-law", (self.transcode.packets_ns,))
        yield from others

    @property
    def costs(self) -> dict[str, Step]:
        """The costs of packets and of the work on them, by their keys in `[host.network]`."""
        return {step.name: step for step in self.steps} | self.processing.costs

    @property
    def toml(self) -> str:
        """The table `[host.network]` of a host file."""
        lines = [f"{key} = {step.toml}" for key, step in self.costs.items()]
        comment = "# Measured by `laxity calibrate` on one machine; steps that it lacks are free."
        return "\n".join([comment, "[host.network]", *lines])

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints."""
        return {
            "streams": self.streams,
            "steps": [step.to_json() for step in self.steps],
            "sized_streams": SIZED_STREAMS,
            "processing": self.processing.to_json(),
            "cpu_part": self.cpu_part,
            "services": [service.to_json(self.cpu_part) for service in self.services],
            "load_average": self.load_average,
            "real_time": self.real_time,
        }

    def calibrated(self, host: Host) -> Host:
        """The host file with these costs of packets, whose servers are processes of this machine.

        What is not on the way of voice, such as signalling, costs what it did before. Raises
        HostError if the file has no place for it, or asks for work that was not measured.
        """
        measured = {key: step.toml for key, step in self.costs.items()}
        # What the media server is to do may have no cost yet.
        complete = host.resolve([f"host.network={_inline(measured)}"]).host
        beside = _beside_voice(complete)
        if beside:
            without = f'domain.{_media_server(complete)}.workload={{ kind = "media-server" }}'
            costs: Mapping[str, Any] = {**network_of(host.resolved([without]))["costs"]}
            measured |= {name: _cost_toml(costs[name.replace("-", "_")]) for name in beside}
        values = [("host.network", _inline(measured)), ("host.native", "true")]
        return type(host)(answered(host.resolve(), (), values).text, host.name)


def check_fits(host: Host) -> None:
    """Refuses a host file that costs cannot be written into.

    Raises HostError or InputError, with what is wrong with it.
    """
    costs = dict.fromkeys((*STEPS, *processing.KEYS), '"1 us"')
    resolved = host.resolved([f"host.network={_inline(costs)}", "host.native=true"])
    if resolved["network"] is None:
        raise InputError(f"{host.name} has no packets", "add [calls] with streams = 100, say")


def _media_server(host: ResolvedHost) -> str:
    return host["domains"][calls_of(host)["media_server"]]["name"]


def _inline(table: Mapping[str, str]) -> str:
    return f"{{ {', '.join(f'{key} = {value}' for key, value in table.items())} }}"


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
    return table_toml({key.removesuffix("_ns"): ns for key, ns in cost.items()})


def calibrate(
    *,
    streams: int = STREAMS,
    duration_ns: int = DURATION_NS,
    participants: int = processing.PARTICIPANTS,
    cpu_part: float = CPU_PART,
    progress: Progress | None = None,
) -> Calibration:
    """Measures what packets take on this machine, as root; leaves nothing.

    Packets are sent for about so long. A conference has so many participants; the table of services
    is for that part of a CPU.

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
    told = _parts_told(progress, len(parts) + ROUNDS * len(processing.PARTS))
    for done, (part, part_ns) in enumerate(parts):
        told(done)
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
        _size("relay", reports),
        _size("transcode", reports),
        processing.measure(
            ROUNDS,
            replace(processing.EXTENT, participants=participants),
            progress=lambda done, _: told(len(parts) + done),
        ),
        max(report["load_average"] for report in every),
        all(report["load"]["real_time"] and report["sink"]["real_time"] for report in every),
        cpu_part,
    )


def _parts_told(progress: Progress | None, total: int) -> Callable[[int], None]:
    return lambda done: progress(done, total) if progress is not None else None


def _parts(duration_ns: int) -> Iterator[tuple[str, int]]:
    """What is measured one after the other, and for how long: whole packets of each stream."""
    for _ in range(ROUNDS):
        for part, weight in PARTS.items():
            part_ns = duration_ns * weight // (ROUNDS * sum(PARTS.values()))
            yield part, part_ns // PACKET_NS * PACKET_NS


def _size(does: str, reports: Mapping[str, list[SceneReport]]) -> Size:
    sized = reports[f"sized {does}"]
    cpu_ns = sum(sum(report["cpu_ns"].values()) for report in sized)
    received = sum(report["relay"]["received"] for report in sized)
    if not received:
        raise InputError(f"no packet came to a server that is to {does}", "let less run beside it")
    passages_ns = np.concatenate(
        [sum(report["passages"][step] for step in OF_THREAD) for report in reports[does]]
    )
    return Size(does, cpu_ns / received, passages_ns)


def steps_of(relayed: list[SceneReport], transcoded: list[SceneReport]) -> Iterator[Step]:
    """The steps of packets that were relayed, and of transcoding from those that were transcoded.

    Both have a report for each round.
    """
    rounds = [
        _times_ns(relay, transcode["passages"])
        for relay, transcode in zip(relayed, transcoded, strict=True)
    ]
    for name, measured_by in STEPS.items():
        yield Step.of(name, [times_ns[name] for times_ns in rounds], measured_by)


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
