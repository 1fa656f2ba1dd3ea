"""The playout buffer: which packets are there when their turn to be heard comes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from laxity.voice.reference import SAMPLES_PER_SECOND, reference

if TYPE_CHECKING:
    from collections.abc import Callable

    from laxity.voice.call import Call

    Rows = npt.NDArray[np.int64]
    """Places of the packets that arrived: in the call's arrays, or among the packets sent."""

BUFFER_NS = 60_000_000
"""How long the first packet waits, if nothing else is said: three packets, as usual in telephones,
and what `laxity-media` counts a packet as late after."""

MEMORY = 0.998_002
"""The weight of what was known before in both averages of an adaptive buffer (Ramjee, Kurose,
Towsley and Schulzrinne, *Adaptive playout mechanisms for packetized audio applications in wide-area
networks*, INFOCOM 1994, algorithm 1)."""
DEVIATIONS = 4
"""Mean deviations of the delay by which speech is played later than its average (the same)."""

SPEECH_DBOV = -26.0
"""The level of the reference speech."""
MARGIN_DB = 15.9
"""Speech is active down to so far below its level (ITU-T P.56, method B)."""
HANGOVER_NS = 200_000_000
"""Shorter pauses belong to the speech around them (ITU-T P.56, method B)."""


@dataclass(frozen=True, eq=False)
class Playout:
    """What a playout buffer makes of a call; arrays have a place for each packet that was sent."""

    heard: npt.NDArray[np.bool_]
    """The packet was there in time."""
    arrived: npt.NDArray[np.bool_]
    """It was there at all."""
    early: npt.NDArray[np.bool_]
    """It was there when the turn of the packet before came, as far as one talk spurt goes: what it
    knows of that one can be heard."""
    delay_ns: int | None
    """From the mouth to the ear, on average: speech is collected for a packet and as much as its
    encoder waits for, sent, and waits.
    None if nothing arrived."""

    @property
    def lost(self) -> int:
        """Packets that never arrived."""
        return int((~self.arrived).sum())

    @property
    def late(self) -> int:
        """Packets that arrived when their turn was over."""
        return int((self.arrived & ~self.heard).sum())


def fixed(call: Call, buffer_ns: int = BUFFER_NS) -> Playout:
    """A buffer of fixed depth, as receivers have it that do not stretch speech.

    The packet that arrives first is heard `buffer_ns` later, and every other one as much before or
    after it as it was spoken. One that arrives just then is in time. If a packet arrives more than
    once, the first arrival counts.
    """
    return _played(call, buffer_ns, _fixed_ns)


def played(call: Call, buffer_ns: int = BUFFER_NS, *, adaptive: bool = False) -> Playout:
    """A buffer of fixed depth, or one that adapts from that depth on.

    An adaptive buffer follows the network's delay, from one talk spurt to the next. The first spurt
    is played as through a fixed buffer, from whose depth the averages of the delay and of its
    deviation begin. They change with every arrival, and when the first packet of another spurt
    arrives they set when the spurt is played: `DEVIATIONS` deviations after the average. A pause
    grows or shrinks by that, to nothing at most.
    """
    return _played(call, buffer_ns, _adaptive_ns if adaptive else _fixed_ns)


def _played(
    call: Call, buffer_ns: int, due: Callable[[Call, Rows, Rows, int], npt.NDArray[np.int64]]
) -> Playout:
    """`due` says when each packet that arrived is played: ns after it was sent."""
    heard, arrived, early = (np.zeros(call.packets, np.bool_) for _ in range(3))
    rows = np.flatnonzero(call.has_arrived)
    if not rows.size:
        return Playout(heard, arrived, early, None)
    place = call.sequence[rows] - call.sequence.min()
    due_ns = due(call, rows, place, buffer_ns)
    arrived[place] = True
    taken_ns = call.arrived_ns[rows] - call.sent_ns[rows]
    heard[place[taken_ns <= due_ns]] = True
    early[place[taken_ns <= due_ns - call.packet_ns]] = True
    ahead_ns = call.opus.ahead_ns if call.opus is not None else 0
    return Playout(heard, arrived, early, call.packet_ns + ahead_ns + int(np.mean(due_ns)))


