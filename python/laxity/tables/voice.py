"""The table of the calls of a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.tables.layout import heading, plain_table, right
from laxity.text import bare, number, percent, time
from laxity.voice import quality

if TYPE_CHECKING:
    from laxity.voice.capture import LeftOut
    from laxity.voice.scored_capture import ScoredCapture


ROWS_MAX = 20
"""A table shows this many calls at most: the worst."""


def voice_table(result: ScoredCapture) -> Group:
    """The worst calls first, then all of them together."""
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
    depth = f"playout {'adaptive from ' if result.adaptive else ''}{time(result.playout_ns)}"
    return heading(result.path.name, f"{calls}{sampled}, {depth}")


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
