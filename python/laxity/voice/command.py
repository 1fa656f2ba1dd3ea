"""`laxity voice`: the calls of a capture, scored, as a table, as JSON and as sound."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity import tables
from laxity.errors import InputError
from laxity.voice import capture as captures
from laxity.voice import playout, quality
from laxity.voice.reference import write_wav

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console, ConsoleOptions, RenderResult

    from laxity.voice.call import Call
    from laxity.voice.capture import Capture
    from laxity.voice.quality import CallQuality

ROWS_MAX = 20
"""Of calls in a table: the worst."""


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
    """Of each of them."""

    def to_json(self) -> dict[str, Any]:
        """Everything, the calls in the order of the capture."""
        return {
            "capture": str(self.path),
            "packets": self.found.packets,
            "not_udp": self.found.not_udp,
            "not_rtp": self.found.not_rtp,
            "playout_ns": self.playout_ns,
            "one_in": self.one_in,
            "summary": asdict(quality.summary(self.qualities)),
            "calls": [asdict(call) for call in self.qualities],
            "unscored": [asdict(stream) for stream in self.found.unscored],
        }

    def write_wav(self, directory: Path) -> None:
        """Writes what is heard of each call to a WAV file: 8 kHz, 16 bit."""
        directory.mkdir(parents=True, exist_ok=True)
        for number, call in enumerate(self.calls, 1):
            name = re.sub(r"[^0-9A-Za-z.]+", "-", call.name)
            heard = quality.audio(call, playout.fixed(call, self.playout_ns))
            write_wav(directory / f"{number:04}-{name}.wav", heard)

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
    table = tables.plain_table(
        Column("call", overflow="fold", min_width=8),
        *tables.right("PESQ", "MOS", "R", "delay", "lost %", "late %"),
    )
    for call in worst[:ROWS_MAX]:
        style = "" if call.is_toll_quality else "red"
        table.add_row(
            Text(call.name.partition(" ")[0] if between else call.name),
            Text(call.dead or f"{call.pesq:.2f}", style),
            f"{call.mos_lqo:.2f}",
            f"{call.r:.0f}",
            tables.time(call.delay_ns),
            tables.bare(call.loss),
            tables.bare(call.late_ratio),
        )
    total = quality.summary(result.qualities)
    lines: list[Any] = [_heading(result), *([Text(between)] if between else []), ""]
    lines += [table, _legend(result)]
    if len(worst) > ROWS_MAX:
        lines.append(f"{tables.number(len(worst) - ROWS_MAX, 'better call')} not shown")
    lines += ["", _verdict(total), _percentiles(total)]
    if result.found.unscored:
        lines += ["", *_unscored(result)]
    return Group(*lines)


def _heading(result: ScoredCapture) -> Text:
    calls = tables.number(len(result.found.calls), "call")
    sampled = "" if result.one_in == 1 else f", one in {result.one_in} scored"
    return tables.heading(
        result.path.name, f"{calls}{sampled}, playout {tables.time(result.playout_ns)}"
    )


def _legend(result: ScoredCapture) -> Text:
    is_known = all(call.is_delay_known for call in result.calls)
    delay = "delay: from mouth to ear"
    if not is_known:
        delay += ", at least: what the network always takes is not in a capture"
    return Text(f"MOS: PESQ's, by P.862.1. R: the E-model's. {delay}", "dim")


def _verdict(total: quality.Summary) -> Text:
    share = tables.percent(total.toll_quality / total.calls)
    text = f"{share} of {tables.number(total.calls, 'call')} of toll quality"
    text += f" (PESQ {quality.TOLL_QUALITY:g} or better)"
    if total.dead:
        text += f", {total.dead:,} dead"
    return Text(text, "bold green" if total.toll_quality == total.calls else "bold red")


def _percentiles(total: quality.Summary) -> str:
    scores = ", ".join(f"{name} {score:.2f}" for name, score in total.pesq.items())
    lost, late = tables.percent(total.loss), tables.percent(total.late_ratio)
    return f"PESQ: {scores}\nPackets: {lost} lost, {late} late"


def _unscored(result: ScoredCapture) -> list[Text]:
    streams = result.found.unscored
    lines = [Text(f"{tables.number(len(streams), 'stream')} not scored:", "yellow")]
    lines += [Text(f"  {stream.name} {stream.why}") for stream in streams[:ROWS_MAX]]
    if len(streams) > ROWS_MAX:
        lines.append(Text(f"  and {len(streams) - ROWS_MAX:,} more"))
    return lines
