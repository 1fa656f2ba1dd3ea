"""Writes docs/explanation/which-scheduler.md: every policy on the same task sets.

tools/pages/which.py          writes it
tools/pages/which.py --check  exit code 1 if it is not what would be written
"""

from __future__ import annotations

import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.host import Host
from laxity.policies import GLOBAL, TABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from laxity.results.run import Run

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "which-scheduler.md"

DURATION_S = 10
SEEDS = (1, 2, 3)
LOADS_PERCENT = range(30, 105, 5)
HIGH_PERCENT = 90
BESIDE_PERCENT = 60
COSTS_PERCENT = 70
NS_A_MS = 1_000_000
COLUMNS = 100

HEAD = """\
# Which scheduler?

Every policy on the same task sets, in the simulator, on one CPU, without costs: written by
`tools/pages/which.py`. Each value is of {seeds} seeds and {duration} s each. `laxity compare HOST`
makes such a table of your own host. `laxity check HOST` says what is guaranteed, which no table
can.

- *Capacity* is the highest load, in steps of 5 %, up to which no job misses its deadline. The load
  is that of all tasks, of the CPU. It is *none* where some job is late at {least} % already.
- *Late at {high} %* is the share of jobs that miss their deadlines at that load, and *worst* is how
  late the latest of them is.
- *Beside a hog* is the share of jobs of the other domains that miss their deadlines at a load of
  {beside} %, while one domain never stops computing: isolation.
- *Decisions* and *switches* a second are those at a load of {costs} %: what the policy costs.

A policy that refuses a set is left out there, with its reason. `null` gives each VCPU a CPU for
good, and needs as many CPUs as there are VCPUs: it is the best where they are, and is in no table.
The global policies do on one CPU what their counterparts do without `extratime`, and are in none.
"""

LEFT_OUT = ("null", *GLOBAL)

WHEN = {
    "deferrable": "Take it for control loops whose jobs come at any time: a job finds the budget "
    "that its guest has not used, and bounds are known.",
    "periodic": "Take it where every period must look alike, as for a certificate by the periodic "
    "resource model. What a guest does not use is lost.",
    "polling": "Take it for guests that all begin their work at the start of their periods. A job "
    "that comes a little later waits for the next one.",
    "sporadic": "Take it for jobs that come at any time, where the interference with lower "
    "priorities must be that of a periodic task.",
    "credit": "Take it for guests without deadlines, with weights and caps.",
    "sedf": "Take it where the budgets together are nearly the whole CPU, and priorities would "
    "leave some of it unused.",
    "s-base": "It is the measure for the other variants of scheduler S.",
    "s-a": "It is the first part of scheduler S, to see what the laxity alone does.",
    "s-ab": "It adds a boost with each event to `s-a`.",
    "s-al": "It adds load balancing to `s-a`; on one CPU the two are the same.",
    "s-all": "Take it for telephony on several CPUs with shared caches: VCPUs that named a laxity "
    "come first. The others keep their shares only if none of these computes without end.",
    "s-aill": "Take it for telephony that must never run out of credits, beside guests that you "
    "trust.",
    "s-allc": "Take it for telephony whose laxity is shorter than the turns of other guests.",
    "s-abll": "It adds a boost with each event to `s-all`.",
    "rtds": "Take it on stock Xen for guests with deadlines: global EDF with a budget a period.",
    "credit2": "Take it on stock Xen for guests without deadlines that wake often and run "
    "briefly; there is no guarantee.",
    "fifo": "Take it on Linux if you trust the guests of high priority: nothing limits them.",
    "deadline": "Take it on Linux for guests with deadlines: EDF with budgets, and an admission "
    "test.",
    "eevdf": "Take it on Linux for guests without deadlines, with `cpu.weight` and `cpu.max`.",
    "arinc653": "Take it where nothing that one guest does may change what another one sees, and "
    "idle time is no concern.",
    "lending": "Take it for guests that tell their deadlines: guarantees as under sporadic, and "
    "few misses where the CPU is nearly full.",
}


@dataclass(frozen=True)
class Guest:
    """A domain: its share of the CPU and its tasks."""

    name: str
    share: float
    """The part of all budgets, and of all weights."""
    load: float
    """The part of the load."""
    laxity_us: int
    """0: none."""
    tasks: tuple[tuple[float, float, float], ...]
    """Period in ms, deadline in ms, part of the domain's load."""


