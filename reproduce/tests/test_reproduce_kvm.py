"""The experiments on KVM, with the simulator in the place of the machine: both outcomes of the
rules of verdicts, and what a failed boot becomes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from laxity.errors import InputError
from laxity.lab.errors import LabError
from laxity.policies import TABLE
from laxity_reproduce import papers
from laxity_reproduce.page import write_page
from laxity_reproduce.rt_xen import kvm_costs, on_kvm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from laxity.host import Host
    from laxity.results.run import Run
    from laxity_reproduce.reproduction import Reproduction
    from laxity_reproduce.rt_xen.on_xen.window import Window


class Machine:
    """Runs windows as KVM would, if KVM were the simulator with further overrides."""

    def __init__(self, *extra: str, costs: str | None = None, fails: str | None = None) -> None:
        """`fails` is the policy whose boot does."""
        self.boots: list[list[str]] = []
        self._extra, self._costs, self._fails = extra, costs, fails

    def _host(self, window: Window) -> tuple[Host, list[str]]:
        """Budgets are asked for to a thousandth, which the costs of this model do not leave."""
        host, overrides = on_kvm.model(window)
        exact = ["host.costs={}", "host.timer-latency=0 ns"]
        free = exact if window.name.startswith("budgets-") else []
        costs = [f"host.costs={self._costs}"] if self._costs else []
        return host, [*overrides, *self._extra, *free, *costs]

    def __call__(
        self, windows: Sequence[Window], directory: Path, say: Callable[[str], None]
    ) -> dict[str, Run]:
        say("booting")
        (policy,) = {each.scheduler for each in windows}
        assert "kvm" in TABLE[policy].substrates
        self.boots.append([each.name for each in windows])
        if policy == self._fails:
            raise LabError("the machine hangs\n  the console's last lines: …", "the log is x.log")
        directory.mkdir()
        return {
            each.name: replace(
                host.run(set=overrides, trace=directory / f"{each.name}.laxtrace"),
                substrate="kvm",
            )
            for each, (host, overrides) in ((each, self._host(each)) for each in windows)
        }


def verdicts(found: Reproduction) -> dict[str, str]:
    return {
        f"{each.name}: {row.what}": row.verdict for each in found.experiments for row in each.rows
    }


def test_a_machine_as_the_simulator_reproduces_all(tmp_path: Path) -> None:
    machine = Machine()
    found = on_kvm.reproduce(quick=True, boot=machine, profile=profiled())
    assert [each.name for each in found.experiments] == list(on_kvm.EXPERIMENTS)
    with pytest.raises(InputError, match=r"(?s)no experiment `none`.*table-1, table-1-many"):
        papers.run("rt-xen", "none", on="kvm")
    assert set(verdicts(found).values()) == {"reproduced"}
    of_windows = [each for each in found.experiments if each.name in on_kvm.WINDOWS]
    assert sum(map(len, machine.boots)) == sum(len(each.rows) for each in of_windows)
    page = tmp_path / "kvm.md"
    write_page(found, page)
    assert "published and ours, on KVM\n" in page.read_text()


def test_a_budget_that_is_missed_by_more_than_a_thousandth_differs() -> None:
    close = Machine("domain.small.budget=2001 us")
    far = Machine("domain.small.budget=2003 us")
    assert set(verdicts(on_kvm.reproduce("budgets", boot=close)).values()) == {"reproduced"}
    assert set(verdicts(on_kvm.reproduce("budgets", boot=far)).values()) == {"differs"}


def test_other_misses_or_another_vcpu_differ() -> None:
    costs = "{ schedule = '300 us', context-switch = '200 us' }"
    found = on_kvm.reproduce("table-2", quick=True, boot=Machine(costs=costs))
    assert set(verdicts(found).values()) == {"differs"}
    misses = {row.what: row.ours for each in found.experiments for row in each.rows}
    # Servers without an overload miss nothing here, but run other VCPUs.
    assert sum(misses["normal, deferrable, seed 2"]) == 0  # type: ignore[arg-type]


def test_a_boot_that_fails_is_a_row() -> None:
    found = on_kvm.reproduce("budgets", quick=True, boot=Machine(fails="polling"))
    (experiment,) = found.experiments
    (failed,) = (row for row in experiment.rows if row.verdict == "differs")
    assert (failed.what, failed.ours, failed.why) == (
        "polling",
        "no run",
        "the machine hangs",
    )


EMPTY_NS = 1500


def profiled(
    decision: int = 100, tick: int = 100, timer: int = 100, fails: str | None = None
) -> kvm_costs.Profile:
    """Linux whose own scheduler takes 100 instructions for everything, and ours as many."""

    def boot(
        windows: Sequence[Window], directory: Path, say: Callable[[str], None]
    ) -> dict[str, dict[str, list[int]]]:
        del directory, say
        (window,) = windows
        if window.scheduler == fails:
            raise LabError("the machine hangs\n  the console's last lines: …", "the log is x.log")
        took = dict.fromkeys(kvm_costs.functions(window.scheduler), 100)
        if window.scheduler != kvm_costs.STOCK:
            took |= {"pick_task_scx": decision, "task_tick_scx": tick, kvm_costs.TIMER: timer}
        took[kvm_costs.EMPTY] = 0
        ns = kvm_costs.NS_AN_INSTRUCTION
        return {window.name: {name: [EMPTY_NS + ns * each] * 10 for name, each in took.items()}}

    return boot


def test_costs_are_compared_without_the_tracers_own_time() -> None:
    def found(**costs: int) -> dict[str, str]:
        return verdicts(on_kvm.reproduce("table-1", quick=True, profile=profiled(**costs)))

    decides, loses = (
        "table-1: credit: instructions a decision, times eevdf's pick",
        "table-1: credit: CPU time lost, times eevdf's",
    )
    assert found(decision=150)[decides] == "reproduced"
    dearer = found(decision=151)
    assert (dearer[decides], dearer[loses]) == ("differs", "reproduced")
    # EEVDF's seven functions take 700 instructions, and ours 600 besides those two.
    assert found(tick=500, timer=300)[loses] == "reproduced"
    assert found(tick=501, timer=300)[loses] == "differs"
    assert found(tick=500, timer=301)[loses] == "differs"


def test_a_profile_that_fails_is_rows_of_its_policy() -> None:
    found = on_kvm.reproduce("table-1", quick=True, profile=profiled(fails="credit"))
    rows = {row.what: row for row in found.experiments[0].rows if row.verdict == "differs"}
    assert all(what.startswith("credit: ") for what in rows)
    assert {(row.ours, row.why) for row in rows.values()} == {("no run", "the machine hangs")}
    none = on_kvm.reproduce("table-1", quick=True, profile=profiled(fails="eevdf"))
    assert set(verdicts(none).values()) == {"differs"}


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no experiment `table-4`"):
        papers.run("rt-xen", "table-4", on="kvm")
    with pytest.raises(InputError, match="task sets on KVM are fixed"):
        papers.run("rt-xen", seeds=3, on="kvm")
