"""The reference speech as G.722 carries it: wide-band on the way, and heard as narrow-band.

Its upper band has nothing, since the reference speech has none, and PESQ compares narrow-band
speech.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from laxity.voice import coders
from laxity.voice.reference import reference

if TYPE_CHECKING:
    import numpy.typing as npt

    from laxity.voice.spandsp import Octets, Samples

FILTER_SAMPLES = 61
"""The length of the low-pass filter before every second sample is left out, at 16 kHz."""


@cache
def reference_octets() -> Octets:
    """The reference speech in G.722, an octet for each of its samples; not to be written to.

    Raises InputError if spandsp is not there.
    """
    octets = np.zeros(reference().size, np.uint8)
    encoder = coders.G722.encoder()
    # The calls have addresses only: the speech must outlive them.
    speech = coders.doubled(reference())
    coders.called(encoder.calls(speech, octets))
    octets.setflags(write=False)
    return octets


@cache
def _filter() -> npt.NDArray[np.float64]:
    """A windowed sinc that passes what 8 kHz can carry."""
    at = np.arange(FILTER_SAMPLES) - FILTER_SAMPLES // 2
    weights = np.sinc(at / 2) * np.hamming(FILTER_SAMPLES)
    return np.asarray(weights / weights.sum())


class Receiver:
    """A receiver of one call, whose decoder goes on with each packet that is there."""

    def __init__(self) -> None:
        """Begins a call."""
        self._decoder = coders.G722.decoder()
        self._before = np.zeros(FILTER_SAMPLES - 1, np.int16)

    def decode(self, places: npt.NDArray[np.int64], is_there: npt.NDArray[np.bool_]) -> Samples:
        """The packets whose octets stand at these places of the reference speech, which repeats.

        Shape `(packets, octets)`, of both; what is not there is silent.
        """
        packets = np.zeros(places.shape, np.int16)
        octets = reference_octets().take(places[is_there].ravel(), mode="wrap")
        if octets.size:
            wide = np.zeros(2 * octets.size, np.int16)
            coders.called(self._decoder.calls(octets, wide))
            all_samples = np.concatenate([self._before, wide])
            self._before = all_samples[1 - FILTER_SAMPLES :]
            narrow = np.convolve(all_samples, _filter(), "valid")[::2]
            limits = np.iinfo(np.int16)
            heard = np.clip(np.rint(narrow), limits.min, limits.max).astype(np.int16)
            packets[is_there] = heard.reshape(-1, places.shape[1])
        return packets
