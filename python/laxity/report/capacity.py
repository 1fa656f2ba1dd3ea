"""The report on a capacity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from laxity.directory import Manifest
from laxity.plots.voice import Measure, measures_against
from laxity.report.page import (
    Cell,
    Page,
    Picture,
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
from laxity.results.acceptance import KINDS
from laxity.tables.capacity import capacity_verdict, load_of, what_is_varied
from laxity.telephony.capacity import Capacity
from laxity.text import NOTHING, time

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from laxity.results.acceptance import Limit
    from laxity.telephony.capacity import Tried


def page(directory: Path) -> Page:
    """Reads what `laxity capacity -o` wrote."""
    manifest = Manifest.load(directory)
    found = Capacity.load(directory)
    what = what_is_varied(found.key)
    carried, own = found.carried, load_of(found.key, found.own)
    verdict = (
        f"Carries {load_of(found.key, carried.load)} {what}; the host file asks for {own}."
        if carried
        else "The smallest load is already too much."
    )
    seeds = found.seeds
    on = substrate_of(found.origin)
    duration_ns = found.tried[0].runs[0].duration_ns
    return Page(
        kind="Capacity",
        verdict=verdict,
        tone="good" if found.passed else "bad",
        lead=" ".join(_sentences(str(each)) for each in capacity_verdict(found)),
        facts=[
            ("Asked for by the host file", f"{own} {what}"),
            ("Seeds", f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else str(seeds[0])),
            ("Duration of each run", time(duration_ns)),
            *costs(found.profiles),
            *changes(manifest.overrides),
        ],
        sections=[
            Section("Loads", pictures=(_picture(found),), tables=(_ramp(found),)),
            *([Section("Changes", tables=(_remedies(found),))] if found.remedies else []),
        ],
        command=command(
            [
                *("capacity", "host.toml", "--seeds", str(len(seeds))),
                *(["--remedies"] if found.remedies else []),
                *on.words,
            ],
            manifest.overrides,
        ),
        repeats=repeats(on),
        host=host_text(directory),
        version=manifest.version,
    )


def _sentences(verdict: str) -> str:
    """A sentence, and another one of the limits on the lines beneath it."""
    said, *limits = (line.strip().rstrip(".") for line in verdict.splitlines())
    return f"{said}." + (f" Found: {', '.join(limits)}." if limits else "")


def _picture(found: Capacity) -> Picture:
    what = what_is_varied(found.key)
    rows = [
        {
            "x": tried.load if found.key == "calls.streams" else tried.load / 3600,
            "line": run.policy,
            "loss": 100 * telephony.voice.loss_ratio,
            "delay_ms": (telephony.voice.delay_ns.p999 or math.nan) / 1e6,
        }
        for tried in found.tried
        for run, telephony in zip(tried.runs, tried.telephonies, strict=True)
    ]
    limits = found.tried[0].telephonies[0].limits
    measures = (
        Measure("loss", "Packets lost (%)", 100 * limits.loss),
        Measure("delay_ms", "Delay of 99.9 % (ms)", limits.delay_ns / 1e6),
    )
    bands = " Bands go from the least to the greatest of the seeds." if len(found.seeds) > 1 else ""
    return Picture(
        "loads",
        "Loss and delay at each load",
        "What part of all packets was lost, and how long 99.9 % of them took at most. Dotted lines "
        f"are the host file's limits.{bands}",
        f"Curves of packet loss and delay against {what}. The table has the numbers.",
        lambda: measures_against(pd.DataFrame(rows), what, measures),
    )


def _ramp(found: Capacity) -> Table:
    names = found.limit_names
    titles = (KINDS[name].column for name in names)
    columns = (what_is_varied(found.key), "accepted", *titles, "bottleneck")
    mos = (
        " MOS is PESQ's (P.862.1), the worst of the sampled streams that lost most packets."
        if found.is_scored
        else ""
    )
    note = f"Each load is shown with the worst of its seeds.{mos} Red: a limit that did not hold."
    rows = [
        [
            Cell(load_of(found.key, tried.load)),
            Cell(f"{tried.accepted} of {len(tried.runs)}", "good" if tried.held else "bad"),
            *_cells(tried, names),
            *plain(tried.gives_out.short if tried.gives_out else ""),
        ]
        for tried in found.tried
    ]
    return Table("Every load that was tried", columns, rows, note=note)


def _remedies(found: Capacity) -> Table:
    rows = [plain(remedy.what, f"{remedy.streams:,}") for remedy in found.remedies]
    note = (
        "The streams that the host carries with each change: with the first as longer runs with "
        "other seeds and the opinion score have it, with the others by loss and delay in short "
        "runs. No task misses a deadline with them. `laxity design` writes the first into the file."
    )
    return Table("What each change carries", ("change", "streams"), rows, note=note)


def _cells(tried: Tried, names: Iterable[str]) -> list[Cell]:
    limits = {limit.name: limit for limit in tried.limits}
    return [_cell(limits.get(name)) for name in names]


def _cell(limit: Limit | None) -> Cell:
    if limit is None or limit.found is None:
        return Cell(NOTHING)
    return Cell(limit.found_text, "" if limit.held else "bad")
