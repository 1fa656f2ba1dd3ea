"""What the experiments on Xen share: hosts, windows, and the rule about how close is close."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from laxity.host import Host

from laxity_reproduce import published
from laxity_reproduce.rt_xen.on_xen.window import STOCK, Window
from laxity_reproduce.rt_xen.setup import EVENT_DRIVEN, FACTS, POLICIES

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_S = 10
"""The length of a run on Xen. The paper's were 10 s to 5 min."""

WINDOW_S_QUICK = 3

QUICK_POLICIES = ("deferrable", "credit")

CLOSE_POINTS = 2.0
"""How far the miss ratios of a domain on Xen and in the simulator may be apart."""

STANDS_FOR = {"credit": "credit", "credit2": "credit", "rtds": "deferrable"}
"""The policy whose parameters one of Xen's own schedulers takes from a host file."""

SEED = 1
"""The seed of the task set where there is one."""


@cache
def paper_host(name: str = "even") -> Host:
    """A host file of the paper."""
    return Host(published.host_file("rt_xen", name), f"{name}.toml")


def duration(quick: bool) -> str:
    """The override for the length of a window."""
    return f"duration={WINDOW_S_QUICK if quick else WINDOW_S} s"


def policies(quick: bool) -> list[str]:
    """Those that an experiment compares."""
    return [policy for policy in POLICIES if not quick or policy in QUICK_POLICIES]


def window(
    name: str,
    scheduler: str,
    overrides: Sequence[str],
    *,
    quick: bool,
    host: Host | None = None,
    policy_events: bool = True,
    what: str = "",
) -> Window:
    """A window of a host, by default even.toml, with the policy that stands for the scheduler."""
    policy = STANDS_FOR[scheduler.removeprefix(STOCK)] if scheduler.startswith(STOCK) else scheduler
    return Window(
        name,
        scheduler,
        host or paper_host(),
        (f"host.policy={policy}", duration(quick), *overrides),
        policy_events,
        what,
    )


def event_driven(policy: str) -> list[str]:
    """Overrides for a policy that acts only when something changes."""
    return [f"host.policy={policy}", EVENT_DRIVEN]


def pattern_overrides(pattern: str) -> list[str]:
    """What makes even.toml the host of another pattern of shares, so that they share a boot."""
    of_pattern = paper_host(pattern).resolved()["domains"]
    overrides = []
    for domain in of_pattern:
        name, parameters = domain["name"], domain["parameters"]
        overrides += [
            f"domain.{name}.budget={parameters['budget_ns']} ns",
            f"domain.{name}.period={parameters['period_ns']} ns",
            f"domain.{name}.weight={parameters['weight']}",
        ]
    return overrides


def listed(values: Sequence[float], digits: int = 2) -> list[float]:
    """Rounded, for a row."""
    return [round(float(value), digits) for value in values]


def published_table_1(column: str) -> dict[str, float]:
    """A line of the paper's Table 1, by policy."""
    facts = FACTS["table_1"]
    return dict(zip(facts["policy"], facts[column], strict=True))
