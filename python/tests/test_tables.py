from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

import jsonschema
import laxity
import pytest
from conftest import EXAMPLES, HOST
from hypothesis import given
from hypothesis import strategies as st
from laxity import POLICIES, _core
from laxity.results.check import Check
from laxity.results.comparison import Comparison
from laxity.tables.calls import calls_table
from laxity.tables.check import check_table
from laxity.tables.comparison import comparison_table
from laxity.tables.run import run_table
from laxity.tables.sweep import sweep_table
from laxity.text import UNITS, number, percent, time
from rich.console import Console

UNITS_NS = dict(UNITS)


def value_ns(text: str) -> float:
    number, unit = text.split()
    return float(number) * UNITS_NS[unit]


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, "-"),
        (0, "0"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1000, "1 us"),
        (1500, "1.5 us"),
        (12_345, "12.3 us"),
        (123_456_789, "123 ms"),
        (60 * 10**9, "60 s"),
        (3600 * 10**9, "3600 s"),
    ],
)
def test_times(ns: int | None, text: str) -> None:
    assert time(ns) == text


@given(st.integers(1, 2**62), st.integers(3, 4))
def test_times_are_near_and_bounds_never_below(ns: int, digits: int) -> None:
    near, above = time(ns, digits=digits), time(ns, digits=digits, up=True)
    assert value_ns(near) == pytest.approx(ns, rel=10.0 ** (1 - digits))
    assert value_ns(above) >= ns * (1 - 1e-12)
    assert value_ns(above) == pytest.approx(ns, rel=10.0 ** (1 - digits))


def test_a_bound_just_above_its_deadline_does_not_look_equal() -> None:
    assert time(100_000_001, digits=4, up=True) == "100.1 ms"


@given(st.floats(0, 1))
def test_percentages_are_near_and_never_0_or_100_by_rounding(ratio: float) -> None:
    text = percent(ratio)
    assert (text == "0 %") == (ratio == 0)
    assert (text == "100 %") == (ratio == 1)
    if re.match(r"\d", text):
        assert float(text.removesuffix(" %")) == pytest.approx(100 * ratio, rel=0.006, abs=0.006)


def rendered(result: object) -> str:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(result)
    return console.export_text()


def test_a_host_without_deadlines() -> None:
    host = laxity.Host.parse(
        'duration = "1 s"\n[host]\ncpus = 2\npolicy = "credit"\n[[domain]]\nname = "idle"\n'
    )
    run = rendered(run_table(host.run()))
    assert "No deadline fell within the run" in run
    assert "Schedulable: there are no deadlines" in rendered(check_table(host.check()))


def checked(domain: dict[str, object]) -> Check:
    content = {
        "policy": "sedf",
        "verdict": "not-guaranteed",
        "domains": [domain],
        "not_analysed": [],
        "profiles": [],
    }
    return Check.from_json(content, "laxity run host.toml")


def test_names_are_no_markup() -> None:
    content = {
        "name": "[red]x",
        "guaranteed": False,
        "bound_ns": None,
        "deadline_ns": 5,
        "test": None,
    }
    domain = {"name": "[bold]", "tasks": [{**content, "why": "because [blue]"}]}
    check = checked(domain)
    text = rendered(check_table(check))
    for name in ("[red]x", "[bold], [red]x: because [blue]"):
        assert name in text


def test_reasons_stand_once() -> None:
    task = {
        "guaranteed": False,
        "bound_ns": None,
        "deadline_ns": 5,
        "test": None,
        "why": "so it is",
    }
    tasks = [{"name": f"t{number}", **task} for number in range(5)]
    domain = {"name": "many", "tasks": tasks}
    check = checked(domain)
    assert rendered(check_table(check)).count("so it is") == 1
    assert "many, 5 tasks: so it is" in rendered(check_table(check))


def test_plural() -> None:
    assert number(1, "job") == "1 job"
    assert number(2000, "switch", "switches") == "2,000 switches"


def measured(**overhead: float | None) -> laxity.Run:
    text = 'duration = "1 s"\n[host]\ncpus = 2\npolicy = "credit"\n[[domain]]\nname = "idle"\n'
    run = laxity.Host.parse(text).run()
    return replace(run, overhead=replace(run.overhead, **overhead), profiles=())  # type: ignore[arg-type]


def test_what_was_not_measured_is_not_called_free() -> None:
    free = rendered(run_table(measured(loss_ratio=0.0)))
    assert "at no cost" in free
    nothing: dict[str, None] = dict.fromkeys(("schedule_ns", "context_switch_ns", "loss_ratio"))
    counted = measured(**nothing, schedule_calls=12_355, context_switches=4_864)
    said = rendered(run_table(counted))
    assert "Scheduling: 12,355 decisions, 4,864 switches, cost not measured" in said
    compared = Comparison((counted,), counted.origin)
    lost = next(
        line for line in rendered(comparison_table(compared)).splitlines() if "lost" in line
    )
    assert lost.split() == ["CPU", "lost", "%", "-"]
    uncounted = measured(**nothing, schedule_calls=None, context_switches=None)
    assert "Scheduling: not measured" in rendered(run_table(uncounted))
    assert uncounted.to_json()["overhead"] == dict.fromkeys(uncounted.to_json()["overhead"])
    jsonschema.validate(uncounted.to_json(), json.loads(_core.result_schema()))


