"""Results that nobody ran, for the rules that judge them."""

from __future__ import annotations

from laxity.results.schema import Acceptance, Drops, Quantiles, Telephony, Voice

LIMITS = Acceptance(loss=0.01, delay_ns=150_000_000, mos=4.0, failed=0.01)
NO_DROPS = Drops(
    **dict.fromkeys(("wire", "nic_receive", "netback", "socket", "netfront"), 0),
    **dict.fromkeys(("nic_transmit", "held", "failure"), 0),
)


def telephony(
    *, sent: int = 1, lost: int = 0, loss_ratio: float, delay_ns: int | None = 1, count: int = 1
) -> Telephony:
    """Voice whose packets all took `delay_ns`."""
    names = ("min", "p25", "p50", "p75", "p99", "p999", "max")
    mean = None if delay_ns is None else float(delay_ns)
    voice = Voice(
        streams=1,
        streams_most=1,
        sent=sent,
        received=sent - lost,
        lost=lost,
        on_their_way=0,
        loss_ratio=loss_ratio,
        delay_ns=Quantiles(count=count, mean=mean, **dict.fromkeys(names, delay_ns)),
    )
    return Telephony(
        voice=voice,
        drops=NO_DROPS,
        nics=(),
        interfaces=(),
        protection=(),
        playout="fixed",
        limits=LIMITS,
    )
