"""The table of what a design found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Column
from rich.text import Text

from laxity.policies import BY_WEIGHT
from laxity.tables.layout import heading, name_column, plain_table, right
from laxity.text import NOTHING, bare, down, number, percent, time

if TYPE_CHECKING:
    from rich.console import RenderableType

    from laxity.results.design import Design, Simulated


def design_table(found: Design) -> RenderableType:
    """The values of each domain or the demands in conflict, the reasons, the verdict."""
    policy = "any policy" if found.policy == "?" else found.policy
    lines: list[RenderableType] = [heading(policy, "by design"), ""]
    if found.domains:
        lines += _values(found)
    elif found.conflict or found.given:
        lines += _conflict(found)
    lines += [Text(f"- {reason}") for reason in found.reasons]
    lines.append("")
    if found.remedies:
        tasks = "" if found.missed_max is None else ", and so are the tasks' misses"
        holds = f"Holds: the voice is within its limits{tasks}"
        said = holds if found.holds else "Unknown: no change that was tried is enough"
        lines.append(Text(said, "bold green" if found.holds else "bold red"))
    elif found.holds and found.simulated is not None and found.missed_max is not None:
        lines += _within(found, found.simulated, found.missed_max)
    elif found.holds and found.simulated is not None:
        seeds = ", ".join(map(str, found.simulated.seeds))
        lines += [
            Text(
                f"Holds: {number(found.guaranteed, 'deadline')} guaranteed, "
                f"{percent(found.cpu_share or 0)} of CPU time reserved",
                "bold green",
            ),
            Text(
                f"Simulated with other phases and seeds {seeds}: "
                f"{number(found.simulated.jobs, 'job')}, {found.simulated.missed} missed"
            ),
        ]
    elif found.verdict == "unknown":
        lines.append(Text("Unknown: nothing was found that holds, and nothing proved", "bold red"))
    elif found.missed_max is not None:
        said = f"Impossible: more than {percent(found.missed_max)} of a task's deadlines is missed"
        lines.append(Text(said, "bold red"))
    else:
        lines.append(Text("Impossible: these demands cannot be guaranteed together", "bold red"))
    return Group(*lines)


def _within(found: Design, simulated: Simulated, missed_max: float) -> list[RenderableType]:
    first, last = simulated.seeds[0], simulated.seeds[-1]
    beside = (
        f"every cost may be {down(found.room_factor)} times what it is"
        if found.room_factor is not None
        else f"{percent(found.cpu_share or 0)} of CPU time reserved"
    )
    return [
        Text(
            f"Holds: at most {percent(missed_max)} of each task's deadlines missed in simulation, "
            f"{beside}",
            "bold green",
        ),
        Text(
            f"Simulated with other phases and seeds {first} to {last}: "
            f"{number(simulated.jobs, 'job')}, {simulated.missed} missed, at most "
            f"{percent(simulated.miss_ratio_max)} of a task's in one run"
        ),
        Text(
            f"{number(found.guaranteed, 'deadline')} guaranteed by analysis all the same"
            if found.guaranteed or found.policy not in BY_WEIGHT
            else f"No analysis guarantees deadlines under {found.policy}"
        ),
    ]


def _values(found: Design) -> list[RenderableType]:
    table = plain_table(
        name_column("domain"), *right("budget", "period", "priority", "CPU %", "needed %")
    )
    for domain in found.domains:
        table.add_row(
            Text(domain.name),
            time(domain.budget_ns, digits=6),
            time(domain.period_ns, digits=6),
            str(domain.priority),
            bare(domain.share),
            bare(domain.load) if domain.load else NOTHING,
        )
    return [table, ""]


def _conflict(found: Design) -> list[RenderableType]:
    table = plain_table(
        name_column("domain"), Column("task"), *right("cost", "period", "deadline", "CPU %")
    )
    for demand in found.conflict:
        table.add_row(
            Text(demand.domain),
            Text(demand.task),
            time(demand.cost_ns, digits=6),
            time(demand.period_ns, digits=6),
            time(demand.deadline_ns, digits=6),
            bare(demand.cost_ns / demand.period_ns),
        )
    for domain in found.given:
        table.add_row(Text(domain), "(budget)", *[NOTHING] * 4)
    return [table, ""]
