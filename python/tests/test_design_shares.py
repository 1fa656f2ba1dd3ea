"""Designs that simulation alone judges: policies that go by weights, and tasks beside calls."""

from __future__ import annotations

import json
import sys
from itertools import chain, product
from typing import TYPE_CHECKING

import pytest
from conftest import BESIDE
from laxity import Host
from laxity.cli import guarded
from laxity.design import halving, phases, shares
from laxity.design.calls import find_remedy
from laxity.design.changes import changes_of
from laxity.design.ladders import POLICIES, ladders, open_values
from laxity.errors import HostError, InputError
from laxity.progress import silent
from laxity.resolved import task_paths
from laxity.telephony import capacity

if TYPE_CHECKING:
    from pathlib import Path

WEIGHTS = """
duration = "10 s"
[host]
cpus = 1
policy = "credit2"
costs = { schedule = "200 ns", context-switch = "2 us" }
[[domain]]
name = "control"
weight = "?" # more than the others
tasks = [{ name = "loop", cost = "1 ms", period = "10 ms" }]
[[domain]]
name = "vision"
weight = "?"
tasks = [{ name = "frame", cost = "6 ms", period = "40 ms" }]
[[domain]]
name = "batch"
cap = "?"
workload = { kind = "cpu-bound" }
"""


USUAL = "domain.control.weight = 256, domain.vision.weight = 256, domain.batch.cap = 0"


def test_weights_and_caps_hold_and_leave_room() -> None:
    found = Host.parse(WEIGHTS).design(missed_max=0.001)
    assert found.verdict == "holds", found.reasons
    assert found.room_factor is not None
    assert found.room_factor >= 1
    assert "# more than the others" in (found.host or "")
    assert "?" not in (found.host or "?")
    written = Host.parse(found.host or "").resolve([])
    # Neither seed nor phases were used by the search.
    runs = phases.runs(written, range(9_000, 9_010), 5_000, any_phase=True)
    assert max(phases.worst(run)[0] for run in runs) <= 0.001
    # What was chosen carries what is said, and the usual values do not.
    chosen, usual = found.choices[0], next(each for each in found.choices if each.what == USUAL)
    assert chosen.room_factor == found.room_factor
    assert usual.room_factor < 1
    assert found == Host.parse(WEIGHTS).design(missed_max=0.001)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "cpus"), [("credit2", 1), ("eevdf", 1), ("s-base", 2)])
def test_no_combination_leaves_much_more_room(policy: str, cpus: int) -> None:
    """Brute force tries them all, in the runs of the last round."""
    text = WEIGHTS.replace("credit2", policy).replace("cpus = 1", f"cpus = {cpus}")
    file = Host.parse(text)
    found = file.design(missed_max=0.001)
    host = file.resolve([])
    opened = open_values(host)
    first = host.changed(opened.first)
    costs = {path: task["cost_ns"] for path, _, task in task_paths(first.host)}
    load = halving.Load(
        1_000,
        6_000,
        overrides=lambda parts: [
            f"{path}.cost={ns * parts // 1_000} ns" for path, ns in costs.items()
        ],
        said=str,
    )
    trials = halving.Trials(first, load, 0.001)
    every = [
        halving.Change(str(number), tuple(chain.from_iterable(rungs)))
        for number, rungs in enumerate(product(*(ladder.rungs for ladder in opened.ladders)))
    ]
    assert len(every) == 4 * 4 * 5
    seconds, seeds, _ = halving.ROUNDS[-1]
    carried = halving.carried_by(
        trials, {change: list(range(500, 6_000, 500)) for change in every}, seconds, seeds
    )
    best_first = sorted(carried.items(), key=lambda item: -item[1])
    assert best_first[0][1] > 1.5 * best_first[-1][1]
    _, most = halving.best(trials, best_first)
    assert found.room_factor is not None
    assert 1_000 * found.room_factor >= 0.85 * most, (found.choices[:3], most)


def test_where_no_weight_is_enough_it_is_said_what_misses() -> None:
    host = Host.parse(WEIGHTS)
    busy = host.design(
        missed_max=0.0,
        set=["domain.vision.tasks.frame.cost=38 ms", "domain.control.tasks.loop.cost=2 ms"],
    )
    assert busy.verdict == "impossible"
    assert {demand.task for demand in busy.conflict} == {"loop", "frame"}
    assert busy.host is None
    tight = host.design(missed_max=0.0, set=["domain.vision.tasks.frame.deadline=6100 us"])
    assert tight.verdict == "unknown"
    assert not tight.conflict
    assert any("misses" in reason for reason in tight.reasons)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["domain.control.weight=1", "domain.vision.weight=1", "domain.batch.cap=0"],
            "leaves nothing open",
        ),
        (["domain.control.tasks=[]", "domain.vision.tasks=[]"], "no tasks"),
    ],
)
def test_questions_without_sense_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Host.parse(WEIGHTS).design(missed_max=0.001, set=settings)


@pytest.mark.slow
def test_without_a_limit_of_misses_the_help_names_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "host.toml"
    path.write_text(WEIGHTS.replace('"?"', "100"))
    monkeypatch.setattr(sys, "argv", ["laxity", "design", str(path)])
    assert guarded() == 2
    assert "--missed" in capsys.readouterr().err
    path.write_text(WEIGHTS)
    monkeypatch.setattr(sys, "argv", ["laxity", "design", str(path), "--missed", "0.1 %"])
    assert guarded() == 0
    said = capsys.readouterr().out
    assert "missed in simulation, every cost may be" in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80
    monkeypatch.setattr(sys, "argv", ["laxity", "design", str(path), "--missed", "0.1 %", "--json"])
    assert guarded() == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "holds"


