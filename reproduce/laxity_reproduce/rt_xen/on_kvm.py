"""RT-Xen's experiments on KVM: budgets, the isolation of Table 2, a slice of Figure 6, and the
costs of Table 1.

The hosts and task sets are those of the experiments on Xen.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from laxity import _core
from laxity.errors import InputError, core_errors
from laxity.host import Host
from laxity.lab.errors import LabError
from laxity.policies import TABLE
from laxity.progress import silent
from laxity.substrates.kvm import boot as kvm
from laxity.substrates.kvm import known

from laxity_reproduce import published
from laxity_reproduce.reproduction import Experiment, Reproduction, Row, shown, verdict
from laxity_reproduce.rt_xen import kvm_costs
from laxity_reproduce.rt_xen.on_xen import isolation, load
from laxity_reproduce.rt_xen.on_xen.setup import CLOSE_POINTS, listed, window
from laxity_reproduce.rt_xen.written import written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from laxity.progress import Say
    from laxity.results.run import Run
    from laxity.trace_schema import Agreement

    from laxity_reproduce.rt_xen.kvm_costs import Calls, Profile
    from laxity_reproduce.rt_xen.on_xen.window import Window

    Boot = Callable[[Sequence["Window"], Path, Say], Mapping[str, Run]]
    """Boots Linux for windows of one policy; their runs by name."""

WINDOWS_MAX = 9
"""In one boot."""

SAME_RATIO_MIN = 0.95
"""The least share of time in which the same VCPU runs as in the simulator."""
BUDGET_RATIO = 0.001
"""How far what a domain gets may be from its budget."""

BUSY = """\
host = { cpus = 1, policy = "deferrable" }

[[domain]]
name = "small"
priority = 1
budget = "2 ms"
period = "10 ms"
workload = { kind = "cpu-bound" }

[[domain]]
name = "large"
priority = 3
budget = "12 ms"
period = "40 ms"
workload = { kind = "cpu-bound" }

[[domain]]
name = "tiny"
priority = 2
budget = "1 ms"
period = "10 ms"
workload = { kind = "cpu-bound" }
"""

BUDGETS_METHOD = (
    "Three domains are always busy, with budgets of 2 ms in 10 ms, 12 ms in 40 ms and 1 ms in"
    " 10 ms. Values are the CPU time of each domain in percent of the run, beside the share that"
    f" its budget gives it. A row is reproduced if each is within {100 * BUDGET_RATIO:g} % of its"
    " budget."
)
BESIDE_METHOD = (
    "Hosts, task sets and loads are those of the same experiment on [Xen](xen.md), which"
    " explains them. Values are the miss ratios of domains 1 to 5 in percent. The simulator runs"
    " the same host with what is known of the emulated one, measured and fitted on other hosts"
    f" (`tools/fit/kvm.py`): a switch costs {known.SWITCH_NS / 1000:g} us, a job takes"
    f" {known.JOB_NS / 1000:g} us beside its work, interrupts take {known.INTERRUPT_NS / 1000:g} us"
    f" of the VCPU that runs every {known.INTERRUPT_PERIOD_NS // 1_000_000} ms and"
    f" {known.TICK_NS / 1000:g} us for each tick of the policy, timers of policies with budgets are"
    f" {known.TIMER_LATENCY_NS // 1000} us late, periods of polling servers begin"
    f" {known.BEHIND_NS['polling'] // 1000} us behind the run, and time slices end"
    f" {known.SLICE_LATENCY_NS / 1000:g} us late. A row is reproduced if every domain's ratio on"
    f" KVM is within {CLOSE_POINTS:g} points of the simulator's, and the same VCPU runs in both for"
    f" at least {100 * SAME_RATIO_MIN:g} % of the time. The costs of this slow emulated machine say"
    " nothing about those of hardware."
)


def _runs_here(windows: Sequence[Window]) -> list[Window]:
    return [each for each in windows if "kvm" in TABLE[each.scheduler].substrates]


def _budgets(quick: bool) -> list[Window]:
    """As long whether quick or not: a thousandth of less is too little to tell."""
    del quick
    host = Host.parse(BUSY)
    return [
        window(f"budgets-{policy}", policy, (), quick=False, host=host, what=policy)
        for policy in ("deferrable", "periodic", "polling", "sedf")
    ]


WINDOWS: dict[str, Callable[[bool], list[Window]]] = {
    "budgets": _budgets,
    "table-2": lambda quick: _runs_here(isolation.windows(quick)),
    "figure-6": lambda quick: _runs_here(load.windows(quick)),
}
"""What each experiment needs, if quick or not."""

EXPERIMENTS = (*WINDOWS, *kvm_costs.TITLES)

TITLES = {
    "budgets": "CPU time of busy domains on KVM, %",
    "table-2": "isolation on KVM: miss ratio of domains 1 to 5, %",
    "figure-6": "deadline miss ratio against load, on KVM, %",
}


@dataclass(frozen=True)
class Compared:
    """A window on KVM beside the simulator's run of it."""

    kvm: Run
    sim: Run
    same_ratio: float
    """The share of time in which the same VCPU runs in both, or nobody."""

    @property
    def largest_difference(self) -> float:
        """The largest difference of the domains' miss ratios, in points, without its sign."""
        return max(
            abs(100 * (real.miss_ratio - simulated.miss_ratio))
            for real, simulated in zip(self.kvm.domains, self.sim.domains, strict=True)
        )


