"""The reference speech as Opus carries it: coded as the stream is, and heard as narrow-band.

The encoder takes it at 48 kHz, so that it uses the bandwidth and the bits that the stream has; its
upper band has nothing, since the reference speech has none. The decoder itself gives it back at
8 kHz, at which PESQ compares narrow-band speech, and conceals what is missing.
"""

from __future__ import annotations

import weakref
from functools import lru_cache, partial
from typing import TYPE_CHECKING, get_args

import numpy as np

from laxity.errors import InputError
from laxity.voice import coders
from laxity.voice.call import Bandwidth
from laxity.voice.reference import SAMPLES_PER_SECOND, reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.voice.call import Call, Opus
    from laxity.voice.coders import Coder
    from laxity.voice.playout import Playout
    from laxity.voice.spandsp import Octets, Samples

CODED_HZ = 48_000
PACKET_OCTETS_MAX = 8_000
"""More than the largest packet has: 6 frames of 20 ms (RFC 6716, section 3.2.1)."""
EXPECTED_LOSS_PERCENT = 10
"""The loss that an encoder with error correction is told to expect, on which it depends how many
bits it takes from the speech for the copies. A stream does not say what its encoder was told."""


@lru_cache(maxsize=16)
def reference_packets(coding: Opus, packet_ns: int) -> tuple[Octets, ...]:
    """The packets of the reference speech, which is a whole number of them long.

    Raises InputError if libopus is not there.
    """
    channels = 2 if coding.stereo else 1
    bandwidth = coders.OPUS_BANDWIDTH_NARROWBAND + get_args(Bandwidth).index(coding.bandwidth)
    settings = {coders.OPUS_SET_BITRATE: coding.bit_s, coders.OPUS_SET_BANDWIDTH: bandwidth}
    if coding.error_correction:
        settings |= {
            coders.OPUS_SET_INBAND_FEC: 1,
            coders.OPUS_SET_PACKET_LOSS_PERC: EXPECTED_LOSS_PERCENT,
        }
    coder = partial(
        coders.opus_encoder,
        CODED_HZ,
        channels=channels,
        application=coders.OPUS_APPLICATION_RESTRICTED_LOWDELAY
        if coding.low_delay
        else coders.OPUS_APPLICATION_VOIP,
    )
    speech = coders.raised(reference(), CODED_HZ // SAMPLES_PER_SECOND)
    said = np.repeat(speech, channels).reshape(-1, packet_ns * CODED_HZ // 10**9 * channels)
    packets = _encoded(coder(settings), said)
    # The encoder spends less than it may. The second time it spends about what the stream has.
    spent = sum(packet.size for packet in packets) * 8 / (len(packets) * packet_ns / 1e9)
    settings[coders.OPUS_SET_BITRATE] = max(1, round(coding.bit_s**2 / spent))
    return _encoded(coder(settings), said)


def _encoded(encoder: Coder, said: Samples) -> tuple[Octets, ...]:
    """The packet of each row."""
    room = np.zeros(PACKET_OCTETS_MAX, np.uint8)
    packets = []
    for row in said:
        size = coders.called(encoder.calls(row, room))
        if size is None or size <= 0:
            raise InputError(
                f"libopus does not encode Opus: error {size}", "install another version of it"
            )
        packets.append(room[:size].copy())
    return tuple(packets)


class Decoder:
    """The decoder of one call."""

    def __init__(self) -> None:
        """Begins a call."""
        library = coders.opus()
        self._decode = library.opus_decode
        self._state = library.opus_decoder_create(SAMPLES_PER_SECOND, 1, None)
        weakref.finalize(self, library.opus_decoder_destroy, self._state)

    def decode(self, packet: Octets, heard: Samples) -> None:
        """What a packet has, into as many samples."""
        self._decode(self._state, packet.ctypes.data, packet.size, *_room(heard), 0)

    def recover(self, after: Octets, heard: Samples) -> None:
        """A lost packet, from what the one after it knows of it; concealed if that is nothing."""
        self._decode(self._state, after.ctypes.data, after.size, *_room(heard), 1)

    def conceal(self, heard: Samples) -> None:
        """A lost packet, made up from what came before."""
        self._decode(self._state, None, 0, *_room(heard), 0)


def _room(samples: Samples) -> tuple[int, int]:
    return samples.ctypes.data, samples.size


def heard(call: Call, coding: Opus, playout: Playout) -> Iterator[Samples]:
    """What is heard of a call, in pieces as long as the reference speech.

    A packet that is not there is recovered from the next one, if that is there in time, and else
    concealed.
    """
    packets = reference_packets(coding, call.packet_ns)
    samples = call.packet_ns * SAMPLES_PER_SECOND // 1_000_000_000
    decoder = Decoder()
    for first in range(0, call.packets, len(packets)):
        piece = np.zeros((min(len(packets), call.packets - first), samples), np.int16)
        for place, of_packet in enumerate(piece):
            number, after = first + place, (place + 1) % len(packets)
            if playout.heard[number]:
                decoder.decode(packets[place], of_packet)
            elif coding.error_correction and playout.early[number + 1 : number + 2].any():
                decoder.recover(packets[after], of_packet)
            else:
                decoder.conceal(of_packet)
        yield piece.ravel()
