"""Voice: cards, rings and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.doctor.suspicion import HIGH_AVAILABILITY, TELEPHONY, Suspicion, rounded_up_ns
from laxity.text import time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.resolved_schema import ResolvedHost

PAUSES = 3
"""An interval of so many pauses or fewer leaves a domain too little time to run."""

PAUSES_PROPOSED = 20
"""The number of pauses in a proposed interval: the domain stands still for 5 % of the time."""


def voice_held_by_checkpoints(host: ResolvedHost) -> Iterator[Suspicion]:
    """A media server's output waits for its checkpoints."""
    protect = host["network"] and host["network"]["protect"]
    if not protect or host["calls"] is None:
        return
    for place, domain in enumerate(protect["domains"]):
        if domain["domain"] != host["calls"]["media_server"] or domain["mode"] != "net":
            continue
        name = host["domains"][domain["domain"]]["name"]
        yield Suspicion(
            f"protect.domains.{place}.mode",
            f"Every packet of voice that {name} sends waits for a checkpoint, of which there is "
            f"one in {time(domain['interval_ns'])}; voice that is lost in a failure is not worth "
            "that.",
            (f"protect.domains.{place}.mode=no-net",),
            HIGH_AVAILABILITY,
        )


def checkpoints_below_pause(host: ResolvedHost) -> Iterator[Suspicion]:
    """A protected domain stands still for much of the time from one checkpoint to the next."""
    protect = host["network"] and host["network"]["protect"]
    if not protect or host["calls"] is None:
        return
    for place, domain in enumerate(protect["domains"]):
        pause_ns = protect["pause_ns"] + protect["page_pause_ns"] * domain["pages"]
        if domain["interval_ns"] > PAUSES * pause_ns:
            continue
        name = host["domains"][domain["domain"]]["name"]
        interval_ns = rounded_up_ns(PAUSES_PROPOSED * pause_ns)
        yield Suspicion(
            f"protect.domains.{place}.interval",
            f"{name} stands still for {time(pause_ns)} at each checkpoint, of which there is one "
            f"in {time(domain['interval_ns'])}.",
            (f"protect.domains.{place}.interval={time(interval_ns)}",),
            HIGH_AVAILABILITY,
        )


def small_ring(host: ResolvedHost) -> Iterator[Suspicion]:
    """A card's ring is small for the packets that come at once."""
    network = host["network"]
    if not network or host["calls"] is None:
        return
    for place, nic in enumerate(network["nics"]):
        if nic["ring"] < 64:  # noqa: PLR2004 - a NAPI poll takes so many
            yield Suspicion(
                f"nic.{place}.ring",
                f"The ring of {nic['name']} holds {nic['ring']} packets: more that come before its "
                "domain runs are dropped.",
                (f"nic.{place}.ring=256",),
                TELEPHONY,
            )


def coalescing_against_delay(host: ResolvedHost) -> Iterator[Suspicion]:
    """A card waits with its interrupt for a good part of what voice may be late."""
    network = host["network"]
    if not network or host["calls"] is None:
        return
    limit_ns = host["calls"]["acceptance"]["delay_ns"]
    for place, nic in enumerate(network["nics"]):
        if nic["coalesce_ns"] * 10 >= limit_ns:
            yield Suspicion(
                f"nic.{place}.coalesce.time",
                f"{nic['name']} waits up to {time(nic['coalesce_ns'])} with an interrupt, of the "
                f"{time(limit_ns)} that voice may take.",
                (f"nic.{place}.coalesce.time=100 us",),
                TELEPHONY,
            )
