"""Runs a scene: servers and neighbours in their groups, the calls' parties beyond the cable."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np

from laxity import tracefs
from laxity.errors import InputError
from laxity.namespaces.afterwards import remover
from laxity.namespaces.groups import groups
from laxity.namespaces.network import ADDRESSES, CLIENT, NAMESPACES, SERVER, network
from laxity.namespaces.process import END_S_MAX, Place, process, require, workplace
from laxity.results.measured import PACKET, PASSAGE, Report
from laxity.servers import signalling
from laxity.servers.control import Media
from laxity.servers.media_server import (
    CONTROL_PORT,
    PCMU,
    RTPENGINE,
    TRANSCODED_BY_KAMAILIO,
    media_server,
    program,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.media_schema import Report as PartiesReport
    from laxity.namespaces.groups import Groups
    from laxity.results.measured import Counted
    from laxity.servers.media_server import MediaServer
    from laxity.substrates.linux.scene import Scene

PROGRAMS = {"ip": "iproute2", "nsenter": "util-linux", "setpriv": "util-linux"}
"""What a run needs, and the Debian package that has it."""
COMPUTE = """import sys, time
run_ns, idle_s = int(sys.argv[1]), int(sys.argv[2]) / 1e9
while True:
    end_ns = time.thread_time_ns() + run_ns
    while not run_ns or time.thread_time_ns() < end_ns:
        pass
    time.sleep(idle_s)
"""
"""A CPU-bound domain's program."""
PARTIES = "parties"
CALLS_PER_SENDER = 500
"""That one thread of the load sends the streams of: about half of its time."""
TICK = "100 us"
"""How often the load wakes up: what is due meanwhile leaves in one go, where phones speak whenever
they do. At 250 us, its default, the packets of some hundred streams would wait for each other."""
LAST_PACKETS_NS = 200_000_000
"""Before the media server forgets a call, for its last packets to arrive; as caller.xml has."""
PACKETS = "packets"
"""Where the sampled packets' times are, among the run's files."""
PASSAGES = "passages"
"""Where the times of all packets at the media server are."""
NO_PASSAGES = np.empty(0, PASSAGE)
"""Those of a media server that writes none."""
BUFFER_KIB_MAX, BUFFERS_KIB_MAX = 1 << 19, 1 << 22
"""The most memory for the events of a CPU, two minutes of a busy one, and of all CPUs."""


class Used(TypedDict):
    """What the machine did while the calls ran."""

    elapsed_ns: int
    cpu_ns: dict[str, int]
    """The CPU time that each domain had meanwhile."""


class SceneReport(Report, Used):
    """What became of a scene."""

    load_average: float
    """What else the machine had to do when the calls began."""
    seen: NotRequired[Seen]
    """What the kernel was asked, of a run that is recorded."""
    passages: NotRequired[np.ndarray[tuple[int], np.dtype[np.void]]]
    """The packets at the media server, as PASSAGE, if they were asked for."""


def run(scene: Scene, recording: Path | None = None, *, with_passages: bool = False) -> SceneReport:
    """Runs a scene on this machine, as root, and leaves nothing behind.

    With `recording`, who had the CPUs goes to that file. If the kernel does not let itself be
    traced, or lost events, there is no such file, and `seen` says why. With `recording` or
    `with_passages` the report has the passages, and its packets are those of all calls.
    """
    with_passages = with_passages or recording is not None
    path = program()
    require(PROGRAMS)
    shares = {scene.server.name: scene.server.share}
    if scene.signalling is not None:
        require(signalling.PROGRAMS)
        shares[scene.signalling.name] = scene.signalling.share
    shares |= {neighbour.name: neighbour.share for neighbour in scene.neighbours}
    # Groups are named by number: a domain may be called what no directory can.
    group_names = {name: f"domain-{number}" for number, name in enumerate(shares)}
    # What is entered last is left first: processes end before their groups and namespaces go.
    with ExitStack() as stack:
        files = stack.enter_context(workplace())
        sides = stack.enter_context(network())
        made = stack.enter_context(
            groups({group_names[name]: share for name, share in shares.items()})
        )
        stack.enter_context(remover(sides.values(), files, made.paths()))

        def on(side: str, domain: str | None = None) -> Place:
            group = None if domain is None else group_names[domain]
            return Place(NAMESPACES / sides[side], made, group, files=files)

        clients = on(CLIENT)
        passages = files / PASSAGES if with_passages else None
        server = stack.enter_context(
            media_server(scene.server, on(SERVER, scene.server.name), clients.namespace, passages)
        )
        if scene.signalling is not None:
            place = on(SERVER, scene.signalling.name)
            processes = scene.signalling.processes
            proxy = signalling.proxy(
                "kamailio", [ADDRESSES[SERVER]], place, processes, media=_media_control(scene)
            )
            stack.enter_context(proxy)
        for neighbour in scene.neighbours:
            for number in range(neighbour.threads):
                name = f"{group_names[neighbour.name]}-{number}"
                pace = (str(neighbour.run_ns), str(neighbour.idle_ns))
                command = [sys.executable, "-c", COMPUTE, *pace]
                stack.enter_context(process(name, command, on(SERVER, neighbour.name)))
        load_average = os.getloadavg()[0]
        usage = _Usage(made, group_names)
        watch = _Watch(made, group_names, recording)
        sample = 1 if with_passages else scene.calls.sample
        parties, sip, used = _converse(scene, str(path), server, clients, usage, watch, sample)
        report: SceneReport = {
            "calls": parties["calls"],
            "load": parties["load"],
            "sink": parties["sink"],
            "relay": server.report(),
            "signalling": sip,
            "packets": np.fromfile(files / PACKETS, PACKET),
            "elapsed_ns": used["elapsed_ns"],
            "cpu_ns": used["cpu_ns"],
            "load_average": load_average,
        }
        if watch.is_wanted:
            report["seen"] = watch.seen
        if passages is not None:
            is_written = passages.exists()
            report["passages"] = np.fromfile(passages, PASSAGE) if is_written else NO_PASSAGES
    return report


