"""Writes docs/results/media-failures.md: what calls lose when the host of their media server dies.

.venv/bin/python tools/pages/media_failures.py

The field's answer, two instances of rtpengine that share a Redis and an address, is beside the
protected virtual machines of `laxity protect`. It takes about seven minutes, as root, on a machine
that should do nothing else.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from laxity.appliances import image
from laxity.errors import InputError
from laxity.namespaces.network import (
    BRIDGE,
    CLIENT,
    CLIENT_ADDRESS,
    GUEST_ADDRESS,
    UPLINK,
    Machine,
    switch,
)
from laxity.namespaces.process import Place, process, require
from laxity.servers.control import Control, socket_in
from laxity.servers.media_server import CONTROL_PORT, RTPENGINE, TRANSCODED
from laxity.servers.media_server import PACKAGES as MEDIA_PACKAGES
from laxity.site import protected
from media_parties import SEQUENCE_NUMBERS, TIMESTAMPS, Conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from media_parties import Party

    Row = tuple[str, Callable[[Sequence["Loss"]], str]]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "results" / "media-failures.md"

PACKAGES = {**MEDIA_PACKAGES, "redis-server": "redis-server", "openssl": "openssl"}
REDIS_PORT = 6379
ACTIVE, STANDBY, STORE = "active", "standby", "store"
MACHINES = {ACTIVE: "192.0.2.51", STANDBY: "192.0.2.52", STORE: "192.0.2.60"}
MEDIA_ADDRESS = "192.0.2.41"
"""The address that moves."""
ADVERTISEMENT_S, PRIORITY = 1.0, 100
"""keepalived's defaults for `advert_int` and `priority`."""
VRRP_S = 3 * ADVERTISEMENT_S + (256 - PRIORITY) / 256 * ADVERTISEMENT_S
"""When the standby of VRRP takes over (RFC 9568, 6.1: Active_Down_Interval), in s."""
MEMORY_MIB = {image.MEDIA: 128, image.RTPENGINE: 512}
READY_S_MAX = 600.0
"""What takes longer is taken for hung."""

NO_FLAGS: Mapping[str, object] = {}
MS_NS = 1_000_000
SAMPLES_A_MS = 8
ENOUGH = 100
"""Packets that each party hears before a failure."""
AFTER_S = 20.0
"""How long there is speech after a failure."""
RUNS = 3


@dataclass(frozen=True)
class Failed:
    """When a host died."""

    killed_ns: int
    noticed_ns: int
    """When a survivor begins to take over."""

    @property
    def silent_ns(self) -> int:
        """An instant at which neither the host nor a survivor speaks."""
        return (self.killed_ns + self.noticed_ns) // 2

    @property
    def waited_ns(self) -> int:
        """How long nobody takes over."""
        return self.noticed_ns - self.killed_ns


@dataclass(frozen=True)
class Costs:
    """What a protected media server costs its host, while there are calls."""

    root_bytes: int
    """Size of the files of the appliance."""
    memory_mib: int
    ready_s: float
    """From the start of the hosts until the guest is protected, and its media server answers."""
    pause_ns: int
    """The median of the guest's pauses."""
    pause_ns_p99: int
    interval_ns: int
    pages: int
    """Changed pages in the last checkpoint."""


@dataclass(frozen=True)
class Scene:
    """A media server whose host will die."""

    place: Place
    """Where the parties are, at `CLIENT_ADDRESS`."""
    control: Control
    kill: Callable[[], None]
    notice: Callable[[], int]
    """Waits until a survivor takes over; when it began to, in ns of the monotonic clock."""
    take_over: Callable[[], None] = lambda: None
    """What this program does then, if nobody else does."""
    costs: Callable[[], Costs] | None = None
    kept: Callable[[str], bytes] = lambda _: b""
    """What a server elsewhere keeps of a call."""

    def fail(self) -> Failed:
        """Kills the host, and returns when somebody takes over."""
        killed_ns = time.monotonic_ns()
        self.kill()
        failed = Failed(killed_ns, self.notice())
        self.take_over()
        return failed


