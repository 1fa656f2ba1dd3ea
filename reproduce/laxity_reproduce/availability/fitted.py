"""What was fitted: five numbers, each to one that the text states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from laxity_reproduce import published
from laxity_reproduce.availability.setup import FACTOR, FACTS, cpu_percent, run
from laxity_reproduce.reproduction import Experiment, Measurement
from laxity_reproduce.telephony.setup import frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from laxity_reproduce.lab import Lab
    from laxity_reproduce.telephony.setup import Point

LOW_PER_S, HIGH_PER_S = FACTS["figure_3"]["per_s"]
CALLS: int = FACTS["figure_4"]["streams"][-1]
MS_NS = 1_000_000
LOSSY = 400
"""Streams, of the two numbers for which the text states losses; 600 is a prediction."""


class Fit(NamedTuple):
    """A number and what it was fitted to."""

    what: str
    where: str
    """How the number is changed: the key of an override, or "factor"."""
    host: str
    overrides: list[str]
    of: Callable[[Point], float]
    """What was measured …"""
    stated: float
    """… and is published."""
    to: str
    """What that is."""


def net(per_s: int) -> list[str]:
    """Overrides: a number of registrations a second over UDP, with protection."""
    return [f'calls.registrations="{per_s} /s"', 'calls.registration-transport="udp"']


def streams(count: int, mode: str) -> list[str]:
    """Overrides: a number of streams, and whether their output waits."""
    return [f"calls.streams={count}", f'protect.domains.0.mode="{mode}"']


def _dom0(point: Point) -> float:
    return cpu_percent(point, "dom0")


def _guest(point: Point) -> float:
    return cpu_percent(point, "guest")


def _loss(point: Point) -> float:
    return point.loss


FITS = [
    Fit(
        "cost of a packet, relative to the profile iptcomm-2009",
        "factor",
        "media",
        streams(CALLS, "net"),
        _dom0,
        FACTS["figure_4"]["dom0_percent"],
        f"Dom0 with {CALLS} calls, % of a CPU",
    ),
    Fit(
        "cost of a registration in the guest",
        "domain.guest.workload.work",
        "signalling",
        net(LOW_PER_S),
        _guest,
        FACTS["figure_3"]["guest_percent"][0],
        f"the guest at {LOW_PER_S:,} a second, % of a CPU",
    ),
    Fit(
        "cost of a checkpoint in Dom0",
        "protect.checkpoint",
        "signalling",
        net(LOW_PER_S),
        _dom0,
        FACTS["figure_3"]["dom0_percent"][0],
        f"Dom0 at {LOW_PER_S:,} a second, % of a CPU",
    ),
    Fit(
        "cost of a changed page in Dom0",
        "protect.page",
        "signalling",
        net(HIGH_PER_S),
        _dom0,
        FACTS["figure_3"]["dom0_percent"][1],
        f"Dom0 at {HIGH_PER_S:,} a second, % of a CPU",
    ),
    Fit(
        "pause of the guest for a checkpoint",
        "protect.pause",
        "media",
        streams(LOSSY, "no-net"),
        _loss,
        published.percentages(FACTS["figure_5"]["loss"][str(LOSSY)])[0],
        f"loss of {LOSSY} streams in No-Net mode, %",
    ),
]
"""In an order in which each moves what was fitted before it the least."""


def fitted(lab: Lab) -> Experiment:
    """The fits, as they stand."""
    measurements, points = [], []
    for fit in FITS:
        (point,) = run(lab, fit.host, {fit.to: fit.overrides}).values()
        points.append(point)
        pair = f"{fit.stated:g} published, {fit.of(point):.1f} here"
        measurements.append(
            Measurement(fit.what, _shown(fit, value(lab, fit)), f"{fit.to}: {pair}")
        )
    method = (
        "The paper states no costs. `tools/fit/checkpoint_costs.py` fitted five costs to five"
        " numbers of the paper's text; all rows below are predictions. The host files list the"
        " other assumptions. The paper's guest holds both servers; here each server is a domain,"
        " and the guest's CPU use is the sum of both. A checkpoint is taken every"
        f" {FACTS['interval_ms']} ms."
    )
    return Experiment(
        "fitted", "costs fitted to the paper's text", method, [], measurements, frame(points)
    )


def value(lab: Lab, fit: Fit) -> float:
    """The fitted value as it stands: a factor, or ns."""
    if fit.where == "factor":
        return FACTOR
    resolved: Any = lab.resolved(lab.host(fit.host), [])
    table, _, key = fit.where.partition(".")
    if table == "protect":
        return float(resolved["network"]["protect"][f"{key}_ns"])
    (guest,) = (each for each in resolved["domains"] if each["name"] == "guest")
    return float(guest["workload"]["work"]["ns"])


def _shown(fit: Fit, of_it: float) -> str:
    if fit.where == "factor":
        return f"{of_it:g} times"
    return f"{of_it / MS_NS:g} ms" if of_it >= MS_NS else f"{of_it / 1e3:g} us"
