"""Real SIP: Kamailio is registrar and proxy, SIPp the users; and what SIPp counted."""

from __future__ import annotations

import csv
import math
import secrets
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from laxity.errors import InputError
from laxity.namespaces.network import ADDRESSES, CLIENT, SERVER
from laxity.namespaces.process import END_S_MAX, START_S_MAX, Place, Process, process
from laxity.servers.addresses import family, literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from laxity.media_schema import Quantiles
    from laxity.results.measured import Placed, Registered
    from laxity.servers.identity import Identity
    from laxity.servers.users import Accounts

PROGRAMS = {
    "kamailio": "kamailio",
    "sipp": "sip-tester",
    "chrt": "util-linux",
    "unshare": "util-linux",
}
"""With their Debian packages."""
FILES = Path(__file__).parent / "sip"
SIP_PORT, TLS_PORT, REGISTER_PORT, CALLEE_PORT, CALLER_PORT = 5060, 5061, 5062, 5070, 5080
CONNECTIONS = 2_000
"""Connections of SIP over TCP and TLS that a Kamailio has at a time."""
MEMORY_MIB, TLS_MEMORY_MIB = 96, 320
"""Kamailio's memory without TLS and with it, of which these connections take less than a half.

A connection takes up to 16 KiB over TCP and up to 75 KiB over TLS, until it has been set up.
"""
REGISTER_RATE = 100
"""Users that register a second."""
STATISTICS_S = 1
"""Between two of SIPp's dumps: its least."""
WATCHDOG_TRIGGERS_MAX = 1_000_000
ENDURING = tuple(
    word
    for kind in ("minor", "major")
    for word in (f"-watchdog_{kind}_maxtriggers", str(WATCHDOG_TRIGGERS_MAX))
)
"""SIPp gives up where it is kept waiting for a CPU too often; here somebody always is."""
MEDIA_PORT, MEDIA_PORT_LAST = 10_000, 32_766
"""The parties' ports, below those that the kernel gives out by itself."""
CALLS_MAX = (MEDIA_PORT_LAST - MEDIA_PORT) // 4
"""At once: each has two parties, and RTP an even port (RFC 3550, section 11)."""


@dataclass(frozen=True)
class Traffic:
    """What the users do."""

    calls: int
    """That are placed."""
    rate_per_s: float
    hold_ns: int
    first: int = 0
    """The number of the first, which says what ports it has; see `ports`."""

    @property
    def users(self) -> int:
        """That register to be called: one for each call in progress at once."""
        return min(self.calls, CALLS_MAX, math.ceil(self.rate_per_s * self.hold_ns / 1e9) + 1)


@dataclass(frozen=True)
class MediaControl:
    """Where the proxy tells a media server of calls."""

    address: str
    offer_flags: str = ""
    """For the offer, as Kamailio's module rtpengine takes them."""


def ports(call: int) -> tuple[int, int]:
    """The ports of caller's and callee's media; after `CALLS_MAX` calls they come again."""
    first = MEDIA_PORT + 4 * (call % CALLS_MAX)
    return first, first + 2


@contextmanager
def proxy(
    name: str,
    addresses: Iterable[str],
    place: Place,
    processes: int = 1,
    *,
    media: MediaControl | None = None,
    accounts: Accounts | None = None,
    ringing_ms: int | None = None,
    identity: Identity | None = None,
) -> Iterator[Process]:
    """Kamailio as registrar and proxy, for as long as it is needed.

    `media` is a server to be put between parties. Without `accounts` nobody has to prove anything.
    With an `identity` it serves balancers over TLS, too.
    """
    definitions = {"SECRET": f'"{secrets.token_hex(16)}"'}
    if media is not None:
        definitions |= {
            "MEDIA_CONTROL": f'"udp:{media.address}"',
            "OFFER_FLAGS": f'"replace-origin {media.offer_flags}"',
            "ANSWER_FLAGS": '"replace-origin"',
        }
    if accounts is not None:
        directory = place.files / f"{name}-users"
        accounts.write(directory)
        definitions |= {"USERS": f'"text://{directory}"', "REALM": f'"{accounts.realm}"'}
    if ringing_ms is not None:
        definitions["RINGING_MS"] = str(ringing_ms)
    if identity is not None:
        definitions |= {
            "CERTIFICATE": f'"{identity.certificate}"',
            "KEY": f'"{identity.key}"',
        }
    with _kamailio(
        *("kamailio.cfg", name, addresses, definitions, place),
        processes=processes,
        has_tls=identity is not None,
    ) as started:
        yield started


