"""A host whose tasks were drawn, written out: what a model of a real machine runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laxity.resolved_schema import Domain, ResolvedHost, Task


def written(
    resolved: ResolvedHost,
    name: str,
    costs: str,
    cost_ns: Callable[[Task], int],
) -> Host:
    """The host, complete, with other costs; `name` is that of its file.

    `costs` is the value of `host.costs`. A job costs `cost_ns`, but at least 1 ns and no more than
    its deadline allows.
    """
    settings = resolved["settings"]
    lines = [f'duration = "{resolved["duration_ns"]} ns"', f"seed = {resolved['seed']}", ""]
    lines += ["[host]", f"cpus = {resolved['cpus']}", f'policy = "{resolved["policy"]}"']
    lines += [
        f"{key.removesuffix('_ns').replace('_', '-')} = "
        + (f'"{value} ns"' if key.endswith("_ns") else f"{value}")
        for key, value in settings.items()
    ]
    lines.append(f"costs = {costs}")
    for domain in resolved["domains"]:
        lines += ["", *_domain(domain, cost_ns)]
    return Host.parse("\n".join(lines) + "\n", name)


def _domain(domain: Domain, cost_ns: Callable[[Task], int]) -> list[str]:
    given = domain["parameters"]
    lines = ["[[domain]]", f'name = "{domain["name"]}"', f"vcpus = {len(domain['vcpus'])}"]
    lines += [f'budget = "{given["budget_ns"]} ns"', f'period = "{given["period_ns"]} ns"']
    lines += [f"priority = {given['priority']}", f"weight = {given['weight']}"]
    lines += [f"extratime = {str(given['extratime']).lower()}", f"cap = {given['cap_percent']}"]
    if domain["cpu_bound"]:
        lines.append('workload = { kind = "cpu-bound" }')
    lines.append(f"tasks = [{', '.join(_task(task, cost_ns) for task in domain['tasks'])}]")
    return lines


def _task(task: Task, cost_ns: Callable[[Task], int]) -> str:
    times = {
        "cost_ns": max(1, min(cost_ns(task), task["deadline_ns"])),
        "period_ns": task["period_ns"],
        "deadline_ns": task["deadline_ns"],
        "offset_ns": task["offset_ns"],
    }
    return f'{{ name = "{task["name"]}", {_times(times)}, vcpu = {task["vcpu"]} }}'


def _times(times: Mapping[str, int]) -> str:
    return ", ".join(f'{key.removesuffix("_ns")} = "{ns} ns"' for key, ns in times.items())
