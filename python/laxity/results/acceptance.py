"""Whether calls were good enough: the limits of a host, beside what a run found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laxity.text import NOTHING, percent, time

if TYPE_CHECKING:
    from collections.abc import Callable

    from laxity.results.schema import Telephony


@dataclass(frozen=True)
class Kind:
    """What a limit is about."""

    title: str
    column: str
    """The title of a column."""
    text: Callable[[float], str]
    """A value as people write it."""
    is_least: bool = False
    """Whether what is found must be at least the limit; otherwise it must be below."""


KINDS = {
    "loss": Kind("packets lost", "lost", percent),
    "delay": Kind("delay, 99.9 %", "p99.9", lambda ns: time(round(ns))),
    "MOS": Kind(
        "mean opinion score (MOS-LQO: PESQ by P.862.1) of the worst sampled stream",
        "MOS",
        "{:.2f}".format,
        is_least=True,
    ),
    "failed": Kind("calls, or registrations, given up", "failed", percent),
}
"""By the name of the limit, in the order of tables."""


@dataclass(frozen=True)
class Limit:
    """One thing that a run must keep to be accepted."""

    name: str
    """One of KINDS."""
    limit: float
    found: float | None
    """None where nothing was measured: no packet came."""
    held: bool

    @property
    def kind(self) -> Kind:
        """What it is about."""
        return KINDS[self.name]

    @property
    def found_text(self) -> str:
        """What was found, as people write it."""
        return NOTHING if self.found is None else self.kind.text(self.found)

    @property
    def limit_text(self) -> str:
        """The limit itself, as people write it."""
        return self.kind.text(self.limit)

    @property
    def badness(self) -> float:
        """How near to the limit the run came, or how far beyond: the greater, the worse."""
        if self.found is None:
            return float("inf")
        return -self.found if self.kind.is_least else self.found


def limits_of(telephony: Telephony) -> list[Limit]:
    """Returns each limit beside what was found.

    Loss, the delay of 99.9 % of the packets in ns, and the part that failed of the calls or the
    registrations, whichever is greater, must be below their limits; MOS must be at least its own.
    MOS is that of the worst scored stream (PESQ, on P.862.1's scale of opinions) and is left out as
    long as there is no quality, as is what failed where nobody calls or registers.
    """
    limits, voice, delay_ns = telephony.limits, telephony.voice, telephony.voice.delay_ns.p999
    is_in_time = delay_ns is not None and delay_ns < limits.delay_ns
    found = [
        Limit("loss", limits.loss, voice.loss_ratio, voice.loss_ratio < limits.loss),
        Limit("delay", limits.delay_ns, delay_ns, is_in_time),
    ]
    if telephony.quality is not None:
        mos = telephony.quality.mos_lqo.min
        found.append(Limit("MOS", limits.mos, mos, mos >= limits.mos))
    failed = failed_ratio(telephony)
    if failed is not None:
        found.append(Limit("failed", limits.failed, failed, failed < limits.failed))
    return found


def failed_ratio(telephony: Telephony) -> float | None:
    """The part given up of the calls or the registrations, whichever is greater, from 0 to 1.

    None where nobody calls or registers.
    """
    begun = [each for each in (telephony.calls, telephony.registrations) if each is not None]
    return max((each.failed / max(1, each.offered) for each in begun), default=None)


def judged(telephony: Telephony) -> Telephony:
    """Returns the same with `accepted`: whether every limit held."""
    return replace(telephony, accepted=all(limit.held for limit in limits_of(telephony)))
