"""Whether calls were good enough: the limits of a host, beside what a run found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laxity.results.schema import Telephony


@dataclass(frozen=True)
class Limit:
    """One thing that a run must keep to be accepted."""

    name: str
    """`loss`, `delay` or `MOS`."""
    limit: float
    found: float | None
    """None where nothing was measured: no packet came."""
    held: bool


def limits_of(telephony: Telephony) -> list[Limit]:
    """Returns each limit beside what was found.

    Loss, and the delay of 99.9 % of the packets in ns, must be below their limits; MOS must be at
    least its own. MOS is that of the worst scored stream (PESQ, on P.862.1's scale of opinions) and
    is left out as long as there is no quality.
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
    return found


def judged(telephony: Telephony) -> Telephony:
    """Returns the same with `accepted`: whether every limit held."""
    return replace(telephony, accepted=all(limit.held for limit in limits_of(telephony)))
