"""The report on a capacity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.directory import Manifest
from laxity.report.page import (
    Cell,
    Page,
    Section,
    Table,
    changes,
    command,
    costs,
    host_text,
    plain,
    repeats,
    substrate_of,
)
from laxity.tables.capacity import capacity_verdict, load_of, what_is_varied
from laxity.telephony.capacity import Capacity
from laxity.text import NOTHING, percent, time

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.results.acceptance import Limit
    from laxity.telephony.capacity import Tried


def page(directory: Path) -> Page:
    """Reads what `laxity capacity -o` wrote."""
    manifest = Manifest.load(directory)
    found = Capacity.load(directory)
    what = what_is_varied(found.key)
    carried = found.carried
    verdict = (
        f"Carries {load_of(found.key, carried.load)} {what}."
        if carried
        else "The smallest load is already too much."
    )
    said = [" ".join(str(line).split()) for line in capacity_verdict(found)]
    seeds = found.seeds
    on = substrate_of(found.origin)
    duration_ns = found.tried[0].runs[0].duration_ns
    return Page(
        kind="Capacity",
        verdict=verdict,
        tone="good" if found.passed else "bad",
        lead=" ".join(f"{each}." for each in said),
        facts=[
            ("Asked for by the host file", f"{load_of(found.key, found.own)} {what}"),
            ("Seeds", f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])),
            ("Duration of each run", time(duration_ns)),
            *costs(found.profiles),
            *changes(manifest.overrides),
        ],
        sections=[Section("Loads", tables=(_ramp(found),))],
        command=command(
            ["capacity", "host.toml", "--seeds", str(len(seeds)), *on.words], manifest.overrides
        ),
        repeats=repeats(on),
        host=host_text(directory),
        version=manifest.version,
    )


def _ramp(found: Capacity) -> Table:
    columns = (what_is_varied(found.key), "accepted", "lost", "delay, 99.9 %", "MOS", "bottleneck")
    note = (
        "Each load is shown with the worst of its seeds. MOS is PESQ's (P.862.1), the worst of the "
        "sampled streams that lost most packets. Red: a limit that did not hold."
    )
    rows = [
        [
            Cell(load_of(found.key, tried.load)),
            Cell(f"{tried.accepted} of {len(tried.runs)}", "good" if tried.held else "bad"),
            *_cells(tried),
            *plain(tried.gives_out.short if tried.gives_out else ""),
        ]
        for tried in found.tried
    ]
    return Table("Every load that was tried", columns, rows, note=note)


def _cells(tried: Tried) -> list[Cell]:
    limits = {limit.name: limit for limit in tried.limits}
    return [_cell(limits.get(name)) for name in ("loss", "delay", "MOS")]


def _cell(limit: Limit | None) -> Cell:
    if limit is None or limit.found is None:
        return Cell(NOTHING)
    match limit.name:
        case "loss":
            text = percent(limit.found)
        case "delay":
            text = time(round(limit.found))
        case _:
            text = f"{limit.found:.2f}"
    return Cell(text, "" if limit.held else "bad")
