"""What runs on this machine: streams, the media server they go through, and its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Share:
    """What a domain may have of the CPUs."""

    weight: int
    """Against the others'."""
    cap_percent: int
    """Of one CPU; 0 is no cap."""
    cpus: tuple[int, ...]
    """Those it may run on."""


@dataclass(frozen=True)
class Streams:
    """The load: G.711, a packet every 20 ms."""

    count: int
    duration_ns: int


@dataclass(frozen=True)
class Server:
    """The media server."""

    share: Share
    threads: int
    work_ns: int
    """CPU time of a packet, besides receiving, transcoding and sending."""
    transcode: bool


@dataclass(frozen=True)
class Neighbour:
    """A domain that never stops asking for CPU."""

    name: str
    share: Share
    threads: int


@dataclass(frozen=True)
class Scene:
    """One run."""

    streams: Streams
    server: Server
    neighbours: tuple[Neighbour, ...]


def scene(
    host: Mapping[str, Any],
    media_server: str,
    streams: Streams,
    *,
    work_ns: int = 0,
    transcode: bool = False,
) -> Scene:
    """Makes a resolved host a scene on Linux.

    The domain `media_server` becomes a media server with a thread for each VCPU; each CPU-bound
    domain becomes as many processes as it has VCPUs. Weights, caps and affinities hold as they
    stand.
    """
    domains = {domain["name"]: domain for domain in host["domains"]}
    if media_server not in domains:
        raise InputError(
            f"there is no domain `{media_server}` that could be the media server",
            f"the domains are {', '.join(f'`{name}`' for name in domains)}",
        )
    neighbours = []
    for name, domain in domains.items():
        if domain["tasks"]:
            raise InputError(
                f"domain `{name}` has tasks; on Linux only media servers and CPU-bound domains run",
                "leave the tasks out, or run it in the simulator or on Xen",
            )
        if name != media_server and domain["cpu_bound"]:
            neighbours.append(Neighbour(name, _share(domain), len(domain["vcpus"])))
    server = domains[media_server]
    return Scene(
        streams,
        Server(_share(server), len(server["vcpus"]), work_ns, transcode),
        tuple(neighbours),
    )


def _share(domain: Mapping[str, Any]) -> Share:
    parameters = domain["parameters"]
    cpus = {cpu for vcpu in domain["vcpus"] for cpu in vcpu["affinity"]}
    return Share(parameters["weight"], parameters["cap_percent"], tuple(sorted(cpus)))