@pytest.mark.slow
def test_tasks_beside_calls_keep_their_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        halving, "ROUNDS", ((1, 1, (0.5, 1.0, 2.0, 4.0)), (1, 2, (0.75, 1.0, 1.25)))
    )
    monkeypatch.setattr(halving, "SECONDS", 1)
    monkeypatch.setattr(halving, "can_be_heard", lambda: False)
    host = Host.parse(BESIDE)
    strict = host.design()
    lax = host.design(missed_max=0.9)
    assert strict.verdict == lax.verdict == "holds"
    for found, missed_max in ((strict, 0.0), (lax, 0.9)):
        run = Host.parse(found.host or "").run(seed=1, duration="1 s")
        assert phases.worst(run)[0] <= missed_max
        assert found.missed_max == missed_max
    # More streams are carried where deadlines need not be kept.
    assert lax.remedies[0].streams > strict.remedies[0].streams
    assert "No task missed any deadlines" in strict.reasons[0]


def test_a_task_that_no_change_helps_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halving, "ROUNDS", ((1, 1, (1.0,)),))
    monkeypatch.setattr(halving, "SECONDS", 1)
    found = Host.parse(BESIDE).design(set="domain.control.tasks.loop.deadline=2001 us")
    assert found.verdict == "unknown"
    assert "loop misses" in found.reasons[0]


DRAWN = """
duration = "1 s"
seed = 1
[host]
cpus = 1
policy = "deferrable"
[draw]
load = 0.1
tasks = 2
cost = ["1 ms", "2 ms"]
[[domain]]
name = "d"
budget = "2 ms"
period = "10 ms"
tasks = "drawn"
"""


@pytest.mark.parametrize(
    ("text", "missed_max"),
    [
        (DRAWN, None),
        (DRAWN, 0.1),
        (DRAWN.replace("deferrable", "credit2"), 0.1),
        (BESIDE + DRAWN[DRAWN.index("[draw]") :], None),
    ],
)
def test_tasks_that_are_drawn_are_refused_in_one_error(text: str, missed_max: float | None) -> None:
    with pytest.raises(HostError, match="drawn tasks change with the seed") as caught:
        Host.parse(text).design(missed_max=missed_max)
    assert str(caught.value).count("error:") <= 1


def test_the_policy_may_be_open_where_weights_are() -> None:
    host = Host.parse(WEIGHTS.replace('"credit2"', '"?"')).resolve([])
    assert shares.is_for(host)
    servers = (
        WEIGHTS.replace('"credit2"', '"?"').replace('weight = "?"', "").replace('cap = "?"', "")
    )
    assert not shares.is_for(Host.parse(servers).resolve([]))


def test_the_policy_is_one_that_every_domain_fits() -> None:
    text = """
    duration = "1 s"
    host = { cpus = 1, policy = "?" }
    domain = [
      { name = "a", budget = "?", period = "?", weight = "?",
        tasks = [{ name = "t", cost = "1 ms", period = "10 ms" }] },
      { name = "batch", weight = 256, workload = { kind = "cpu-bound" } },
    ]
    """
    found = Host.parse(text).design(missed_max=0.05)
    assert found.policy in POLICIES


def test_names_may_have_dots() -> None:
    text = WEIGHTS.replace('name = "control"', 'name = "control.1"')
    text = text.replace('name = "loop"', 'name = "loop.period"')
    found = Host.parse(text).design(missed_max=0.001)
    assert found.verdict == "holds"
    # What follows a domain's name may be a task's.
    with pytest.raises(InputError, match="cannot find a value"):
        ladders(["domain.control.1.tasks.loop.period.period"], Host.parse(text).resolve([]))


@pytest.mark.slow
def test_a_task_beside_calls_may_begin_at_any_time() -> None:
    """In step with its budget it misses nothing, and out of step every deadline."""
    text = """
    duration = "1 s"
    host = { cpus = 4, policy = "polling", network = "iptcomm-2009" }
    [[domain]]
    name = "dom0"
    affinity = [0]
    budget = "10 ms"
    period = "10 ms"
    workload = { kind = "driver" }
    [[domain]]
    name = "media"
    affinity = [1]
    budget = "10 ms"
    period = "10 ms"
    workload = { kind = "media-server" }
    [[domain]]
    name = "control"
    affinity = [2]
    budget = "2 ms"
    period = "5 ms"
    tasks = [{ name = "loop", cost = "1500 us", period = "5 ms", deadline = "3 ms" }]
    [[nic]]
    name = "eth0"
    ring = "?"
    [calls]
    streams = 10
    media-server = "media"
    """
    host = Host.parse(text).resolve([])
    assert find_remedy(host, silent).verdict == "holds"
    found = find_remedy(host, silent, any_phase=True)
    assert found.verdict == "unknown"
    assert "loop misses" in found.reasons[0]


def test_a_rare_task_does_not_make_runs_longer_than_the_file() -> None:
    rare = BESIDE.replace('period = "5 ms"', 'period = "1 h"')
    host = Host.parse(rare).resolve([])
    load = halving.Load(100, 100, overrides=lambda _: [], said=str)
    trials = halving.Trials(host, load, 0.0)
    assert trials.changed(halving.Change("", ()), 1, 2, 0).host["duration_ns"] == 2 * 10**9


def test_many_cpus_do_not_make_many_changes() -> None:
    host = Host.parse(BESIDE).resolved("host.cpus=1024")
    assert len(list(changes_of(host))) < 1000


def test_remedies_that_are_refused_cost_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        pytest.fail("the search had begun")

    monkeypatch.setattr(capacity, "find_capacity", refuses)
    calls = BESIDE.replace("streams = 100", 'rate = "3600 /h"\nhold = "1 s"')
    with pytest.raises(InputError, match="none that are always there"):
        Host.parse(calls).capacity(remedies=True)