def _in(namespace: Path, *command: str) -> None:
    entered = ["nsenter", f"--net={namespace}", *command]
    subprocess.run(entered, check=True, capture_output=True)


def _announce(namespace: Path, address: str) -> None:
    """Says to all that an address is here now, as keepalived does (RFC 5227, 3)."""
    broadcast, protocol, of_ipv4, request = b"\xff" * 6, 0x0806, 0x0800, 1
    with closing(socket_in(namespace, socket.SOCK_RAW, socket.AF_PACKET)) as saying:
        saying.bind((BRIDGE, 0))
        own, ip = saying.getsockname()[4], IPv4Address(address).packed
        frame = struct.pack("!6s6sH", broadcast, own, protocol)
        frame += struct.pack("!HHBBH6s4s6s4s", 1, of_ipv4, 6, 4, request, own, ip, bytes(6), ip)
        saying.send(frame)


@contextmanager
def shared_redis(files: Path, detection_s: float) -> Iterator[Scene]:
    """Two instances of rtpengine, each told by Redis of the other's calls, with one address.

    https://github.com/sipwise/rtpengine/wiki/Redis-keyspace-notifications describes this: each has
    a database of its own, and subscribes to the other's. The standby of VRRP is this program, which
    waits for `detection_s`, gives the address to the survivor, and announces it.
    """
    require(PACKAGES)
    machines = [Machine(name, [IPv4Interface(f"{each}/24")]) for name, each in MACHINES.items()]
    with ExitStack() as stack:
        spaces = stack.enter_context(switch([IPv4Interface(f"{CLIENT_ADDRESS}/24")], machines))
        places = {name: Place(space, files=files) for name, space in spaces.items()}
        redis = ["redis-server", "--bind", MACHINES[STORE], "--port", str(REDIS_PORT)]
        redis += ["--save", "", "--protected-mode", "no", "--notify-keyspace-events", "AKE"]
        stack.enter_context(process(STORE, redis, places[STORE]))
        running = {}
        for own, other, name in ((1, 2, ACTIVE), (2, 1, STANDBY)):
            # An instance that does not reach Redis at once ends.
            await_(partial(_reaches_redis, places[name]), f"{name} does not reach Redis")
            # Sockets are bound to the address before it is here.
            _in(spaces[name], "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind")
            listen = f"{MACHINES[name]}:{CONTROL_PORT}"
            command = [RTPENGINE, "--table=-1", f"--interface={MEDIA_ADDRESS}"]
            command += [f"--listen-ng={listen}", f"--redis={MACHINES[STORE]}:{REDIS_PORT}/{own}"]
            command += [f"--subscribe-keyspace={other}", "--active-switchover", "--num-threads=1"]
            command += ["--foreground", "--log-stderr", f"--pidfile={files / name}.pid"]
            running[name] = stack.enter_context(process(name, command, places[name]))
            running[name].wait_for_port(CONTROL_PORT)
        address = ("ip", "address", "add", f"{MEDIA_ADDRESS}/24", "dev", BRIDGE)
        _in(spaces[ACTIVE], *address)
        control = Control(spaces[CLIENT], MACHINES[ACTIVE], CONTROL_PORT)
        stack.enter_context(closing(control))

        def kill() -> None:
            os.killpg(running[ACTIVE].popen.pid, signal.SIGKILL)
            _in(spaces[ACTIVE], "ip", "link", "set", UPLINK, "down")

        def notice() -> int:
            time.sleep(detection_s)
            return time.monotonic_ns()

        def take_over() -> None:
            _in(spaces[STANDBY], *address)
            _announce(spaces[STANDBY], MEDIA_ADDRESS)

        def kept(call: str) -> bytes:
            with closing(socket_in(spaces[CLIENT], socket.SOCK_STREAM)) as asking:
                asking.connect((MACHINES[STORE], REDIS_PORT))
                asking.sendall(f"SELECT 1\r\nGET {call}\r\nQUIT\r\n".encode())
                with asking.makefile("rb") as answer:
                    # rtpengine writes octets that are no text as in addresses of the web.
                    return unquote_to_bytes(answer.read())

        yield Scene(places[CLIENT], control, kill, notice, take_over, kept=kept)


