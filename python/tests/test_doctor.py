"""What goes wrong on a host: each rule on a host that has it, and on the host with its remedy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from conftest import EXAMPLES, HOST_FILES
from laxity import Host
from laxity.doctor.diagnosis import diagnose
from laxity.doctor.rules import RULES

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity


def servers(policy: str, *domains: str, cpus: int = 1, more: str = "") -> str:
    """A host; a domain is its name and the rest of its table, with semicolons between."""
    head = f'duration = "2 s"\n[host]\ncpus = {cpus}\npolicy = "{policy}"\n{more}\n'
    return head + "".join(
        f"[[domain]]\nname = {domain.replace('; ', chr(10))}\n" for domain in domains
    )


def task(cost: str, period: str, *, name: str = "t", **more: str | int) -> str:
    keys = {"name": name, "cost": cost, "period": period, **more}
    return "{ " + ", ".join(f"{key} = {value!r}" for key, value in keys.items()) + " }"


def voice(more: str = "", *, dom0: str = "", streams: int = 50) -> str:
    return f"""\
duration = "1 s"
[host]
cpus = 2
policy = "credit"
[[domain]]
name = "dom0"
workload = {{ kind = "driver" }}
{dom0}
[[domain]]
name = "media"
workload = {{ kind = "media-server" }}
[calls]
streams = {streams}
media-server = "media"
{more}
"""


BUSY = '"busy"; workload = { kind = "cpu-bound" }'

HOSTS = {
    "budget-below-load": servers(
        "deferrable", f'"a"; budget = "3 ms"; period = "10 ms"; tasks = [{task("8 ms", "20 ms")}]'
    ),
    "budget-just-enough": servers(
        "deferrable",
        '"a"; budget = "4 ms"; period = "10 ms"; '
        f"tasks = [{task('7600 us', '20 ms', deadline='13 ms')}]",
    ),
    "period-above-deadline": servers(
        "periodic", f'"a"; budget = "40 ms"; period = "100 ms"; tasks = [{task("3 ms", "10 ms")}]'
    ),
    "period-out-of-step": servers(
        "periodic",
        '"a"; budget = "2200 us"; period = "9 ms"; priority = 2; '
        f"tasks = [{task('2 ms', '10 ms')}]",
        '"b"; budget = "2 ms"; period = "8 ms"; priority = 1; workload = { kind = "cpu-bound" }',
    ),
    "budget-in-quanta": servers(
        "deferrable",
        '"a"; budget = "1500 us"; period = "5 ms"; '
        f"tasks = [{task('1200 us', '5 ms', deadline='1500 us')}]",
        more='quantum = "2 ms"',
    ),
    "cpu-oversold": servers(
        "deferrable",
        '"greedy"; budget = "8 ms"; period = "10 ms"; priority = 1; '
        'workload = { kind = "cpu-bound" }',
        f'"a"; budget = "4 ms"; period = "10 ms"; priority = 9; tasks = [{task("7 ms", "20 ms")}]',
    ),
    "priority-against-period": servers(
        "deferrable",
        f'"a"; budget = "4 ms"; period = "10 ms"; priority = 2; tasks = [{task("4 ms", "10 ms")}]',
        '"b"; budget = "20 ms"; period = "50 ms"; priority = 1; '
        f"tasks = [{task('20 ms', '50 ms')}]",
    ),
    "budget-burnt-idle": servers(
        "periodic",
        '"rare"; budget = "6 ms"; period = "10 ms"; priority = 1; '
        f"tasks = [{task('1 ms', '100 ms')}]",
        f'"a"; budget = "6 ms"; period = "10 ms"; priority = 2; tasks = [{task("6 ms", "10 ms")}]',
    ),
    "budget-dropped": servers(
        "polling",
        '"a"; budget = "5 ms"; period = "10 ms"; '
        f"tasks = [{task('2 ms', '10 ms', offset='3 ms', deadline='5 ms')}]",
    ),
    "budgets-back-to-back": servers(
        "deferrable",
        '"first"; budget = "4 ms"; period = "10 ms"; priority = 1; '
        f"tasks = [{task('8 ms', '40 ms', offset='6 ms')}]",
        '"a"; budget = "6 ms"; period = "10 ms"; priority = 2; '
        f"tasks = [{task('3 ms', '10 ms', offset='6 ms', deadline='8 ms')}]",
    ),
    "guest-by-rate": servers(
        "deferrable",
        '"a"; budget = "10 ms"; period = "10 ms"; '
        f"tasks = [{task('5 ms', '10 ms')}, {task('7 ms', '14 ms', name='u')}]",
    ),
    "slice-above-deadline": servers("credit", f'"a"; tasks = [{task("4 ms", "10 ms")}]', BUSY),
    "cap-below-load": servers(
        "credit", f'"a"; cap = 30; tasks = [{task("4 ms", "10 ms", offset="8 ms")}]'
    ),
    "cap-in-bursts": servers(
        "credit", f'"a"; cap = 30; tasks = [{task("20 ms", "100 ms", deadline="25 ms")}]'
    ),
    "cap-on-driver": voice(dom0="cap = 3", streams=200),
    "weight-below-load": servers(
        "credit", f'"a"; weight = 64; tasks = [{task("50 ms", "100 ms")}]', BUSY
    ),
    "no-laxity": servers("s-aill", f'"a"; tasks = [{task("4 ms", "10 ms")}]', BUSY),
    "quota-below-load": servers(
        "eevdf", f'"a"; quota = "30 ms"; tasks = [{task("8 ms", "20 ms")}]'
    ),
    "quota-in-bursts": servers(
        "eevdf", f'"a"; quota = "30 ms"; tasks = [{task("40 ms", "200 ms", deadline="50 ms")}]'
    ),
    "quota-under-fifo": servers(
        "fifo",
        '"busy"; quota = "30 ms"; rt-priority = 50; workload = { kind = "cpu-bound" }',
        f'"a"; tasks = [{task("10 ms", "50 ms")}]',
    ),
    "budget-in-jiffies": servers(
        "deadline",
        '"busy"; budget = "2 ms"; period = "5 ms"; workload = { kind = "cpu-bound" }',
        '"a"; budget = "3 ms"; period = "10 ms"; '
        f"tasks = [{task('2 ms', '10 ms', deadline='4 ms')}]",
    ),
    "vcpus-above-cpus": servers(
        "credit",
        f'"a"; vcpus = 4; tasks = [{task("3 ms", "10 ms")}, {task("50 ms", "100 ms", name="u")}]',
    ),
    "tasks-on-one-vcpu": servers(
        "deferrable",
        '"a"; vcpus = 2; budget = "5 ms"; period = "10 ms"; '
        f"tasks = [{task('4 ms', '10 ms', vcpu=0)}, {task('3 ms', '10 ms', vcpu=0, name='u')}]",
    ),
    "pinned-together": servers(
        "credit",
        f'"a"; affinity = [0]; tasks = [{task("7 ms", "10 ms")}]',
        f'"b"; affinity = [0]; tasks = [{task("7 ms", "10 ms")}]',
        cpus=2,
    ),
    "driver-beside-busy": voice(
        f"[[domain]]\nname = {BUSY.replace('; ', chr(10))}\nvcpus = 2\naffinity = [0, 2]",
        dom0="affinity = [0]",
        streams=300,
    ).replace("cpus = 2", "cpus = 3"),
    "voice-held-by-checkpoints": voice(
        '[protect]\npause = "1 ms"\ncheckpoint = "1 ms"\nacknowledgement = "200 us"\n'
        'domains = [{ domain = "media", interval = "40 ms" }]'
    ),
    "checkpoints-below-pause": voice(
        '[protect]\npause = "20 ms"\nacknowledgement = "200 us"\n'
        'domains = [{ domain = "media", mode = "no-net", interval = "30 ms" }]',
        streams=300,
    ),
    "small-ring": voice('[[nic]]\nname = "eth0"\nring = 2', streams=300),
    "coalescing-against-delay": voice(
        '[[nic]]\nname = "eth0"\ncoalesce = { time = "20 ms", packets = 1000 }'
    ),
}
"""For each rule a host that has what it finds."""


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_finds_it_and_not_with_its_remedy(rule: str) -> None:
    host = Host.parse(HOSTS[rule])
    found = {finding.rule: finding for finding in diagnose(host).findings}
    assert rule in found
    remedy = found[rule].remedy
    assert found[rule].cost.with_remedy < found[rule].cost.now
    assert rule not in {finding.rule for finding in diagnose(host, remedy).findings}


def test_there_is_a_host_for_every_rule() -> None:
    assert set(HOSTS) == set(RULES)


def test_what_is_found_on_the_examples_is_what_they_are_for() -> None:
    found = {
        file.name: [
            finding.rule for finding in diagnose(Host.load(file), ["duration=6 s"]).findings
        ]
        for file in HOST_FILES
    }
    assert {name: rules for name, rules in found.items() if rules} == {
        # Somebody raised the frame rate of the camera: vision wants more than it owns.
        "overload.toml": ["budget-below-load"],
        # Drawn tasks use nearly all of their budgets, and the sporadic server spares the last.
        "rt-xen.toml": ["budgets-back-to-back"],
    }


def test_json_and_text(laxity: Laxity, tmp_path: Path) -> None:
    example = EXAMPLES / "overload.toml"
    content = json.loads(laxity("doctor", example, "--duration", "2 s", "--json").stdout)
    (finding,) = content["findings"]
    assert finding["rule"] == "budget-below-load"
    assert finding["where"] == "domain.vision.budget"
    assert finding["cost"] == {"measure": "missed deadlines", "now": 100, "with_remedy": 0}
    assert finding["remedy"] == ["domain.vision.budget=4.95 ms"]
    said = laxity("doctor", example, "--duration", "2 s").stdout
    assert "--set 'domain.vision.budget=4.95 ms'" in said
    said = laxity("doctor", EXAMPLES / "integrator.toml").stdout
    assert said.endswith(" suspicions, none of which a run confirmed)\n")
    said = laxity("doctor", EXAMPLES / "protect.toml", "--duration", "6 s").stdout
    assert said.endswith(" rules, 0 suspicions)\n")
    said = laxity("doctor", example, "--policy", "credit", "--duration", "2 s").stdout
    assert "--set 'host.time-slice=1.125 ms'" in said
    laxity("doctor", tmp_path / "nothing.toml", code=2)


def test_a_budget_of_all_of_a_period_is_proposed_to_the_nanosecond(tmp_path: Path) -> None:
    """Rounded up, it would be more than the period, and the host file would refuse it."""
    path = tmp_path / "host.toml"
    path.write_text(
        """
        duration = "1 s"
        host = { cpus = 1, policy = "deferrable" }
        domain = [
          { name = "a", budget = "14 ms", period = "16.667 ms",
            tasks = [{ name = "t", cost = "15.5 ms", period = "16.667 ms" }] },
        ]
        """
    )
    host = Host.load(path)
    found = {finding.rule: finding for finding in diagnose(host).findings}
    assert found["budget-below-load"].cost.with_remedy == 0


def test_what_would_take_too_long_is_refused_before_it_runs(laxity: Laxity) -> None:
    said = laxity("doctor", EXAMPLES / "overload.toml", "--duration", "10000 h", code=2).stderr
    assert "with and without each remedy, take about" in " ".join(said.split())
    assert "take a shorter --duration" in said
