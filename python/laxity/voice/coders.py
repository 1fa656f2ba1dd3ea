"""Codecs of voice, packet by packet, by the libraries that media servers use.

G.711 and G.722 are spandsp's, Opus is libopus, and G.729 is bcg729. Each encoder and each decoder
has the state of one stream.
"""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.errors import InputError
from laxity.voice import libraries, spandsp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from laxity.voice.spandsp import Octets, Samples

PACKET_MS = 20
"""The speech in a packet, as telephones send it."""

OCTETS_MAX = 1_276
"""Octets of the largest packet: one of Opus (RFC 6716, section 3.2.1: a byte and a frame)."""

G711_OCTETS, G722_OCTETS, G729_OCTETS = 160, 160, 20
"""Octets of a packet at 64, 64 and 8 kbit/s."""

G729_FRAME_OCTETS, G729_FRAME_SAMPLES = 10, 80
"""A frame of 10 ms."""

G722_BIT_S = 64_000

OPUS_BIT_S = 24_000
"""Between the 16 and 20 kbit/s of wide-band speech and the 28 to 40 kbit/s of full-band speech that
RFC 7587, section 3.1.1, calls sweet spots."""
OPUS_APPLICATION_VOIP, OPUS_APPLICATION_RESTRICTED_LOWDELAY = 2_048, 2_051
OPUS_SET_BITRATE = 4_002
OPUS_SET_BANDWIDTH = 4_008
OPUS_SET_INBAND_FEC = 4_012
OPUS_SET_PACKET_LOSS_PERC = 4_014
OPUS_BANDWIDTH_NARROWBAND, OPUS_BANDWIDTH_WIDEBAND = 1_101, 1_103
"""The names and numbers of `opus_defines.h`; bandwidths are numbered from the narrowest on."""

Call = tuple[Any, tuple[Any, ...]]
"""A function of a library, and what it is called with."""


@dataclass(frozen=True, eq=False)
class Coder:
    """An encoder or a decoder of one stream, with what it remembers from packet to packet."""

    calls: Callable[[Samples | Octets, Samples | Octets], list[Call]]
    """The calls that turn a packet, the first array, into what the second has room for. The result
    of the last call is how much that is, in octets or samples, if the library tells."""


@dataclass(frozen=True)
class Codec:
    """A codec, with the settings that are common in telephony."""

    name: str
    library: str
    samples_per_second: int
    packet_octets: int | None
    """None if the library tells, for each packet."""
    encoder: Callable[[], Coder]
    """Raises InputError if its library is not there, as `decoder` does."""
    decoder: Callable[[], Coder]

    @property
    def packet_samples(self) -> int:
        """Samples of a packet."""
        return self.samples_per_second * PACKET_MS // 1000

    def encoded(self, octets: Octets, result: int | None) -> Octets:
        """The octets of a packet in a longer array, after the last call of its encoder."""
        if self.packet_octets is None and (result is None or result <= 0):
            raise InputError(
                f"{self.library} does not encode {self.name}: error {result}",
                "install another version of it",
            )
        return octets[: self.packet_octets or result]


def called(calls: list[Call]) -> int | None:
    """Calls them one after the other; the result of the last one."""
    result = None
    for function, arguments in calls:
        result = function(*arguments)
    return result


def _coder(
    state: int,
    free: Callable[[int], object],
    calls: Callable[[int, Samples | Octets, Samples | Octets], list[Call]],
) -> Coder:
    """A coder whose state is freed with it."""
    coder = Coder(partial(calls, state))
    weakref.finalize(coder, free, state)
    return coder


def _spandsp(codec: str, direction: str) -> Coder:
    library = spandsp.library()
    function = getattr(library, f"{codec}_{direction}")

    def calls(state: int, given: Samples | Octets, room: Samples | Octets) -> list[Call]:
        return [(function, (state, room.ctypes.data, given.ctypes.data, given.size))]

    if codec == "g711":
        return _coder(library.g711_init(None, spandsp.MODES["mu"]), library.g711_free, calls)
    start = getattr(library, f"{codec}_{direction}_init")
    return _coder(start(None, G722_BIT_S, 0), getattr(library, f"{codec}_{direction}_free"), calls)


@cache
def opus() -> ctypes.CDLL:
    """libopus, with the types of its functions.

    Raises InputError if it is not there.
    """
    pointer, number = libraries.POINTER, libraries.INT32
    return libraries.load(
        "libopus.so.0",
        "libopus0",
        "Opus",
        {
            "opus_encoder_create": (pointer, (number, number, number, pointer)),
            "opus_encoder_destroy": (None, (pointer,)),
            "opus_encode": (number, (pointer, pointer, number, pointer, number)),
            "opus_decoder_create": (pointer, (number, number, pointer)),
            "opus_decoder_destroy": (None, (pointer,)),
            "opus_decode": (number, (pointer, pointer, number, pointer, number, number)),
        },
    )


