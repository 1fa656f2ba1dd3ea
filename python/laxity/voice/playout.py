"""The playout buffer: which packets are there when their turn to be heard comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from laxity.voice.call import Call

BUFFER_NS = 60_000_000
"""How long the first packet waits, if nothing else is said: three packets, as usual in telephones,
and what `laxity-media` counts a packet as late after."""


@dataclass(frozen=True, eq=False)
class Playout:
    """What a playout buffer makes of a call; arrays have a place for each packet that was sent."""

    heard: npt.NDArray[np.bool_]
    """The packet was there in time."""
    arrived: npt.NDArray[np.bool_]
    """It was there at all."""
    delay_ns: int | None
    """From the mouth to the ear, on average: speech is collected for a packet, sent, and waits.
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
    heard = np.zeros(call.packets, np.bool_)
    arrived = np.zeros(call.packets, np.bool_)
    rows = np.flatnonzero(call.has_arrived)
    if not rows.size:
        return Playout(heard, arrived, None)
    place = call.sequence[rows] - call.sequence.min()
    arrived_ns = call.arrived_ns[rows]
    first = np.lexsort((place, arrived_ns))[0]
    due_ns = arrived_ns[first] + buffer_ns + (place - place[first]) * call.packet_ns
    arrived[place] = True
    heard[place[arrived_ns <= due_ns]] = True
    waited_ns = int(np.mean(due_ns - call.sent_ns[rows]))
    return Playout(heard, arrived, call.packet_ns + waited_ns)
