"""The calls of a capture, scored, as JSON and as sound."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from laxity import extras
from laxity.errors import InputError
from laxity.voice import capture as captures
from laxity.voice import playout, quality
from laxity.voice.reference import write_wav

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from laxity.voice.call import Call
    from laxity.voice.capture import Capture
    from laxity.voice.quality import CallQuality


@dataclass(frozen=True)
class ScoredCapture:
    """A capture, and how good its calls were."""

    path: Path
    found: Capture
    playout_ns: int
    adaptive: bool
    one_in: int
    calls: list[Call]
    """Those that were scored."""
    qualities: list[CallQuality]
    """The quality of each call."""

    def to_json(self) -> dict[str, object]:
        """Everything, the calls in the order of the capture."""
        return {
            "capture": str(self.path),
            "packets": self.found.packets,
            "not_udp": self.found.not_udp,
            "not_rtp": self.found.not_rtp,
            "cut_packet": self.found.cut_packet,
            "playout_ns": self.playout_ns,
            "adaptive": self.adaptive,
            "one_in": self.one_in,
            "summary": asdict(quality.summary(self.qualities)),
            "calls": [
                asdict(quality)
                | {"opus": call.opus and asdict(call.opus)}
                | self._left_out(call.name)
                for call, quality in zip(self.calls, self.qualities, strict=True)
            ],
            "unscored": [asdict(stream) for stream in self.found.unscored],
        }

    def _left_out(self, name: str) -> dict[str, object]:
        found = self.found.left_out.get(name)
        return {"left_out": found and asdict(found)}

    def write_wav(self, directory: Path) -> None:
        """Writes what is heard of each call to a WAV file: 8 kHz, 16 bit."""
        directory.mkdir(parents=True, exist_ok=True)
        for place, call in enumerate(self.calls, 1):
            name = re.sub(r"[^0-9A-Za-z.]+", "-", call.name)
            played = playout.played(call, self.playout_ns, adaptive=self.adaptive)
            heard = quality.heard(call, played)
            write_wav(directory / f"{place:04}-{name}.wav", heard)


def refuse_unless_new(directory: Path) -> None:
    """Before any work is done for files that would then lie among others.

    Raises:
        InputError: the directory is there, and is not empty.
    """
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise InputError(f"{directory} exists already", "name a new directory, or an empty one")


def score_capture(
    path: Path,
    playout_ns: int,
    one_in: int,
    progress: Callable[[int, int], None] | None,
    *,
    adaptive: bool = False,
    opus: Sequence[int] = (),
) -> ScoredCapture:
    """Reads and scores a capture, of which these payload types are Opus unless it says else."""
    extras.require("pesq")
    found = captures.read(path, opus)
    qualities = quality.score_calls(
        found.calls, one_in=one_in, playout_ns=playout_ns, adaptive=adaptive, progress=progress
    )
    return ScoredCapture(
        path, found, playout_ns, adaptive, one_in, found.calls[::one_in], qualities
    )
