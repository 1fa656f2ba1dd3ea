"""A call in one direction: which packets were sent, and when each arrived."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from laxity.errors import InputError
from laxity.voice.reference import SAMPLES_PER_SECOND
from laxity.voice.spandsp import FRAME_SAMPLES_MIN, LAWS

LOST = -1
"""In place of the time of arrival of a packet that did not arrive."""

SEQUENCE_BITS = 16
DROPOUT_MAX = 3_000
"""Numbers that packets of one stream may be apart (RFC 3550, A.1); further, it was begun anew."""
LOST_FOR_ONE_MAX = 100
"""Numbers that a call may have for each packet that is known of it: what it takes to score a call
grows with its length (`crates/laxity-media/src/speech.rs` has the same for captures)."""

SAMPLE_NS = 1_000_000_000 // SAMPLES_PER_SECOND
PACKET_NS_MIN = FRAME_SAMPLES_MIN * SAMPLE_NS

Bandwidth = Literal["narrow", "medium", "wide", "superwide", "full"]
"""The audio that Opus carries: up to 4, 6, 8, 12 or 20 kHz."""


@dataclass(frozen=True)
class Opus:
    """How speech is coded in Opus (RFC 6716)."""

    bit_s: int
    """The mean bit rate."""
    bandwidth: Bandwidth = "wide"
    low_delay: bool = False
    """CELT alone, without the parts of Opus that are for speech."""
    stereo: bool = False
    error_correction: bool = False
    """Each packet has another copy of the one before, where the encoder thinks that it is worth
    it."""

    def __post_init__(self) -> None:
        """Refuses what libopus does not code."""
        if self.bit_s <= 0:
            raise InputError(f"Opus at {self.bit_s} bit/s", "give 6,000 to 510,000")
        if self.bandwidth not in get_args(Bandwidth):
            raise InputError(
                f"Opus of the bandwidth {self.bandwidth!r}",
                f"the bandwidths are {', '.join(get_args(Bandwidth))}",
            )

    @property
    def ahead_ns(self) -> int:
        """How much of the speech after a packet its encoder waits for (RFC 6716, section 2)."""
        return 2_500_000 if self.low_delay else 6_500_000


OPUS_PACKETS_MS = (2.5, 5, 10, 20, 40, 60, 80, 100, 120)
"""The packets that libopus encodes."""

Coding = Literal["mu", "a", "g722"] | Opus
"""How speech is coded: under a law of G.711, in G.722 at 64 kbit/s, or in Opus."""
G722: Coding = "g722"

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Call:
    """The packets of one direction of a call: three arrays of one length, as sent or as arrived.

    A number that stands twice is a duplicate; one that is missing between the lowest and the
    highest is a packet that was lost.
    """

    name: str
    sequence: Times
    """Sequence numbers: as RTP has them, modulo 2^16, or counted on. Here they are counted on from
    the first."""
    sent_ns: Times
    """When each was sent, on any clock that starts at 0 or later."""
    arrived_ns: Times
    """When each arrived, on the same clock, or `LOST`."""
    packet_ns: int = 20_000_000
    """The speech in each."""
    laws: tuple[Coding, ...] = ("mu",)
    """How it was coded on the way; two laws if a media server transcoded. G.722 and Opus stand
    alone."""
    is_delay_known: bool = field(default=True, kw_only=True)
    """False if the two clocks are not one: then `sent_ns` is such that the fastest packet took no
    time, and all delays are what comes on top of its delay."""

    def __post_init__(self) -> None:
        """Refuses what is no call.

        Raises:
            InputError: it says which array is wrong, and why.
        """
        for name in ("sequence", "sent_ns", "arrived_ns"):
            object.__setattr__(self, name, _whole(self.name, name, getattr(self, name)))
        if not self.sequence.size == self.sent_ns.size == self.arrived_ns.size:
            raise InputError(
                f"call {self.name}: {self.sequence.size} sequence numbers, {self.sent_ns.size} "
                f"times sent and {self.arrived_ns.size} arrived",
                "give one of each for every packet",
            )
        object.__setattr__(self, "sequence", unwrapped(self.name, self.sequence))
        if self.packets > DROPOUT_MAX + LOST_FOR_ONE_MAX * self.sequence.size:
            raise InputError(
                f"call {self.name}: {self.sequence.size:,} packets of {self.packets:,}",
                f"give those that were lost too, as {LOST}",
            )
        if (self.sent_ns < 0).any() or (self.arrived_ns < LOST).any():
            raise InputError(
                f"call {self.name}: a time before 0",
                f"count from the start of the run; only a packet that was lost arrives at {LOST}",
            )
        if self.is_delay_known and ((self.arrived_ns < self.sent_ns) & self.has_arrived).any():
            raise InputError(
                f"call {self.name}: a packet arrives before it is sent",
                "both times must be of one clock; if they are not, say is_delay_known=False",
            )
        if self.packet_ns <= 0 or self.packet_ns % SAMPLE_NS:
            raise InputError(
                f"call {self.name}: packets of {self.packet_ns} ns",
                f"give a whole number of samples of {SAMPLE_NS} ns",
            )
        problem = packets_problem(self.laws, self.packet_ns)
        if problem is not None:
            raise InputError(f"call {self.name}: {problem[0]}", problem[1])
        if not self.laws or not all(
            isinstance(law, Opus) or law in {*LAWS, G722} for law in self.laws
        ):
            raise InputError(
                f"call {self.name}: laws {self.laws}", 'they are "mu", "a", "g722" and Opus(…)'
            )
        if len(self.laws) > 1 and not set(self.laws) <= set(LAWS):
            raise InputError(
                f"call {self.name}: G.722 or Opus and another codec, one after the other",
                'give one of them alone, as in laws=("g722",), or laws of G.711',
            )

    @property
    def opus(self) -> Opus | None:
        """How it was coded, if that was in Opus."""
        return next((law for law in self.laws if isinstance(law, Opus)), None)

    @property
    def has_arrived(self) -> npt.NDArray[np.bool_]:
        """Whether the packet of each row arrived."""
        return np.not_equal(self.arrived_ns, LOST)

    @property
    def packets(self) -> int:
        """How many were sent, from the lowest number to the highest."""
        return int(self.sequence.max() - self.sequence.min()) + 1 if self.sequence.size else 0

    @property
    def duplicates(self) -> int:
        """Arrivals of what had arrived before."""
        arrived = self.sequence[self.has_arrived]
        return int(arrived.size - np.unique(arrived).size)

    @property
    def reordered(self) -> int:
        """Packets that arrived, for the first time, after one of a higher number (RFC 4737)."""
        order = np.lexsort((self.sequence, self.arrived_ns))
        arrived = self.sequence[order][self.has_arrived[order]]
        _, first = np.unique(arrived, return_index=True)
        arrived = arrived[np.sort(first)]
        return int((arrived < np.maximum.accumulate(arrived)).sum()) if arrived.size else 0


def packets_problem(laws: tuple[Coding, ...], packet_ns: int) -> tuple[str, str] | None:
    """Why packets of this length cannot be scored, and what can be; None if they can."""
    what = f"packets of {packet_ns / 1e6:g} ms"
    if any(isinstance(law, Opus) for law in laws):
        if packet_ns / 1e6 in OPUS_PACKETS_MS:
            return None
        durations = ", ".join(f"{duration:g}" for duration in OPUS_PACKETS_MS)
        return f"{what}, which libopus does not encode", f"it encodes packets of {durations} ms"
    if packet_ns >= PACKET_NS_MIN:
        return None
    least = f"give packets of at least {PACKET_NS_MIN / 1e6} ms"
    return f"{what}, which are too short to be concealed", least


def _whole(call: str, name: str, values: Any) -> Times:  # noqa: ANN401 - what people give
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"call {call}: {name} is of type {array.dtype} and shape {array.shape}",
            "give a row of whole numbers",
        )
    return array.astype(np.int64)


def unwrapped(call: str, sequence: Times) -> Times:
    """Numbers modulo 2^16, in the order of packets, counted on from the first (RFC 3550, A.1).

    Each is taken as the nearest to the one before that it can be. Where there is one of 2^16 or
    more they are counted on already, and stay as they are.

    Raises:
        InputError: two that follow each other are too far apart for one stream.
    """
    half, whole = 1 << SEQUENCE_BITS - 1, 1 << SEQUENCE_BITS
    steps = np.diff(sequence)
    if not (sequence >= whole).any():
        steps = (steps + half) % whole - half
    far = np.flatnonzero(np.abs(steps) > DROPOUT_MAX)
    if far.size:
        before, after = sequence[far[0] : far[0] + 2]
        raise InputError(
            f"call {call}: sequence number {after} comes after {before}",
            f"numbers of one stream are at most {DROPOUT_MAX:,} apart; give two streams as two",
        )
    return np.concatenate([sequence[:1], sequence[:1] + np.cumsum(steps)])
