"""What the simulated experiments share: how they are run, and the rules of their verdicts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from laxity_reproduce import published
from laxity_reproduce.reproduction import Row, digits, verdict
from laxity_reproduce.telephony.setup import DURATION_QUICK_S, measure, percent, scaled_costs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laxity_reproduce.lab import Lab
    from laxity_reproduce.reproduction import Value
    from laxity_reproduce.telephony.setup import Point

FACTS = published.facts("availability")

DURATION_S = 5
"""The length of a run: 50 checkpoints."""

FACTOR = 0.372
"""The part of the packets' costs in the profile `iptcomm-2009`; fitted, as `fitted.py` says."""

TOLERANCE_CPU_PERCENT = 3.0
"""The tolerance of a published CPU use: three points of one CPU."""
TOLERANCE_LOSS_PERCENT = 1.0
"""The tolerance of a published loss: a point."""

RULES = (
    "CPU use is in percent of one CPU. A published CPU use is reproduced within"
    f" {TOLERANCE_CPU_PERCENT:g} points, and a published loss within {TOLERANCE_LOSS_PERCENT:g}"
    f" point. Values are means over the seeds; a run lasts {DURATION_S} s. The first experiment"
    " lists the fitted costs."
)

UNPROTECTED = ['protect.domains.0.interval="60 s"', 'protect.domains.0.mode="no-net"']
"""Overrides: no checkpoint within the run, and output that does not wait."""


def run(
    lab: Lab,
    host: str,
    points: Mapping[str, Sequence[str]],
    share: float = 1.0,
    factor: float = FACTOR,
) -> dict[str, Point]:
    """Runs the host with each point's overrides and each seed; each point once in a lab."""
    costs = scaled_costs(lab, host, factor)
    lists = {name: [costs, *overrides] for name, overrides in points.items()}
    keys = {name: (host, *overrides) for name, overrides in lists.items()}
    missing = {name: each for name, each in lists.items() if keys[name] not in lab.known}
    if missing:
        for name, point in measure(lab, host, missing, share, DURATION_S).items():
            lab.known[keys[name]] = point
    return {name: replace(lab.known[key], name=name) for name, key in keys.items()}


def seconds(lab: Lab) -> int:
    """How long a run lasts."""
    return DURATION_QUICK_S if lab.quick else DURATION_S


def failure_ms(lab: Lab) -> int:
    """When the host dies that does: in the middle of the run, and of an epoch."""
    return 500 * seconds(lab) + int(FACTS["interval_ms"]) // 2


def failure(lab: Lab) -> str:
    """The override that lets the host die then."""
    return f'protect.failure={{ at = "{failure_ms(lab)} ms" }}'


def cpu_percent(point: Point, *domains: str) -> float:
    """The mean use of one CPU, in percent, by several domains together."""
    return 100 * sum(each[name] for each in point.cpus for name in domains) / len(point.cpus)


def cpu_row(what: str, stated: float, ours: float, why: str) -> Row:
    """A row on a published CPU use."""
    holds = abs(ours - stated) <= TOLERANCE_CPU_PERCENT
    return row(what, stated, round(ours, 1), holds=holds, why=why)


def row(what: str, claim: Value, ours: Value, *, holds: bool, why: str = "") -> Row:
    """A row on what the text claims; `why` is for one that differs."""
    return Row(what, claim, ours, verdict(holds=holds), "" if holds else why)


def ms(value: float) -> str:
    """For people."""
    return f"{digits(value, 3)} ms"


def shown(point: Point) -> str:
    """Loss and median delay, for people."""
    return f"{percent(point.loss)}, {ms(point.median)}"
