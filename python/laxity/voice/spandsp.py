"""G.711, G.722 and packet loss concealment by spandsp.

It is the telephone world's library of signal processing. Debian has it as libspandsp2. Its
concealment repeats the last pitch period, which fades out within 50 ms, much as appendix I of ITU-T
G.711 does it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import numpy.typing as npt

from laxity.voice import libraries

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Iterable, Iterator

Law = Literal["mu", "a"]
"""A law of G.711: mu-law (PCMU) or A-law (PCMA)."""

LAWS: tuple[Law, ...] = get_args(Law)

Samples = npt.NDArray[np.int16]
Octets = npt.NDArray[np.uint8]

LIBRARY = "libspandsp.so.2"
MODES = {"a": 0, "mu": 1}
"""spandsp's `G711_ALAW` and `G711_ULAW`."""

FRAME_SAMPLES_MIN = 30
"""Samples of the shortest frame that is concealed. At the start of a gap spandsp's `plc_fillin`
blends a quarter of a pitch period, at most 30 samples, and writes them however short the frame
is."""


@cache
def library() -> ctypes.CDLL:
    """The library, with the types of the functions that are called.

    Raises InputError if it is not there.
    """
    pointer, number = libraries.POINTER, libraries.INT
    start = (pointer, (pointer, number, number))
    end = (number, (pointer,))
    code = (number, (pointer, pointer, pointer, number))
    conceal = (number, (pointer, pointer, number))
    return libraries.load(
        LIBRARY,
        "libspandsp2",
        "voice quality",
        {
            "g711_init": (pointer, (pointer, number)),
            "g711_free": end,
            "g711_encode": code,
            "g711_decode": code,
            "g722_encode_init": start,
            "g722_encode_free": end,
            "g722_encode": code,
            "g722_decode_init": start,
            "g722_decode_free": end,
            "g722_decode": code,
            "plc_init": (pointer, (pointer,)),
            "plc_free": end,
            "plc_rx": conceal,
            "plc_fillin": conceal,
        },
    )


def encode(samples: Samples, law: Law) -> Octets:
    """16-bit samples as octets of G.711, of the same shape."""
    octets = np.empty(samples.shape, np.uint8)
    _g711(library().g711_encode, np.ascontiguousarray(samples, np.int16), octets, law)
    return octets


def decode(octets: Octets, law: Law) -> Samples:
    """Octets of G.711 as 16-bit samples, of the same shape."""
    samples = np.empty(octets.shape, np.int16)
    _g711(library().g711_decode, np.ascontiguousarray(octets, np.uint8), samples, law)
    return samples


def _g711(
    function: Callable[..., int], source: Samples | Octets, target: Samples | Octets, law: Law
) -> None:
    spandsp = library()
    state = spandsp.g711_init(None, MODES[law])
    function(state, target.ctypes.data, source.ctypes.data, source.size)
    spandsp.g711_free(state)


def conceal(frames: Samples, is_there: Iterable[bool]) -> Samples:
    """What is heard of `frames`, shape `(frames, samples)`, where some are not there.

    Those are made up from what came before them; the frame after a gap is blended into what was
    made up. What stands in a frame that is not there plays no part. Raises ValueError if frames are
    shorter than `FRAME_SAMPLES_MIN`.
    """
    return next(concealed([(frames, is_there)]))


def concealed(blocks: Iterable[tuple[Samples, Iterable[bool]]]) -> Iterator[Samples]:
    """The same for frames that come in blocks, of which one at a time is in memory."""
    spandsp = library()
    state = spandsp.plc_init(None)
    try:
        for frames, is_there in blocks:
            heard = np.array(frames, np.int16, order="C")
            samples = heard.shape[1]
            if samples < FRAME_SAMPLES_MIN:
                raise ValueError(f"frames of {samples} samples: spandsp writes past their ends")
            for frame, was_there in zip(heard, is_there, strict=True):
                step = spandsp.plc_rx if was_there else spandsp.plc_fillin
                step(state, frame.ctypes.data, samples)
            yield heard
    finally:
        spandsp.plc_free(state)