TELEPHONY = EXAMPLES / "telephony.toml"


def test_check_says_what_it_does_not_analyse() -> None:
    found = laxity.Host.load(TELEPHONY).check(set=["calls.registrations=4 /s"])
    assert found.verdict == found.to_json()["verdict"] == "not-analysed"
    assert not found.is_schedulable
    text = rendered(check_table(found))
    assert "Schedulable" not in text
    for part in ("calls", "registrations", "driver domain: dom0", "media server: media"):
        assert part in text
    assert found.run_instead is not None
    command = text[text.index("A run shows it:") :].split("\n", 1)[1].split("Costs of")[0]
    assert shlex.split(command.replace("\\\n", " ")) == shlex.split(found.run_instead)
    assert found.run_instead.startswith(f"laxity run {TELEPHONY} --set ")
    assert found.to_json()["not_analysed"][2] == {"what": "the driver domain", "domains": ["dom0"]}


def test_the_profile_stands_beside_the_verdict() -> None:
    host = laxity.Host.load(TELEPHONY)
    run = host.run(set=["calls.streams=10", "duration=1 s"])
    said = " ".join(rendered(calls_table(run, run.telephony, host.resolved())).split())  # type: ignore[arg-type]
    assert "profile iptcomm-2009, fitted to two published losses of Xen 3.2.1" in said
    assert "profile emsoft-2011" in said
    own = 'host.network={ relay = "10 us" }'
    assert [profile.of for profile in run.profiles] == ["scheduling", "packets"]
    assert [profile["of"] for profile in host.resolved(own)["profiles"]] == ["scheduling"]
    assert host.check().profiles == run.profiles[:1]
    swept = host.sweep(["duration=100 ms", "host.network=iptcomm-2009|vee-2010"])
    assert [profile.name for profile in swept.profiles] == [
        *("emsoft-2011", "iptcomm-2009", "vee-2010")
    ]


def test_a_comparison_fits_however_many_policies() -> None:
    host = laxity.Host.load(EXAMPLES / "overload.toml")
    # Windows of arinc653 must not overlap, and those of this host do.
    policies = [policy for policy in POLICIES if policy != "arinc653"]
    found = host.compare(policies, duration="1 s", seeds=2)
    lines = rendered(comparison_table(found)).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    shown = [word for line in lines if line.startswith("miss %") for word in line.split()[2:]]
    assert shown == policies
    assert {policy for alike in found.alike() for policy in alike} >= {"s-all", "s-allc"}
    assert any("found the same in every number" in line for line in lines)
    assert "no domain has a `laxity`" in " ".join(" ".join(lines).split())


def test_the_cheapest_point_that_passes_is_named() -> None:
    host = laxity.Host.load(EXAMPLES / "integrator.toml")
    found = host.sweep("domain.vision.budget=2..5:1 ms", duration="2 s")
    best = found.best()
    assert (best.why, best.holding) == ("cheapest", 3)
    assert best.point.values == {"domain.vision.budget": "3 ms"}
    assert "3 of 4 points pass" in rendered(sweep_table(found))
    drawn = laxity.Host.parse(HOST).sweep(
        ["draw.load=0.1..0.2:0.1", "domain.late.tasks.hungry.cost=1 ms"]
    )
    assert (drawn.best().why, drawn.best().point.values) == ("most load", {"draw.load": "0.2"})
    none = host.sweep("domain.vision.budget=1..2:1 ms", duration="2 s").best()
    assert (none.why, none.holding) == ("nearest", 0)
    assert none.point.miss_ratio.mean == min(point.miss_ratio.mean for point in none.points) > 0


def test_python_shows_what_people_read() -> None:
    telephony = laxity.Host.load(TELEPHONY)
    calls = telephony.run(set=["calls.streams=8", "duration=2 s"])
    assert len(calls.frame()) == len(calls.streams) > 0
    late = laxity.Host.parse(HOST)
    for shown in (calls, late.run(), late.check(), late.compare(["credit"]), telephony.check()):
        assert len(repr(shown)) <= 160
        assert "\n" not in repr(shown)
        html = shown._repr_html_()
        assert "NaN" not in html
        assert "_ns" not in html
    assert str(late.run().frame()["lateness_ns_max"].dtype) == "Int64"
    assert " ms</td>" in late.run()._repr_html_()
