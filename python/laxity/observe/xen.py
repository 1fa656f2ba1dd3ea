"""A Xen host that was watched: its configuration and its trace. Pure but for the trace's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from laxity import _core
from laxity.errors import core_errors
from laxity.observe.known import Configuration, parameters, with_phases
from laxity.observe.observed import observe_trace
from laxity.observe.threads import NETBACK
from laxity.text import name_of, number
from laxity.tracefile import bare_domain, domains_of_threads

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from laxity.observation_schema import Survey
    from laxity.observe.observed import Observed
    from laxity.substrates.xen.watch import Watched
    from laxity.trace_schema import Metadata, Summary

FROM_XEN = "as Xen's tools tell"

DOM0 = 0
"""Its number."""
NOT_SEEN = (
    "packets that nobody took before the recording ended, or that were dropped",
    "packets from domains, and what a packet did before dom0's kernel queued it for netback",
    "what a packet did after its domain had it",
    "which VCPU of a domain was to handle a packet; the first to run is taken to have it",
    "packets that reach a domain without netback of dom0 (driver domains, devices handed to it)",
)
"""What dom0 does not tell of packets, as sentences without their full stops."""
NO_NETBACK = "packets for {}, since no thread of netback ran for it"


def configuration(seen: Watched) -> Configuration:
    """How the host was configured: affinity where it is restricted, and the scheduler's values."""
    every_cpu = tuple(range(seen.cpus))
    affinity = {name_of(domain.name): domain.cpus(seen.cpus) for domain in seen.domains}
    return Configuration(
        policy={seen.policy: FROM_XEN},
        settings=parameters(seen.policy, seen.settings, FROM_XEN, settings=True),
        domains={
            name_of(domain.name): parameters(
                seen.policy, seen.parameters.get(domain.domid, {}), FROM_XEN, settings=False
            )
            for domain in seen.domains
        },
        affinity={name: cpus for name, cpus in affinity.items() if cpus not in ((), every_cpu)},
    )


def observe(seen: Watched, trace: Path, packet_delay_ns: int | None = None) -> Observed:
    """Finds out what a Xen host did that was watched; see `observed.observe`.

    With `packet_delay_ns` and what dom0's kernel recorded, the trace also has the packets for
    domains that waited for longer until these had them, and dom0's programs. Raises InputError if
    what was recorded is damaged or not whole, or the clocks of Xen and of dom0's kernel differ.
    """
    known = configuration(seen)
    metadata: Metadata = {
        "substrate": "xen",
        "policy": seen.policy,
        "seed": 1,
        "duration_ns": seen.duration_ns,
        "cpus": seen.cpus,
        "domains": [bare_domain(name_of(domain.name), domain.vcpus) for domain in seen.domains],
    }
    domids = {name_of(domain.name): domain.domid for domain in seen.domains}
    raw = trace.with_suffix(".raw")
    source, packets = seen.name, None
    try:
        if seen.kernel is not None and packet_delay_ns is not None:
            guessed, packets = _with_packets(
                seen, seen.kernel, packet_delay_ns, raw, metadata, domids
            )
            if guessed:
                source += f"; dom0's kernel did not trace {number(guessed, 'switch', 'switches')}"
        else:
            with core_errors():
                told = _core.import_xen(
                    str(seen.buffers),
                    str(raw),
                    json.dumps(metadata),
                    json.dumps(domids),
                    [[] for _ in seen.domains],
                    seen.start_ns,
                )
            summary: Summary = json.loads(told)
            known = with_phases(known, domids, summary["deadlines_ns"])
        return observe_trace(raw, trace, known, source, packets)
    finally:
        raw.unlink(missing_ok=True)


def _with_packets(
    seen: Watched,
    kernel: Path,
    delay_ns: int,
    raw: Path,
    metadata: Metadata,
    domids: Mapping[str, int],
) -> tuple[int, list[int]]:
    """Writes the trace with packets and dom0's programs; `metadata` is that without them.

    Returns the number of switches that dom0's kernel did not trace, and of packets that each domain
    had.
    """
    with core_errors():
        survey: Survey = json.loads(_core.recorded_threads(str(kernel)))
    programs, threads = domains_of_threads((), survey["threads"], {})
    places = {domain.domid: place for place, domain in enumerate(seen.domains)}
    workers = [
        (thread["thread"], places[int(match[1])])
        for thread in survey["threads"]
        if (match := NETBACK.match(thread["name"])) and int(match[1]) in places
    ]
    served = {place for _, place in workers}
    idle = [
        NO_NETBACK.format(domain["name"])
        for place, domain in enumerate(metadata["domains"])
        if place not in served and place != places[DOM0]
    ]
    whole: Metadata = {
        **metadata,
        "domains": [*metadata["domains"], *programs],
        "calls": {"delay_ns": delay_ns, "not_seen": [*NOT_SEEN, *idle]},
        "programs_in": places[DOM0],
    }
    with core_errors():
        return _core.import_xen_packets(
            str(seen.buffers),
            str(kernel),
            str(raw),
            json.dumps(whole),
            json.dumps(domids),
            seen.start_ns,
            [*([] for _ in seen.domains), *threads],
            workers,
            delay_ns,
        )
