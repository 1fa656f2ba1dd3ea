"""`laxity voice`: the calls of a capture, scored, as a table, as JSON and as sound."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.errors import InputError
from laxity.tables.layout import heading, plain_table, right
from laxity.text import bare, number, percent, time
from laxity.voice import capture as captures
from laxity.voice import playout, quality
from laxity.voice.reference import write_wav

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console, ConsoleOptions, RenderResult

    from laxity.voice.call import Call
    from laxity.voice.capture import Capture, LeftOut
    from laxity.voice.quality import CallQuality

ROWS_MAX = 20
"""A table shows this many calls at most: the worst."""


@dataclass(frozen=True)
class ScoredCapture:
    """A capture, and how good its calls were."""

    path: Path
    found: Capture
    playout_ns: int
    one_in: int
    calls: list[Call]
    """Those that were scored."""
    qualities: list[CallQuality]
    """The quality of each call."""

    def to_json(self) -> dict[str, Any]:
        """Everything, the calls in the order of the capture."""
        return {
            "capture": str(self.path),
            "packets": self.found.packets,
            "not_udp": self.found.not_udp,
            "not_rtp": self.found.not_rtp,
            "cut_packet": self.found.cut_packet,
            "playout_ns": self.playout_ns,
            "one_in": self.one_in,
            "summary": asdict(quality.summary(self.qualities)),
            "calls": [asdict(call) | self._left_out(call.name) for call in self.qualities],
            "unscored": [asdict(stream) for stream in self.found.unscored],
        }

    def _left_out(self, name: str) -> dict[str, Any]:
        found = self.found.left_out.get(name)
        return {"left_out": found and asdict(found)}

    def write_wav(self, directory: Path) -> None:
        """Writes what is heard of each call to a WAV file: 8 kHz, 16 bit."""
        directory.mkdir(parents=True, exist_ok=True)
        for place, call in enumerate(self.calls, 1):
            name = re.sub(r"[^0-9A-Za-z.]+", "-", call.name)
            heard = quality.heard(call, playout.fixed(call, self.playout_ns))
            write_wav(directory / f"{place:04}-{name}.wav", heard)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The worst calls first, then all of them together."""
        del console, options
        yield _table(self)


def refuse_unless_new(directory: Path) -> None:
    """Before any work is done for files that would then lie among others.

    Raises:
        InputError: the directory is there, and is not empty.
    """
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        raise InputError(f"{directory} exists already", "name a new directory, or an empty one")


def run(
    path: Path, playout_ns: int, one_in: int, progress: Callable[[int, int], None] | None
) -> ScoredCapture:
    """Reads and scores a capture."""
    found = captures.read(path)
    qualities = quality.score_calls(
        found.calls, one_in=one_in, playout_ns=playout_ns, progress=progress
    )
    return ScoredCapture(path, found, playout_ns, one_in, found.calls[::one_in], qualities)


def _table(result: ScoredCapture) -> Group:
    worst = sorted(result.qualities, key=lambda call: (call.pesq, -call.loss))
    # Between the same two addresses it is the source (SSRC) that tells calls apart.
    addresses = {call.name.partition(" ")[2] for call in worst}
    between = addresses.pop() if len(addresses) == 1 else None
    table = plain_table(
        Column("call", overflow="fold", min_width=8),
        *right("PESQ", "MOS", "R", "delay", "lost %", "late %"),
    )
    for call in worst[:ROWS_MAX]:
        style = "" if call.is_toll_quality else "red"
        table.add_row(
            Text(call.name.partition(" ")[0] if between else call.name),
            Text(call.dead or f"{call.pesq:.2f}", style),
            f"{call.mos_lqo:.2f}",
            f"{call.r:.0f}",
            time(call.delay_ns),
            bare(call.loss),
            bare(call.late_ratio),
        )
    total = quality.summary(result.qualities)
    lines: list[Any] = [_heading(result), *([Text(between)] if between else []), ""]
    lines += [table, _legend(result)]
    if len(worst) > ROWS_MAX:
        lines.append(f"{number(len(worst) - ROWS_MAX, 'better call')} not shown")
    lines += ["", _verdict(total), _percentiles(total)]
    lines += _left_out(result)
    if result.found.unscored:
        lines += ["", *_unscored(result)]
    return Group(*lines)


def _left_out(result: ScoredCapture) -> list[Any]:
    """What the scores are not of."""
    lines: list[Any] = []
    if result.found.cut_packet is not None:
        where = f"The file ends in the middle of packet {result.found.cut_packet:,}"
        lines += ["", Text(f"{where}: scored up to there", "yellow")]
    scored = [call.name for call in result.calls if call.name in result.found.left_out]
    if scored:
        text = f"{number(len(scored), 'call')} scored over what is speech, without:"
        lines += ["", Text(text, "yellow")]
    for name in scored[:ROWS_MAX]:
        lines.append(Text(f"  {name}"))
        lines.append(Text(f"    {_besides(result.found.left_out[name])}"))
    if len(scored) > ROWS_MAX:
        lines.append(Text(f"  and {len(scored) - ROWS_MAX:,} more"))
    return lines


def _besides(found: LeftOut) -> str:
    counts = (
        (found.event_packets, "packet of tones", "packets of tones"),
        (found.comfort_noise_packets, "packet of comfort noise", "packets of comfort noise"),
        (found.stray_packets, "stray packet", "stray packets"),
        (found.pauses, "pause", "pauses"),
        (found.restarts, "restart", "restarts"),
    )
    words = [f"{count:,} {one if count == 1 else many}" for count, one, many in counts if count]
    if found.silent_ns:
        words.append(f"{found.silent_ns / 1e9:.1f} s in all")
    return ", ".join(words)


def _heading(result: ScoredCapture) -> Text:
    calls = number(len(result.found.calls), "call")
    sampled = "" if result.one_in == 1 else f", one in {result.one_in} scored"
    return heading(result.path.name, f"{calls}{sampled}, playout {time(result.playout_ns)}")


def _legend(result: ScoredCapture) -> Text:
    is_known = all(call.is_delay_known for call in result.calls)
    delay = "delay: from mouth to ear"
    if not is_known:
        delay += ", at least: what the network always takes is not in a capture"
    return Text(f"MOS: PESQ's, by P.862.1. R: the E-model's. {delay}", "dim")


def _verdict(total: quality.Summary) -> Text:
    share = percent(total.toll_quality / total.calls)
    text = f"{share} of {number(total.calls, 'call')} of toll quality"
    text += f" (PESQ {quality.TOLL_QUALITY:g} or better)"
    if total.dead:
        text += f", {total.dead:,} dead"
    return Text(text, "bold green" if total.toll_quality == total.calls else "bold red")


def _percentiles(total: quality.Summary) -> str:
    scores = ", ".join(f"{name} {score:.2f}" for name, score in total.pesq.items())
    lost, late = percent(total.loss), percent(total.late_ratio)
    return f"PESQ: {scores}\nPackets: {lost} lost, {late} late"


def _unscored(result: ScoredCapture) -> list[Text]:
    streams = result.found.unscored
    lines = [Text(f"{number(len(streams), 'stream')} not scored:", "yellow")]
    lines += [Text(f"  {stream.name} {stream.why}") for stream in streams[:ROWS_MAX]]
    if len(streams) > ROWS_MAX:
        lines.append(Text(f"  and {len(streams) - ROWS_MAX:,} more"))
    return lines
