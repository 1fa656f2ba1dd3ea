"""The table of how far the simulator is from real Xen."""

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
    table = plain_table(
        name_column("miss %"), *right("jobs", "sim", "xen", "difference", "CPU % sim", "xen")
    )
    pairs = [*zip(result.sim.domains, result.xen.domains, strict=True)]
    for sim, real in pairs:
        points = 100 * (real.miss_ratio - sim.miss_ratio)
        shares = (bare(part.cpu_ns / result.sim.duration_ns) for part in (sim, real))
        difference = f"{points:+.2f}" if points else "0"
        cells = _miss_cell(sim), _miss_cell(real), difference
        table.add_row(Text(sim.name), f"{sim.jobs:,}", *cells, *shares)
    quantiles = agreement["completion_difference_ns"]
    late = ", ".join(f"{name} {time(quantiles[name])}" for name in ("p50", "p90", "p99", "max"))
    shift = f"{percent(agreement['best_ratio'])} if shifted by {time(agreement['best_shift_ns'])}"
    run = result.xen
    return Group(
        heading(run.policy, f"on sim and xen, {time(run.duration_ns)}, seed {run.seed}"),
        "",
        table,
        "",
        f"Both run the same VCPU {percent(agreement['same_ratio'])} of the time, {shift}",
        f"Jobs complete apart by: {late}",
        f"Switches: {count(result.sim.overhead.context_switches)} on sim, "
        f"{count(result.xen.overhead.context_switches)} on xen",
    )


def _miss_cell(part: Run | DomainResult) -> Text:
    if part.jobs == 0:
        return Text(NOTHING)
    return Text(bare(part.miss_ratio), "red" if part.missed else "green")
