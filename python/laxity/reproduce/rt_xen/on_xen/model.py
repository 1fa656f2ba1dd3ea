"""What the simulator takes for the costs of the lab's machine: read, fitted, written."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.host import Host
from laxity.reproduce.rt_xen.setup import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from laxity.reproduce.rt_xen.on_xen.boots import Window

FILE = "calibrated.toml"
"""Beside this module."""

MEASURED = ("deferrable", "sporadic", "credit")
"""The policies on whose windows of Table 1 costs are calibrated."""

TAKES_FROM = {"periodic": "deferrable", "polling": "deferrable", "sedf": "deferrable"}
"""Where the others take theirs: they share that one's code."""

HEADER = """\
# What scheduling costs on the emulated machine of the lab, in its nanoseconds: an instruction takes
# two. Written by `laxity reproduce rt-xen --on xen --calibrate`, from windows of Table 1 under
# deferrable, sporadic and credit: five domains of an even share, load 70 %, five tasks each, 10 s,
# one CPU. `schedule` is the time of one call of do_schedule, `context-switch` that of one switch:
# median, 99 % quantile and maximum. Periodic, polling and sedf, whose code is deferrable's, have
# deferrable's.
"""

JOB_HEADER = """
# What a job takes on top of its cost: for each job (its wake, the guest's switches between tasks,
# the hypervisor's interrupts), and for each nanosecond of its cost (ticks of the guest's kernel).
# Fitted, by least squares over domains, to their CPU time on Xen less that in the simulator with
# the costs above.
"""


@dataclass(frozen=True)
class Quantiles:
    """Of a cost, ns."""

    median: int
    p99: int
    max: int

    @classmethod
    def of(cls, values_ns: Iterable[int]) -> Quantiles:
        """By nearest rank; of at least one value."""
        sample = np.sort(np.fromiter(values_ns, dtype=np.int64))
        ranks = (int(np.ceil(part * sample.size)) - 1 for part in (0.5, 0.99, 1.0))
        return cls(*(int(sample[max(0, rank)]) for rank in ranks))

    def __str__(self) -> str:
        """As host files have it."""
        return f'{{ median = "{self.median} ns", p99 = "{self.p99} ns", max = "{self.max} ns" }}'

    @classmethod
    def parse(cls, table: Mapping[str, str]) -> Quantiles:
        """From a table as `str` writes it."""
        values = (table[key].removesuffix(" ns") for key in ("median", "p99", "max"))
        return cls(*map(int, values))


@dataclass(frozen=True)
class Costs:
    """What a policy costs."""

    schedule: Quantiles
    """Of a decision."""
    context_switch: Quantiles
    """Of a switch, on top."""
    job_ns: int
    """Of a job, on top of its cost, outside of both."""
    work_ratio: float
    """Of what a job costs, the same."""

    def __str__(self) -> str:
        """The value of `host.costs`."""
        return f"{{ schedule = {self.schedule}, context-switch = {self.context_switch} }}"


@dataclass(frozen=True)
class Calibration:
    """What things cost on the lab's machine."""

    costs: tuple[Costs, ...]
    """In the order of MEASURED."""

    def of(self, policy: str) -> Costs:
        """What a policy costs; of one that was not measured, what it shares its code with."""
        return self.costs[MEASURED.index(TAKES_FROM.get(policy, policy))]

    def host(self, window: Window) -> Host:
        """A window's host as the simulator takes it: complete, with these costs."""
        resolved = window.host.resolved(window.overrides)
        settings = resolved["settings"]
        lines = [f'duration = "{resolved["duration_ns"]} ns"', f"seed = {resolved['seed']}", ""]
        lines += ["[host]", f"cpus = {resolved['cpus']}", f'policy = "{resolved["policy"]}"']
        lines += [
            f'{key.removesuffix("_ns").replace("_", "-")} = "{settings[key]} ns"'
            for key in settings
        ]
        lines.append(f"costs = {self.of(resolved['policy'])}")
        for domain in resolved["domains"]:
            lines += ["", *_domain(domain, self.of(resolved["policy"]))]
        return Host.parse("\n".join(lines) + "\n", f"{window.name}.toml")

    @classmethod
    def shipped(cls) -> Calibration | None:
        """The one of FILE, if it is there."""
        path = files(__package__).joinpath(FILE)
        return cls.parse(path.read_text("utf-8")) if path.is_file() else None

    @classmethod
    def parse(cls, text: str) -> Calibration:
        """From what `text` returns."""
        content: dict[str, Any] = tomllib.loads(text)
        costs = (
            Costs(
                Quantiles.parse(content[policy]["schedule"]),
                Quantiles.parse(content[policy]["context-switch"]),
                int(content["job"][policy].removesuffix(" ns")),
                content["work"][policy],
            )
            for policy in MEASURED
        )
        return cls(tuple(costs))

    def profile(self) -> str:
        """The same costs as a profile of crates/laxity-host/profiles, without the guest's."""
        tables = (
            f"\n[{policy}]\nschedule = {self.of(policy).schedule}\n"
            f"context-switch = {self.of(policy).context_switch}\n"
            for policy in POLICIES
        )
        return HEADER + "".join(tables)

    def text(self) -> str:
        """All of it, for FILE."""
        jobs = (f'{policy} = "{self.of(policy).job_ns} ns"\n' for policy in POLICIES)
        work = (f"{policy} = {self.of(policy).work_ratio}\n" for policy in POLICIES)
        return f"{self.profile()}{JOB_HEADER}[job]\n{''.join(jobs)}\n[work]\n{''.join(work)}"

    def save(self, checkout: Path) -> list[Path]:
        """Writes both files into a checkout of the project."""
        contents = {
            checkout / "python/laxity/reproduce/rt_xen/on_xen" / FILE: self.text(),
            checkout / "crates/laxity-host/profiles/xen-lab.toml": self.profile(),
        }
        for path, content in contents.items():
            path.write_text(content, "utf-8")
        return list(contents)


def _domain(domain: dict[str, Any], costs: Costs) -> list[str]:
    given = domain["parameters"]
    lines = ["[[domain]]", f'name = "{domain["name"]}"', f"vcpus = {len(domain['vcpus'])}"]
    lines += [f'{key} = "{given[f"{key}_ns"]} ns"' for key in ("budget", "period")]
    lines += [f"{key} = {given[key]}" for key in ("priority", "weight")]
    lines += [f"extratime = {str(given['extratime']).lower()}", f"cap = {given['cap_percent']}"]
    tasks = ", ".join(_task(task, costs) for task in domain["tasks"])
    return [*lines, f"tasks = [{tasks}]"]


def _task(task: dict[str, Any], costs: Costs) -> str:
    longer_ns = round(task["cost_ns"] * (1 + costs.work_ratio)) + costs.job_ns
    cost_ns = min(longer_ns, task["deadline_ns"])
    keys = ("period", "deadline", "offset")
    times = [f'cost = "{cost_ns} ns"', *(f'{key} = "{task[f"{key}_ns"]} ns"' for key in keys)]
    return f'{{ name = "{task["name"]}", {", ".join(times)}, vcpu = {task["vcpu"]} }}'
