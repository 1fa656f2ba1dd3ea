"""The experiments on Xen, with the simulator in the place of the machine: every rule of a verdict
with both outcomes, and what a failed boot becomes.
"""

from __future__ import annotations

import io
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import laxity  # noqa: F401 - a fixture
from laxity.errors import InputError
from laxity.lab.errors import LabError
from laxity.substrates.xen import collect, known
from laxity.substrates.xen.collect import SUMMARY
from laxity.substrates.xen.plan import Plan
from laxity.substrates.xen.plan import Window as PlanWindow
from laxity.why import Why, why
from laxity_reproduce import papers as reproduce
from laxity_reproduce.page import write_page
from laxity_reproduce.rt_xen import setup as paper
from laxity_reproduce.rt_xen.on_xen import (
    boots,
    causes,
    costs,
    experiments,
    isolation,
    model,
    setup,
)
from laxity_reproduce.rt_xen.on_xen.model import Calibration, Costs, Quantiles
from laxity_reproduce.rt_xen.on_xen.window import Window
from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conftest import Laxity
    from laxity.host import Host
    from laxity.results.run import Run
    from laxity_reproduce.reproduction import Reproduction, Row

TICKS = [{"period_ns": 4_000_000, "offset_ns": 700_000 * place} for place in range(5)]
"""The ticks of the paper's domains."""

EXPENSIVE = 5000
"""Instructions of a decision that no scheduler may take."""


def as_known(host: Host, overrides: Sequence[str]) -> list[str]:
    """Overrides that make the simulator what is known of the lab."""
    resolved = host.resolve(overrides)
    ticks = collect.phases(resolved.host, TICKS[: len(resolved.host["domains"])], known.TICK)
    return [f"host.costs={known.table(resolved)}", *known.timers(resolved), *ticks]


