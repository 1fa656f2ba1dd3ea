"""The reference speech, which callers say in every call that is scored."""

from __future__ import annotations

import wave
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity.voice.spandsp import Samples

SAMPLES_PER_SECOND = 8_000

PATH = Path(__file__).with_name("reference.wav")
"""30 s of speech, made by `tools/build/reference_speech.py`, which says what it is."""


@cache
def reference() -> Samples:
    """The whole of it: 30 s, 8 kHz, 16 bit; shape `(240_000,)`, not to be written to."""
    with wave.open(str(PATH)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.int16)
    samples.setflags(write=False)
    return samples


def write_wav(path: Path, pieces: Iterable[Samples]) -> None:
    """Writes 16-bit samples, 8 kHz, one channel, to a new file, one piece after the other."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLES_PER_SECOND)
        for samples in pieces:
            file.writeframes(samples.astype("<i2").tobytes())
