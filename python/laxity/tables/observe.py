"""What the domains of an observed host do: a row for each task, or for what else it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from laxity.tables.layout import heading, name_column, plain_table, right
from laxity.text import NOTHING, bare, time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from laxity.observation_schema import Vcpu
    from laxity.observe.observed import Observed

ROW = tuple[str, str, str, str, str]


def observe_table(observed: Observed) -> RenderableType:
    """What was found, and how many deadlines were missed if each task's is its period."""
    found, run = observed.found, observed.run
    table = plain_table(name_column("load"), *right("CPU %", "period", "cost", "jobs", "miss %"))
    duration_ns = found["duration_ns"]
    for domain, result in zip(found["domains"], run.domains, strict=True):
        part = sum(vcpu["work_ns"] for vcpu in domain["vcpus"]) / duration_ns
        table.add_row(Text(domain["name"], "bold"), bare(part))
        if result.tasks:
            for task in result.tasks:
                miss = Text(bare(task.miss_ratio), "red" if task.missed else "green")
                facts = _facts(observed, domain["name"], task.name)
                table.add_row(Text(f"  {task.name}"), *facts, f"{task.jobs:,}", miss)
        else:
            for row in _loads(domain["vcpus"]):
                table.add_row(*row)
    source = f"on {run.substrate}, under {run.policy}, {time(duration_ns)}"
    return Group(heading("Observed", source), "", table)


def _facts(observed: Observed, domain: str, task: str) -> tuple[str, str, str]:
    """The part of a CPU, the period and the cost of a task of the host file."""
    domains = observed.host.resolved()["domains"]
    tasks = next(each["tasks"] for each in domains if each["name"] == domain)
    facts = next(each for each in tasks if each["name"] == task)
    part = facts["cost_ns"] / facts["period_ns"]
    return bare(part), time(facts["period_ns"]), time(facts["cost_ns"])


def _loads(vcpus: list[Vcpu]) -> Iterator[ROW]:
    """What VCPUs do that have no tasks."""
    for load in (vcpu["load"] for vcpu in vcpus):
        if load["kind"] == "endless":
            yield "  never sleeps", NOTHING, NOTHING, NOTHING, NOTHING
        elif load["kind"] == "bursts":
            period_ns, run_ns = load["run_ns"] + load["idle_ns"], load["run_ns"]
            yield "  no period, on average", NOTHING, time(period_ns), time(run_ns), NOTHING
        else:
            yield "  never ran", NOTHING, NOTHING, NOTHING, NOTHING
