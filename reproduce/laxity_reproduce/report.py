"""The report on a reproduction of a paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity import substrates
from laxity.directory import Manifest, read_json
from laxity.report.page import Cell, Page, Picture, Section, Table, plain, repeats
from laxity.results.origin import read_table
from laxity.results.records import decoded
from laxity.substrates.linux import Linux
from laxity.substrates.xen import Xen

from laxity_reproduce.availability import media, register
from laxity_reproduce.bandwidth import period, throughput
from laxity_reproduce.bandwidth import plots as bandwidth
from laxity_reproduce.reproduction import Measurement, Row, shown
from laxity_reproduce.rt_xen import figure_5, figure_6
from laxity_reproduce.soft_real_time import expected, latency, queues, voice_quality
from laxity_reproduce.soft_real_time import setup as soft_real_time
from laxity_reproduce.telephony import setup as telephony
from laxity_reproduce.telephony import turnkey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd
    from matplotlib.figure import Figure

STATED = " Values that the paper states in numbers are marked as published."

_BOXES = "Packet delay, quartiles and extremes, and beneath it the packets that were lost"

_DRAWINGS: dict[tuple[str, str], tuple[Callable[[pd.DataFrame], Figure], str]] = {
    ("rt-xen", "figure-5"): (
        figure_5.draw,
        "Deadline miss ratio against the utilization of the task, a line for each quantum.",
    ),
    ("rt-xen, on Xen", "figure-6"): (
        figure_6.draw,
        "Deadline miss ratio on Xen against load for three patterns of shares; one task set.",
    ),
    ("rt-xen", "figure-6"): (
        figure_6.draw,
        (
            "Deadline miss ratio against load for three patterns of shares. Lines are means"
            " over the task sets, bands their 95 % confidence intervals; the dotted line defines"
            " capacity."
        ),
    ),
    ("soft-real-time", "figure-3"): (
        expected.draw,
        "Actual less expected waits of VCPUs: quartiles, and 1 % to 99 %.",
    ),
    ("soft-real-time", "figure-11"): (
        queues.draw,
        "How often VCPUs enter the queue as under, and for how long they run then; means of VCPUs.",
    ),
    ("soft-real-time", "figure-17"): (
        latency.draw_misses,
        "Cache misses of all domains, a box over the runs, and of each domain.",
    ),
    ("soft-real-time", "figure-9"): (
        voice_quality.draw_work,
        "CPU time that the CPU-bound domain turned into work.",
    ),
} | {
    ("soft-real-time", name): (
        soft_real_time.draw,
        "PESQ of the sampled calls: cumulative distributions, and beneath them quartiles and ends.",
    )
    for name in (
        *("figure-1", "figure-8", "figure-10", "figure-13", "figure-14"),
        *("figure-15", "figure-16", "figure-19", "beyond"),
    )
}
_DRAWINGS |= {
    (f"bandwidth{where}", name): (
        draw,
        "What each machine delivered over time; a panel for each way to divide the link.",
    )
    for where, name, draw in (
        *(
            ("", name, bandwidth.throughput)
            for name in ("oversubscribed", "bursty", "joining", "tcp", "liar")
        ),
        ("", "figure-3", throughput.draw_native),
        ("", "figure-4", throughput.draw_allocated),
        (Linux.suffix(), "figure-4", bandwidth.throughput),
        (Xen.suffix(), "figure-4", bandwidth.throughput),
    )
}
_DRAWINGS |= {
    (f"bandwidth{where}", name): (
        draw,
        "Against the period of the allocator.",
    )
    for where, name, draw in (
        ("", "figure-7", period.draw),
        (Linux.suffix(), "figure-5", bandwidth.against_the_period),
    )
}
_DRAWINGS |= {
    ("telephony", name): (draw, f"{_BOXES}.")
    for name, draw in (
        *telephony.DRAWINGS.items(),
        *((name, telephony.drawing({})) for name in ("figure-9", "figure-10", "figure-13")),
        ("figure-11", turnkey.draw_loads),
    )
}
_DRAWINGS |= {
    ("availability", "figure-2"): (register.draw, "CPU use against registrations a second."),
    ("availability", "figure-3"): (
        register.draw_protected,
        "CPU use against registrations a second, with protection.",
    ),
    ("availability", "figure-4"): (media.draw, f"{_BOXES}, against streams."),
    ("availability", "figure-5"): (media.draw_unheld, f"{_BOXES}, against streams."),
    ("availability", "calls"): (media.draw_named, f"{_BOXES}."),
    ("soft-real-time", "figure-1"): (
        soft_real_time.draw_default,
        "PESQ of the sampled calls: cumulative distributions, and beneath them quartiles and ends.",
    ),
}


def page(directory: Path) -> Page:
    """Reads what `laxity reproduce -o` wrote; an experiment without data has no picture."""
    manifest = Manifest.load(directory)
    content = decoded(read_json(directory / "reproduce.json"), _Reproduction)
    experiments, paper = content.experiments, content.paper
    rows = [row for experiment in experiments for row in experiment.rows]
    reproduced = sum(1 for row in rows if row.verdict == "reproduced")
    on = substrates.of(content.on)
    return Page(
        kind=f"Reproduction of {paper}{on.suffix()}",
        verdict=f"{reproduced} of {len(rows)} published values and claims are reproduced.",
        tone="good" if reproduced == len(rows) else "",
        lead=content.title,
        facts=_facts(content),
        sections=[
            _section(directory, f"{paper}{on.suffix()}", experiment) for experiment in experiments
        ],
        command=_command(content),
        repeats=repeats(on),
        version=manifest.version,
    )


@dataclass(frozen=True)
class _Experiment:
    """An experiment as `laxity reproduce -o` writes it."""

    name: str
    rows: tuple[Row, ...]
    title: str = ""
    method: str = ""
    measurements: tuple[Measurement, ...] = ()


@dataclass(frozen=True)
class _Reproduction:
    """What `laxity reproduce -o` writes."""

    paper: str
    experiments: tuple[_Experiment, ...]
    title: str = ""
    on: str = substrates.NAMES[0]
    seeds: int | None = None
    quick: bool = False


def _facts(content: _Reproduction) -> list[tuple[str, str]]:
    facts = [("Experiments", ", ".join(experiment.name for experiment in content.experiments))]
    if content.seeds is not None and substrates.of(content.on).is_model:
        drawn = "Task sets drawn" if content.paper == "rt-xen" else "Seeds at each point"
        facts.append((drawn, str(content.seeds)))
    if content.quick:
        facts.append(
            ("Lengths", "quick: shorter runs than the paper's, a smoke test and not a result")
        )
    return facts


def _command(content: _Reproduction) -> str:
    on = substrates.of(content.on)
    words = ["laxity", "reproduce", content.paper, *on.words]
    if len(content.experiments) == 1:
        words.append(content.experiments[0].name)
    if content.quick:
        words.append("--quick")
    if content.seeds is not None and on.is_model:
        words += ["--seeds", str(content.seeds)]
    return " ".join([*words, "-o", "again"])


def _section(directory: Path, paper: str, experiment: _Experiment) -> Section:
    name, title = experiment.name, experiment.title
    heading = name.replace("-", " ").replace("_", " ").capitalize() + (
        f": {title}" if title else ""
    )
    found = [
        Table(
            "Published and ours",
            ("what", "published", "ours", "verdict", "why"),
            _rows(experiment),
            0,
        )
    ]
    if experiment.measurements:
        has_why = any(one.why for one in experiment.measurements)
        columns = ("what", "ours", "why") if has_why else ("what", "ours")
        rows = [
            plain(one.what, shown(one.ours), one.why)[: len(columns)]
            for one in experiment.measurements
        ]
        found.append(Table("Further measurements", columns, rows, 0))
    picture = _picture(directory, paper, name, heading)
    pictures = () if picture is None else (picture,)
    return Section(heading, experiment.method, pictures, tuple(found))


def _rows(experiment: _Experiment) -> list[list[Cell]]:
    rows = []
    for row in experiment.rows:
        spread = f" ({row.spread})" if row.spread else ""
        holds = row.verdict == "reproduced"
        rows.append(
            [
                *plain(row.what, shown(row.published), shown(row.ours) + spread),
                Cell(row.verdict, "good" if holds else "bad"),
                *plain(row.why),
            ]
        )
    return rows


def _picture(directory: Path, paper: str, name: str, heading: str) -> Picture | None:
    data = directory / "data" / f"{name}.parquet"
    if (paper, name) not in _DRAWINGS or not data.exists():
        return None
    draw, caption = _DRAWINGS[paper, name]
    frame = read_table(data).to_pandas()
    legends = draw(frame).legends
    words = [text.get_text() for legend in legends for text in legend.get_texts()]
    if any(text.startswith("published") for text in words):
        caption += STATED
    alternative = f"{caption} The table has the numbers."
    return Picture(name, heading, caption, alternative, lambda: draw(frame))
