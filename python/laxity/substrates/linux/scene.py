"""What runs on this machine: calls, the media server they go through, signalling, neighbours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.namespaces.groups import Share
from laxity.policies import TABLE
from laxity.resolved import calls_of, network_of, refuse_helpers, refuse_processing, server_of
from laxity.servers.signalling import CALLS_MAX, Traffic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.resolved_schema import ArrivalRate, Domain, Nic, ResolvedHost
    from laxity.servers import MediaProgram

MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000
OWN = "eevdf"
"""The model of the scheduler that shares the CPUs here."""
POLICIES = (
    *(name for name, policy in TABLE.items() if "linux" in policy.substrates and not policy.own_of),
    OWN,
)
"""The policies of hosts that Linux can run: what they know, its own scheduler knows, too."""
PLAYOUT_NS = 60 * MILLISECOND_NS


@dataclass(frozen=True)
class Calls:
    """The load: calls of G.711, a packet every 20 ms."""

    duration_ns: int
    streams: int = 0
    """All there from the start, two to a call."""
    rate_per_s: float = 0.0
    """Besides, new calls, as regularly,"""
    hold_ns: int = 0
    """and each for so long."""
    through_media_server: bool = True
    """Whether their voice goes through the media server; it is not sent at all otherwise."""
    playout_ns: int = PLAYOUT_NS
    """A packet that takes longer is late."""
    sample: int = 4
    """The times of each packet are kept of one call in so many."""

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        if self.at_once > CALLS_MAX:
            raise InputError(
                f"{self.at_once} calls at once are more than there are ports",
                f"have at most {CALLS_MAX} calls, {2 * CALLS_MAX} streams",
            )

    @property
    def there(self) -> int:
        """The calls that are there from the start; those that come have the numbers after them."""
        return math.ceil(self.streams / 2)

    @property
    def at_once(self) -> int:
        """Calls at the same time, at most."""
        return self.there + math.ceil(self.rate_per_s * self.hold_ns / 1e9)

    @property
    def placed(self) -> int:
        """How many calls are placed one after the other."""
        return round(self.rate_per_s * self.duration_ns / 1e9)

    def parties_there(self) -> Iterator[Party]:
        """Yields the parties that speak from start to end, each caller before its callee."""
        for stream in range(self.streams):
            yield Party(stream // 2, stream % 2, 0, self.duration_ns)

    def parties_coming(self) -> Iterator[Party]:
        """Yields the parties of calls that come and go, if calls need not be set up."""
        if not self.through_media_server:
            return
        for call in range(self.placed):
            begin_ns = round(call * 1e9 / self.rate_per_s)
            end_ns = min(self.duration_ns, begin_ns + self.hold_ns)
            for party in range(2):
                yield Party(self.there + call, party, begin_ns, end_ns)


@dataclass(frozen=True)
class Party:
    """Somebody who speaks."""

    call: int
    party: int
    """0 is the caller, 1 the callee."""
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Server:
    """The media server."""

    name: str
    share: Share
    threads: int
    work_ns: int = 0
    """CPU time of a packet, besides receiving, transcoding and sending."""
    transcode: bool = False
    program: MediaProgram = "laxity"


@dataclass(frozen=True)
class Signalling:
    """The registrar and proxy."""

    name: str
    share: Share
    processes: int = 4
    """That serve SIP."""


@dataclass(frozen=True)
class Neighbour:
    """A domain that computes."""

    name: str
    share: Share
    threads: int
    run_ns: int = 0
    """CPU time from one pause to the next; 0 is without pauses."""
    idle_ns: int = 0
    """A pause."""


@dataclass(frozen=True)
class Scene:
    """One run."""

    calls: Calls
    server: Server
    neighbours: tuple[Neighbour, ...] = ()
    signalling: Signalling | None = None
    """Without it, calls are there when they are due."""

    def __post_init__(self) -> None:
        """Refuses what cannot be."""
        if self.server.program == "rtpengine" and self.server.work_ns:
            raise InputError(
                "rtpengine does no work of a given length for each packet",
                "leave `work` out, or take Laxity's own media server",
            )

    @property
    def has_voice_by_sip(self) -> bool:
        """Whether calls speak once SIP has set them up."""
        return self.traffic is not None and self.calls.through_media_server

    def parties(self) -> Iterator[Party]:
        """Yields all parties but those that speak once SIP has set their call up."""
        yield from self.calls.parties_there()
        if self.signalling is None:
            yield from self.calls.parties_coming()

    @property
    def traffic(self) -> Traffic | None:
        """The calls that SIP sets up, if any."""
        if self.signalling is None or self.calls.placed == 0:
            return None
        calls = self.calls
        return Traffic(calls.placed, calls.rate_per_s, calls.hold_ns, first=calls.there)


def scene(host: ResolvedHost, program: MediaProgram, cpus: int) -> Scene:
    """Makes a resolved host a scene on a Linux machine with so many CPUs.

    The media server and the signalling server become processes of their own, CPU-bound domains one
    for each VCPU. Raises InputError, naming the key and what would be right, for what Linux cannot
    do.
    """
    _refuse_host(host, cpus)
    calls, domains = calls_of(host), host["domains"]
    media = domains[calls["media_server"]]
    signalling = calls["signalling_server"]
    work = server_of(media)
    neighbours = []
    for domain in domains:
        workload = domain["workload"]
        pace = (0, 0)
        if workload is not None and workload["kind"] == "bursts":
            pace = (workload["run_ns"], workload["idle_ns"])
        if domain["cpu_bound"] or pace != (0, 0):
            neighbours.append(
                Neighbour(
                    domain["name"], _share(domain, host["policy"]), len(domain["vcpus"]), *pace
                )
            )
    return Scene(
        Calls(
            host["duration_ns"],
            calls["streams"],
            _per_s(calls["rate"]),
            calls["hold_ns"],
            through_media_server=calls["through_media_server"] == 1,
            sample=calls["sample"],
        ),
        Server(
            media["name"],
            _share(media, host["policy"]),
            work["threads"],
            _work_ns(media),
            work["transcode"],
            program,
        ),
        tuple(neighbours),
        None if signalling is None else _signalling(domains[signalling], host["policy"]),
    )


def _signalling(domain: Domain, policy: str) -> Signalling:
    workload = server_of(domain)
    if workload["own_work"] is not None:
        raise InputError(
            f"`domain.{domain['name']}.workload.work` is given, and on Linux a message takes what "
            "Kamailio takes",
            "leave it out",
        )
    return Signalling(domain["name"], _share(domain, policy), workload["threads"])


def _work_ns(media: Domain) -> int:
    work = server_of(media)["own_work"]
    if work is None:
        return 0
    if "ns" not in work:
        raise InputError(
            f"`domain.{media['name']}.workload.work` is a distribution, and on Linux a packet's "
            "work always takes as long",
            'write work = "5 us", say',
        )
    return int(work["ns"])


def _refuse_host(host: ResolvedHost, cpus: int) -> None:
    if host["calls"] is None:
        raise InputError(
            "this host has no calls, and on Linux nothing else is run",
            "add [calls] with streams = 100, say, or run it in the simulator or on Xen",
        )
    if host["policy"] not in POLICIES:
        on_linux = " or ".join(f"--policy {name}" for name in POLICIES)
        raise InputError(
            f"`host.policy` is {host['policy']}, and Linux shares CPUs by its own scheduler, "
            "which knows weights, caps and quotas alone",
            f"add {on_linux}, or run it in the simulator or on Xen",
        )
    if host["cpus"] > cpus:
        raise InputError(
            f"`host.cpus` is {host['cpus']}, and this machine has {cpus}",
            f"add --set host.cpus={cpus}",
        )
    calls = host["calls"]
    if calls["through_media_server"] not in {0, 1}:
        raise InputError(
            "`calls.through-media-server` is a part of the calls, and on Linux it is all or none",
            "add --set calls.through-media-server=1, or run it in the simulator",
        )
    if calls["call_control"] is not None:
        raise InputError(
            "`calls.call-control` is a domain, and no program on Linux is one",
            "leave it out, or run it in the simulator",
        )
    refuse_helpers(
        host,
        "on Linux only servers and CPU-bound domains are run",
        ", or run it in the simulator",
    )
    for domain in host["domains"]:
        _refuse_domain(domain)
    _refuse_what_is_simulated(host)
    for nic in network_of(host)["nics"]:
        _refuse_nic(nic, host)


def _refuse_what_is_simulated(host: ResolvedHost) -> None:
    refuse_processing(host, "Linux")
    if network_of(host).get("link") is not None:
        raise InputError(
            "`[link]` is held by the simulator here",
            "leave it out; `laxity bandwidth run` holds agreements on Linux",
        )
    if network_of(host).get("protect") is not None:
        raise InputError(
            "`[protect]` is simulated here",
            "leave it out; `laxity protect run` protects guests on Linux",
        )
    if calls_of(host).get("registrations"):
        raise InputError(
            "`calls.registrations` are simulated here",
            "leave it out; `laxity reproduce availability --on linux` registers users",
        )


def _refuse_domain(domain: Domain) -> None:
    if domain["tasks"]:
        raise InputError(
            f"`domain.{domain['name']}` has tasks, and on Linux only servers and CPU-bound "
            "domains are run",
            "leave it out, or run it in the simulator or on Xen",
        )
    if _kind(domain) == "sender":
        raise InputError(
            f"`domain.{domain['name']}` is a sender, and on Linux only servers and CPU-bound "
            "domains are run",
            "leave it out, or run it in the simulator",
        )


def _refuse_nic(nic: Nic, host: ResolvedHost) -> None:
    owner = host["domains"][nic["domain"]]
    if _kind(owner) != "driver":
        raise InputError(
            f"`nic.{nic['name']}` is {owner['name']}'s own (VMM bypass), and on Linux the kernel "
            "drives all",
            "leave `domain` out, or run it in the simulator",
        )
    if len(network_of(host)["nics"]) > 1 or nic["coalesce_ns"]:
        raise InputError(
            "`nic` asks for several cards or for interrupt coalescing, and on Linux there is one "
            "cable between two namespaces, without interrupts",
            "leave [[nic]] out, or run it in the simulator",
        )


def _kind(domain: Domain) -> str | None:
    workload = domain["workload"]
    return None if workload is None else workload["kind"]


def _per_s(rate: ArrivalRate | None) -> float:
    """Returns a resolved host's rate of arrivals, in one a second; None is a rate of 0."""
    return 0.0 if rate is None else rate["millionths_per_hour"] / 3_600_000_000


def _share(domain: Domain, policy: str) -> Share:
    parameters = domain["parameters"]
    cpus = tuple(sorted({cpu for vcpu in domain["vcpus"] for cpu in vcpu["affinity"]}))
    if policy != OWN:
        return Share(parameters["weight"], parameters["cap_percent"], cpus)
    if parameters["quota_burst_ns"]:
        raise InputError(
            f"`domain.{domain['name']}.quota-burst` is given, and a run on Linux keeps no quota",
            "leave it out, or run it in the simulator",
        )
    quota_ns, period_ns = parameters["quota_ns"], parameters["quota_period_ns"]
    quota_us = (quota_ns // MICROSECOND_NS, period_ns // MICROSECOND_NS) if quota_ns else None
    return Share(parameters["weight"], 0, cpus, quota_us)