class Machine:
    """Runs windows as Xen would, if Xen were the simulator with what is known of the lab."""

    def __init__(
        self,
        decision_ns: Callable[[str | None], int] = lambda _: 1000,
        fails: str | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        """`fails` is the scheduler whose boot does; `extra` are overrides of what is known."""
        self.boots: list[tuple[str | None, list[str]]] = []
        self._decision_ns, self._fails, self._extra = decision_ns, fails, extra

    def __call__(
        self, windows: Sequence[Window], directory: Path, say: Callable[[str], None]
    ) -> dict[str, Run]:
        say("booting")
        (scheduler,) = {window.stock for window in windows}
        (host,) = {window.host for window in windows}
        self.boots.append((scheduler, [window.name for window in windows]))
        directory.mkdir()
        hosts = {window.name: host.resolved(window.overrides) for window in windows}
        # What a real boot refuses is refused here, too.
        Plan.of([PlanWindow(name, each) for name, each in hosts.items()], scheduler=scheduler)
        if self._fails == windows[0].scheduler:
            raise LabError("the machine hangs\n  the console's last lines: …", "the log is x.log")
        return {
            window.name: self._run(
                host, window.overrides, scheduler, directory / f"{window.name}.laxtrace"
            )
            for window in windows
        }

    def _run(self, host: Host, overrides: Sequence[str], scheduler: str | None, trace: Path) -> Run:
        run = host.run(set=[*overrides, *as_known(host, overrides), *self._extra], trace=trace)
        made, domains = run.overhead, len(run.domains)
        summary = {
            "decision_ns": [self._decision_ns(scheduler)] * made.schedule_calls,
            "switch_ns": [4000] * made.context_switches,
            "timer_ns": 100 * made.schedule_calls,
            "timers": made.schedule_calls,
            "ticks": TICKS[:domains],
            "accounting_phase_ns": None,
            "deadlines_ns": [[None]] * domains,
            "credits_ns": [[None]] * domains,
        }
        trace.with_suffix(SUMMARY).write_text(json.dumps(summary))
        return replace(run, substrate="xen")


def on(machine: Machine, experiment: str | None = None, quick: bool = True) -> Reproduction:
    return experiments.reproduce(experiment, quick=quick, boot=machine)[0]


def rows_of(found: Reproduction) -> dict[str, Row]:
    return {row.what: row for experiment in found.experiments for row in experiment.rows}


@pytest.fixture(scope="module")
def whole() -> tuple[Machine, Reproduction, Calibration | None]:
    machine = Machine()
    said: list[str] = []
    found, calibration = experiments.reproduce(say=said.append, boot=machine)
    assert said[0].startswith("boot 1 of ")
    return machine, found, calibration


# End to end


def test_all_experiments_and_a_boot_for_each_scheduler(
    whole: tuple[Machine, Reproduction, Calibration | None], tmp_path: Path
) -> None:
    machine, found, _ = whole
    assert [each.name for each in found.experiments] == list(experiments.WINDOWS)
    on_the_papers_host, with_200_vcpus = 6 + 3, 3 + 2
    assert len(machine.boots) == on_the_papers_host + with_200_vcpus
    told = [name for _, names in machine.boots for name in names]
    assert len(told) == len(set(told))
    json.dumps(found.to_json(), allow_nan=False)
    assert found.to_json()["on"] == "xen"
    for each in found.experiments:
        assert len({row.what for row in each.rows}) == len(each.rows)
        assert all(row.verdict == "reproduced" or row.why for row in each.rows)

    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(found)
    text = console.export_text()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "published and ours, on Xen" in " ".join(text.split())

    found.save(tmp_path / "out")
    write_page(found, tmp_path / "xen.md")
    assert (tmp_path / "xen" / "figure-6.svg").is_file()
    page = (tmp_path / "xen.md").read_text()
    assert "laxity reproduce rt-xen --on xen --docs xen.md" in page
    assert all(row.what.replace("|", "\\|") in page for row in rows_of(found).values())
    from laxity import report  # noqa: PLC0415 - Matplotlib

    html = report.write(tmp_path / "out").read_text()
    assert "laxity reproduce rt-xen --on xen" in html
    assert html.count("<img") == 1


def test_quick_is_quick() -> None:
    machine = Machine()
    found = on(machine)
    assert [each.name for each in found.experiments] == list(experiments.QUICK)
    assert {stock for stock, _ in machine.boots} == {None, "credit", "rtds"}
    assert len(machine.boots) == 4
    assert sum(len(names) for _, names in machine.boots) <= 14


def test_who_asks_for_what_is_not_there_is_told_what_is() -> None:
    with pytest.raises(InputError, match="no experiment `table-9` on Xen"):
        on(Machine(), "table-9")
    with pytest.raises(InputError, match="no paper"):
        reproduce.run("xen-rt", on="xen")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--calibrate", "add --on xen"),
        ("--on xen --seeds 5", "leave --seeds out"),
        ("--on xen --quick --calibrate", "not long enough"),
        ("table-1 --on xen --calibrate", "not measured in this experiment"),
        ("table-9 --on xen", "it has table-1"),
    ],
)
def test_the_command_refuses_before_anything_boots(
    laxity: Laxity,  # noqa: F811
    words: str,
    message: str,
) -> None:
    done = laxity("reproduce", "rt-xen", *words.split(), code=2)
    assert message in " ".join(done.stderr.split())


def test_a_boot_that_fails_costs_its_own_rows_only() -> None:
    rows = rows_of(on(Machine(fails="credit"), "table-2"))
    failed = {what for what, row in rows.items() if row.ours == "no run"}
    assert failed == {f"{case}, credit" for case in isolation.CASES}
    assert all(rows[what].verdict == "differs" for what in failed)
    assert rows["normal, credit"].why == "the machine hangs"
    assert rows["normal, deferrable"].verdict == "reproduced"


def test_every_boot_may_fail(tmp_path: Path) -> None:
    def boot(*_: object) -> dict[str, Run]:
        raise LabError("no QEMU")

    found, calibration = experiments.reproduce(boot=boot)
    assert calibration is None
    rows = [row for each in found.experiments for row in each.rows]
    assert rows
    assert all(row.ours == "no run" and "no QEMU" in row.why for row in rows)
    write_page(found, tmp_path / "xen.md")
    found.save(tmp_path / "out")


# Windows


def test_patterns_as_overrides_are_the_hosts_of_the_paper() -> None:
    for pattern in paper.PATTERNS:
        drawn = ["seed=3", "draw.load=85 %"]
        ours = setup.paper_host().resolved([*setup.pattern_overrides(pattern), *drawn])
        assert ours == setup.paper_host(pattern).resolved(drawn)