def _fixed_ns(call: Call, rows: Rows, place: Rows, buffer_ns: int) -> npt.NDArray[np.int64]:
    arrived_ns = call.arrived_ns[rows]
    first = np.lexsort((place, arrived_ns))[0]
    due_ns = arrived_ns[first] + buffer_ns + (place - place[first]) * call.packet_ns
    return np.asarray(due_ns - call.sent_ns[rows])


def _adaptive_ns(call: Call, rows: Rows, place: Rows, buffer_ns: int) -> npt.NDArray[np.int64]:
    order = np.lexsort((place, call.arrived_ns[rows]))
    # Averages know the first arrival of each packet only.
    _, first = np.unique(place[order], return_index=True)
    order = order[np.sort(first)]
    delay_ns = (call.arrived_ns[rows] - call.sent_ns[rows])[order]
    spurts, pauses_ns = _spurts(call.packet_ns, call.packets)
    of_packet_ns = np.zeros(call.packets, np.int64)
    of_packet_ns[place[order]] = _due_ns(delay_ns, spurts[place[order]], pauses_ns, buffer_ns)
    return of_packet_ns[place]


def _due_ns(
    delays_ns: npt.NDArray[np.int64],
    spurts: npt.NDArray[np.int64],
    pauses_ns: npt.NDArray[np.int64],
    buffer_ns: int,
) -> npt.NDArray[np.int64]:
    """How long after it was sent each packet is played; packets as they arrive, with their spurts.

    `pauses_ns` has the pause before each spurt.
    """
    # The first spurt has the depth that was asked for.
    average_ns, deviation_ns = float(delays_ns[0]), buffer_ns / DEVIATIONS
    depths_ns = {int(spurts[0]): int(delays_ns[0]) + buffer_ns}
    due_ns = np.empty(delays_ns.size, np.int64)
    last = int(spurts[0])
    for row, (delay_ns, spurt) in enumerate(zip(delays_ns.tolist(), spurts.tolist(), strict=True)):
        average_ns = MEMORY * average_ns + (1 - MEMORY) * delay_ns
        deviation_ns = MEMORY * deviation_ns + (1 - MEMORY) * abs(average_ns - delay_ns)
        if spurt not in depths_ns:
            depth_ns = int(average_ns + DEVIATIONS * deviation_ns)
            # What was said before is played first.
            paused_ns = int(pauses_ns[min(spurt, last) + 1 : max(spurt, last) + 1].sum())
            least_ns = depths_ns[last] - paused_ns
            depths_ns[spurt] = max(depth_ns, least_ns)
            last = spurt
        due_ns[row] = depths_ns[spurt]
    return due_ns


@lru_cache(maxsize=8)
def _spurts(packet_ns: int, packets: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The talk spurt of each packet, counted from 0, and the pause before each spurt, ns.

    The reference speech tells: a spurt begins with speech after a pause, and has the pause after
    it, too.
    """
    threshold = (1 << 15) * 10 ** ((SPEECH_DBOV - MARGIN_DB) / 20)
    active = np.flatnonzero(np.sqrt(_powers(packet_ns, packets)) >= threshold)
    pause_packets = np.diff(active, prepend=-1) - 1
    begins = pause_packets * packet_ns >= HANGOVER_NS
    begins[:1] = False
    starts = np.zeros(packets, np.int64)
    starts[active[begins]] = 1
    pauses_ns = np.concatenate([[0], pause_packets[begins] * packet_ns])
    return np.cumsum(starts), pauses_ns.astype(np.int64)


def _powers(packet_ns: int, packets: int) -> npt.NDArray[np.float64]:
    """The mean square of the reference speech in each packet of a call.

    It is computed in pieces of 30 s, so that a long call takes no more memory.
    """
    samples = packet_ns * SAMPLES_PER_SECOND // 1_000_000_000
    each = max(1, reference().size // samples)
    powers = np.empty(packets)
    for first in range(0, packets, each):
        piece = np.arange(first * samples, min(first + each, packets) * samples)
        speech = reference().take(piece, mode="wrap").reshape(-1, samples).astype(np.float64)
        powers[first : first + each] = np.mean(speech**2, axis=1)
    return powers
