"""The report on a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from laxity import plots, tables
from laxity.directory import Manifest
from laxity.plots import LINES_MAX, PANELS_MAX
from laxity.report.page import (
    Cell,
    Page,
    Picture,
    Section,
    Table,
    changes,
    command,
    host_text,
    without_policies,
)
from laxity.sweep import Sweep
from laxity.tables import number, percent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LIMIT = 0.05
"""RT-Xen's definition of capacity: the largest load that misses less (section 5.5)."""

LOAD = "draw.load"


def page(directory: Path) -> Page:
    """Reads what `laxity sweep -o` wrote."""
    manifest = Manifest.load(directory)
    table = Sweep.load(directory).arrow()
    columns = table.column_names
    keys = [key for key in columns[: columns.index("policy")] if key != "host.policy"]
    units = {key: _unit(table.schema.field(key).metadata) for key in keys}
    frame = table.to_pandas()
    seeds = sorted(int(seed) for seed in frame["seed"].unique())
    policies = list(frame["policy"].unique())
    runs = len(frame[[*keys, "policy", "seed"]].drop_duplicates())
    overrides, policy_option = without_policies(manifest.overrides)
    seeds_option = ["--seeds", str(len(seeds))] if len(seeds) > 1 else []
    several = len(seeds) > 1
    verdict, tone = _verdict(frame)
    sections = []
    if keys:
        sections.append(Section("Miss ratio", pictures=(_picture(frame, keys, units),)))
    sections.append(Section("All points", tables=(_points(frame, keys, units, several=several),)))
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
            ("Jobs of all runs", f"{frame['jobs'].sum():,}"),
            *changes(overrides),
        ],
        sections=sections,
        command=command(["sweep", "host.toml", *policy_option, *seeds_option], overrides),
        host=host_text(directory),
        version=manifest.version,
    )


def _unit(metadata: Mapping[bytes, bytes] | None) -> str:
    return (metadata or {}).get(b"unit", b"").decode("utf-8")


def _verdict(frame: pd.DataFrame) -> tuple[str, str]:
    totals = frame.groupby("policy", sort=False)[["jobs", "missed"]].sum()
    if not totals["jobs"].sum():
        return "No job had its deadline within these runs.", ""
    if not totals["missed"].sum():
        return "Every deadline was met at every point.", "good"
    ratios = totals["missed"] / totals["jobs"]
    if len(ratios) == 1:
        return f"{percent(float(ratios.iloc[0]))} of all jobs missed their deadlines.", "bad"
    best = str(ratios.idxmin())
    return (
        f"Fewest deadlines were missed under {best}: {percent(float(ratios[best]))} of all jobs.",
        "",
    )


def _label(key: str, unit: str) -> str:
    if key == LOAD:
        return "load (% of each domain's share)"
    return f"{key} ({unit})" if unit else key


def _picture(frame: pd.DataFrame, keys: list[str], units: dict[str, str]) -> Picture:
    """Across: the key with most numbers; a panel for each combination of the other keys."""
    numeric = [key for key in keys if pd.api.types.is_numeric_dtype(frame[key])]
    x = max(numeric or keys, key=lambda key: int(frame[key].nunique()))
    others = [key for key in keys if key != x]
    data = frame.copy()
    if x == LOAD and x in numeric and not units[x]:
        data[x] = 100 * data[x]
    panel = None
    if others:
        panel = "panel"
        data[panel] = [
            ", ".join(
                f"{key} = {_value(value, units[key])}"
                for key, value in zip(others, row, strict=True)
            )
            for row in data[others].itertuples(index=False, name=None)
        ]
        # In the order of the sweep, which is not that of the text.
        data[panel] = pd.Categorical(data[panel], list(dict.fromkeys(data[panel])), ordered=True)
    label = _label(x, units[x])
    bands = (
        " Bands are 95 % confidence intervals of the mean over the seeds."
        if len(data["seed"].unique()) > 1
        else ""
    )
    panels = data[panel].nunique() if panel else 1
    some = f" Of {panels} panels, the first {PANELS_MAX}." if panels > PANELS_MAX else ""
    return Picture(
        "miss-ratio",
        f"Deadline miss ratio against {label}",
        f"All domains together.{bands}{some} The dotted line is at {100 * LIMIT:g} %, below which "
        "RT-Xen calls a load within "
        "capacity.",
        f"Curves of the miss ratio against {label}, at most {LINES_MAX} policies. The table has "
        "the numbers.",
        plots.miss_ratio_curves(data, x, label[0].upper() + label[1:], panel=panel, limit=LIMIT),
    )


def _value(value: Any, unit: str) -> str:  # noqa: ANN401 - a number or text
    text = value if isinstance(value, str) else f"{value:.10g}"
    return f"{text} {unit}" if unit else text


def _points(frame: pd.DataFrame, keys: list[str], units: dict[str, str], *, several: bool) -> Table:
    points = plots.miss_ratios(frame, [*keys, "policy"])
    policies = list(frame["policy"].unique())
    cells: dict[tuple[Any, ...], dict[str, Cell]] = {}
    for point in points.to_dict("records"):
        spread = (
            f"{percent(point['low'])} to {percent(point['high'])}"
            if several and point["mean"]
            else ""
        )
        place = tuple(point[key] for key in keys)
        cells.setdefault(place, {})[point["policy"]] = Cell(
            percent(point["mean"]), "bad" if point["mean"] >= LIMIT else "", spread
        )
    rows = [
        [
            *(Cell(_value(value, units[key])) for key, value in zip(keys, place, strict=True)),
            *(of_place.get(policy, Cell(tables.NOTHING)) for policy in policies),
        ]
        for place, of_place in cells.items()
    ]
    means = "Means over the seeds, with 95 % confidence intervals. " if several else ""
    note = f"{means}Red: {100 * LIMIT:g} % and more."
    return Table("Miss ratio at each point", (*keys, *policies), rows, max(1, len(keys)), note)