def test_a_boot_has_windows_of_one_scheduler_and_host_and_not_too_many() -> None:
    windows = [
        Window(f"w{number}", scheduler, setup.paper_host(), ())
        for number in range(boots.WINDOWS_MAX + 1)
        for scheduler in ("a", "b")
    ]
    machines = boots._boots(windows)
    assert [len(each) for each in machines] == [boots.WINDOWS_MAX, 1] * 2
    assert all(len({window.scheduler for window in each}) == 1 for each in machines)


def test_task_sets_are_chosen_by_the_simulator_without_costs() -> None:
    seeds = isolation.seeds(False)
    assert len(seeds) == isolation.SETS
    for seed in seeds:
        for case in isolation.CASES:
            free = [*paper.under("polling"), *boots.FREE, setup.duration(False)]
            run = setup.paper_host().run(set=[*free, *isolation.overrides(case, seed)])
            others = [domain for domain in run.domains if domain.name != isolation.OVERLOADED]
            assert not any(domain.missed for domain in others)


def test_many_vcpus() -> None:
    host = costs.many_host().resolved()
    assert sum(len(domain["vcpus"]) for domain in host["domains"]) == 200
    for domain in host["domains"]:
        assert [task["vcpu"] for task in domain["tasks"]] == list(range(costs.MANY_VCPUS))
    offsets = [task["offset_ns"] for domain in host["domains"] for task in domain["tasks"]]
    assert len(set(offsets)) == 200
    run = costs.many_host().run(duration="2 s")
    assert run.missed == 0


# Verdicts


def dear(stock: str | None) -> int:
    return 1000 if stock else 2 * EXPENSIVE


def test_costs_are_judged_against_xens_own() -> None:
    cheap, expensive = rows_of(on(Machine(), "table-1")), rows_of(on(Machine(dear), "table-1"))
    what = "deferrable: instructions a decision, mean"
    assert (cheap[what].ours, cheap[what].verdict) == (500, "reproduced")
    assert cheap[what].published == "at most stock rtds's: 500"
    assert (expensive[what].ours, expensive[what].verdict) == (EXPENSIVE, "differs")
    what = "deferrable: instructions a decision, times stock credit's"
    assert (cheap[what].ours, cheap[what].verdict) == (1, "reproduced")
    assert (expensive[what].ours, expensive[what].verdict) == (10, "differs")
    what = "deferrable: event-driven: CPU time lost, times stock credit's"
    assert cheap[what].verdict == "reproduced"
    assert expensive[what].verdict == "differs"


def test_a_hypervisor_that_measures_nothing_gives_no_costs() -> None:
    class Release(Machine):
        def _run(self, *arguments: Any) -> Run:
            run = super()._run(*arguments)
            path = arguments[-1].with_suffix(SUMMARY)
            nothing = {"decision_ns": [], "switch_ns": [], "timer_ns": 0, "timers": 0}
            path.write_text(json.dumps(json.loads(path.read_text()) | nothing))
            return run

    row = next(iter(rows_of(on(Release(), "table-1")).values()))
    assert row.ours == "no run"
    assert "not the build that measures" in row.why
    found, calibration = experiments.reproduce("calibration", boot=Release())
    assert calibration is None
    (measured,) = found.experiments[0].measurements
    assert measured.ours == "not measured"


def test_miss_ratios_are_judged_against_the_simulators() -> None:
    """A machine with costs that eat all budgets."""
    slow = "host.costs={ schedule = '500 us', context-switch = '500 us' }"
    for name, what in (
        ("table-2", "normal, deferrable"),
        ("table-2", "deferrable: jobs missed by domains that are not overloaded"),
        ("figure-6", "even, 70 %, deferrable"),
        ("fidelity", "deferrable: largest difference of a domain's miss ratio, points"),
    ):
        same, other = (rows_of(on(Machine(extra=extra), name)) for extra in ([], [slow]))
        assert same[what].verdict == "reproduced", same[what]
        assert other[what].verdict == "differs", other[what]
        assert other[what].why


def test_causes_must_sum_to_the_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Machine(extra=["host.costs={ schedule = '500 us', context-switch = '500 us' }"])
    what = "deferrable: late jobs"
    whole = rows_of(on(slow, "why"))[what]
    assert (whole.verdict, whole.why) == ("reproduced", "")
    assert isinstance(whole.ours, float)
    assert whole.ours > 0
    assert whole.spread.startswith("furthest off: 0 ns")

    def without_the_first(trace: Path) -> Why:
        found = why(trace)
        late = tuple(replace(job, causes=job.causes[1:]) for job in found.late)
        return replace(found, late=late)

    monkeypatch.setattr(causes, "why", without_the_first)
    part = rows_of(on(slow, "why"))[what]
    assert (part.ours, part.verdict) == (whole.ours, "differs")
    assert part.why

    monkeypatch.setattr(causes, "why", lambda trace: replace(why(trace), late=()))
    nothing = rows_of(on(slow, "why"))[what]
    assert (nothing.ours, nothing.verdict) == (0, "differs")
    assert nothing.why