def reproduce(
    experiment: str | None = None,
    *,
    quick: bool = False,
    say: Say = silent,
    boot: Boot | None = None,
    profile: Profile | None = None,
) -> Reproduction:
    """Runs all experiments, or one of them, in repeatable mode.

    The lab's emulated host boots unless `boot` does, or `profile` for what is profiled. A boot that
    fails is a row that says so. Raises InputError if there is no such experiment.
    """
    if experiment is not None and experiment not in EXPERIMENTS:
        raise InputError(
            f"rt-xen has no experiment `{experiment}` on KVM", f"it has {', '.join(EXPERIMENTS)}"
        )
    names = [experiment] if experiment else list(EXPERIMENTS)
    with tempfile.TemporaryDirectory(prefix="laxity-kvm.") as temporary:
        directory = Path(temporary)
        windows = [each for name in names if name in WINDOWS for each in WINDOWS[name](quick)]
        found = _run(windows, boot or emulated, directory, say)
        costs = {
            name: _profile(name, quick, profile or kvm_costs.emulated, directory, say)
            for name in names
            if name in kvm_costs.TITLES
        }
    experiments = [
        kvm_costs.judge(name, quick, costs[name])
        if name in costs
        else _judge(name, WINDOWS[name](quick), found)
        for name in names
    ]
    title: str = published.facts("rt_xen")["title"]
    seeds = len(isolation.seeds(quick))
    return Reproduction("rt-xen", title, seeds, quick, experiments, "kvm")


def emulated(windows: Sequence[Window], directory: Path, say: Say) -> Mapping[str, Run]:
    """Boots the lab's KVM host."""
    hosts = {each.name: each.host.resolve(each.overrides) for each in windows}
    return kvm.boot_all(hosts, "repeatable", directory, say)


def _run(
    windows: Sequence[Window], boot: Boot, directory: Path, say: Say
) -> dict[str, Compared | str]:
    """Returns what came of each window, or why nothing did."""
    by_policy: dict[str, list[Window]] = {}
    for each in windows:
        by_policy.setdefault(each.scheduler, []).append(each)
    boots = [
        members[start : start + WINDOWS_MAX]
        for members in by_policy.values()
        for start in range(0, len(members), WINDOWS_MAX)
    ]
    found: dict[str, Compared | str] = {}
    for number, members in enumerate(boots, start=1):
        say(f"boot {number} of {len(boots)}: {members[0].scheduler}, windows: {len(members)}")
        try:
            runs = boot(members, directory / f"boot-{number}", say)
            found |= {each.name: _beside(each, runs[each.name], directory) for each in members}
        except LabError as error:
            say(f"boot {number} failed: {error}")
            # The help is for who is there now: it names a directory that goes.
            told = error.message.splitlines()[0]
            found |= {each.name: told for each in members}
    return found


