"""The report on a comparison of policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from laxity.directory import Manifest
from laxity.plots import miss_ratios
from laxity.plots.miss_ratios import DOMAIN_ROWS_MAX
from laxity.report import calls
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
    label,
    missed_cell,
    plain,
    repeats,
    substrate_of,
    without_policies,
)
from laxity.report.run import worst_domain
from laxity.results.comparison import Comparison
from laxity.tables.run import lost_to_scheduling
from laxity.text import NOTHING, count, number, percent, time

if TYPE_CHECKING:
    from pathlib import Path

    from laxity.results.run import Run


def page(directory: Path) -> Page:
    """Reads what `laxity compare -o` wrote."""
    manifest = Manifest.load(directory)
    comparison = Comparison.load(directory)
    runs = comparison.runs
    seeds = sorted({run.seed for run in runs})
    frame = pd.DataFrame(
        [
            {
                "policy": label(run, seeds),
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
    verdict, tone = _verdict(comparison.by_policy())
    sections = [
        Section("Policies", tables=(_policies(runs, seeds),)),
        Section(
            "Miss ratio of each domain",
            pictures=(_picture(frame),),
            tables=(_domains(runs, seeds),),
        ),
    ]
    if runs[0].telephony is not None:
        verdict, tone = calls.comparison_verdict(comparison.by_policy())
        sections = [
            Section(
                "Voice",
                pictures=calls.comparison_pictures(runs, seeds),
                tables=(calls.comparison(runs, seeds),),
            )
        ]
    on = substrate_of(comparison.origin, runs[0].substrate)
    seeds_option = ["--seeds", str(len(seeds))] if len(seeds) > 1 else []
    return Page(
        kind=f"{number(len(comparison.by_policy()), 'policy', 'policies')} compared",
        verdict=verdict,
        tone=tone,
        lead="The same host, workload and seeds under each policy.",
        facts=[
            ("Policies", ", ".join(comparison.by_policy())),
            ("Duration", time(runs[0].duration_ns)),
            ("Seeds", interval(str(seeds[0]), str(seeds[-1]))),
            ("Domains", f"{len(runs[0].domains):,}"),
            *costs(runs[0].profiles),
            *changes(overrides),
        ],
        sections=sections,
        command=command(["compare", "host.toml", *policies, *seeds_option, *on.words], overrides),
        repeats=repeats(on),
        host=host_text(directory),
        version=manifest.version,
    )


def _verdict(by_policy: dict[str, tuple[Run, ...]]) -> tuple[str, str]:
    jobs = {policy: sum(run.jobs for run in runs) for policy, runs in by_policy.items()}
    missed = {policy: sum(run.missed for run in runs) for policy, runs in by_policy.items()}
    if not any(jobs.values()):
        return "No deadline fell within these runs.", ""
    clean = [policy for policy, count in missed.items() if not count]
    if len(clean) == len(by_policy):
        return "Every deadline was met under every policy.", "good"
    if clean:
        return f"Every deadline was met under {' and '.join(clean)}.", "good"
    best = min(by_policy, key=lambda policy: missed[policy] / max(jobs[policy], 1))
    ratio = percent(missed[best] / max(jobs[best], 1))
    return f"Fewest deadlines were missed under {best}: {ratio}.", ""


def _policies(runs: tuple[Run, ...], seeds: list[int]) -> Table:
    least = min(run.miss_ratio for run in runs)
    rows = []
    for run in runs:
        worst = worst_domain(run.domains)
        rows.append(
            [
                *plain(label(run, seeds), f"{run.jobs:,}", f"{run.missed:,}"),
                missed_cell(run.miss_ratio, run.jobs, is_least=run.miss_ratio == least),
                Cell(f"{worst.name}, {percent(worst.miss_ratio)}" if worst else NOTHING),
                *plain(count(run.overhead.schedule_calls), count(run.overhead.context_switches)),
                Cell(lost_to_scheduling(run.overhead)),
            ]
        )
    columns = (
        *("policy", "jobs", "missed", "miss ratio", "worst domain"),
        *("decisions", "context switches", "lost to scheduling"),
    )
    return Table("All domains under each policy", columns, rows)


def _domains(runs: tuple[Run, ...], seeds: list[int]) -> Table:
    rows = []
    for of_all in zip(*(run.domains for run in runs), strict=True):
        least = min(domain.miss_ratio for domain in of_all)
        cells = (
            missed_cell(domain.miss_ratio, domain.jobs, is_least=domain.miss_ratio == least)
            for domain in of_all
        )
        rows.append([Cell(of_all[0].name), *cells])
    labels = (label(run, seeds) for run in runs)
    return Table("Miss ratio of each domain", ("domain", *labels), rows)


def _picture(frame: pd.DataFrame) -> Picture:
    shown, domains = len(miss_ratios.worst_domains(frame)), frame["domain"].nunique()
    some = f" Of {domains} domains, the {DOMAIN_ROWS_MAX} worst." if shown < domains else ""
    return Picture(
        "miss-ratios",
        "Miss ratio of each domain under each policy",
        "The part of jobs that missed their deadline. The top row takes all domains "
        f"together.{some}",
        "Miss ratios, a row for each domain and a dot for each policy. The table below has the "
        "numbers.",
        lambda: miss_ratios.miss_ratio_dots(frame),
    )
