"""The calls in a capture."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from laxity import _core, files
from laxity.errors import InputError
from laxity.voice.call import PACKET_NS_MIN, Call, Opus, packets_problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from laxity.voice.call import Coding, Times


@dataclass(frozen=True)
class Unscored:
    """A stream of RTP that is not one call of G.711, G.722 or Opus."""

    name: str
    packets: int
    why: str


@dataclass(frozen=True)
class LeftOut:
    """What a stream has besides speech, and is not scored."""

    event_packets: int
    """Telephone events (RFC 4733): tones of a keypad."""
    comfort_noise_packets: int
    """Those of comfort noise, and those of Opus that only say that silence goes on."""
    stray_packets: int
    """Packets whose numbers and timestamps fit no others."""
    pauses: int
    """Nothing was sent for at least a packet's length, and the stream went on."""
    restarts: int
    """Numbers, timestamps or the source (SSRC) began anew."""
    silent_ns: int
    """All the time without speech."""

    def __bool__(self) -> bool:
        """Whether there is anything but speech."""
        return any(vars(self).values())


@dataclass(frozen=True)
class Capture:
    """What was found in a capture."""

    calls: list[Call]
    """In the order of their first packets. Only one clock is known, the capture's."""
    unscored: list[Unscored]
    packets: int
    """Packets of all kinds."""
    not_udp: int
    not_rtp: int
    """UDP that is not RTP, such as signalling."""
    cut_packet: int | None
    """The packet in the middle of which the file ends, from 1, if it does."""
    left_out: dict[str, LeftOut]
    """Packets that are no speech, by the name of the call that has them."""


def read(path: Path, opus: Sequence[int] = ()) -> Capture:
    """The calls in a pcap or pcapng file.

    `opus` are the payload types, 96 to 127, that are Opus where signalling in the capture says
    nothing of them.

    Raises:
        InputError: it is no capture, its packets are not whole, or it has no call that can be
            scored; it says which.
        OSError: it cannot be read.
    """
    # An error names the path and what it is.
    files.open_regular(path, "a pcap or pcapng file").close()
    try:
        text, times = _core.rtp_streams(str(path), list(opus))
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}", "give a pcap or pcapng file") from None
    found = json.loads(text)
    calls, unscored, left_out = [], [], {}
    for stream, (sequence, arrived) in zip(found["streams"], times, strict=True):
        if "problem" in stream:
            unscored.append(Unscored(stream["name"], stream["packets"], stream["problem"]))
            continue
        packet_ns = stream["packet_ns"]
        coding = stream["codec"] if stream["opus"] is None else Opus(**stream["opus"])
        problem = packets_problem((coding,), packet_ns)
        if problem is not None:
            why = f"has {problem[0]}"
            unscored.append(Unscored(stream["name"], stream["packets"], why))
            continue
        numbers = (np.frombuffer(octets, "<i8") for octets in (sequence, arrived))
        besides = LeftOut(**stream["left_out"])
        if besides:
            left_out[stream["name"]] = besides
        calls.append(_call(stream["name"], *numbers, packet_ns=packet_ns, coding=coding))
    if not found["streams"]:
        raise InputError(
            f"{path} has no RTP: of {found['packets']:,} packets {found['not_udp']:,} are not UDP "
            f"and {found['not_rtp']:,} not RTP" + _cut(found["cut_packet"]),
            "capture on the way to the receiver, such as with tcpdump -s 0 udp",
        )
    if not calls:
        first = unscored[0]
        raise InputError(
            f"{path} has no call that can be scored: stream {first.name} {first.why}"
            + (f", and {len(unscored) - 1:,} more" if len(unscored) > 1 else ""),
            "only streams of G.711 and G.722, in packets of at least "
            f"{PACKET_NS_MIN / 1e6} ms, and of Opus can be",
        )
    counts = {key: found[key] for key in ("packets", "not_udp", "not_rtp", "cut_packet")}
    return Capture(calls, unscored, **counts, left_out=left_out)


def _cut(packet: int | None) -> str:
    return "" if packet is None else f"; the file ends in the middle of packet {packet:,}"


def _call(name: str, sequence: Times, arrived_ns: Times, *, packet_ns: int, coding: Coding) -> Call:
    """Sent every `packet_ns`, so early that the fastest packet took no time."""
    spoken_ns = (sequence - sequence.min()) * packet_ns
    since_ns = arrived_ns - arrived_ns.min()
    start_ns = int((since_ns - spoken_ns).min())
    return Call(
        name,
        sequence,
        spoken_ns,
        since_ns - start_ns,
        packet_ns=packet_ns,
        laws=(coding,),
        is_delay_known=False,
    )
