"""What is known of the lab's machine: a model that is held against it uses it unasked."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.policies import TABLE
from laxity.substrates.xen import collect

if TYPE_CHECKING:
    from laxity.resolved import Resolved

FILE = Path(__file__).with_name("known.toml")
"""The cost of a tick of a guest's kernel under each policy that was calibrated."""

COSTS = "xen-lab"
"""The profile of what scheduling costs there."""


def tick_cost_ns(policy: str) -> int:
    """Returns the cost of a tick; policies that were not calibrated have that of their kin."""
    costs: dict[str, str] = tomllib.loads(FILE.read_text("utf-8"))["tick"]
    kin = "deferrable" if TABLE[policy].uses("budget") else "credit"
    return int(costs.get(policy, costs[kin]).removesuffix(" ns"))


def costs(host: Resolved) -> list[str]:
    """Returns the override for a file that does not say what scheduling costs."""
    return [] if host.gives("host.costs") else [f"host.costs={COSTS}"]


def settled(host: Resolved, summary: Path) -> list[str]:
    """Returns overrides for a model: what is known of the lab, and what a run there settled."""
    cost_ns = tick_cost_ns(host.host["policy"])
    return [*costs(host), *collect.settled(host.host, summary, cost_ns)]
