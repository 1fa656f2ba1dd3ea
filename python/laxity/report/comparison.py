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
    mean_cell,
    missed_cell,
    plain,
    repeats,
    substrate_of,
    without_policies,
)
from laxity.report.run import worst_domain
from laxity.results.comparison import Comparison
from laxity.statistics import mean
from laxity.tables.run import lost_to_scheduling
from laxity.text import NOTHING, count, number, percent, time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from laxity.results.run import Run
    from laxity.results.schema import DomainResult


def page(directory: Path) -> Page:
    """Reads what `laxity compare -o` wrote."""
    manifest = Manifest.load(directory)
    comparison = Comparison.load(directory)
    runs = comparison.runs
    seeds = sorted({run.seed for run in runs})
    frame = pd.DataFrame(
        [
            {
                "policy": run.policy,
                "seed": run.seed,
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
    several = len(seeds) > 1
    sections = [
        Section("Policies", tables=(_policies(comparison.by_policy(), seeds),)),
        Section(
            "Miss ratio of each domain",
            pictures=(_picture(frame, seeds),),
            tables=(_domains(comparison.by_policy(), seeds),),
        ),
        *([Section("Each run", tables=(_runs(runs, seeds),))] if several else []),
    ]
    if runs[0].telephony is not None:
        of_calls, tone_of_calls = calls.comparison_verdict(comparison.by_policy())
        missed = any(run.missed for run in runs)
        verdict, tone = (f"{of_calls} {verdict}", "") if missed else (of_calls, tone_of_calls)
        voice = Section(
            "Voice",
            pictures=calls.comparison_pictures(runs, seeds),
            tables=(
                *([calls.comparison_means(comparison.by_policy())] if several else []),
                calls.comparison(runs, seeds),
            ),
        )
        sections = [voice, *(sections if any(run.jobs for run in runs) else [])]
    on = substrate_of(comparison.origin, runs[0].substrate)
    seeds_option = ["--seeds", str(len(seeds))] if len(seeds) > 1 else []
    return Page(
        kind=f"{number(len(comparison.by_policy()), 'policy', 'policies')} compared",
        verdict=verdict,
        tone=tone,
        lead=f"The same host, workload and seeds under each policy.{_sure(seeds)}",
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


def _sure(seeds: list[int]) -> str:
    """The method behind intervals, if there are any."""
    if len(seeds) == 1:
        return ""
    return (
        f" Miss ratios are means over {len(seeds)} seeds; the ranges are their 95 % confidence "
        "intervals (Student's t)."
    )


def _ratios(parts: Sequence[Run | DomainResult]) -> list[float]:
    """The miss ratios of those that have jobs."""
    return [part.miss_ratio for part in parts if part.jobs]


def _verdict(by_policy: dict[str, tuple[Run, ...]]) -> tuple[str, str]:
    ratios = {policy: _ratios(runs) for policy, runs in by_policy.items()}
    if not all(ratios.values()):
        return "No deadline fell within these runs.", ""
    clean = [policy for policy, of_seeds in ratios.items() if not any(of_seeds)]
    if len(clean) == len(by_policy):
        return "Every deadline was met under every policy.", "good"
    if clean:
        return f"Every deadline was met under {' and '.join(clean)}.", "good"
    best = min(ratios, key=lambda policy: mean(ratios[policy]).mean)
    cell = mean_cell(ratios[best])
    sure = f" (95 % confidence: {cell.detail})" if cell.detail else ""
    rivals = [policy for policy in ratios if policy != best and _is_rival(ratios, policy, best)]
    told = (
        f" These seeds do not tell it from {' and '.join(rivals)}, by the 95 % confidence interval "
        "of the difference between runs of one seed."
        if rivals
        else ""
    )
    return f"Fewest deadlines were missed under {best}: {cell.text}{sure}.{told}", ""


def _is_rival(ratios: dict[str, list[float]], policy: str, best: str) -> bool:
    """Whether the seeds leave it open that fewer deadlines are missed than under the best.

    The runs of one seed have the same workload, so that their differences are what varies less.
    """
    if len(ratios[best]) == 1 or len(ratios[policy]) < len(ratios[best]):
        return False
    more = mean([a - b for a, b in zip(ratios[policy], ratios[best], strict=True)])
    return more.mean <= (more.half_width_95 or 0.0)


COLUMNS = (
    *("policy", "jobs", "missed", "miss ratio", "worst domain"),
    *("decisions", "context switches", "lost to scheduling"),
)


def _policies(by_policy: dict[str, tuple[Run, ...]], seeds: list[int]) -> Table:
    """A row for each policy; of several seeds the sums, and the mean miss ratio."""
    if len(seeds) == 1:
        return _runs([runs[0] for runs in by_policy.values()], seeds)
    least = _least([_ratios(runs) for runs in by_policy.values()])
    rows = []
    for policy, runs in by_policy.items():
        ratios = _ratios(runs)
        rows.append(
            [
                *plain(policy, f"{sum(run.jobs for run in runs):,}"),
                *plain(f"{sum(run.missed for run in runs):,}"),
                mean_cell(ratios, is_least=bool(ratios) and mean(ratios).mean == least),
            ]
        )
    note = _sure(seeds).strip()
    return Table("All domains under each policy", COLUMNS[:4], rows, note=note)


def _runs(runs: Sequence[Run], seeds: list[int]) -> Table:
    """A row for each run."""
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
    title = "All domains under each policy" + (" and seed" if len(seeds) > 1 else "")
    return Table(title, COLUMNS, rows)


def _least(ratios: Sequence[Sequence[float]]) -> float | None:
    """The least mean."""
    return min((mean(of_seeds).mean for of_seeds in ratios if of_seeds), default=None)


def _domains(by_policy: dict[str, tuple[Run, ...]], seeds: list[int]) -> Table:
    rows = []
    first = next(iter(by_policy.values()))[0]
    for place, domain in enumerate(first.domains):
        of_policies = [_ratios([run.domains[place] for run in runs]) for runs in by_policy.values()]
        least = _least(of_policies)
        cells = (
            mean_cell(ratios, is_least=bool(ratios) and mean(ratios).mean == least)
            for ratios in of_policies
        )
        rows.append([Cell(domain.name), *cells])
    note = _sure(seeds).strip()
    return Table("Miss ratio of each domain", ("domain", *by_policy), rows, note=note)


def _picture(frame: pd.DataFrame, seeds: list[int]) -> Picture:
    shown, domains = len(miss_ratios.worst_domains(frame)), frame["domain"].nunique()
    some = f" Of {domains} domains, the {DOMAIN_ROWS_MAX} worst." if shown < domains else ""
    means = (
        f" Dots are means over {len(seeds)} seeds, with 95 % confidence intervals (Student's t)."
        if len(seeds) > 1
        else ""
    )
    return Picture(
        "miss-ratios",
        "Miss ratio of each domain under each policy",
        "The part of jobs that missed their deadline. The top row takes all domains "
        f"together.{means}{some}",
        "Miss ratios, a row for each domain and a dot for each policy. The table below has the "
        "numbers.",
        lambda: miss_ratios.miss_ratio_dots(frame),
    )