@dataclass(frozen=True)
class TaskSet:
    """Hosts with one load after the other."""

    title: str
    about: str
    hog: str
    """The domain that never stops computing, to show isolation."""
    text: Callable[[int], str]
    """The host file, by load in percent."""


BUDGETS = 0.95
"""All budgets together, of the CPU: Linux's deadline admits no more."""
WEIGHTS = 1000


def file_of(guests: tuple[Guest, ...], period_ms: float, percent: int) -> str:
    """A host file. Each domain may use the CPU beyond its budget while nobody else needs it."""
    lines = [
        f'duration = "{DURATION_S} s"',
        'host = { cpus = 1, policy = "deferrable" }',
    ]
    phase_us = 0
    for priority, guest in enumerate(guests, 1):
        budget_us = int(guest.share * BUDGETS * period_ms * 1_000)
        lines += [
            "[[domain]]",
            f'name = "{guest.name}"',
            f'budget = "{budget_us} us"',
            f'period = "{round(period_ms * 1_000)} us"',
            f'phase = "{phase_us} us"',
            f"priority = {priority}",
            "extratime = true",
            f"rt-priority = {50 - priority}",
            f"weight = {round(guest.share * WEIGHTS)}",
        ]
        phase_us += budget_us
        if guest.laxity_us:
            lines.append(f'laxity = "{guest.laxity_us} us"')
        for number, (task_ms, deadline_ms, part) in enumerate(guest.tasks):
            cost_us = max(1, int(percent / 100 * guest.load * part * task_ms * 1_000))
            lines += [
                "[[domain.tasks]]",
                f'name = "t{number}"',
                f'cost = "{cost_us} us"',
                f'period = "{round(task_ms * 1_000)} us"',
                f'deadline = "{max(cost_us, round(deadline_ms * 1_000))} us"',
                f'offset = "{137 * (3 * priority + number)} us"',
            ]
    return "\n".join(lines) + "\n"


TELEPHONY = (
    Guest("media", 0.5, 0.35, 500, ((20, 10, 0.7), (10, 10, 0.3))),
    Guest("signalling", 0.2, 0.15, 2_000, ((50, 25, 0.6), (200, 100, 0.4))),
    Guest("web", 0.3, 0.5, 0, ((40, 40, 0.5), (100, 100, 0.5))),
)

# Kramer, Duerr and Ziegenbein (WATERS 2015), table III: the part of the runnables of an engine
# control by period, without those that follow the engine's angle.
AUTOMOTIVE = (
    Guest(
        "engine",
        0.35,
        32 / 85,
        500,
        ((1, 1, 3 / 32), (2, 2, 2 / 32), (5, 5, 2 / 32), (10, 10, 25 / 32)),
    ),
    Guest("chassis", 0.35, 28 / 85, 1_000, ((20, 20, 25 / 28), (50, 50, 3 / 28))),
    Guest(
        "body", 0.3, 25 / 85, 0, ((100, 100, 20 / 25), (200, 200, 1 / 25), (1_000, 1_000, 4 / 25))
    ),
)

RT_XEN = (ROOT / "examples" / "rt-xen.toml").read_text("utf-8")


def rt_xen(percent: int) -> str:
    """RT-Xen's host at a load, event-driven and without costs."""
    text = RT_XEN
    for old, new in (
        ('duration = "60 s"', f'duration = "{DURATION_S} s"'),
        ("load = 0.7", f"load = {percent / 100}"),
        ('quantum = "1 ms" ', 'quantum = "0 ms" '),
        ('costs = "emsoft-2011"', ""),
    ):
        if old not in text:
            raise ValueError(f"examples/rt-xen.toml has no {old}")
        text = text.replace(old, new)
    return text


SETS = (
    TaskSet(
        "RT-Xen's five domains",
        "`examples/rt-xen.toml` (EMSOFT 2011, table 3, even share): five domains with budgets of "
        "20 % at periods of 10 to 50 ms, and five drawn tasks each.",
        "dom5",
        rt_xen,
    ),
    TaskSet(
        "Mixed telephony",
        "A media server that handles voice every 10 and 20 ms and must be done within 10, "
        "signalling, and a web server, which has half of the load. Budgets come every 5 ms, and "
        "all domains have `extratime`.",
        "web",
        lambda percent: file_of(TELEPHONY, 5, percent),
    ),
    TaskSet(
        "Automotive",
        "Three domains with the periods of an engine control, 1 to 1000 ms, and the shares that "
        "Kramer, Dürr and Ziegenbein give for them (WATERS 2015), without what follows the angle "
        "of the crankshaft. Budgets come every 0.5 ms, and all domains have `extratime`.",
        "body",
        lambda percent: file_of(AUTOMOTIVE, 0.5, percent),
    ),
)


