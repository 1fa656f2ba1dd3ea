"""Host files drawn at random: the same for a number on every machine."""

from __future__ import annotations

import random

PERIODS_US = (2_000, 4_000, 5_000, 8_000, 10_000, 20_000, 25_000, 40_000)
TASK_PERIODS_US = (5_000, 8_000, 10_000, 20_000, 33_333, 50_000, 100_000, 200_000)
SHARE_LEAST, SHARE_MOST = 0.5, 1.15
"""All budgets together, as a part of the CPUs."""
DRAWN = 'tasks = "drawn"'
COSTS = (
    '"emsoft-2011"',
    '"xen-lab"',
    '{ schedule = "300 ns", context-switch = { median = "1 us", p99 = "2 us", max = "5 us" } }',
)


class Draw(random.Random):
    """Random numbers, and lines that are there or not."""

    def maybe(self, chance: float, *lines: str) -> list[str]:
        """The lines, or none."""
        return list(lines) if self.random() < chance else []


def host(number: int, policy: str) -> str:
    """The text of a host file, with parameters for any policy; domains have tasks and loops."""
    draw = Draw(number)
    cpus = draw.choice((1, 1, 2, 3))
    domains = draw.randint(1, 5)
    share = cpus * draw.uniform(SHARE_LEAST, SHARE_MOST) / domains
    has_priorities = draw.random() < 0.5  # noqa: PLR2004 - a half
    parts = [_domain(draw, cpus, share) for _ in range(domains)]
    lines = [
        f'duration = "{draw.randint(300, 3000)} ms"',
        f"seed = {draw.randint(1, 1000)}",
        "",
        "[host]",
        f"cpus = {cpus}",
        f'policy = "{policy}"',
        *_host_settings(draw, cpus),
    ]
    if any(DRAWN in part for part in parts):
        lines += [
            "",
            "[draw]",
            f"load = {draw.randint(20, 100) / 100}",
            f"tasks = {draw.randint(2, 4)}",
            f'cost = ["{draw.randint(1, 2)} ms", "{draw.randint(3, 6)} ms"]',
        ]
    for number_of_domain, part in enumerate(parts):
        lines += ["", "[[domain]]", f'name = "d{number_of_domain}"', *part]
        lines += [f"priority = {number_of_domain + 1}"] if has_priorities else []
    return "\n".join(lines) + "\n"


def _host_settings(draw: Draw, cpus: int) -> list[str]:
    tick_ms = draw.choice((2, 5, 10))
    listed = ", ".join(str(cpu) for cpu in range(cpus))
    size_kib = draw.choice((512, 2048))
    return [
        *draw.maybe(0.3, f'quantum = "{draw.choice((500, 1000))} us"'),
        *draw.maybe(
            0.5,
            f'time-slice = "{draw.choice((1, 5, 30))} ms"',
            f'tick = "{tick_ms} ms"',
            f'accounting = "{tick_ms * draw.randint(1, 3)} ms"',
        ),
        *draw.maybe(0.75, f"costs = {draw.choice(COSTS)}"),
        *draw.maybe(0.4, f'caches = [{{ cpus = [{listed}], size = "{size_kib} KiB" }}]'),
    ]


def _domain(draw: Draw, cpus: int, share: float) -> list[str]:
    vcpus = draw.randint(1, 2) if cpus > 1 else 1
    period_us = draw.choice(PERIODS_US)
    part = min(1.0, share * draw.uniform(0.6, 1.4) / vcpus)
    budget_us = max(200, int(period_us * part))
    kind = draw.choice(("tasks", "loop", "bursts"))
    return [
        f"vcpus = {vcpus}",
        f'budget = "{budget_us} us"',
        f'period = "{period_us} us"',
        f"weight = {draw.choice((64, 256, 256, 500, 1024))}",
        *draw.maybe(0.2, f'slice = "{max(100, budget_us * 3 // 4)} us"'),
        *draw.maybe(0.3, "extratime = true"),
        *draw.maybe(0.2, f"cap = {draw.choice((20, 50, 80)) * vcpus}"),
        *draw.maybe(0.4, f'laxity = "{draw.choice((10, 100, 1000, 5000))} us"'),
        *draw.maybe(0.3, 'scheduler = "edf"'),
        *draw.maybe(0.2, f"affinity = [{draw.randrange(cpus)}]"),
        *draw.maybe(0.4, f'working-set = "{draw.choice((128, 512, 1536))} KiB"'),
        *_work(draw, kind, part),
    ]


def _work(draw: Draw, kind: str, part: float) -> list[str]:
    if kind == "bursts":
        run_ms, idle_ms = draw.randint(1, 50), draw.randint(1, 10)
        return [f'workload = {{ kind = "cpu-bound", run = "{run_ms} ms", idle = "{idle_ms} ms" }}']
    tasks = [_task(draw, number, part / 2) for number in range(draw.randint(1, 3))]
    return [
        *draw.maybe(0.3, f'tick = {{ period = "4 ms", cost = "{draw.randint(2, 40)} us" }}'),
        *(['workload = { kind = "cpu-bound" }'] if kind == "loop" else []),
        *(draw.maybe(0.2, DRAWN) or ["tasks = [", *tasks, "]"]),
    ]


def _task(draw: Draw, number: int, part: float) -> str:
    period_us = draw.choice(TASK_PERIODS_US)
    cost_us = max(50, int(period_us * min(0.9, part * draw.uniform(0.2, 1.5))))
    fields = [
        f'name = "t{number}"',
        f'cost = "{cost_us} us"',
        f'period = "{period_us} us"',
        *draw.maybe(0.3, f'deadline = "{draw.randint(cost_us, period_us)} us"'),
        *draw.maybe(0.4, f'offset = "{draw.randint(1, 30_000)} us"'),
        *draw.maybe(0.3, f'jitter = "{draw.randint(1, period_us // 4)} us"'),
    ]
    return f"    {{ {', '.join(fields)} }},"
