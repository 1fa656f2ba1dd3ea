"""The table of how far two substrates are apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from laxity.tables.layout import heading, name_column, plain_table, right
from laxity.text import NOTHING, bare, count, percent, time

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laxity.fidelity import Fidelity
    from laxity.results.run import Run
    from laxity.results.schema import DomainResult


def fidelity_table(result: Fidelity) -> RenderableType:
    """Miss ratios of each domain on both, and how much of the time both run the same."""
    agreement = result.agreement
    first, second = result.runs
    a, b = first.substrate, second.substrate
    table = plain_table(name_column("miss %"), *right("jobs", a, b, "difference", f"CPU % {a}", b))
    for ours, theirs in zip(first.domains, second.domains, strict=True):
        points = 100 * (theirs.miss_ratio - ours.miss_ratio)
        shares = (bare(part.cpu_ns / first.duration_ns) for part in (ours, theirs))
        difference = f"{points:+.2f}" if points else "0"
        cells = _miss_cell(ours), _miss_cell(theirs), difference
        table.add_row(Text(ours.name), f"{ours.jobs:,}", *cells, *shares)
    quantiles = agreement["completion_difference_ns"]
    late = ", ".join(f"{name} {time(quantiles[name])}" for name in ("p50", "p90", "p99", "max"))
    shift = f"{percent(agreement['best_ratio'])} if shifted by {time(agreement['best_shift_ns'])}"
    return Group(
        heading(second.policy, f"on {a} and {b}, {time(second.duration_ns)}, seed {second.seed}"),
        "",
        table,
        "",
        f"Both run the same VCPU {percent(agreement['same_ratio'])} of the time, {shift}",
        f"Jobs complete apart by: {late}",
        f"Switches: {count(first.overhead.context_switches)} on {a}, "
        f"{count(second.overhead.context_switches)} on {b}",
    )


def _miss_cell(part: Run | DomainResult) -> Text:
    if part.jobs == 0:
        return Text(NOTHING)
    return Text(bare(part.miss_ratio), "red" if part.missed else "green")