@dataclass(frozen=True)
class Tls:
    """What a balancer needs for SIP over TLS."""

    identity: Identity
    """What it shows to clients."""
    servers: Path
    """The certificates of the signalling servers, beside which it believes none."""

    def configuration(self) -> str:
        """The configuration of Kamailio's module tls."""
        return f"""[server:default]
method = TLSv1.2+
certificate = {self.identity.certificate}
private_key = {self.identity.key}

[client:default]
method = TLSv1.2+
verify_certificate = yes
require_certificate = yes
ca_list = {self.servers}
"""


@contextmanager
def balancer(
    name: str,
    addresses: Iterable[str],
    servers: Iterable[str],
    place: Place,
    processes: int = 1,
    *,
    tls: Tls | None = None,
) -> Iterator[Process]:
    """Kamailio that passes each user's requests to one of the servers, and remembers nothing.

    Servers are given by their addresses, everywhere in the same order; if they have addresses of
    both families, then by all of them.
    """
    destinations = place.files / f"{name}.list"
    groups = {socket.AF_INET: 1, socket.AF_INET6: 2}
    lines = (f"{groups[family(each)]} sip:{literal(each)}:{SIP_PORT}\n" for each in servers)
    destinations.write_text("".join(lines))
    definitions = {"DESTINATIONS": f'"{destinations}"'}
    if tls is not None:
        configuration = place.files / f"{name}-tls.cfg"
        configuration.write_text(tls.configuration())
        definitions["TLS_FILE"] = f'"{configuration}"'
    with _kamailio(
        *("balancer.cfg", name, addresses, definitions, place),
        processes=processes,
        has_tls=tls is not None,
    ) as started:
        yield started


@contextmanager
def _kamailio(
    configuration: str,
    name: str,
    addresses: Iterable[str],
    definitions: Mapping[str, str],
    place: Place,
    *,
    processes: int,
    has_tls: bool,
) -> Iterator[Process]:
    """A Kamailio that listens, with what its configuration wants defined from outside."""
    files = place.files / name
    files.mkdir()
    limits = {"CHILDREN": processes, "CONNECTIONS": CONNECTIONS}
    transports, memory_mib = {"udp": SIP_PORT, "tcp": SIP_PORT}, MEMORY_MIB
    if has_tls:
        limits["TLS_CONNECTIONS"] = CONNECTIONS
        transports["tls"], memory_mib = TLS_PORT, TLS_MEMORY_MIB
    definitions = {**definitions, **{limit: str(value) for limit, value in limits.items()}}
    command = ["kamailio", "-f", str(FILES / configuration), "-DD", "-E", "-m", str(memory_mib)]
    for address in addresses:
        for transport, port in transports.items():
            command += ["-l", f"{transport}:{literal(address)}:{port}"]
    command += [word for option in ("-w", "-Y") for word in (option, str(files))]
    command += ["-P", str(files / "kamailio.pid")]
    command += [word for each in definitions.items() for word in ("-A", "=".join(each))]
    with process(name, command, place, own_processes=True) as started:
        started.wait_for_port(SIP_PORT)
        yield started


Transport = Literal["udp", "tcp", "tcp-each"]
"""SIP over UDP, over one TCP connection for all users, or over one for each user."""
SIPP_TRANSPORTS: dict[Transport, str] = {"udp": "u1", "tcp": "t1", "tcp-each": "tn"}


def register(traffic: Traffic, place: Place) -> Registered:
    """Registers the users of calls; what SIPp counted."""
    return registrations(traffic.users, REGISTER_RATE, place)


