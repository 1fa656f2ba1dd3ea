"""The host file of a host that was observed: pure, from what was found to text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from laxity.policies import PARAMETERS
from laxity.text import UNITS, cost, number, percent, time, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from laxity.observation_schema import Costs, Domain, Observation, Vcpu
    from laxity.observe.known import Configuration, Known
    from laxity.substrates.kernel import Kernel
    from laxity.trace_schema import Metadata

UNPINNED_CPUS = 1
"""On so many CPUs no affinity needs to be told."""


def host_file(
    found: Observation,
    metadata: Metadata,
    known: Configuration,
    source: str,
    packets: Mapping[str, int],
) -> str:
    """Returns the text of a host file.

    `found` is what its trace shows, `metadata` that of the trace, `source` what was observed, for
    people, and `packets` how many packets each domain had, where that is known. Each value has a
    comment that says where it comes from.
    """
    lines = [
        f"# What a host did, as laxity observe found it in {_told(source)}.",
        "",
        f"duration = {_time(found['duration_ns'])}  # the trace is so long",
        "",
        "[host]",
        f"cpus = {metadata['cpus']}  # the trace",
        *(f"policy = {json.dumps(name)}  # {_told(where)}" for name, where in known.policy.items()),
        *(_parameter(name, value) for name, value in known.settings.items()),
        *_costs(found["costs"], known),
    ]
    for domain in found["domains"]:
        lines += ["", *_domain(domain, metadata["cpus"], known)]
        if count := packets.get(domain["name"]):
            rate = count * 1e9 / found["duration_ns"]
            lines.append(f"# It had {number(count, 'packet')} in the trace, {rate:,.1f} a second.")
    return "\n".join(lines) + "\n"


def _told(source: str) -> str:
    """A name of a file or of a control group, of which nothing ends the comment."""
    return visible(source).replace("\n", "\\n")


def _time(ns: int) -> str:
    """A time without rounding."""
    unit, unit_ns = next((unit for unit in UNITS if ns >= unit[1]), UNITS[-1])
    decimals = len(str(unit_ns)) - 1
    text = f"{ns / unit_ns:.{decimals}f}"
    return json.dumps(f"{text.rstrip('0').rstrip('.') if decimals else text} {unit}")


def _parameter(name: str, known: Known) -> str:
    kind = PARAMETERS[name].kind
    value = _time(int(known.value)) if kind == "duration" else json.dumps(known.value)
    return f"{name} = {value}  # {_told(known.source)}"


def _costs(costs: Costs, known: Configuration) -> Iterator[str]:
    (source,) = known.policy.values()
    if costs["measured"]:
        values = f"schedule = {_time(costs['schedule_ns'])}"
        values += f", context-switch = {_time(costs['context_switch_ns'])}"
        decisions = number(costs["measured"], "decision")
        yield f"costs = {{ {values} }}  # means of {decisions}"
    elif known.costs and any(known.costs["context_switch"].values()):
        values = f"schedule = {cost(known.costs['schedule'])}"
        values += f", context-switch = {cost(known.costs['context_switch'])}"
        yield f"costs = {{ {values} }}  # {_told(source)}"
    if known.timer_latency_ns:
        yield f"timer-latency = {_time(known.timer_latency_ns)}  # {_told(source)}"


def _domain(domain: Domain, cpus: int, known: Configuration) -> Iterator[str]:
    name, vcpus = domain["name"], domain["vcpus"]
    yield "[[domain]]"
    yield f"name = {json.dumps(name)}"
    yield f"vcpus = {len(vcpus)}  # the trace"
    allowed = known.affinity.get(name)
    ran = sorted({cpu for vcpu in vcpus for cpu in vcpu["cpus"]})
    if allowed is not None:
        yield f"affinity = {json.dumps(list(allowed))}  # as configured"
    elif ran and len(ran) < cpus and cpus > UNPINNED_CPUS:
        yield f"affinity = {json.dumps(ran)}  # it ran nowhere else"
    yield from (_parameter(key, value) for key, value in known.domains.get(name, {}).items())
    yield from _tick(vcpus, known.kernel)
    yield from _load(vcpus)


def _tick(vcpus: list[Vcpu], kernel: Kernel) -> Iterator[str]:
    """The tick of the kernel of a domain: the trace tells when it comes on the first VCPU."""
    load = vcpus[0]["load"]
    if kernel.tick and load["kind"] == "tasks" and load["tick_offset_ns"] is not None:
        keys = {**kernel.tick, "offset": load["tick_offset_ns"]}
        values = ", ".join(f"{key} = {_time(ns)}" for key, ns in keys.items())
        yield f"tick = {{ {values} }}  # its kernel woke then; what it takes is known"


def _load(vcpus: list[Vcpu]) -> Iterator[str]:
    kinds = {vcpu["load"]["kind"] for vcpu in vcpus}
    if kinds == {"nothing"}:
        yield "# It never ran."
    elif kinds == {"endless"}:
        yield 'workload = { kind = "cpu-bound" }  # it never slept'
    elif kinds <= {"bursts", "nothing"}:
        yield from _bursts(vcpus)
    else:
        yield "tasks = ["
        count = 0
        for index, vcpu in enumerate(vcpus):
            wake_ns = vcpu["load"]["wake_ns"] if vcpu["load"]["kind"] == "tasks" else 0
            if wake_ns:
                yield (
                    f"    # At each wake of VCPU {index} its kernel takes {time(wake_ns)} more, "
                    "which is in no cost."
                )
            for comment, cost_ns, period_ns, offset_ns in _tasks(vcpu):
                count += 1
                cost_ns = min(max(cost_ns, 1), period_ns)  # noqa: PLW2901 - the bounds of the key
                yield f"    # {comment}"
                yield (
                    f'    {{ name = "task-{count}", cost = {_time(cost_ns)}, '
                    f"period = {_time(period_ns)}, offset = {_time(offset_ns)}, vcpu = {index} }},"
                )
        yield "]"


def _tasks(vcpu: Vcpu) -> Iterator[tuple[str, int, int, int]]:
    """What each task is known by, its cost, period and offset."""
    load = vcpu["load"]
    if load["kind"] == "tasks":
        for task in load["tasks"]:
            comment = f"{number(task['arrivals'], 'arrival')}, {task['wakes']:,} of them wakes"
            comment += f", off by up to {time(task['jitter_ns'])}"
            if task["alone_ns"] is not None:
                least, most = (time(ns) for ns in task["alone_ns"])
                comment += f"; a job alone took {least}"
                comment += "" if least == most else f" to {most}"
            yield comment, task["cost_ns"], task["period_ns"], task["offset_ns"]
    elif load["kind"] == "endless":
        yield "This VCPU never slept.", 10_000_000, 10_000_000, 0
    elif load["kind"] == "bursts":
        period_ns = load["run_ns"] + load["idle_ns"]
        yield (
            "No period was found; these are means of what it ran and slept.",
            (load["run_ns"]),
            period_ns,
            0,
        )


def _bursts(vcpus: list[Vcpu]) -> Iterator[str]:
    loads = [vcpu["load"] for vcpu in vcpus if vcpu["load"]["kind"] == "bursts"]
    run_ns = sum(load["run_ns"] for load in loads) // len(loads)
    idle_ns = sum(load["idle_ns"] for load in loads) // len(loads)
    part = percent(run_ns / (run_ns + idle_ns))
    yield f"# No period was found. Means of what it ran and slept: {part} of the time."
    yield (f'workload = {{ kind = "cpu-bound", run = {_time(run_ns)}, idle = {_time(idle_ns)} }}')
