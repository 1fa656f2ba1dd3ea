"""What goes wrong on a host, for a terminal."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from laxity.text import number, time

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laxity.doctor.diagnosis import Cost, Diagnosis


def doctor_table(found: Diagnosis) -> RenderableType:
    """Each finding with its cost, its remedy and its reference."""
    looked = f"{number(found.rules, 'rule')}, {number(found.suspected, 'suspicion')}"
    if not found.findings:
        none = ", none of which a run confirmed" if found.suspected else ""
        return Text(f"Nothing found ({looked}{none})", "bold green")
    lines: list[RenderableType] = [
        Text(f"{number(len(found.findings), 'finding')} ({looked})", "bold")
    ]
    for finding in found.findings:
        lines += [
            "",
            Text.assemble((finding.rule, "bold"), f" at {finding.where}"),
            Text(f"  {finding.what}"),
            Text(f"  Costs: {cost_text(finding.cost)}"),
            Text(f"  Remedy: {' '.join(f'--set {shlex.quote(each)}' for each in finding.remedy)}"),
            Text(f"  Reference: {finding.reference}", "dim"),
        ]
    return Group(*lines)


def cost_text(cost: Cost) -> str:
    """What the simulator has without the remedy and with it."""
    if cost.measure.endswith(", ns"):
        now, then = time(cost.now), time(cost.with_remedy)
    else:
        now, then = f"{cost.now:,}", f"{cost.with_remedy:,}"
    return f"{cost.measure.removesuffix(', ns')} {now}, with the remedy {then}"
