from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import jsonschema
import laxity
import numpy as np
import pytest
from conftest import EXAMPLES, HOST, HOST_FILES
from laxity import _core
from laxity.errors import InputError
from laxity.policies import GLOBAL, MODELS, SCHEDULER_S

if TYPE_CHECKING:
    from pathlib import Path


def test_the_policies_are_those_of_the_schema() -> None:
    schema = json.loads(_core.host_schema())
    choices = schema["$defs"]["Policy"]
    names = choices.get("enum") or [choice["const"] for choice in choices["oneOf"]]
    assert sorted(laxity.POLICIES) == sorted(names)


def test_a_run_in_three_lines() -> None:
    run = laxity.Host.parse(HOST).run(seed=1)
    assert (run.policy, run.seed, run.substrate, run.duration_ns) == ("deferrable", 1, "sim", 10**9)
    assert [domain.name for domain in run.domains] == ["control", "late", "random", "batch"]
    assert run.domain("control").missed == 0
    assert run.domain("late").missed == run.domain("late").jobs > 0
    assert run.missed == sum(domain.missed for domain in run.domains)
    assert run.miss_ratio == run.missed / run.jobs
    with pytest.raises(KeyError):
        run.domain("nobody")


def test_the_frame_has_a_row_a_task() -> None:
    run = laxity.Host.parse(HOST).run()
    frame = run.frame()
    assert list(frame["task"][:2]) == ["loop", "hungry"]
    assert len(frame) == 5
    loop = run.domain("control").tasks[0]
    assert frame["response_ns_p99"][0] == loop.response_ns.p99
    assert frame["lateness_ns_max"].isna()[0]
    assert frame["lateness_ns_max"][1] == run.domain("late").tasks[0].lateness_ns.max
    assert "hungry" in run._repr_html_()


