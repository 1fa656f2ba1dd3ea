"""GENERATED"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from laxity.results.acceptance import Limit

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Quantiles:
    """Many times, ns; None where there are none. Quantiles to three digits, the others exact."""

    count: int
    mean: float | None
    min: int | None
    p25: int | None
    p50: int | None
    p75: int | None
    p99: int | None
    p999: int | None
    max: int | None


@dataclass(frozen=True)
class WorstStream:
    """The stream that lost the greatest part of its packets."""

    stream: int
    call: int | None
    lost: int
    received: int


@dataclass(frozen=True)
class Voice:
    """Voice from phone to phone."""

    streams: int
    streams_most: int
    """At a time."""
    sent: int
    received: int
    lost: int
    on_their_way: int
    """Neither received nor lost when the run ended."""
    loss_ratio: float
    """`lost` / (`lost` + `received`)."""
    delay_ns: Quantiles
    """One way."""
    jitter_ns_mean: float | None
    """RFC 3550's, of each stream at its end."""
    jitter_ns_max: int | None
    worst: WorstStream | None


@dataclass(frozen=True)
class Drops:
    """Where packets were dropped."""

    wire: int
    """The wire towards a card was full, and so was the switch before it."""
    nic_receive: int
    """A card's ring was full: its driver did not come."""
    netback: int
    """A guest's ring was full: the guest did not come."""
    socket: int
    """A socket's buffer was full: no thread came."""
    netfront: int
    """A guest's ring towards netback was full: netback did not come."""
    nic_transmit: int
    """A card's queue towards the wire was full."""
    held: int = 0
    """More output of a protected domain waited for its checkpoint than may."""
    failure: int = 0
    """The host of a protected domain had died."""


@dataclass(frozen=True)
class Calls:
    """Calls that were to be set up."""

    offered: int
    answered: int
    failed: int
    retransmissions: int
    setup_ns: Quantiles
    """From the first message to the answer."""


@dataclass(frozen=True)
class Registrations:
    """Users who were to be registered."""

    offered: int
    succeeded: int
    failed: int
    retransmissions: int
    delay_ns: Quantiles
    """From the first packet to the answer."""


@dataclass(frozen=True)
class Protection:
    """What protection by checkpoint did to a domain."""

    domain: str
    checkpoints: int
    acknowledged: int
    pages: int
    paused_ns: int
    acknowledged_after_ns_max: int
    """From the beginning of a checkpoint to its acknowledgement."""
    held: int
    """Packets that waited for a checkpoint: `released`, `lost` with the host, or `waiting`."""
    held_most: int
    released: int
    lost: int
    waiting: int
    outage_ns: int | None
    """From the failure to the domain's running on."""
    forgotten: int
    """Registrations whose answer had left, and that the domain did not know when it ran on."""


@dataclass(frozen=True)
class Nic:
    """A network card."""

    name: str
    received: int
    sent: int
    interrupts: int


@dataclass(frozen=True)
class Interface:
    """What a domain sent towards the driver domain; what is missing of `offered` was on its way."""

    domain: str
    offered: int
    dropped_in_guest: int
    """Its own queue was full: without agreements netback did not come, with them it had sent what
    it may."""
    dropped_at_card: int
    """After the driver domain had taken them."""
    sent: int


@dataclass(frozen=True)
class Scores:
    """Each is that of a stream."""

    min: float
    p5: float
    p50: float
    max: float


@dataclass(frozen=True)
class WorstCall:
    """What was heard of the worst stream."""

    stream: int
    call: int | None
    pesq: float
    e_model_mos: float
    loss_ratio: float
    late_ratio: float


@dataclass(frozen=True)
class Quality:
    """What was heard of the sampled streams, or of pieces of 30 s of them."""

    scored: int
    toll_quality: int
    """PESQ (P.862) of 4 or better."""
    dead: int
    """With nothing to hear: PESQ is 0."""
    pesq: Scores
    mos_lqo: Scores
    """The same as a mean opinion score (P.862.1)."""
    e_model_mos: Scores
    """The E-model's mean opinion score (G.107), from delay and loss."""
    worst: WorstCall


@dataclass(frozen=True)
class Limits:
    """What is good enough: `[calls.acceptance]` of the host file."""

    loss: float
    """A smaller part of all packets is lost."""
    delay_ns: int
    """99.9 % of the packets take less."""
    mos: float
    """The worst scored stream has at least this opinion score."""


@dataclass(frozen=True)
class Telephony:
    """Calls and voice, and what was lost where."""

    voice: Voice
    drops: Drops
    calls: Calls | None
    nics: tuple[Nic, ...]
    interfaces: tuple[Interface, ...] = ()
    """Of the domains whose packets go through the driver domain, in the simulator."""
    registrations: Registrations | None = None
    protection: tuple[Protection, ...] = ()
    """Of the protected domains, in the simulator."""
    quality: Quality | None = None
    """None until the sampled streams are scored."""
    limits: Limits | None = None
    """None in results of older versions."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Telephony:
        """Makes one of the object in a result."""
        voice, calls = content["voice"], content["calls"]
        registrations = content.get("registrations")
        return cls(
            voice=Voice(
                **{
                    **voice,
                    "delay_ns": Quantiles(**voice["delay_ns"]),
                    "worst": voice["worst"] and WorstStream(**voice["worst"]),
                }
            ),
            drops=Drops(**content["drops"]),
            calls=calls and Calls(**{**calls, "setup_ns": Quantiles(**calls["setup_ns"])}),
            nics=tuple(Nic(**nic) for nic in content["nics"]),
            # Older results do not have them.
            interfaces=tuple(Interface(**each) for each in content.get("interfaces", ())),
            registrations=registrations
            and Registrations(
                **{**registrations, "delay_ns": Quantiles(**registrations["delay_ns"])}
            ),
            protection=tuple(Protection(**each) for each in content.get("protection", ())),
            quality=content["quality"] and _quality(content["quality"]),
            limits=Limits(**content["limits"]) if content.get("limits") else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the object."""
        content = asdict(self) | {"accepted": self.accepted}
        return content | {key: list(content[key]) for key in ("nics", "interfaces", "protection")}

    def acceptance(self) -> list[Limit]:
        """Which limits held: loss and delay (99.9 %, ns) are below theirs, MOS is at least its own.

        MOS is that of the worst scored stream (PESQ, on P.862.1's scale of opinions). It is left
        out as long as there is no quality.
        """
        limits, voice, delay_ns = self.limits, self.voice, self.voice.delay_ns.p999
        if limits is None:
            return []
        is_in_time = delay_ns is not None and delay_ns < limits.delay_ns
        found = [
            Limit("loss", limits.loss, voice.loss_ratio, voice.loss_ratio < limits.loss),
            Limit("delay", limits.delay_ns, delay_ns, is_in_time),
        ]
        if self.quality is not None:
            mos = self.quality.mos_lqo.min
            found.append(Limit("MOS", limits.mos, mos, mos >= limits.mos))
        return found

    @property
    def accepted(self) -> bool | None:
        """Whether every limit held; None where the limits are not known."""
        found = self.acceptance()
        return all(limit.held for limit in found) if found else None


def _quality(content: Mapping[str, Any]) -> Quality:
    return Quality(
        **{
            **content,
            "pesq": Scores(**content["pesq"]),
            "mos_lqo": Scores(**content["mos_lqo"]),
            "e_model_mos": Scores(**content["e_model_mos"]),
            "worst": WorstCall(**content["worst"]),
        }
    )
