"""The report on one run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from laxity import _core, tracefile
from laxity.directory import Manifest
from laxity.errors import InputError, core_errors
from laxity.host import Host
from laxity.plots import responses
from laxity.plots.responses import TASK_ROWS_MAX, TaskTimes
from laxity.plots.timeline import TIMELINE_CELLS, VCPU_LANES_MAX, who_ran_when
from laxity.policies import BY_WEIGHT
from laxity.report import calls
from laxity.report.live import LATE_MAX, live
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
    missed_cell,
    plain,
    repeats,
    substrate_of,
)
from laxity.report.window import cause, chosen_window
from laxity.results.run import Run
from laxity.tables.run import lost_to_scheduling, rounded
from laxity.tables.why import (
    COUNTED,
    EXITS_COLUMNS,
    NAMES,
    decides,
    exits_rows,
    lost_where,
    rule_phrase,
    shares,
    summed,
)
from laxity.text import NOT_MEASURED, NOTHING, listed, number, percent, time
from laxity.why import LATE_KINDS, why

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from laxity.resolved_schema import ResolvedHost
    from laxity.results.schema import DomainResult, TaskResult
    from laxity.trace_schema import Timeline
    from laxity.why import Why

LATE_ROWS = 10
"""Late jobs, and late packets, that a report explains one by one."""


def page(directory: Path, window: tuple[int, int] | None) -> Page:
    """Reads what `laxity run -o` wrote."""
    manifest = Manifest.load(directory)
    run = Run.load(directory)
    host = Host(run.origin.host, run.origin.name).resolved(run.origin.overrides)
    sections = [Section("Domains", tables=(_domains(run, host),))]
    if run.telephony is not None:
        sections = calls.sections(run, run.telephony, host)
    if run.network is not None:
        sections = [*calls.agreements(run.network), *sections, *calls.packets(run.network)]
    if run.trace is not None:
        may_be_late = run.missed or run.telephony is not None
        has_exits = tracefile.has(run.trace, "exit")
        asked = may_be_late or has_exits
        found = why(run.trace, worst=len(LATE_KINDS) * LATE_MAX) if asked else None
        late = found if found is not None and found.late else None
        sections.append(_timeline(run, run.trace, window, host, late))
        if late is not None:
            sections.append(_late(late, run.policy))
        if found is not None and found.guests:
            sections.append(_exits(found))
    elif window is not None:
        raise InputError(
            f"{directory} has no trace, and so no timeline", "run it without --no-trace"
        )
    bounds_ns = _bounds_ns(run) if of_tasks(host) else {}
    tasks = _task_times(run, host, bounds_ns)
    if tasks:
        sections.append(_responses(tasks))
        sections.append(Section("Tasks", tables=(_tasks(run, host, bounds_ns),)))
    sections.append(Section("Cost of scheduling", tables=(_overhead(run),)))
    verdict, tone = _verdict(run)
    lead = _lead(run)
    if run.telephony is not None:
        of_calls, tone_of_calls = calls.verdict(run.telephony)
        # Tasks beside calls are spoken of where they missed.
        verdict, tone = (f"{of_calls} {verdict}", tone) if run.missed else (of_calls, tone_of_calls)
        lead = calls.lead(run.telephony)
    elif run.network is not None and run.network.agreements and not run.missed:
        verdict, tone = calls.agreements_verdict(run.network)
    on = substrate_of(run.origin, run.substrate)
    return Page(
        kind=f"One run under {run.policy}",
        verdict=verdict,
        tone=tone,
        lead=lead,
        facts=[*_facts(run, host), *costs(run.profiles), *changes(run.origin.overrides)],
        sections=sections,
        command=command(["run", "host.toml", *on.words], run.origin.overrides),
        repeats=repeats(on),
        host=host_text(directory),
        version=manifest.version,
    )


def worst_domain(domains: tuple[DomainResult, ...]) -> DomainResult | None:
    """The one that missed the greatest part of its deadlines; None if none was missed."""
    worst = max(domains, key=lambda domain: domain.miss_ratio, default=None)
    return worst if worst is not None and worst.missed else None


def _verdict(run: Run) -> tuple[str, str]:
    if run.jobs == 0:
        return "No deadline fell within this run.", ""
    if run.missed == 0:
        what = "Its one job" if run.jobs == 1 else f"All {run.jobs:,} jobs"
        return (
            f"{what} met their deadlines." if run.jobs > 1 else f"{what} met its deadline.",
            "good",
        )
    jobs = number(run.jobs, "job")
    return (
        f"{run.missed:,} of {jobs} missed {'its' if run.missed == 1 else 'their'} deadline.",
        "bad",
    )


def _lead(run: Run) -> str:
    worst = worst_domain(run.domains)
    if worst is None:
        return "One run is no guarantee: `laxity check` gives bounds for every task."
    task = max(worst.tasks, key=lambda task: task.miss_ratio)
    unscathed = sum(1 for domain in run.domains if domain.jobs and not domain.missed)
    others = f" {number(unscathed, 'domain')} missed none." if unscathed else ""
    return (
        f"That is {percent(run.miss_ratio)}. The worst domain is {worst.name}, with "
        f"{percent(worst.miss_ratio)}; its worst "
        f"task, {task.name}, missed {task.missed:,} of {task.jobs:,}.{others}"
    )


def _facts(run: Run, host: ResolvedHost) -> list[tuple[str, str]]:
    quantum_ns = host["settings"]["quantum_ns"]
    used = sum(domain.cpu_ns for domain in run.domains) / (run.duration_ns * host["cpus"])
    tasks = sum(len(domain["tasks"]) for domain in host["domains"])
    vcpus = sum(len(domain["vcpus"]) for domain in host["domains"])
    return [
        ("Policy", run.policy + (f", quantum {time(quantum_ns)}" if quantum_ns else "")),
        ("Duration", time(run.duration_ns)),
        ("Seed", str(run.seed)),
        ("Run on", run.substrate + (f", {run.machine.fingerprint}" if run.machine else "")),
        ("Host", f"{number(host['cpus'], 'CPU')}, {number(len(host['domains']), 'domain')}"),
        ("Guests", f"{number(vcpus, 'VCPU')}, {number(tasks, 'task')}"),
        ("CPU time of guests", percent(used)),
        ("Lost to scheduling", lost_to_scheduling(run.overhead)),
    ]


def _domains(run: Run, host: ResolvedHost) -> Table:
    has_weights = run.policy in BY_WEIGHT
    rows = []
    for domain, of_host in zip(run.domains, host["domains"], strict=True):
        parameters = of_host["parameters"]
        if has_weights:
            cap = parameters["cap_percent"]
            given = [str(parameters["weight"]), f"{cap} %" if cap else "none"]
        else:
            given = [time(parameters["budget_ns"]), time(parameters["period_ns"])]
        rows.append(
            [
                *plain(domain.name, str(len(of_host["vcpus"])), *given),
                *plain(time(domain.cpu_ns), percent(domain.cpu_ns / run.duration_ns)),
                *plain(f"{domain.jobs:,}", f"{domain.missed:,}"),
                missed_cell(domain.miss_ratio, domain.jobs),
            ]
        )
    given_names = ("weight", "cap") if has_weights else ("budget", "period")
    columns = (
        "domain",
        "VCPUs",
        *given_names,
        "CPU time",
        "of one CPU",
        "jobs",
        "missed",
        "miss ratio",
    )
    return Table("Deadlines and CPU time of each domain", columns, rows)


def _bounds_ns(run: Run) -> dict[tuple[str, str], int]:
    """The bound that analysis gives for the response time of each task, where it gives one."""
    found = Host(run.origin.host, run.origin.name).check(set=run.origin.overrides)
    return {
        (domain.name, task.name): task.bound_ns
        for domain in found.domains
        for task in domain.tasks
        if task.bound_ns is not None
    }


def _tasks(run: Run, host: ResolvedHost, bounds_ns: Mapping[tuple[str, str], int]) -> Table:
    def bound(domain: str, task: TaskResult) -> Cell:
        bound_ns = bounds_ns.get((domain, task.name))
        longest_ns = task.response_ns.max
        is_passed = bound_ns is not None and longest_ns is not None and longest_ns > bound_ns
        return Cell(time(bound_ns, up=True), "bad" if is_passed else "")

    rows = [
        [
            *plain(domain.name, task.name),
            *plain(*(time(given[key]) for key in ("cost_ns", "period_ns", "deadline_ns"))),
            *plain(f"{task.jobs:,}", f"{task.missed:,}"),
            missed_cell(task.miss_ratio, task.jobs),
            *plain(
                *(
                    time(quantile)
                    for quantile in (
                        task.response_ns.p50,
                        task.response_ns.p99,
                        task.response_ns.max,
                    )
                )
            ),
            bound(domain.name, task),
            *plain(time(task.lateness_ns.max)),
        ]
        for domain, of_host in zip(run.domains, host["domains"], strict=True)
        for task, given in zip(domain.tasks, of_host["tasks"], strict=True)
    ]
    columns = (
        *("domain", "task", "cost", "period", "deadline", "jobs", "missed", "miss ratio"),
        *("response median", "99 %", "longest", "bound", "late by"),
    )
    unfinished = sum(task.unfinished for domain in run.domains for task in domain.tasks)
    note = (
        "Response times are from arrival to completion, of all jobs; quantiles by nearest rank. "
        "Late by is the longest time after a deadline."
    )
    if unfinished:
        note += (
            f" {number(unfinished, 'missed job was', 'missed jobs were')} not complete when the "
            "run ended; the times count what had passed by then."
        )
    note += (
        " Bounds are those of `laxity check` for the host as its file says; one that a response "
        "passed is red."
        if bounds_ns
        else " Analysis gives no bound for any of these tasks; `laxity check` says why."
    )
    near = rounded(run)
    if near is not None:
        note += f" {near}."
    return Table("Jobs and response times of each task", columns, rows, 2, note)


def _overhead(run: Run) -> Table:
    overhead = run.overhead

    def cells(count: int | None, total_ns: int | None) -> list[str]:
        if count is None:
            return [NOT_MEASURED] * 4
        numbers = [f"{count:,}", f"{count / (run.duration_ns / 1e9):,.0f}"]
        if total_ns is None:
            return [*numbers, NOT_MEASURED, NOT_MEASURED]
        each = time(round(total_ns / count)) if count else NOTHING
        return [*numbers, time(total_ns), each]

    rows = [
        plain(name, *cells(count, total_ns))
        for name, count, total_ns in (
            ("decisions", overhead.schedule_calls, overhead.schedule_ns),
            ("context switches", overhead.context_switches, overhead.context_switch_ns),
        )
    ]
    columns = ("", "number", "a second", "time", "mean of each")
    note = (
        ""
        if overhead.loss_ratio is None
        else f"Both together: {percent(overhead.loss_ratio)} of the time of all CPUs."
    )
    return Table("Decisions and context switches", columns, rows, note=note)


def _exits(found: Why) -> Section:
    rows = [plain(*row) for row in exits_rows(found)]
    table = Table("Exits of each VCPU's guest", EXITS_COLUMNS, rows, 2)
    said = (
        "After an exit the host has the CPU of the VCPU, until the guest is entered again. The "
        "share is that of the time for which the VCPU had its CPU."
    )
    return Section("Exits of guests", said, tables=(table,))


def _task_times(
    run: Run, host: ResolvedHost, bounds_ns: Mapping[tuple[str, str], int]
) -> list[TaskTimes]:
    none = np.empty(0, np.int64)

    def of_task(domain: str, task: TaskResult, deadline_ns: int) -> TaskTimes:
        key = domain, task.name
        counted = run.counted.get(key)
        times = run.responses.get(key, none) if counted is None else counted.response_ns
        jobs = None if counted is None else counted.jobs
        bound_ns = bounds_ns.get(key)
        return TaskTimes(
            domain, task.name, deadline_ns, task.jobs, task.missed, times, jobs, bound_ns
        )

    return [
        of_task(domain.name, task, given["deadline_ns"])
        for domain, of_host in zip(run.domains, host["domains"], strict=True)
        for task, given in zip(domain.tasks, of_host["tasks"], strict=True)
    ]


def _responses(tasks: list[TaskTimes]) -> Section:
    shown = responses.tasks_at_risk(tasks)
    some = (
        f" The {TASK_ROWS_MAX} of {len(tasks):,} tasks that missed most or came closest to their "
        "deadlines are shown."
        if len(shown) < len(tasks)
        else ""
    )
    bounds = (
        " A blue line marks the bound of `laxity check`."
        if any(task.bound_ns for task in shown)
        else ""
    )
    late = sum(1 for task in tasks if task.missed)
    picture = Picture(
        "response-times",
        "Response times of each task",
        "Completed jobs of each task, by response time (logarithmic axis). A row is widest at its "
        "most frequent response time, and its width is proportional to the square root of the "
        f"number of jobs. A diamond marks the deadline; later responses are red.{bounds}{some}",
        f"Distributions of response times with deadlines, {number(len(shown), 'task')}; "
        f"{number(late, 'task')} missed deadlines. The table of tasks has the numbers.",
        lambda: responses.response_distributions(shown),
    )
    return Section("Response times", pictures=(picture,))


def _timeline(
    run: Run,
    trace: Path,
    window: tuple[int, int] | None,
    host: ResolvedHost,
    found: Why | None,
) -> Section:
    of_run = tracefile.metadata(trace)
    if window is not None and not 0 <= window[0] < window[1] <= of_run["duration_ns"]:
        ends = "..".join(time(end_ns, digits=6) for end_ns in window)
        raise InputError(
            f"the window {ends} is not within the run",
            f"the run goes from 0 s to {time(of_run['duration_ns'], digits=6)}",
        )
    about = cause(run, trace, host)
    from_ns, to_ns = window if window is not None else chosen_window(run, trace, about)
    with core_errors():
        timeline: Timeline = json.loads(_core.timeline(str(trace), from_ns, to_ns, TIMELINE_CELLS))
    marks = [mark for mark in (about.marks if about else ()) if from_ns <= mark[0] <= to_ns]
    vcpus = len(timeline["budgets"])
    why = f", around {about.what}" if window is None and about else ""
    some = ""
    if vcpus > VCPU_LANES_MAX:
        some = (
            f" {VCPU_LANES_MAX} of {vcpus} VCPUs have lanes: first those that missed deadlines "
            "here, then those with jobs, then those that ran longest; the others are grey."
        )
    if any(ran["ran_ns"] < ran["end_ns"] - ran["start_ns"] for ran in timeline["occupancy"]):
        some += (
            " Where runs are too short to be told apart, a bar is as high as the part of the time "
            "that was used, and on a CPU has the colour of the VCPU that ran longest; a shorter "
            "window (`--window`) shows each run."
        )
    what = "credits" if run.policy in BY_WEIGHT else "budget left"
    jobs = ", when jobs arrived, completed and missed their deadlines" if of_tasks(host) else ""
    counts = (
        (sum(point["count"] for point in points), word)
        for points, word in (
            (timeline["releases"], "arrival"),
            (timeline["completions"], "completion"),
            (timeline["misses"], "missed deadline"),
        )
    )
    picture = Picture(
        "timeline",
        "Timeline of CPUs and VCPUs",
        f"From {time(from_ns, digits=6)} to {time(to_ns, digits=6)} after the start{why}. The lane "
        f"of a CPU shows which VCPU it ran. The lane of a VCPU shows when it ran{jobs}, and below "
        f"its {what}, with the extremes at the right.{some}",
        f"Timeline of {', '.join(number(count, word) for count, word in counts)}.",
        lambda: who_ran_when(timeline, of_run, marks),
        live(run, trace, host, of_run, timeline, None if window is not None else about, found),
    )
    return Section("Timeline", pictures=(picture,))


def _late(found: Why, policy: str) -> Section:
    """What was late by most with its causes, and all lateness by cause and culprit."""
    kinds = found.kinds()
    one = listed([f"{'an' if kind == 'outage' else 'a'} {kind}" for kind in kinds], "or")
    all_kinds = listed([f"{kind}s" for kind in kinds], "and")
    late_kinds = [f"{kind}s" for kind in kinds if kind != "outage"]
    were_late = f"{listed(late_kinds, 'and')} were late" if late_kinds else ""
    were_out = "domains were out" if found.outages else ""
    worst = {
        kind: [
            plain(
                late.what.removesuffix("/outage"),
                time(late.arrival_ns, digits=6),
                NOTHING if late.packet == "lost" and not late.late_ns else time(late.late_ns),
                "; ".join(f"{time(ns)}: {words}" for ns, words in shares(late, policy))
                or lost_where(late),
            )
            for late in found.late
            if late.kind == kind
        ][:LATE_ROWS]
        for kind in kinds
    }
    all_late = [
        plain(
            NAMES[kind],
            who or NOTHING,
            NOTHING if rule is None else rule_phrase(rule, decides(policy, who)),
            time(ns),
            percent(ns / found.late_sum_ns) if found.late_sum_ns else NOTHING,
            f"{count:,}",
        )
        for (kind, who, rule), (ns, count) in summed(found.totals).items()
    ]
    lost = (
        " A lost one has that of the oldest one that waited where there was no room."
        if found.lost_packets or found.lost_messages
        else ""
    )
    not_seen = f" Not seen: {'; '.join(found.not_seen)}." if found.not_seen else ""
    return Section(
        f"Why {', and '.join(filter(None, (were_out, were_late)))}",
        f"The causes of {one} sum to its lateness.{lost}{not_seen} `laxity why` also says what "
        "would have helped.",
        tables=(
            *(
                Table(
                    *(
                        ("The longest outages", ("domain", "began", "lasted", "causes"))
                        if kind == "outage"
                        else (
                            f"The {kind}s that were late by most",
                            (kind, "arrived", "late by", "causes"),
                        )
                    ),
                    rows,
                    0,
                )
                for kind, rows in worst.items()
            ),
            Table(
                f"The lateness of all {all_kinds} by cause and culprit",
                ("cause", "culprit", "rule", "late by", "of all", COUNTED.get(kinds, "times")),
                all_late,
                3,
            ),
        ),
    )


def of_tasks(host: ResolvedHost) -> bool:
    """Whether any domain has tasks."""
    return any(domain["tasks"] for domain in host["domains"])
