"""Calls and voice in a result: objects around its JSON, and the packets of the sampled streams."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from laxity import _core

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Times = np.ndarray[tuple[int], np.dtype[np.int64]]

LOST = _core.LOST
"""In place of a packet's time of arrival."""

PACKET_NS = 20_000_000
"""Between the packets of a stream: G.711, the one codec."""


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
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the object."""
        content = asdict(self)
        return content | {key: list(content[key]) for key in ("nics", "interfaces", "protection")}


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


@dataclass(frozen=True)
class KeptStream:
    """The packets of a sampled stream, or of 30 s of one."""

    stream: int
    call: int | None
    start_ns: int
    """When the first packet was sent; the others follow evenly."""
    arrived_ns: Times
    """When each arrived; LOST for those that did not."""
    pesq: float | None = None
    """What was heard (P.862); 0 if nothing was, None until it is scored."""

    def delays_ns(self) -> Times:
        """How long each took that arrived."""
        sent_ns = self.start_ns + np.arange(self.arrived_ns.size) * PACKET_NS
        delays_ns: Times = (self.arrived_ns - sent_ns)[self.arrived_ns != LOST]
        return delays_ns


def kept(streams: Iterable[_core.Kept]) -> tuple[KeptStream, ...]:
    """Makes objects of what the extension module gives."""
    return tuple(
        KeptStream(stream, call, start_ns, np.frombuffer(arrived, np.int64))
        for stream, call, start_ns, arrived in streams
    )


_SCHEMA = pa.schema(
    [
        ("stream", pa.int64()),
        ("call", pa.int64()),
        ("start_ns", pa.int64()),
        ("arrived_ns", pa.list_(pa.int64())),
        ("pesq", pa.float64()),
    ]
)


def table_of_streams(streams: Iterable[KeptStream]) -> pa.Table:
    """One row for each stream."""
    rows = [(each.stream, each.call, each.start_ns, each.arrived_ns, each.pesq) for each in streams]
    columns = zip(*rows, strict=True) if rows else [[] for _ in _SCHEMA]
    return pa.table([pa.array(list(column)) for column in columns], schema=_SCHEMA)


def streams_of_table(streams: pa.Table) -> tuple[KeptStream, ...]:
    """Reads `table_of_streams` back."""
    return tuple(
        KeptStream(
            row["stream"],
            row["call"],
            row["start_ns"],
            np.array(row["arrived_ns"], np.int64),
            row["pesq"],
        )
        for row in streams.to_pylist()
    )