def test_responses_agree_with_the_quantiles() -> None:
    run = laxity.Host.parse(HOST).run()
    loop = run.domain("control").tasks[0]
    times = np.sort(run.responses["control", "loop"])
    assert times[-1] == loop.response_ns.max
    assert times[(len(times) + 1) // 2 - 1] == loop.response_ns.p50
    assert ("batch", "") not in run.responses


def test_overrides_are_applied_and_options_come_last() -> None:
    host = laxity.Host.parse(HOST)
    assert host.run(set="duration=100 ms").duration_ns == 10**8
    assert host.run(set=["seed=5", "duration=2 s"], seed=6, duration="1 ms").seed == 6
    assert host.run(policy="credit").policy == "credit"
    assert (
        host.resolved("domain.control.budget=3 ms")["domains"][0]["parameters"]["budget_ns"]
        == 3_000_000
    )


def test_json_fits_the_schema_and_comes_back() -> None:
    run = laxity.Host.parse(HOST).run()
    jsonschema.validate(run.to_json(), json.loads(_core.result_schema()))
    assert laxity.Run.from_json(run.to_json(), run.origin) == run


def test_a_run_is_saved_and_loaded(tmp_path: Path) -> None:
    run = laxity.Host.parse(HOST).run(seed=9, trace=tmp_path / "trace")
    loaded = laxity.Run.load(run.save(tmp_path / "out"))
    assert loaded.to_json() == run.to_json()
    assert loaded.origin.host == HOST.encode()
    assert loaded.origin.overrides == ("seed=9",)
    assert loaded.responses.keys() == run.responses.keys()
    for key, times in run.responses.items():
        np.testing.assert_array_equal(loaded.responses[key], times)
    assert loaded.trace is not None
    assert loaded.trace.read_bytes() == (tmp_path / "trace").read_bytes()
    with pytest.raises(InputError, match="output of `laxity run`"):
        laxity.Sweep.load(tmp_path / "out")
    (tmp_path / "out" / "result.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        laxity.Run.load(tmp_path / "out")


def test_a_wrong_host_shows_where() -> None:
    with pytest.raises(laxity.HostError) as refused:
        laxity.Host.parse(HOST.replace('"2 ms"', '"20 ms"'), "my.toml").run()
    text = str(refused.value)
    assert "my.toml:14:10" in text
    assert 'budget = "20 ms"' in text
    problem = refused.value.problems[0]
    assert (problem.file, problem.line) == ("my.toml", 14)
    assert "longer than" in problem.message
    assert isinstance(refused.value, ValueError)


def test_a_wrong_file_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(laxity.HostError, match="empty"):
        laxity.Host.parse("")
    with pytest.raises(laxity.HostError, match="binary"):
        laxity.Host(b"\0", "x")


def test_check_and_budgets() -> None:
    host = laxity.Host.load(EXAMPLES / "integrator.toml")
    check = host.check()
    assert check.is_schedulable
    assert check.frame()["guaranteed"].all()
    assert (check.frame()["bound_ns"] <= check.frame()["deadline_ns"]).all()
    smallest = {budget.name: budget.budget_ns for budget in host.minimum_budgets()}
    enough = [f"domain.{name}.budget={ns} ns" for name, ns in smallest.items()]
    assert host.run(set=enough).missed == 0
    assert not laxity.Host.parse(HOST).check().is_schedulable


def test_no_run_misses_what_check_guarantees() -> None:
    for example in HOST_FILES:
        host = laxity.Host.load(example)
        for policy in host.policies():
            run = host.run(policy=policy, duration="10 s")
            for domain in host.check(policy=policy).domains:
                for task, found in zip(domain.tasks, run.domain(domain.name).tasks, strict=True):
                    assert not task.guaranteed or found.missed == 0, (example, policy, task)
                    if task.bound_ns is not None and found.response_ns.max is not None:
                        assert found.response_ns.max <= task.bound_ns, (example, policy, task)


def test_policies_are_those_that_have_their_parameters() -> None:
    host = laxity.Host.parse(HOST)
    laxitys = [policy for policy in laxity.POLICIES if policy not in (*MODELS, *GLOBAL)]
    without = [policy for policy in laxitys if policy not in SCHEDULER_S]
    assert host.policies() == without
    assert host.policies("domain.control.laxity=10 us") == laxitys
    with_null = [policy for policy in laxity.POLICIES if policy in (*without, "null")]
    assert host.policies("host.policy=null") == with_null
    bare = HOST.replace('budget = "2 ms"\nperiod = "10 ms"\n', "").replace("deferrable", "credit")
    assert laxity.Host.parse(bare).policies() == ["credit"]


def test_compare_runs_each_policy() -> None:
    host = laxity.Host.parse(HOST)
    comparison = host.compare(["credit", "sporadic"], seed=4)
    assert [run.policy for run in comparison.runs] == ["credit", "sporadic"]
    alone = host.run(policy="sporadic", seed=4)
    assert comparison.runs[1].domains == alone.domains
    assert list(comparison.frame()["policy"].unique()) == ["credit", "sporadic"]
    with pytest.raises(InputError):
        host.compare([])
    with pytest.raises(laxity.HostError):
        host.compare(["credit", "lottery"])


def test_a_sweep_is_its_runs(tmp_path: Path) -> None:
    host = laxity.Host.parse(HOST)
    ranges = ["draw.load=0.5..1.0:0.25", "domain.late.budget=1 ms|2", "duration=500 ms"]
    with pytest.raises(InputError):
        host.sweep(ranges)
    ranges[1] = "domain.late.budget=1..3:2 ms"
    sweep = host.sweep(ranges, seeds=2, policies=["deferrable", "credit"])
    frame = sweep.frame()
    assert len(frame) == 3 * 2 * 2 * 2 * 4
    assert set(frame["seed"]) == {3, 4}, "the host's own and the next"
    assert set(frame["domain.late.budget"]) == {1, 3}
    assert sweep.arrow().schema.field("domain.late.budget").metadata == {b"unit": b"ms"}
    alone = host.run(
        set=["draw.load=0.75", "domain.late.budget=3 ms", "duration=500 ms"],
        policy="credit",
        seed=4,
    )
    row = frame.query(
        "`draw.load` == 0.75 and `domain.late.budget` == 3 and policy == 'credit' and seed == 4"
    ).set_index("domain")
    for domain in alone.domains:
        assert row.loc[domain.name, "jobs"] == domain.jobs
        assert row.loc[domain.name, "missed"] == domain.missed
        assert row.loc[domain.name, "cpu_ns"] == domain.cpu_ns
    points = sweep.points()
    assert len(points) == 12
    assert points[0].values == {"draw.load": "0.5", "domain.late.budget": "1 ms"}
    ratios = [
        host.run(
            set=["draw.load=0.5", "domain.late.budget=1 ms", "duration=500 ms"], seed=seed
        ).miss_ratio
        for seed in (3, 4)
    ]
    assert points[0].miss_ratio.mean == pytest.approx(sum(ratios) / 2)
    loaded = laxity.Sweep.load(sweep.save(tmp_path / "out"))
    assert loaded.axes == sweep.axes
    assert loaded.table.equals(sweep.table)
    assert "draw.load" in loaded._repr_html_()


def test_a_sweep_takes_next_to_no_python_for_each_run() -> None:
    """Python runs on one CPU: what it does for each run bounds what the others are good for."""
    host = laxity.Host.load(EXAMPLES / "rt-xen.toml")
    axes = ["draw.load=0.5|0.6", "duration=10 ms"]

    def calls(seeds: int) -> int:
        count = 0

        def profile(_frame: object, event: str, _argument: object) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            host.sweep(axes, seeds=seeds).points()
        finally:
            sys.setprofile(None)
        return count

    calls(1)
    few, many = calls(50), calls(150)
    assert (many - few) / 200 < 20, "calls of Python's for each run"


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    host = laxity.Host.load(EXAMPLES / "rt-xen.toml")
    host.run(duration="4000 s", progress=lambda done, total: told.append((done, total)))
    assert all(0 <= done <= total == 4_000_000_000_000 for done, total in told)
    assert told == sorted(told)


def test_what_a_caller_raises_in_progress_ends_the_run() -> None:
    def stop(done: int, total: int) -> None:
        raise RuntimeError(done, total)

    with pytest.raises(RuntimeError):
        laxity.Host.load(EXAMPLES / "rt-xen.toml").run(duration="1000 h", progress=stop)
