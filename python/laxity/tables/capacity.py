"""The table of how many streams, or calls, a host carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.results.acceptance import KINDS
from laxity.tables.calls import limit_lines
from laxity.tables.layout import plain_table, profiles, right
from laxity.telephony.capacity import MOST
from laxity.text import NOTHING, bare, number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laxity.results.acceptance import Limit
    from laxity.telephony.capacity import Capacity, Tried


def capacity_table(found: Capacity) -> RenderableType:
    """The ramp of loads, the carried load, and the bottleneck."""
    names = found.limit_names
    columns = (KINDS[name].column for name in names)
    table = plain_table(
        *right(what_is_varied(found.key), "accepted", *columns, "CPU %"),
        Column("bottleneck", overflow="fold"),
    )
    for tried in found.tried:
        limits = {limit.name: limit for limit in tried.limits}
        used = [
            sum(domain.cpu_ns for domain in run.domains) / run.duration_ns for run in tried.runs
        ]
        accepted = f"{tried.accepted} of {len(tried.runs)}"
        table.add_row(
            load(found, tried),
            Text(accepted, "green" if tried.held else "red"),
            *(_limit_cell(limits.get(name)) for name in names),
            bare(max(used)),
            tried.gives_out.short if tried.gives_out else "",
        )
    legend = ["MOS: the worst of the streams that lost most packets."] if found.is_scored else []
    if len(found.seeds) > 1:
        legend.append(f"Each row is the worst of {len(found.seeds)} seeds.")
    return Group(
        table,
        *([Text(" ".join(legend), "dim")] if legend else []),
        "",
        *capacity_verdict(found),
        *_asked(found),
        *profiles(found.profiles),
        *_remedies(found),
    )


def _remedies(found: Capacity) -> list[RenderableType]:
    """What each change carries in short runs, without the opinion score."""
    if not found.remedies:
        return []
    table = plain_table(Column("change", overflow="fold"), *right("streams"))
    for remedy in found.remedies:
        table.add_row(Text(remedy.what), f"{remedy.streams:,}")
    said = "The first is checked, the others by short runs; laxity design writes the first"
    return ["", table, Text(said, "dim")]


def _limit_cell(limit: Limit | None) -> Text:
    return Text(NOTHING) if limit is None else Text(limit.found_text, "" if limit.held else "red")


def capacity_verdict(found: Capacity) -> list[Text]:
    """Sentences: the carried load, the bottleneck, and whether more may do better than less."""
    lines: list[Text] = []
    carried, refused = found.carried, found.refused
    what = what_is_varied(found.key)
    with_seeds = f"with {number(len(found.seeds), 'seed')}"
    if carried is None:
        lines.append(Text("The smallest load is already too much", "bold red"))
    else:
        least = "" if carried is found.tried[0] else ", and so was every lower load that was tried"
        said = f"Carries {load(found, carried)} {what}: accepted {with_seeds}{least}"
        lines.append(Text("\n".join([said, *limit_lines(carried.limits)]), "bold green"))
    if refused is None:
        whose = "a host file may have" if found.most == MOST[found.key] else "can be run there"
        most = load_of(found.key, found.most)
        lines.append(Text(f"No bottleneck up to {most} {what}, the most that {whose}"))
    elif refused.gives_out is not None:
        why = ""
        if len(refused.runs) > 1:
            why = f" ({refused.accepted} of {number(len(refused.runs), 'seed')} accepted)"
        broken = limit_lines([limit for limit in refused.limits if not limit.held])
        said = f"Bottleneck at {load(found, refused)}{why}: {refused.gives_out.long}"
        lines.append(Text("\n".join([said, *broken])))
    if found.isolated and refused is not None:
        higher = ", ".join(load(found, each) for each in found.isolated)
        said = (
            f"Not monotone: {higher} passed although {load(found, refused)} did not. Whether such "
            "a load passes depends on how packets coincide with the time slices of other VCPUs: do "
            "not rely on it."
        )
        lines.append(Text(said, "yellow"))
    return lines


def _asked(found: Capacity) -> list[Text]:
    """Whether the host file asks for more than is carried."""
    if found.carried is None or found.passed:
        return []
    asked = f"{load_of(found.key, found.own)} {what_is_varied(found.key)}"
    return [Text(f"The host file asks for {asked}, which is too much", "yellow")]


def what_is_varied(key: str) -> str:
    """The unit of a load."""
    return "streams" if key == "calls.streams" else "calls/s"


def load(found: Capacity, tried: Tried) -> str:
    """The load as people say it."""
    return load_of(found.key, tried.load)


def load_of(key: str, load: int) -> str:
    """Streams, or calls a second."""
    return f"{load:,}" if key == "calls.streams" else f"{load / 3600:.3g}"
