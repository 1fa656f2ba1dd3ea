"""The report on a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from laxity.directory import Manifest
from laxity.plots import miss_ratios
from laxity.plots.style import LINES_MAX
from laxity.report.axes import across
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
    interval,
    repeats,
    substrate_of,
    without_policies,
)
from laxity.report.sweep_calls import Voice
from laxity.sweep import Sweep
from laxity.tables.sweep import best_point
from laxity.text import NOTHING, number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from laxity.sweep import Axis

LIMIT = 0.05
"""RT-Xen's definition of capacity: the largest load that misses less (section 5.5)."""


def page(directory: Path) -> Page:
    """Reads what `laxity sweep -o` wrote."""
    manifest = Manifest.load(directory)
    sweep = Sweep.load(directory)
    table = sweep.arrow()
    columns = table.column_names
    axes = {axis.key: axis for axis in sweep.axes if axis.key != "host.policy"}
    keys = list(axes)
    frame = table.to_pandas()
    seeds = sorted(int(seed) for seed in frame["seed"].unique())
    policies = list(frame["policy"].unique())
    runs = len(frame[[*keys, "policy", "seed"]].drop_duplicates())
    overrides, policy_option = without_policies(manifest.overrides)
    seeds_option = ["--seeds", str(len(seeds))] if len(seeds) > 1 else []
    several = len(seeds) > 1
    verdict, tone = _verdict(sweep, frame)
    sections = []
    if keys and frame["jobs"].sum():
        picture = _picture(frame, axes)
        sections.append(Section("Miss ratio", pictures=(picture,)))
    if frame["jobs"].sum() or "packet_loss_ratio" not in columns:
        points_table = _points(frame, axes, several=several)
        sections.append(Section("All points", tables=(points_table,)))
    if "packet_loss_ratio" in columns:
        voice = Voice.of(directory, frame, axes)
        of_tasks = verdict
        verdict, tone = voice.verdict()
        if frame["missed"].sum() or ("denied" in frame and frame["denied"].any()):
            verdict, tone = f"{verdict} {of_tasks}", ""
        sections = [*voice.sections(), *sections]
    on = substrate_of(sweep.origin)
    points = len(frame[keys].drop_duplicates()) if keys else 1
    return Page(
        kind=f"Sweep over {', '.join(keys) or 'policies'}",
        verdict=verdict,
        tone=tone,
        lead=f"{number(runs, 'run')}: {number(points, 'point')}, "
        f"{number(len(policies), 'policy', 'policies')}, {number(len(seeds), 'seed')}.",
        facts=[
            ("Policies", ", ".join(policies)),
            ("Seeds", f"{seeds[0]} to {seeds[-1]}" if several else str(seeds[0])),
            ("Domains", f"{frame['domain'].nunique():,}"),
            *([("Jobs of all runs", f"{frame['jobs'].sum():,}")] if frame["jobs"].sum() else []),
            *costs(sweep.profiles),
            *changes(overrides),
        ],
        sections=sections,
        command=command(
            ["sweep", "host.toml", *policy_option, *seeds_option, *on.words], overrides
        ),
        repeats=repeats(on),
        host=host_text(directory),
        version=manifest.version,
    )


def _verdict(sweep: Sweep, frame: pd.DataFrame) -> tuple[str, str]:
    if not frame["jobs"].sum() and "denied" not in frame:
        return "No deadline fell within these runs.", ""
    sentence, tone = best_point(sweep.best())
    return f"{sentence}.", tone


def _picture(frame: pd.DataFrame, axes: Mapping[str, Axis]) -> Picture:
    laid = across(frame, axes)
    bands = (
        " Bands are 95 % confidence intervals of the mean over the seeds."
        if len(laid.data["seed"].unique()) > 1
        else ""
    )
    label = laid.label
    return Picture(
        "miss-ratio",
        f"Deadline miss ratio against {laid.name}",
        f"All domains together.{bands}{laid.some} The dotted line is at {100 * LIMIT:g} %, below "
        "which RT-Xen calls a load within capacity.",
        f"Curves of the miss ratio against {laid.name}, at most {LINES_MAX} policies. The table "
        "has the numbers.",
        lambda: miss_ratios.miss_ratio_curves(
            laid.data, laid.x, label, panel=laid.panel, limit=LIMIT
        ),
    )


def _points(frame: pd.DataFrame, axes: Mapping[str, Axis], *, several: bool) -> Table:
    keys = list(axes)
    points = miss_ratios.miss_ratios(frame, [*keys, "policy"])
    policies = list(frame["policy"].unique())
    cells: dict[tuple[Any, ...], dict[str, Cell]] = {}
    for point in points.to_dict("records"):
        spread = (
            interval(percent(point["low"]), percent(point["high"]))
            if several and point["mean"]
            else ""
        )
        place = tuple(point[key] for key in keys)
        cells.setdefault(place, {})[point["policy"]] = Cell(
            percent(point["mean"]), "bad" if point["mean"] >= LIMIT else "", spread
        )
    rows = [
        [
            *(Cell(axes[key].text(value)) for key, value in zip(keys, place, strict=True)),
            *(of_place.get(policy, Cell(NOTHING)) for policy in policies),
        ]
        for place, of_place in cells.items()
    ]
    means = "Means over the seeds, with 95 % confidence intervals. " if several else ""
    note = f"{means}Red: {100 * LIMIT:g} % and more."
    return Table("Miss ratio at each point", (*keys, *policies), rows, max(1, len(keys)), note)