def run(text: str, policy: str, *overrides: str) -> list[Run]:
    """The host under the policy, with each seed."""
    host = Host.parse(text)
    return [host.run(policy=policy, seed=seed, set=overrides) for seed in SEEDS]


def missed(runs: list[Run], without: str = "") -> tuple[int, int]:
    """The jobs that missed their deadlines, and all, but those of one domain."""
    domains = [domain for one in runs for domain in one.domains if domain.name != without]
    return sum(domain.missed for domain in domains), sum(domain.jobs for domain in domains)


def percent_of(part: int, whole: int) -> str:
    """A share as it stands in a table."""
    if not part:
        return "0"
    share = 100 * part / whole
    return f"{share:.2g} %" if share < 10 else f"{share:.0f} %"  # noqa: PLR2004


def row(tasks: TaskSet, policy: str) -> str:
    """What a policy does with a set; InputError if it refuses it."""
    capacity = "none"
    for percent in LOADS_PERCENT:
        if missed(run(tasks.text(percent), policy))[0]:
            break
        capacity = f"{percent} %"
    high = run(tasks.text(HIGH_PERCENT), policy)
    worst_ns = max(
        task.lateness_ns.max or 0 for one in high for domain in one.domains for task in domain.tasks
    )
    hog = f'domain.{tasks.hog}.workload.kind="cpu-bound"'
    beside = missed(run(tasks.text(BESIDE_PERCENT), policy, hog), without=tasks.hog)
    costs = run(tasks.text(COSTS_PERCENT), policy)
    seconds = DURATION_S * len(SEEDS)
    decisions = sum(one.overhead.schedule_calls or 0 for one in costs) / seconds
    switches = sum(one.overhead.context_switches or 0 for one in costs) / seconds
    worst = f"{worst_ns / NS_A_MS:,.1f} ms" if worst_ns else ""
    return (
        f"| `{policy}` | {capacity} | {percent_of(*missed(high))} | {worst} "
        f"| {percent_of(*beside)} | {decisions:,.0f} | {switches:,.0f} |"
    )


def section(tasks: TaskSet) -> str:
    """A set's table."""
    lines = [
        f"## {tasks.title}\n",
        textwrap.fill(f"{tasks.about} The hog is `{tasks.hog}`.", COLUMNS) + "\n",
        (
            f"| policy | capacity | late at {HIGH_PERCENT} % | worst | beside a hog "
            "| decisions/s | switches/s |"
        ),
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    refused = []
    for policy in TABLE:
        if policy in LEFT_OUT:
            continue
        try:
            lines.append(row(tasks, policy))
        except InputError as error:
            reason = str(error).splitlines()[0].removeprefix("error: ")
            refused.append(
                textwrap.fill(
                    f"- `{policy}` refuses this set: {reason}.", COLUMNS, subsequent_indent="  "
                )
            )
    return "\n".join([*lines, *([""] if refused else []), *refused])


def written() -> str:
    """The page."""
    head = HEAD.format(
        seeds=len(SEEDS),
        duration=DURATION_S,
        least=LOADS_PERCENT[0],
        high=HIGH_PERCENT,
        beside=BESIDE_PERCENT,
        costs=COSTS_PERCENT,
    )
    when = [
        textwrap.fill(f"- `{policy}`: {WHEN[policy]}", COLUMNS, subsequent_indent="  ")
        for policy in TABLE
        if policy not in LEFT_OUT
    ]
    parts = [head, *(section(tasks) + "\n" for tasks in SETS), "## When to take which\n"]
    return "\n".join([*parts, *when]) + "\n"


def main() -> int:
    """Writes or checks the page; returns the exit code."""
    page = written()
    if PAGE.is_file() and PAGE.read_text("utf-8") == page:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE} is not up to date: run tools/pages/which.py", file=sys.stderr)
        return 1
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