# Calibration

MADE_UP = Calibration(
    tuple(Costs(Quantiles(n, n + 1, n + 2), Quantiles(10 * n, 11 * n, 12 * n)) for n in (7, 8, 9))
)


def test_a_calibration_is_what_was_measured(
    whole: tuple[Machine, Reproduction, Calibration | None],
) -> None:
    _, _, calibration = whole
    assert calibration is not None
    assert calibration.of("periodic") == calibration.of("deferrable")
    assert calibration.of("credit").schedule == Quantiles(1000, 1000, 1000)
    assert calibration.of("credit").context_switch == Quantiles(4000, 4000, 4000)


def test_what_is_known_is_closer_than_no_costs(
    whole: tuple[Machine, Reproduction, Calibration | None],
) -> None:
    _, found, _ = whole
    (calibration,) = (each for each in found.experiments if each.name == "calibration")
    assert [row.verdict for row in calibration.rows] == ["reproduced"] * 12
    same = [row for row in calibration.rows if "same VCPU" in row.what]
    assert all(row.ours == pytest.approx(100, abs=0.5) for row in same)


def test_a_machine_unlike_what_is_known_may_be_closer_without_costs() -> None:
    free = [*boots.FREE, "host.timer-latency=0 ns"]
    free += [f"domain.dom{number}.tick.wake=0 ns" for number in range(1, 6)]
    free += [f"domain.dom{number}.tick.cost=1 ns" for number in range(1, 6)]
    rows = rows_of(on(Machine(extra=free), "calibration"))
    row = rows["deferrable: time in which both run the same VCPU, mean, %"]
    assert row.verdict == "differs"
    assert row.why.startswith("further by")


def test_what_the_run_settled_is_the_models() -> None:
    """Phases of ticks are those that guests reported."""

    class Later(Machine):
        def _run(self, *arguments: Any) -> Run:
            run = super()._run(*arguments)
            path = arguments[-1].with_suffix(SUMMARY)
            told = json.loads(path.read_text())
            told["ticks"] = [
                tick | {"offset_ns": tick["offset_ns"] + 1_000_000} for tick in told["ticks"]
            ]
            path.write_text(json.dumps(told))
            return run

    what = "deferrable: time in which both run the same VCPU, mean, %"
    same, other = (rows_of(on(machine(), "calibration"))[what].ours for machine in (Machine, Later))
    assert isinstance(same, float)
    assert isinstance(other, float)
    assert other < same


def test_a_calibration_is_written(tmp_path: Path) -> None:
    (tmp_path / "crates/laxity-host/profiles").mkdir(parents=True)
    told = tomllib.loads(MADE_UP.save(tmp_path).read_text())
    assert list(told) == ["source", *paper.POLICIES]
    assert told["sedf"]["schedule"] == {"median": "7 ns", "p99": "8 ns", "max": "9 ns"}
    assert told["credit"]["context-switch"] == {"median": "90 ns", "p99": "99 ns", "max": "108 ns"}


def test_quantiles_are_by_nearest_rank() -> None:
    assert Quantiles.of(range(1, 101)) == Quantiles(50, 99, 100)
    assert Quantiles.of([5]) == Quantiles(5, 5, 5)


def test_the_shipped_profile_is_one_that_was_written() -> None:
    """Nobody has changed by hand what `--calibrate` writes."""
    text = (Path(__file__).parents[2] / model.FILE).read_text()
    told = tomllib.loads(text)

    def quantiles(policy: str, key: str) -> Quantiles:
        of = told[policy][key]
        return Quantiles(*(int(of[each].removesuffix(" ns")) for each in ("median", "p99", "max")))

    shipped = Calibration(
        tuple(
            Costs(quantiles(policy, "schedule"), quantiles(policy, "context-switch"))
            for policy in model.MEASURED
        )
    )
    assert shipped.profile() == text
