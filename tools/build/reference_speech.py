"""Makes the reference speech that voice quality is measured with.

    .venv/bin/python tools/build/reference_speech.py         writes the package's reference.wav
    .venv/bin/python tools/build/reference_speech.py FILE    writes it elsewhere

Needs espeak-ng (its sound belongs to whoever made it speak). 30 s, 8 kHz, 16 bit: ten sentences of
our own in five voices, with pauses of equal length between them, in the telephone's band. While
somebody speaks the level is -26 dBov, which ITU-T P.830 plans for. A noise floor lies under all of
it, as under every real line: in digital silence PESQ takes the steps of mu-law around zero for a
disturbance, and almost half a point off.
"""

from __future__ import annotations

import io
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt

SAMPLES_PER_SECOND = 8_000
SAMPLES = 30 * SAMPLES_PER_SECOND
FULL_SCALE = 32_768
ACTIVE_LEVEL_DBOV = -26.0
NOISE_SIGMA = 20.0
"""Standard deviation of the noise, of 32768: -64 dBov, what a quiet room leaves on a line."""
SEED = 862
BAND_HZ = (100.0, 200.0, 3_400.0, 3_800.0)
"""Where the band begins, is whole, is whole no more, and ends."""
FRAME = SAMPLES_PER_SECOND // 50
MARGIN_DB = 15.9
"""What is so much below the active level is a pause (ITU-T P.56)."""
ENOUGH_DB = 0.001
WORDS_PER_MINUTE = 175
AUDIBLE = 100
"""A sentence begins and ends where it is so much below its peak, 40 dB."""

SENTENCES = (
    ("en-gb", "The ferry leaves the harbour shortly after nine."),
    ("en-us+f3", "Seven green bottles stood beside the open window."),
    ("en-gb-x-rp", "Please ask your neighbour to water the roses."),
    ("en-gb+f2", "A cold wind blew the washing off the line."),
    ("en-us", "The judge thanked both witnesses and closed the case."),
    ("en-us+f3", "We found the missing key under a heavy chair."),
    ("en-gb", "Fresh bread and yellow cheese make a good lunch."),
    ("en-gb+f2", "Who will carry those boxes up to the attic?"),
    ("en-gb-x-rp", "The old bridge shook as the last train passed."),
    ("en-us", "She shut the gate so that no sheep could wander off."),
)

Signal = npt.NDArray[np.float64]


def spoken(voice: str, sentence: str) -> tuple[Signal, int]:
    """The samples of a sentence, and how many of them are a second."""
    command = ["espeak-ng", "-v", voice, "-s", str(WORDS_PER_MINUTE), "--stdout", sentence]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    # Its header was written before the length was known.
    with wave.open(io.BytesIO(output)) as file:
        rate = file.getframerate()
    samples = np.frombuffer(output[44 : len(output) // 2 * 2], "<i2")
    return samples.astype(float), rate


def in_the_telephone_band(signal: Signal, rate: int) -> Signal:
    """At 8 kHz, without what is below 100 Hz or above 3.8 kHz."""
    # Silence at both ends lets the filter ring, and makes both lengths whole numbers of samples.
    signal = np.concatenate([np.zeros(rate), signal])
    seconds = -(-signal.size // rate) + 1
    spectrum = np.fft.rfft(signal, seconds * rate)[: seconds * SAMPLES_PER_SECOND // 2 + 1]
    hertz = np.arange(spectrum.size) / seconds
    begin, whole, ending, end = BAND_HZ
    rise = np.clip((hertz - begin) / (whole - begin), 0, 1)
    fall = np.clip((end - hertz) / (end - ending), 0, 1)
    spectrum *= np.sin(np.pi / 2 * rise) ** 2 * np.sin(np.pi / 2 * fall) ** 2
    resampled = np.fft.irfft(spectrum, seconds * SAMPLES_PER_SECOND) * SAMPLES_PER_SECOND / rate
    audible = np.flatnonzero(np.abs(resampled) > np.abs(resampled).max() / AUDIBLE)
    return resampled[audible[0] : audible[-1] + 1]


def active_level_dbov(signal: Signal) -> float:
    """The level of the frames in which somebody speaks: those at most `MARGIN_DB` below it."""
    frames = signal[: signal.size // FRAME * FRAME].reshape(-1, FRAME)
    levels = 10 * np.log10((frames**2).mean(axis=1) / FULL_SCALE**2 + 1e-12)
    level = -np.inf
    while True:
        active = levels[levels >= level - MARGIN_DB]
        found = float(10 * np.log10((10 ** (active / 10)).mean()))
        if found - level < ENOUGH_DB:
            return found
        level = found


def reference_speech() -> npt.NDArray[np.int16]:
    """All of it: shape `(SAMPLES,)`."""
    parts = []
    for voice, sentence in SENTENCES:
        part = in_the_telephone_band(*spoken(voice, sentence))
        parts.append(part * 10 ** ((ACTIVE_LEVEL_DBOV - active_level_dbov(part)) / 20))
    pause, rest = divmod(SAMPLES - sum(part.size for part in parts), len(parts) + 1)
    if pause < FRAME:
        sys.exit("error: the sentences take longer than 30 s; is this another espeak-ng?")
    silence = np.zeros(pause)
    pieces = [piece for part in parts for piece in (silence, part)]
    speech = np.concatenate([*pieces, silence, np.zeros(rest)])
    # Not `default_rng`: this one's numbers are promised to stay what they are.
    noise = np.random.RandomState(SEED).normal(0, NOISE_SIGMA, SAMPLES)
    return np.rint(speech + noise).astype(np.int16)


def main() -> None:
    """Writes the file."""
    default = Path(__file__).parents[2] / "python" / "laxity" / "voice" / "reference.wav"
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLES_PER_SECOND)
        file.writeframes(reference_speech().astype("<i2").tobytes())
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
