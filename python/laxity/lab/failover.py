"""What a failure of a Xen host was seen to do, from outside both hosts.

Pure: from the frames of a guest that counts (xen/programs/laxity-counter.c), and from what the
hosts' daemons said meanwhile. All times are the wall's of this computer, but for those that the
guest has measured itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Literal

from laxity.lab.errors import LabError

Mode = Literal["net", "no-net"]
"""Output waits for its checkpoint, or not."""

SAID = struct.Struct(">8sQQQ")
"""What the guest sends: a magic word, the number, and in ns its time and its longest standstill."""
MAGIC = b"LAXITYCT"
NS_PER_S = 10**9

SURVIVES = 20
"""Numbers that are to be heard of a guest that goes on."""


@dataclass(frozen=True)
class Frame:
    """What was heard of a guest."""

    heard_s: float
    number: int
    said_s: float
    """By the guest's clock, which begins anywhere."""
    stood_still_s: float
    """The longest that lay between two looks at its clock since the number before."""


def parse(heard_s: float, frame: bytes) -> Frame | None:
    """The guest's message, if an Ethernet frame has one."""
    at = frame.find(MAGIC)
    if at < 0 or len(frame) < at + SAID.size:
        return None
    _, number, said_ns, longest_ns = SAID.unpack_from(frame, at)
    return Frame(heard_s, number, said_ns / NS_PER_S, longest_ns / NS_PER_S)


@dataclass(frozen=True)
class Progress:
    """What the standby's daemon has said of its stream."""

    seen_s: float
    checkpoint: int
    """The number of the last one that it has acknowledged."""
    stream_bytes: int
    """The length of the stream so far."""


@dataclass
class Story:
    """All that was seen."""

    before: list[Frame] = field(default_factory=list)
    """From the host that fails, in the order in which they came."""
    after: list[Frame] = field(default_factory=list)
    """From the one that takes over."""
    copying_s: float | None = None
    """Remus began."""
    armed: list[Progress] = field(default_factory=list)
    """Since the standby could take over."""
    cut_s: float | None = None
    """The power of the first host."""
    detected_s: float | None = None
    """The second host has begun to take over."""
    running_s: float | None = None
    """Xl has let the guest run there."""


@dataclass(frozen=True)
class Failover:
    """What came of it. Times in seconds."""

    copy_s: float
    """For all of the guest's memory, until the standby could take over."""
    checkpoint: int
    """The last one that the second host told of."""
    epoch_s: float
    """From one checkpoint to the next, in the mean: the interval, and what xl takes."""
    checkpoint_bytes: float
    """The mean length of a checkpoint in the stream."""
    pause_p50_s: float
    """How long the guest stood still for a checkpoint, as it saw itself."""
    pause_max_s: float
    delay_p50_s: float
    """By how much longer a number was on its way than the quickest one."""
    delay_max_s: float
    detection_s: float
    """From the failure to when the second host takes over."""
    running_s: float
    """From the failure to when xl has let the guest run."""
    silence_s: float
    """From the failure to the first number."""
    last: int
    """The largest number that left the first host."""
    first: int
    """The number with which the second one's guest begins."""
    heard: int
    """How many left the second host."""

    @property
    def undone(self) -> int:
        """How many numbers that somebody had seen were said again."""
        return max(0, self.last - self.first + 1)

    @property
    def unheard(self) -> int:
        """How many were held when the host failed, and were never heard."""
        return max(0, self.first - self.last - 1)


def measure(story: Story) -> Failover:
    """What a story comes to. Raises LabError if it has no end, or not the one it should have."""
    if not story.before or not story.after:
        raise LabError(
            f"{len(story.before)} numbers were heard from the first host and {len(story.after)} "
            "from the second"
        )
    copying_s, cut_s = story.copying_s, story.cut_s
    detected_s, running_s = story.detected_s, story.running_s
    if copying_s is None or cut_s is None or detected_s is None or running_s is None:
        raise LabError("the daemons have not said what they did, and when")
    if detected_s < cut_s or story.after[0].heard_s < cut_s:
        raise LabError("the second host took over while the first one was there")
    first, last = (story.armed[0], story.armed[-1]) if story.armed else (None, None)
    if first is None or last is None or first.checkpoint == last.checkpoint:
        raise LabError("there were too few checkpoints to measure")
    numbers = [frame.number for frame in story.after]
    if any(number <= before for before, number in pairwise(numbers)):
        raise LabError("the second host's guest does not count as it should")
    if len(numbers) < SURVIVES:
        raise LabError(f"only {len(numbers)} numbers were heard from the second host")
    checkpoints = last.checkpoint - first.checkpoint
    protected = [f for f in story.before if first.seen_s <= f.heard_s <= last.seen_s]
    if len(protected) < checkpoints:
        raise LabError("too few numbers were heard from the protected guest to measure pauses")
    # A checkpoint is one pause, and nothing else makes the guest stand still for so long.
    pauses = sorted(frame.stood_still_s for frame in protected)[-checkpoints:]
    quickest_s = min(frame.heard_s - frame.said_s for frame in story.before)
    delays = [frame.heard_s - frame.said_s - quickest_s for frame in protected]
    return Failover(
        copy_s=first.seen_s - copying_s,
        checkpoint=last.checkpoint,
        epoch_s=(last.seen_s - first.seen_s) / checkpoints,
        checkpoint_bytes=(last.stream_bytes - first.stream_bytes) / checkpoints,
        pause_p50_s=median(pauses),
        pause_max_s=pauses[-1],
        delay_p50_s=median(delays),
        delay_max_s=max(delays),
        detection_s=detected_s - cut_s,
        running_s=running_s - cut_s,
        silence_s=story.after[0].heard_s - cut_s,
        last=max(frame.number for frame in story.before),
        first=numbers[0],
        heard=len(numbers),
    )