def registrations(
    users: int,
    rate_per_s: float,
    place: Place,
    *,
    server: str = ADDRESSES[SERVER],
    client: str = ADDRESSES[CLIENT],
    transport: Transport = "udp",
    password: str | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Registered:
    """Registers users, user0 and so on, at a steady rate; what SIPp counted.

    With the `password` of all they prove who they are, to a registrar that asks for it. `meanwhile`
    is called once the first have registered.
    """
    callee = f"{client}:{CALLEE_PORT}"
    scenario = "register" if password is None else "register-proved"
    proof = "" if password is None else "[authentication username={user} password={password}]"
    names = (f"user{user}" for user in range(users))
    lines = (f"{user};{callee};{proof.format(user=user, password=password)}" for user in names)
    _inject(place, scenario, lines)
    size = ["-m", str(users), "-r", str(round(1000 * rate_per_s)), "-rp", "1000000"]
    size += ["-t", SIPP_TRANSPORTS[transport]]
    if transport == "tcp-each":
        size += ["-max_socket", str(users + 10)]
    parties = {"server": server, "client": client}
    with _sipp(scenario, REGISTER_PORT, place, *size, **parties) as started:
        meanwhile()
        try:
            started.popen.wait(users / rate_per_s + END_S_MAX)
        except subprocess.TimeoutExpired:
            raise InputError("sipp did not register its users in time") from None
        counts = _counts(started)
        statistics = _statistics(started)
    return {
        "sent": counts["REGISTER_Sent"],
        "succeeded": counts["200_Recv"],
        "failed": statistics["FailedCall(C)"],
        "retransmissions": statistics["Retransmissions(C)"],
        "delay": quantiles(_response_times_ms(started, "register")),
    }


@dataclass(frozen=True)
class Users:
    """The processes that call and that are called."""

    caller: Process
    callee: Process

    def stop(self) -> Placed:
        """Places no more calls; what was counted of those that there were."""
        caller = self.caller
        if caller.is_running:
            caller.popen.send_signal(signal.SIGUSR1)
            _await_dump(caller)
        counts, statistics = _counts(caller), _statistics(caller)
        again = statistics["Retransmissions(C)"] + _statistics(self.callee)["Retransmissions(C)"]
        if counts["ACK_Sent"] == 0:
            what = f"of the calls that SIPp placed, none was answered ({counts['INVITE_Sent']})"
            raise InputError(what)
        return {
            "attempted": counts["INVITE_Sent"],
            "established": counts["ACK_Sent"],
            "failed": statistics["FailedCall(C)"],
            "retransmissions": again,
            "setup": quantiles(_response_times_ms(caller, "setup")),
            "disconnect": quantiles(_response_times_ms(caller, "disconnect")),
        }


@contextmanager
def users(
    traffic: Traffic,
    place: Place,
    orders: str,
    *,
    server: str = ADDRESSES[SERVER],
    client: str = ADDRESSES[CLIENT],
) -> Iterator[Users]:
    """Users that call and are called; they write of their media to the file `orders`."""
    free = CALLS_MAX - traffic.first
    both = [ports(traffic.first + call) for call in range(min(traffic.calls, free))]
    callers = (f"user{call % traffic.users};{port};" for call, (port, _) in enumerate(both))
    _inject(place, "caller", callers)
    _inject(place, "callee", (f"{port};" for _, port in both))
    log = ["-trace_logs", "-log_file", orders]
    pace = ["-m", str(traffic.calls), "-d", str(traffic.hold_ns // 1_000_000)]
    pace += ["-r", str(max(1, round(traffic.rate_per_s * 1000))), "-rp", "1000000"]
    pace += ["-l", str(CALLS_MAX)]
    # It would hang up on an INVITE that comes again, as one does where the machine is busy.
    patience = ["-default_behaviors", "all,-abortunexp"]
    parties = {"server": server, "client": client}
    with _sipp("callee", CALLEE_PORT, place, *log, *patience, **parties) as callee:
        callee.wait_for_port(CALLEE_PORT)
        with _sipp("caller", CALLER_PORT, place, *log, *pace, **parties) as caller:
            yield Users(caller, callee)


def _await_dump(sipp: Process) -> None:
    """Waits for a dump that begins after this moment, or for the end."""
    before = len(_table(sipp, "counts"))
    deadline_s = time.monotonic() + START_S_MAX
    while sipp.is_running and len(_table(sipp, "counts")) < before + 2:
        if time.monotonic() > deadline_s:
            raise InputError("sipp does not tell its counts any more")
        time.sleep(0.05)


def quantiles(times_ms: Iterable[float]) -> Quantiles | None:
    """Times in a few numbers, as `laxity-media` has its own; None without any."""
    times = np.sort(np.fromiter(times_ms, float))
    if times.size == 0:
        return None

    def at_ns(part: float) -> int:
        return round(1e6 * float(times[max(0, math.ceil(part * times.size) - 1)]))

    return {
        "count": int(times.size),
        "mean_ns": float(1e6 * times.mean()),
        "min_ns": at_ns(0.0),
        "p25_ns": at_ns(0.25),
        "p50_ns": at_ns(0.5),
        "p75_ns": at_ns(0.75),
        "p99_ns": at_ns(0.99),
        "p999_ns": at_ns(0.999),
        "max_ns": at_ns(1.0),
    }


@contextmanager
def _sipp(
    scenario: str, port: int, place: Place, *more: str, server: str, client: str
) -> Iterator[Process]:
    files = ["-sf", str(FILES / f"{scenario}.xml"), "-inf", f"{scenario}.csv"]
    here = ["-i", client, "-p", str(port), f"{server}:{SIP_PORT}"]
    traces = ["-trace_stat", "-fd", str(STATISTICS_S)]
    traces += ["-trace_counts", "-trace_rtt", "-rtt_freq", "1", "-nostdin"]
    # Before all that is not real-time, as the load is: the users are not to be late themselves.
    first = ["chrt", "--fifo", "1"]
    if subprocess.run([*first, "true"], capture_output=True, check=False).returncode != 0:
        first = []
    with process(
        scenario, [*first, "sipp", *files, *ENDURING, *traces, *more, *here], place
    ) as started:
        yield started


def _inject(place: Place, scenario: str, lines: Iterable[str]) -> None:
    # What SIPp counted when it was here before.
    for path in place.files.glob(f"{scenario}_*.csv"):
        path.unlink()
    text = "".join(f"{line}\n" for line in ("SEQUENTIAL", *lines))
    (place.files / f"{scenario}.csv").write_text(text)


def _table(sipp: Process, kind: str) -> list[list[str]]:
    """One of SIPp's tables, without a last line that is still being written."""
    # SIPp puts its number into the name.
    for path in sipp.place.files.glob(f"{sipp.name}_*_{kind}.csv"):
        text = path.read_text()
        return list(csv.reader(text[: text.rfind("\n") + 1].splitlines(), delimiter=";"))
    return []


def _counts(sipp: Process) -> dict[str, int]:
    """How often each message of a scenario was sent and came, by its name and what became of it.

    Where two messages have one name, it is the first's.
    """
    head, *lines = _table(sipp, "counts") or [[]]
    if not lines:
        raise InputError(f"sipp counted nothing: {sipp.complaint()}")
    counts: dict[str, int] = {}
    for name, value in zip(head, lines[-1], strict=True):
        place, _, message = name.partition("_")
        if place.isdigit():
            counts.setdefault(message, int(value))
    return counts


def _statistics(sipp: Process) -> dict[str, int]:
    """SIPp's own sums so far."""
    names = ("FailedCall(C)", "Retransmissions(C)")
    head, *lines = _table(sipp, "") or [[]]
    row = dict(zip(head, lines[-1], strict=True)) if lines else dict.fromkeys(names, "0")
    return {name: int(row[name]) for name in names}


def _response_times_ms(sipp: Process, which: str) -> list[float]:
    """From a request to its answer, to the kernel's tick, which SIPp takes for its clock."""
    _, *lines = _table(sipp, "rtt") or [[]]
    return [float(line[1]) for line in lines if line[2] == which]
