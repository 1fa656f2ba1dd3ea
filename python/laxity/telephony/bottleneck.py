"""The first bottleneck of a host under calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laxity.resolved import calls_of

if TYPE_CHECKING:
    from laxity.resolved_schema import Domain, ResolvedHost
    from laxity.results.run import Run
    from laxity.results.schema import Telephony


FULL = 0.97
"""CPUs of which more is used are the bottleneck: what is left is lost between decisions."""


@dataclass(frozen=True)
class Bottleneck:
    """The part of a host that gave out first, in a run in which one did."""

    short: str
    """For a table: `dom0: card`."""
    long: str
    """For a sentence."""


def bottleneck(run: Run, telephony: Telephony, host: ResolvedHost) -> Bottleneck:
    """Where most packets were dropped; if none was, who keeps them waiting."""
    drops = telephony.drops
    used = sum(domain.cpu_ns for domain in run.domains) / (run.duration_ns * host["cpus"])
    used += run.overhead.loss_ratio or 0.0
    driver = next((d["name"] for d in host["domains"] if _kind(d) == "driver"), None)
    media = host["domains"][calls_of(host)["media_server"]]["name"]
    first = driver or media
    places = {
        ("wire", "the wire of a network card"): drops.wire + drops.nic_transmit,
        (
            f"{first}: card",
            f"the CPU time of {first}, which takes packets out of the network card too late",
        ): drops.nic_receive,
        (
            f"{media}: ring",
            f"the CPU time of {media}, which takes packets out of its ring too late",
        ): drops.netback,
        (
            f"{media}: sockets",
            f"the CPU time of {media}, whose threads take packets out of their sockets too late",
        ): drops.socket,
        (
            f"{driver}: netback",
            f"the CPU time of {driver}, which takes {media}'s packets too late",
        ): drops.netfront,
        ("held output", "what may be held of a protected domain's output"): drops.held,
        ("failure", "the host of the protected domains, which died"): drops.failure,
    }
    (short, long), dropped = max(places.items(), key=lambda item: item[1])
    if not dropped:
        short, long = _slowest(run, host)
    is_full = used > FULL and short != "wire"
    return Bottleneck(short, f"{long}; all CPUs are full" if is_full else long)


def _slowest(run: Run, host: ResolvedHost) -> tuple[str, str]:
    """The domain on the packets' way that keeps them waiting longest."""
    path = [
        (of_host, domain)
        for of_host, domain in zip(host["domains"], run.domains, strict=True)
        if _kind(of_host) not in (None, "bursts")
    ]
    for of_host, domain in path:
        if domain.cpu_ns > FULL * run.duration_ns * len(of_host["vcpus"]):
            return f"{domain.name}: VCPUs", f"the VCPUs of {domain.name}, which are never idle"
    latest = max(
        (domain for _, domain in path), key=lambda each: each.waits.max_ns if each.waits else 0
    )
    return f"{latest.name}: waits", f"the CPU: {latest.name} waits for one too long"


def _kind(domain: Domain) -> Any:  # noqa: ANN401 - of JSON
    return domain["workload"]["kind"] if domain["workload"] else None
