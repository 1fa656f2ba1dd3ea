"""How many streams a CPU carries for each thing that a media server does with them.

Packets of 20 ms come at random phases. A CPU that has enough time on the average may have too
little in a frame of 5 ms, into which more packets fall than on the average, or dearer ones. Frames
are therefore drawn: the packets that fall into each, and what each of them takes, from what was
measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.calibration import processing as of
from laxity.results.streams import PACKET_NS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from laxity.calibration.processing import Processing

    Array = npt.NDArray[Any]

CPU_PART = 0.5
"""The part of a CPU that a server of voice should take at most, by default."""

FRAME_NS = 5_000_000
FRAMES = PACKET_NS // FRAME_NS
"""Frames from one packet of a stream to the next."""
DRAWS = 1_000
"""Times that the phases of all streams are drawn; each gives `FRAMES` frames."""
DRAWN_TOGETHER_MAX = 1_000_000
"""Packets that are drawn at a time, which bounds memory, if one draw of all phases has fewer."""
SEED = 1
QUANTILES = (0.5, 0.99, 0.999)

RELAY = "relay"


@dataclass(frozen=True, eq=False)
class Service:
    """What a media server does with a stream, and how many streams a CPU carries of it."""

    name: str
    costs_ns: tuple[Array, ...]
    """CPU time of packets, drawn together: what one takes is the sum of one of each. The arrays of
    one direction of a call; `back_ns` has those of the other."""
    back_ns: tuple[Array, ...] = ()
    """Empty if both directions are alike."""
    together: int = 1
    """Streams whose packets are processed at one time, as those of a conference are."""

    @property
    def packet_cpu_ns(self) -> float:
        """The mean of both directions."""
        ways = [self.costs_ns, self.back_ns or self.costs_ns]
        return float(np.mean([sum(float(part.mean()) for part in way) for way in ways]))

    def streams(self, cpu_part: float) -> int:
        """Streams that take this part of a CPU on the average, in whole conferences."""
        return int(cpu_part * PACKET_NS / self.packet_cpu_ns / self.together) * self.together

    def frames(self, cpu_part: float) -> Frames:
        """What frames of 5 ms take with that many streams; the same each time."""
        return Frames.of(self.drawn_ns(self.streams(cpu_part)))

    def to_json(self, cpu_part: float) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints of it."""
        return {
            "name": self.name,
            "packet_cpu_ns": self.packet_cpu_ns,
            "streams": self.streams(cpu_part),
            "frames": self.frames(cpu_part).to_json(),
        }

    def drawn_ns(self, streams: int) -> Array:
        """The CPU time that each of many frames takes with so many streams, at random phases."""
        random = np.random.default_rng(SEED)
        groups = streams // self.together
        # The packets that fall into each frame: those of a group all fall into one.
        counts = random.multinomial(groups, [1 / FRAMES] * FRAMES, size=DRAWS) * self.together
        at_a_time = max(1, DRAWN_TOGETHER_MAX // max(1, streams))
        drawn = [
            self._sums(counts[first : first + at_a_time].ravel(), random)
            for first in range(0, DRAWS, at_a_time)
        ]
        return np.concatenate(drawn)

    def _sums(self, packets: Array, random: np.random.Generator) -> Array:
        """What so many packets take, for each of the numbers; every second goes the other way."""
        total = int(packets.sum())
        taken_ns = _drawn(self.costs_ns, total, random)
        if self.back_ns:
            is_back = np.arange(total) % 2 == 1
            taken_ns[is_back] = _drawn(self.back_ns, int(is_back.sum()), random)
        before = np.concatenate([[0], np.cumsum(taken_ns)])
        ends = np.cumsum(packets)
        taken: Array = before[ends] - before[ends - packets]
        return taken


def _drawn(parts: Sequence[Array], size: int, random: np.random.Generator) -> Array:
    """Sums of one draw from each of the arrays."""
    total = np.zeros(size)
    for part in parts:
        total += part[random.integers(part.size, size=size)]
    return total


@dataclass(frozen=True)
class Frames:
    """What frames of 5 ms take, as parts of a CPU."""

    p50: float
    p99: float
    p999: float
    over: float
    """The part of the frames that take more than 5 ms: their packets wait for the next one."""
    drawn: int

    @staticmethod
    def of(frames_ns: Array) -> Frames:
        """The quantiles of the CPU times of frames."""
        quantiles = np.quantile(frames_ns, QUANTILES) / FRAME_NS
        p50, p99, p999 = map(float, quantiles)
        return Frames(p50, p99, p999, float(np.mean(frames_ns > FRAME_NS)), int(frames_ns.size))

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints of it."""
        return {
            "frame_ns": FRAME_NS,
            "p50": self.p50,
            "p99": self.p99,
            "p999": self.p999,
            "over": self.over,
            "drawn": self.drawn,
        }


def services_of(relay_ns: Array, processing: Processing) -> Iterator[Service]:
    """Everything whose steps were measured; `relay_ns` is what relayed packets take."""
    yield Service(RELAY, (relay_ns,))
    taken = processing.all_ns
    if processing.has(of.UNPROTECT, of.PROTECT):
        yield Service("relay, SRTP both ways", (relay_ns, taken(of.UNPROTECT), taken(of.PROTECT)))
    if processing.has(of.RECORD):
        yield Service("relay and record", (relay_ns, taken(of.RECORD)))
    for one, other in of.transcoded_pairs(processing):
        yield Service(
            f"transcode {one}, {other}",
            (relay_ns, taken(of.decode(one)), taken(of.encode(other))),
            (relay_ns, taken(of.decode(other)), taken(of.encode(one))),
        )
    if processing.has(of.decode("G.711"), of.MIX):
        parts = (relay_ns, taken(of.decode("G.711")), taken(of.MIX), taken(of.encode("G.711")))
        together = processing.participants
        yield Service(f"conference of {together}, G.711", parts, together=together)