def _profile(
    name: str, quick: bool, boot: Profile, directory: Path, say: Say
) -> dict[str, Calls | str]:
    """Returns what was profiled in each window, or why nothing was: a boot for each policy."""
    found: dict[str, Calls | str] = {}
    for each in kvm_costs.windows(name, quick):
        say(f"{name}: {each.scheduler}")
        try:
            found |= boot([each], directory / each.name, say)
        except LabError as error:
            say(f"the boot failed: {error}")
            found[each.name] = error.message.splitlines()[0]
    return found


def _beside(each: Window, run: Run, directory: Path) -> Compared:
    trace = directory / f"{each.name}.sim.laxtrace"
    host, overrides = model(each)
    sim = host.run(set=overrides, trace=trace, seen=run.trace)
    with core_errors():
        agreement: Agreement = json.loads(_core.agreement(str(trace), str(run.trace)))
    trace.unlink()
    return Compared(run, sim, agreement["same_ratio"])


def model(each: Window) -> tuple[Host, list[str]]:
    """The host that the simulator runs for a window, with all that is known, and overrides."""
    resolved = each.host.resolve(each.overrides)
    host = written(
        resolved.host,
        f"{each.name}.toml",
        known.table(),
        lambda task: known.job_ns(resolved, task["cost_ns"]),
    )
    return host, known.timers(host.resolve([]))


def _judge(name: str, windows: list[Window], found: Mapping[str, Compared | str]) -> Experiment:
    row = _budget_row if name == "budgets" else _beside_row
    rows = [_row(each, found[each.name], row) for each in windows]
    method = BUDGETS_METHOD if name == "budgets" else BESIDE_METHOD
    return Experiment(name, TITLES[name], method, rows, [], _data(windows, found))


def _row(each: Window, found: Compared | str, make: Callable[[str, Compared], Row]) -> Row:
    if isinstance(found, str):
        return Row(each.what, None, "no run", "differs", found)
    return make(each.what, found)


def _budget_row(what: str, found: Compared) -> Row:
    host = found.kvm
    given = [100 * domain.cpu_ns / host.duration_ns for domain in host.domains]
    asked = [100 * share for share in _shares()]
    apart = max(abs(is_ / to_be - 1) for is_, to_be in zip(given, asked, strict=True))
    return Row(
        what,
        None,
        listed(given, 3),
        verdict(holds=apart <= BUDGET_RATIO),
        "",
        f"budgets: {shown(listed(asked, 3))}; furthest apart {100 * apart:.2g} %; the same VCPU as"
        f" in the simulator: {100 * found.same_ratio:.2f} %",
    )


def _shares() -> list[float]:
    domains = Host.parse(BUSY).resolved(["duration=1 s"])["domains"]
    return [
        domain["parameters"]["budget_ns"] / domain["parameters"]["period_ns"] for domain in domains
    ]


def _beside_row(what: str, found: Compared) -> Row:
    far = found.largest_difference
    return Row(
        what,
        None,
        listed(_ratios(found.kvm)),
        verdict(holds=far <= CLOSE_POINTS and found.same_ratio >= SAME_RATIO_MIN),
        "",
        f"simulator: {shown(listed(_ratios(found.sim)))}; furthest apart {far:.2g} points; the same"
        f" VCPU {100 * found.same_ratio:.2f} %",
    )


def _ratios(run: Run) -> list[float]:
    """Miss ratios of the domains, percent."""
    return [100 * domain.miss_ratio for domain in run.domains]


def _data(windows: list[Window], found: Mapping[str, Compared | str]) -> pd.DataFrame:
    """A row for each domain of each window."""
    rows: list[dict[str, object]] = []
    for each in windows:
        compared = found[each.name]
        if isinstance(compared, str):
            continue
        rows += [
            {
                "window": each.name,
                "policy": each.scheduler,
                "domain": real.name,
                "jobs": real.jobs,
                "missed_kvm": real.missed,
                "missed_sim": simulated.missed,
                "cpu_ns": real.cpu_ns,
                "same_ratio": compared.same_ratio,
            }
            for real, simulated in zip(compared.kvm.domains, compared.sim.domains, strict=True)
        ]
    return pd.DataFrame(rows)
