"""The report on a comparison of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from laxity import plots, tables
from laxity.directory import Manifest
from laxity.plots import DOMAIN_ROWS_MAX
from laxity.report import calls
from laxity.report.page import (
    Cell,
    Page,
    Picture,
    Section,
    Table,
    changes,
    command,
    host_text,
    missed_cell,
    options_of,
    plain,
    repeats,
    without_policies,
)
from laxity.report.run import worst_domain
from laxity.results import Comparison
from laxity.tables import count, lost_to_scheduling, number, percent, time

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.results import Run


def page(directory: Path) -> Page:
    """Reads what `laxity compare -o` wrote."""
    manifest = Manifest.load(directory)
    comparison = Comparison.load(directory)
    runs = comparison.runs
    frame = pd.DataFrame(
        [
            {
                "policy": run.policy,
                "domain": domain.name,
                "jobs": domain.jobs,
                "missed": domain.missed,
                "miss_ratio": domain.miss_ratio,
            }
            for run in runs
            for domain in run.domains
        ]
    )
    overrides, policies = without_policies(manifest.overrides)
    verdict, tone = _verdict(runs)
    sections = [
        Section("Policies", tables=(_policies(runs),)),
        Section("Miss ratio of each domain", pictures=(_picture(frame),), tables=(_domains(runs),)),
    ]
    if runs[0].telephony is not None:
        verdict, tone = calls.comparison_verdict(runs)
        sections = [
            Section(
                "Voice",
                pictures=calls.comparison_pictures(runs),
                tables=(calls.comparison(runs),),
            )
        ]
    options = options_of(comparison.origin, runs[0].substrate)
    return Page(
        kind=f"{number(len(runs), 'policy', 'policies')} compared",
        verdict=verdict,
        tone=tone,
        lead="The same host, workload and seed under each policy.",
        facts=[
            ("Policies", ", ".join(run.policy for run in runs)),
            ("Duration", time(runs[0].duration_ns)),
            ("Seed", str(runs[0].seed)),
            ("Domains", f"{len(runs[0].domains):,}"),
            *changes(overrides),
        ],
        sections=sections,
        command=command(["compare", "host.toml", *policies, *options], overrides),
        repeats=repeats(options),
        host=host_text(directory),
        version=manifest.version,
    )


def _verdict(runs: tuple[Run, ...]) -> tuple[str, str]:
    if not any(run.jobs for run in runs):
        return "No job had its deadline within these runs.", ""
    clean = [run.policy for run in runs if not run.missed]
    if len(clean) == len(runs):
        return "Every deadline was met under every policy.", "good"
    if clean:
        return f"Every deadline was met under {' and '.join(clean)}.", "good"
    best = min(runs, key=lambda run: run.miss_ratio)
    return f"Fewest deadlines were missed under {best.policy}: {percent(best.miss_ratio)}.", ""


def _policies(runs: tuple[Run, ...]) -> Table:
    least = min(run.miss_ratio for run in runs)
    rows = []
    for run in runs:
        worst = worst_domain(run.domains)
        rows.append(
            [
                *plain(run.policy, f"{run.jobs:,}", f"{run.missed:,}"),
                missed_cell(run.miss_ratio, run.jobs, is_least=run.miss_ratio == least),
                Cell(f"{worst.name}, {percent(worst.miss_ratio)}" if worst else tables.NOTHING),
                *plain(count(run.overhead.schedule_calls), count(run.overhead.context_switches)),
                Cell(lost_to_scheduling(run.overhead)),
            ]
        )
    columns = (
        *("policy", "jobs", "missed", "miss ratio", "worst domain"),
        *("decisions", "context switches", "lost to scheduling"),
    )
    return Table("All domains under each policy", columns, rows)


def _domains(runs: tuple[Run, ...]) -> Table:
    rows = []
    for of_all in zip(*(run.domains for run in runs), strict=True):
        least = min(domain.miss_ratio for domain in of_all)
        cells = (
            missed_cell(domain.miss_ratio, domain.jobs, is_least=domain.miss_ratio == least)
            for domain in of_all
        )
        rows.append([Cell(of_all[0].name), *cells])
    return Table("Miss ratio of each domain", ("domain", *(run.policy for run in runs)), rows)


def _picture(frame: pd.DataFrame) -> Picture:
    shown, domains = len(plots.worst_domains(frame)), frame["domain"].nunique()
    some = f" Of {domains} domains, the {DOMAIN_ROWS_MAX} worst." if shown < domains else ""
    return Picture(
        "miss-ratios",
        "Miss ratio of each domain under each policy",
        "The part of jobs that missed their deadline. The top row takes all domains "
        f"together.{some}",
        "Miss ratios, a row for each domain and a dot for each policy. The table below has the "
        "numbers.",
        lambda: plots.miss_ratio_dots(frame),
    )
