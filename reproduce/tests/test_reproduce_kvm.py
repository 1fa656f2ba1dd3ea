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
from laxity_reproduce.rt_xen import on_kvm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from laxity.results.run import Run
    from laxity_reproduce.reproduction import Reproduction
    from laxity_reproduce.rt_xen.on_xen.window import Window


class Machine:
    """Runs windows as KVM would, if KVM were the simulator with further overrides."""

    def __init__(self, *extra: str, costs: str = "{}", fails: str | None = None) -> None:
        """`fails` is the policy whose boot does."""
        self.boots: list[list[str]] = []
        self._extra, self._fails = (*extra, f"host.costs={costs}"), fails

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
                each.host.run(
                    set=[*each.overrides, *self._extra],
                    trace=directory / f"{each.name}.laxtrace",
                ),
                substrate="kvm",
            )
            for each in windows
        }


def verdicts(found: Reproduction) -> dict[str, str]:
    return {
        f"{each.name}: {row.what}": row.verdict for each in found.experiments for row in each.rows
    }


def test_a_machine_as_the_simulator_reproduces_all(tmp_path: Path) -> None:
    machine = Machine()
    found = on_kvm.reproduce(quick=True, boot=machine)
    assert [each.name for each in found.experiments] == list(on_kvm.WINDOWS)
    assert set(verdicts(found).values()) == {"reproduced"}
    assert sum(map(len, machine.boots)) == len(verdicts(found))
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


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no experiment `table-1`"):
        papers.run("rt-xen", "table-1", on="kvm")
    with pytest.raises(InputError, match="task sets on KVM are fixed"):
        papers.run("rt-xen", seeds=3, on="kvm")