@dataclass
class Seen:
    """What the kernel was asked during a run."""

    begin_ns: int = 0
    """CLOCK_MONOTONIC when the calls were told to begin."""
    threads: dict[str, list[int]] = field(default_factory=dict)
    """The threads of each domain."""
    phones: list[int] = field(default_factory=list)
    """The threads that send and receive the calls' voice."""
    untraced: str = ""
    """Why there is no recording, if there is none."""


class _Watch:
    """Records who has the CPUs while the calls are, if a file for it is given."""

    def __init__(self, made: Groups, names: dict[str, str], recording: Path | None) -> None:
        self._made, self._names, self._recording = made, names, recording
        self._stack = ExitStack()
        self._instance: Path | None = None
        self.seen = Seen()

    @property
    def is_wanted(self) -> bool:
        return self._recording is not None

    @contextmanager
    def recorded(self, duration_ns: int, parties: int) -> Iterator[None]:
        """Records while this is entered; `parties` is the phones' process."""
        if self._recording is None:
            yield
            return
        with self._stack:
            try:
                self._instance = self._stack.enter_context(tracefs.traced(_kib_of(duration_ns)))
            except InputError as error:
                self.seen.untraced = str(error)
            # Those that only begin to run later are none of the domains'.
            self.seen.threads = {
                name: self._made.threads(group) for name, group in self._names.items()
            }
            self.seen.phones = _threads_of(parties)
            self.seen.begin_ns = time.monotonic_ns()
            yield
            if self._instance is not None:
                try:
                    tracefs.save(self._instance, self._recording)
                except InputError as error:
                    self.seen.untraced = str(error)


def _kib_of(duration_ns: int) -> int:
    """The buffer of a CPU for so long. Raises InputError if that is too much memory."""
    kib = tracefs.buffer_kib(duration_ns / 1e9)
    if kib > BUFFER_KIB_MAX or kib * (os.cpu_count() or 1) > BUFFERS_KIB_MAX:
        raise InputError(
            f"the events of {duration_ns / 1e9:g} s take {kib / 1024:,.0f} MiB of memory for each "
            "CPU",
            "trace a shorter run",
        )
    return kib


def _threads_of(process: int) -> list[int]:
    return sorted(int(path.name) for path in Path(f"/proc/{process}/task").iterdir())


class _Usage:
    """What each domain has had of the CPUs since this was made or begun anew."""

    def __init__(self, made: Groups, names: dict[str, str]) -> None:
        self._made, self._names = made, names
        self.begin()

    def begin(self) -> None:
        self._at_ns, self._before_ns = time.monotonic_ns(), self._read()

    def report(self) -> Used:
        # No CPU time is counted of another time than the one that is told.
        now_ns = self._read()
        elapsed_ns = time.monotonic_ns() - self._at_ns
        used_ns = {name: now_ns[name] - before_ns for name, before_ns in self._before_ns.items()}
        return {"elapsed_ns": elapsed_ns, "cpu_ns": used_ns}

    def _read(self) -> dict[str, int]:
        return {name: self._made.cpu_ns(group) for name, group in self._names.items()}


def _media_control(scene: Scene) -> signalling.MediaControl | None:
    """Where the proxy tells the media server of calls; None if they have no voice."""
    if not scene.has_voice_by_sip:
        return None
    transcode = scene.server.transcode and scene.server.program == RTPENGINE
    flags = TRANSCODED_BY_KAMAILIO if transcode else ""
    return signalling.MediaControl(f"{ADDRESSES[SERVER]}:{CONTROL_PORT}", flags)