def opus_encoder(
    samples_per_second: int,
    settings: Mapping[int, int],
    *,
    channels: int = 1,
    application: int = OPUS_APPLICATION_VOIP,
) -> Coder:
    """An encoder with these settings, which are requests of `opus_defines.h` and their values.

    The samples of its channels take turns.
    """
    library = opus()
    state = library.opus_encoder_create(samples_per_second, channels, application, None)
    for request, value in settings.items():
        library.opus_encoder_ctl(ctypes.c_void_p(state), request, value)

    def calls(state: int, samples: Samples | Octets, room: Samples | Octets) -> list[Call]:
        of_channel = samples.size // channels
        given = (state, samples.ctypes.data, of_channel, room.ctypes.data, room.size)
        return [(library.opus_encode, given)]

    return _coder(state, library.opus_encoder_destroy, calls)


def _opus_decoder(samples_per_second: int) -> Coder:
    library = opus()

    def calls(state: int, octets: Samples | Octets, room: Samples | Octets) -> list[Call]:
        given = (state, octets.ctypes.data, octets.size, room.ctypes.data, room.size, 0)
        return [(library.opus_decode, given)]

    state = library.opus_decoder_create(samples_per_second, 1, None)
    return _coder(state, library.opus_decoder_destroy, calls)


@cache
def bcg729() -> ctypes.CDLL:
    """bcg729, with the types of its functions.

    Raises InputError if it is not there.
    """
    pointer, flag = libraries.POINTER, libraries.OCTET
    return libraries.load(
        "libbcg729.so.0",
        "libbcg729-0",
        "G.729",
        {
            "initBcg729EncoderChannel": (pointer, (flag,)),
            "closeBcg729EncoderChannel": (None, (pointer,)),
            "bcg729Encoder": (None, (pointer, pointer, pointer, pointer)),
            "initBcg729DecoderChannel": (pointer, ()),
            "closeBcg729DecoderChannel": (None, (pointer,)),
            "bcg729Decoder": (None, (pointer, pointer, flag, flag, flag, flag, pointer)),
        },
    )


def _g729_encoder() -> Coder:
    library = bcg729()
    length = (ctypes.c_uint8 * 1)()

    def calls(state: int, samples: Samples | Octets, room: Samples | Octets) -> list[Call]:
        where = ctypes.addressof(length)
        frames = _frames(samples, G729_FRAME_SAMPLES, room, G729_FRAME_OCTETS)
        return [(library.bcg729Encoder, (state, given, got, where)) for given, got in frames]

    # 0: no frame is left out in silence (annex B).
    return _coder(library.initBcg729EncoderChannel(0), library.closeBcg729EncoderChannel, calls)


def _g729_decoder() -> Coder:
    library = bcg729()

    def calls(state: int, octets: Samples | Octets, room: Samples | Octets) -> list[Call]:
        frames = _frames(octets, G729_FRAME_OCTETS, room, G729_FRAME_SAMPLES)
        of_frame = (G729_FRAME_OCTETS, 0, 0, 0)
        return [(library.bcg729Decoder, (state, given, *of_frame, got)) for given, got in frames]

    return _coder(library.initBcg729DecoderChannel(), library.closeBcg729DecoderChannel, calls)


def _frames(
    given: Samples | Octets, given_size: int, room: Samples | Octets, room_size: int
) -> Iterator[tuple[int, int]]:
    """Where each frame of a packet begins, and the room for what becomes of it."""
    starts = (
        range(array.ctypes.data, array.ctypes.data + array.nbytes, size * array.itemsize)
        for array, size in ((given, given_size), (room, room_size))
    )
    return zip(*starts, strict=True)


NARROW, WIDE = 8_000, 16_000

CODECS = (
    Codec(
        "G.711",
        "spandsp",
        NARROW,
        G711_OCTETS,
        partial(_spandsp, "g711", "encode"),
        partial(_spandsp, "g711", "decode"),
    ),
    Codec(
        "G.722",
        "spandsp",
        WIDE,
        G722_OCTETS,
        partial(_spandsp, "g722", "encode"),
        partial(_spandsp, "g722", "decode"),
    ),
    Codec(
        "Opus",
        "libopus",
        WIDE,
        None,
        partial(
            opus_encoder,
            WIDE,
            {OPUS_SET_BITRATE: OPUS_BIT_S, OPUS_SET_BANDWIDTH: OPUS_BANDWIDTH_WIDEBAND},
        ),
        partial(_opus_decoder, WIDE),
    ),
    Codec("G.729", "bcg729", NARROW, G729_OCTETS, _g729_encoder, _g729_decoder),
)
"""Opus is mono speech at 16 kHz and 24 kbit/s, with the library's own complexity."""


G722 = next(codec for codec in CODECS if codec.name == "G.722")


def doubled(samples: Samples) -> Samples:
    """Speech at twice the rate."""
    return raised(samples, 2)


def raised(samples: Samples, times: int) -> Samples:
    """Speech at so many times the rate: between each two samples others by a windowed sinc."""
    half = 16
    limits = np.iinfo(np.int16)
    dense = np.empty((samples.size, times), np.int16)
    dense[:, 0] = samples
    for place in range(1, times):
        at = np.arange(-half, half) + 1 - place / times
        weights = np.sinc(at) * np.cos(np.pi * at / (2 * half + 1)) ** 2
        between = np.convolve(samples, weights[::-1] / weights.sum(), "full")[half - 1 :]
        between = np.roll(between[: samples.size], -1)
        dense[:, place] = np.clip(np.rint(between), limits.min, limits.max)
    return dense.ravel()
