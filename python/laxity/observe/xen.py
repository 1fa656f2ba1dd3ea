"""A Xen host that was watched: its configuration and its trace. Pure but for the trace's files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from laxity import _core
from laxity.errors import core_errors
from laxity.observe.known import Configuration, parameters
from laxity.observe.observed import observe_trace
from laxity.text import name_of
from laxity.tracefile import bare_domain

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.observe.observed import Observed
    from laxity.substrates.xen.watch import Watched

FROM_XEN = "as Xen's tools tell"


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


def observe(seen: Watched, trace: Path) -> Observed:
    """Finds out what a Xen host did that was watched; see `observed.observe`.

    Raises InputError if the buffers are damaged or lost records.
    """
    known = configuration(seen)
    metadata = {
        "substrate": "xen",
        "policy": seen.policy,
        "seed": 1,
        "duration_ns": seen.duration_ns,
        "cpus": seen.cpus,
        "domains": [bare_domain(name_of(domain.name), domain.vcpus) for domain in seen.domains],
    }
    raw = trace.with_suffix(".raw")
    try:
        with core_errors():
            _core.import_xen(
                str(seen.buffers),
                str(raw),
                json.dumps(metadata),
                json.dumps({name_of(domain.name): domain.domid for domain in seen.domains}),
                [[] for _ in seen.domains],
                seen.start_ns,
            )
        return observe_trace(raw, trace, known, seen.name)
    finally:
        raw.unlink(missing_ok=True)
