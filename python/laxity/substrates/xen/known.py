"""What is known of the lab's machine: a model that is held against it uses it unasked."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.policies import TABLE
from laxity.substrates.xen import collect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.resolved import Resolved

FILE = Path(__file__).with_name("known.toml")
"""The cost of a tick of a guest's kernel under each policy that was calibrated."""

COSTS = "xen-lab"
"""The profile of what scheduling costs there."""

ARRIVAL_NS = 18_229
"""What a guest takes each time its VCPU gets a CPU, beside the switch (tools/fit/arrivals.py)."""

TIMER_LATENCY_NS = 4_500
"""How late the hypervisor serves a timer of the policy (tools/fit/timers.py)."""

MIN_DELTA_NS = 100_000
"""The least time ahead for which Linux on Xen sets a timer (TIMER_SLOP in arch/x86/xen/time.c)."""


def tick_cost_ns(policy: str) -> int:
    """Returns the cost of a tick; policies that were not calibrated have that of their kin."""
    costs: dict[str, str] = tomllib.loads(FILE.read_text("utf-8"))["tick"]
    kin = "deferrable" if TABLE[policy].uses("budget") else "credit"
    return int(costs.get(policy, costs[kin]).removesuffix(" ns"))


def costs(host: Resolved, arrival_ns: int = ARRIVAL_NS) -> list[str]:
    """Returns the override for a file that does not say what scheduling costs.

    A switch costs what it costs Xen, and what the guest takes whose VCPU arrives.
    """
    if host.gives("host.costs"):
        return []
    of_xen = host.changed([f"host.costs={COSTS}"]).host["costs"]
    switch = _written(of_xen["context_switch"], arrival_ns)
    return [
        f"host.costs={{ schedule = {_written(of_xen['schedule'])}, context-switch = {switch} }}"
    ]


def timers(host: Resolved) -> list[str]:
    """Returns the override for a file that does not say how late timers are served."""
    if host.gives("host.timer-latency"):
        return []
    return [f"host.timer-latency={TIMER_LATENCY_NS} ns"]


def _written(cost: Mapping[str, int], more_ns: int = 0) -> str:
    """A cost as a host file has it, with more of it at each quantile."""
    quantiles = ((key.removesuffix("_ns"), ns + more_ns) for key, ns in cost.items())
    return "{ " + ", ".join(f'{key} = "{ns} ns"' for key, ns in quantiles) + " }"


def settled(host: Resolved, summary: Path, arrival_ns: int = ARRIVAL_NS) -> list[str]:
    """Returns overrides for a model: what is known of the lab, and what a run there settled."""
    tick = {"cost": tick_cost_ns(host.host["policy"]), "min-delta": MIN_DELTA_NS}
    return [
        *costs(host, arrival_ns),
        *timers(host),
        *collect.settled(host.host, summary, tick),
    ]