def _reaches_redis(place: Place) -> bool:
    with closing(socket_in(place.namespace, socket.SOCK_STREAM)) as asking:
        return asking.connect_ex((MACHINES[STORE], REDIS_PORT)) == 0


@contextmanager
def protected_guest(
    appliance: str, files: Path, arguments: str = "", detection_s: float | None = None
) -> Iterator[Scene]:
    """A media server in a virtual machine that `laxity protect` keeps, in mode `no-net`."""
    made = image.build(appliance, files / "appliance", lambda _: None)
    memory_mib, (first, second) = MEMORY_MIB[appliance], protected.HOSTS
    begun_s = time.monotonic()
    arguments = f"control_from={CLIENT_ADDRESS} {arguments}"
    begun = protected.site(
        files, "no-net", made, arguments, memory_mib=memory_mib, detection_s=detection_s
    )
    with (
        begun as site,
        closing(Control(site.place.namespace, GUEST_ADDRESS, CONTROL_PORT)) as control,
    ):
        control.ask("ping")
        ready_s = time.monotonic() - begun_s

        def costs() -> Costs:
            status = site.wait_for(first, "protected")
            return Costs(
                root_bytes=made.root.stat().st_size,
                memory_mib=memory_mib,
                ready_s=ready_s,
                pause_ns=status["pause"]["p50_ns"],
                pause_ns_p99=status["pause"]["p99_ns"],
                interval_ns=status["interval_ns"] or 0,
                pages=status["last_pages"],
            )

        kill, notice = partial(site.kill, first), partial(site.wait_for_takeover, second)
        yield Scene(site.place, control, kill, notice, costs=costs)


@dataclass(frozen=True)
class Kind:
    """A kind of calls."""

    name: str
    is_secured: bool = False
    is_transcoded: bool = False
    first: int = 1
    """The sequence number of the first packet."""