def _converse(
    scene: Scene,
    path: str,
    server: MediaServer,
    clients: Place,
    usage: _Usage,
    watch: _Watch,
    sample: int,
) -> tuple[PartiesReport, Counted | None, Used]:
    """Lets the calls be, for their time; what the parties say, what SIPp counted, what was used."""
    calls = scene.calls
    command = [path, "calls", "--json", f"--playout={calls.playout_ns} ns"]
    command += ["--packets", str(clients.files / PACKETS), f"--sample={sample}"]
    command += [f"--senders={1 + calls.at_once // CALLS_PER_SENDER}"]
    command += [f"--duration={calls.duration_ns} ns", f"--tick={TICK}"]
    traffic = scene.traffic
    with (
        _pipe() as (orders_out, orders_in),
        process(PARTIES, command, clients, stdin=orders_out) as parties,
        _first(),
        ExitStack() as stack,
    ):
        registrations = users = None
        if traffic is not None:
            registrations = signalling.register(traffic, clients)
            # Orders about media that nobody waits for go nowhere.
            orders = f"/proc/{os.getpid()}/fd/{orders_in}" if scene.has_voice_by_sip else os.devnull
        events = sorted(_events(scene))
        phones = _Phones(server, orders_in)
        for event in events:
            if event.at_ns == 0:
                phones.connect(event.call)
        for event in events:
            if event.at_ns == 0:
                phones.handle(event)
        stack.enter_context(watch.recorded(calls.duration_ns, parties.popen.pid))
        usage.begin()
        if traffic is not None:
            users = stack.enter_context(signalling.users(traffic, clients, orders))
        begin_s = time.monotonic()
        # From here on the parties go by their own clock, and end by it.
        phones.begin()
        for event in events:
            if event.at_ns > 0:
                _sleep_until(begin_s + event.at_ns / 1e9)
                phones.handle(event)
        _sleep_until(begin_s + calls.duration_ns / 1e9)
        used = usage.report()
        placed = None if users is None else users.stop()
        report: PartiesReport = json.loads(parties.finish(calls.duration_ns / 1e9 + END_S_MAX))
    if placed is not None and scene.has_voice_by_sip:
        # To the microsecond, where SIPp's clock has the kernel's ticks.
        placed["setup"] = report["calls"]["setup"]
    sip: Counted | None = placed and {"registrations": registrations, "calls": placed}
    return report, sip, used


@contextmanager
def _first() -> Iterator[None]:
    """Puts this process before all that is not real-time, as far as that is allowed.

    Neighbours that compute would keep it waiting otherwise. What it starts is not put there.
    """
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        # Calls last as long as they are to all the same; `duration` says if they did not.
        yield
        return
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _sleep_until(time_s: float) -> None:
    time.sleep(max(0.0, time_s - time.monotonic()))


class _Step(IntEnum):
    """What happens to a call that is not set up by SIP."""

    SPEAK = 0
    END = 1
    FORGET = 2


@dataclass(frozen=True, order=True)
class _Event:
    at_ns: int
    call: int
    step: _Step
    party: int


def _events(scene: Scene) -> Iterator[_Event]:
    """What happens to calls that nobody sets up."""
    duration_ns = scene.calls.duration_ns
    for each in scene.parties():
        yield _Event(each.begin_ns, each.call, _Step.SPEAK, each.party)
        ends = ((each.end_ns, _Step.END), (each.end_ns + LAST_PACKETS_NS, _Step.FORGET))
        for at_ns, step in ends:
            if each.party == 0 and at_ns < duration_ns:
                yield _Event(at_ns, each.call, step, each.party)


class _Phones:
    """Those who call and are called where nobody sets calls up."""

    def __init__(self, server: MediaServer, orders: int) -> None:
        self._server, self._orders = server, orders
        self._ways: dict[int, tuple[Media, Media]] = {}

    def connect(self, call: int) -> None:
        """Tells the media server of a call, once, and both parties to listen."""
        if call in self._ways:
            return
        caller, callee = _parties(call)
        self._ways[call] = self._server.connect(f"call-{call}", caller, callee)
        for party in (caller, callee):
            self._order(f"open call-{call} {party.address}:{party.port}")

    def handle(self, event: _Event) -> None:
        call = f"call-{event.call}"
        if event.step == _Step.SPEAK:
            self.connect(event.call)
            local, to = _parties(event.call)[event.party], self._ways[event.call][event.party]
            way = f"{local.address}:{local.port} {to.address}:{to.port}"
            self._order(f"send {call} {way} {to.payload_type}")
        elif event.step == _Step.END:
            self._order(f"end {call}")
        else:
            self._server.disconnect(call)

    def begin(self) -> None:
        """All that was told to speak does, for the time of the run."""
        self._order("begin")

    def _order(self, line: str) -> None:
        os.write(self._orders, f"{line}\n".encode())


def _parties(call: int) -> tuple[Media, Media]:
    """Where caller and callee receive."""
    caller, callee = signalling.ports(call)
    return Media(ADDRESSES[CLIENT], caller, PCMU), Media(ADDRESSES[CLIENT], callee, PCMU)


@contextmanager
def _pipe() -> Iterator[tuple[int, int]]:
    """Both ends stay open: who writes after the reader's end is not to be killed by that."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)