RELAY = Kind("relay")
DTLS = Kind("dtls", is_secured=True)
# Sequence numbers begin anywhere (RFC 3550, 5.1), and again at 0 every 22 minutes.
DTLS_LATER = Kind("dtls-later", is_secured=True, first=SEQUENCE_NUMBERS - ENOUGH // 2)
TRANSCODING = Kind("transcoding", is_transcoded=True)
KINDS = (RELAY, DTLS, DTLS_LATER, TRANSCODING)


@dataclass(frozen=True)
class Loss:
    """What a party of a call noticed of a failure."""

    silence_ns: int | None
    """From the last packet before it to the first one after it; None if no other one is heard."""
    waited_ns: int
    """From that last packet until somebody takes over."""
    lost: int
    """Packets that were sent and not heard."""
    not_understood: int
    """Packets that came afterwards and were not heard all the same."""
    has_new_source: bool
    """Whether it is another SSRC afterwards."""
    timestamp_ahead_ms: int
    """How much timestamps advance more than the clock does meanwhile."""
    handshakes: int
    """How often a new handshake of DTLS was begun afterwards."""
    is_key_kept: bool
    """Whether a server elsewhere has its key, in the clear."""

    @property
    def comes_back(self) -> bool:
        """Whether it heard anything afterwards."""
        return self.silence_ns is not None


def loss(party: Party, other: Party, failed: Failed, kept: bytes) -> Loss:
    """What a party noticed, whom the other one spoke to; `kept` is there of its call elsewhere."""
    before = [each for each in party.heard if each.arrived_ns < failed.silent_ns][-1]
    after = next((each for each in party.heard if each.arrived_ns >= failed.silent_ns), None)
    silence_ns, ahead_ms = None, 0.0
    if after is not None:
        silence_ns = after.arrived_ns - before.arrived_ns
        # What was before the last checkpoint may come once more.
        samples = (after.timestamp - before.timestamp + TIMESTAMPS // 2) % TIMESTAMPS
        samples -= TIMESTAMPS // 2
        ahead_ms = samples / SAMPLES_A_MS - silence_ns / MS_NS
    return Loss(
        silence_ns=silence_ns,
        waited_ns=failed.noticed_ns - before.arrived_ns,
        lost=other.sent - len(party.heard),
        not_understood=sum(ns > failed.silent_ns for ns in party.not_understood_ns),
        has_new_source=after is not None and after.source != before.source,
        timestamp_ahead_ms=round(ahead_ms),
        handshakes=sum(ns > failed.silent_ns for ns in party.hellos_ns),
        is_key_kept=party.secured is not None and party.secured.key in kept,
    )


@contextmanager
def talking(scene: Scene, kinds: Sequence[Kind]) -> Iterator[Conversation]:
    """A call of each kind, whose parties hear each other."""
    with Conversation(scene.place, CLIENT_ADDRESS, scene.control) as conversation:
        for kind in kinds:
            conversation.call(
                kind.name,
                TRANSCODED if kind.is_transcoded else {},
                is_secured=kind.is_secured,
                first=kind.first,
            )
        conversation.talk()
        parties = conversation.parties
        await_(lambda: all(len(each.heard) > ENOUGH for each in parties), "nobody is heard")
        yield conversation


def await_(is_so: Callable[[], bool], complaint: str) -> None:
    """Waits for something to be so. Raises InputError with the complaint if it is not in time."""
    until_s = time.monotonic() + READY_S_MAX
    while not is_so():
        if time.monotonic() > until_s:
            raise InputError(complaint)
        time.sleep(0.05)


def losses(
    scene: Scene, conversation: Conversation, failed: Failed
) -> dict[str, tuple[Loss, Loss]]:
    """What caller and callee of each kind of calls noticed, which are silent afterwards."""
    conversation.hush()
    found = {}
    for call in conversation.calls:
        (caller, callee), kept = call.parties, scene.kept(call.kind)
        found[call.kind] = loss(caller, callee, failed, kept), loss(callee, caller, failed, kept)
    return found


@dataclass(frozen=True)
class Column:
    """A column of the page: runs of a media server, each of which has some kinds of calls."""

    name: str
    runs: Sequence[tuple[Callable[[Path], AbstractContextManager[Scene]], Sequence[Kind]]]


COLUMNS = (
    Column("rtpengine and Redis", [(partial(shared_redis, detection_s=VRRP_S), KINDS)]),
    Column(
        "Laxity's, protected",
        [
            (partial(protected_guest, image.MEDIA), (RELAY, DTLS, DTLS_LATER)),
            (partial(protected_guest, image.MEDIA, arguments="transcode=1"), (TRANSCODING,)),
        ],
    ),
    Column("rtpengine, protected", [(partial(protected_guest, image.RTPENGINE), KINDS)]),
)

HEAD = """\
# Media servers that fail: rtpengine with Redis, and protected virtual machines

Written by `make results-media-failures` on {cpus} CPUs; load average {before:.1f} before and
{after:.1f} after, of which the guests themselves are about 1. {runs} failures of each; where there
are two times, they are the median and the longest.

A call of each kind is set up by the ng protocol, and each of its two parties sends a packet of
20 ms to the other through the media server. Then the media server's host is killed (SIGKILL, and
its link is down), and the parties speak for {after_s:g} s more.

- **rtpengine and Redis** is how rtpengine's [own
  documentation](https://github.com/sipwise/rtpengine/wiki/Redis-keyspace-notifications) makes it
  redundant: two instances without the kernel module, each with a database of one Redis and
  subscribed to the other's (`--subscribe-keyspace`, `--active-switchover`), both with the address
  of the media server, which only the active one has. They are in network namespaces. The survivor
  gets the address, and announces it by ARP, {vrrp_s:.2f} s after the failure: what VRRP takes with
  keepalived's defaults (advertisements every {advertisement_s:g} s, priority {priority}).
- **Laxity's, protected** and **rtpengine, protected** are the appliances `media` and `rtpengine` in
  an emulated guest (TCG) with `laxity protect` in mode `no-net`, with its defaults: the standby
  waits for a sign of life, and for the end of its primary's
  [lease](../explanation/protection.md#the-lease-in-no-net-mode), so that nobody hears both. Both
  are the longer the more unevenly the hosts heard each other before.

Debian's packages are {rtpengine} and {redis}.

*Waited for* is no property of the media server: it lasts until the standby says that it takes over.
keepalived can send more often, and nothing keeps two rtpengines from being heard at once if the
first one is only cut off from the other's keepalived.
"""

SECTION = """
## {title}

{text}

|{names}|
|---|{bars}
{rows}
"""

COSTS = """
## What a protected media server costs

Medians over the runs, with the calls of this page. The libraries of rtpengine's codecs are most of
its files, which an appliance has in its memory. A guest stands still in each pause; checkpoints
are taken less often where pauses are long.

|{names}|
|---|{bars}
{rows}
"""

TEXTS = {
    RELAY: ("Plain voice", "RTP in the clear, which the server passes on."),
    DTLS: (
        "DTLS-SRTP",
        (
            "rtpengine is the other end of each party's DTLS, and decrypts and encrypts. Laxity's"
            " media server passes on what comes, so that the parties are each other's ends. The"
            " caller waits for a handshake, and the callee begins it. Parties are OpenSSL and"
            " libsrtp; neither takes part in a second handshake that nobody has told it of in SIP."
        ),
    ),
    DTLS_LATER: (
        "DTLS-SRTP, once sequence numbers have begun anew",
        (
            "The same, where the 16 bits of sequence numbers have overflowed before the failure."
            " With 50 packets a second that happens to every call within 22 minutes. SRTP counts"
            " the overflows (RFC 3711, 3.3.1), and whoever does not know the count cannot prove or"
            " read a packet."
        ),
    ),
    TRANSCODING: ("Transcoding", "One party speaks G.711 in mu-law, and the other one in A-law."),
}


def _times(losses_: Sequence[Loss], ns: Callable[[Loss], int | None]) -> str:
    """The median and the longest, in ms."""
    found = [each for each in map(ns, losses_) if each is not None]
    if len(found) < len(losses_):
        return "for good"
    return f"{median(found) / MS_NS:,.0f}, {max(found) / MS_NS:,.0f}"


def _some(count: int, losses_: Sequence[Loss]) -> str:
    return f"{count} of {len(losses_)}"


ROWS: Sequence[Row] = (
    ("parties that hear speech again", lambda of: _some(sum(it.comes_back for it in of), of)),
    ("silence, ms", lambda of: _times(of, lambda it: it.silence_ns)),
    ("waited for, ms", lambda of: _times(of, lambda it: it.waited_ns)),
    (
        "after that, ms",
        lambda of: _times(of, lambda it: it.silence_ns and it.silence_ns - it.waited_ns),
    ),
    ("packets lost, at most", lambda of: str(max(it.lost for it in of))),
    (
        "packets that come and cannot be read, at most",
        lambda of: str(max(it.not_understood for it in of)),
    ),
    ("parties that hear another SSRC", lambda of: _some(sum(it.has_new_source for it in of), of)),
    (
        "timestamps ahead of the clock, ms",
        lambda of: (
            " to ".join(
                f"{each(it.timestamp_ahead_ms for it in of if it.comes_back)}"
                for each in (min, max)
            )
            if any(it.comes_back for it in of)
            else ""
        ),
    ),
)
SECURED_ROWS: Sequence[Row] = (
    *ROWS,
    (
        "parties that are to shake hands anew",
        lambda of: _some(sum(it.handshakes > 0 for it in of), of),
    ),
    (
        "parties whose key is elsewhere, too, in the clear",
        lambda of: _some(sum(it.is_key_kept for it in of), of),
    ),
)


@dataclass(frozen=True)
class Found:
    """What a column's runs showed."""

    losses: dict[str, list[Loss]]
    """What the parties of each kind of calls noticed."""
    costs: list[Costs]


def measure(column: Column) -> Found:
    """Runs all of a column."""
    found = Found({}, [])
    for begin, kinds in column.runs:
        for _ in range(RUNS):
            with (
                tempfile.TemporaryDirectory(prefix="laxity-") as files,
                begin(Path(files)) as scene,
                talking(scene, kinds) as conversation,
            ):
                if scene.costs is not None:
                    found.costs.append(scene.costs())
                failed = scene.fail()
                time.sleep(AFTER_S)
                for kind, noticed in losses(scene, conversation, failed).items():
                    found.losses.setdefault(kind, []).extend(noticed)
    return found


def _section(kind: Kind, found: dict[str, Found]) -> str:
    title, text = TEXTS[kind]
    rows = []
    for name, of in SECURED_ROWS if kind.is_secured else ROWS:
        cells = [of(each.losses[kind.name]) for each in found.values()]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return SECTION.format(
        title=title,
        text="\n".join(wrap(text, 100)),
        names=" | ".join([" ", *found]) + " ",
        bars="---:|" * len(found),
        rows="\n".join(rows),
    )


COST_ROWS: Sequence[tuple[str, Callable[[Costs], float], str]] = (
    ("files of the appliance, MiB", lambda it: it.root_bytes / 2**20, ".0f"),
    ("memory of the guest, MiB", lambda it: it.memory_mib, ".0f"),
    ("from the start until protected and ready for calls, s", lambda it: it.ready_s, ".1f"),
    ("pause of the guest for a checkpoint, median, ms", lambda it: it.pause_ns / MS_NS, ".1f"),
    ("the same, 99th percentile, ms", lambda it: it.pause_ns_p99 / MS_NS, ".1f"),
    ("interval of checkpoints, ms", lambda it: it.interval_ns / MS_NS, ".0f"),
    ("pages of 4 KiB that change in an interval", lambda it: it.pages, ".0f"),
)


def _costs(found: dict[str, Found]) -> str:
    """Medians over the runs, of each protected media server."""
    columns = {name: each.costs for name, each in found.items() if each.costs}
    rows = []
    for name, of, form in COST_ROWS:
        cells = [format(median(map(of, costs)), form) for costs in columns.values()]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return COSTS.format(
        names=" | ".join([" ", *columns]) + " ",
        bars="---:|" * len(columns),
        rows="\n".join(rows),
    )


def _version(package: str) -> str:
    words = ["dpkg-query", "--show", "--showformat=${Version}", package]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return f"{package} {done.stdout}"


def main() -> None:
    """Writes the page."""
    before = os.getloadavg()[0]
    found = {column.name: measure(column) for column in COLUMNS}
    head = HEAD.format(
        cpus=os.cpu_count(),
        before=before,
        after=os.getloadavg()[0],
        runs=RUNS,
        after_s=AFTER_S,
        rtpengine=_version("rtpengine-daemon"),
        redis=_version("redis-server"),
        vrrp_s=VRRP_S,
        advertisement_s=ADVERTISEMENT_S,
        priority=PRIORITY,
    )
    PAGE.write_text(head + "".join(_section(kind, found) for kind in KINDS) + _costs(found))


if __name__ == "__main__":
    main()
