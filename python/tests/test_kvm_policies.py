"""Laxity's policies as schedulers of the emulated KVM host: verified BPF, as people run it."""

from __future__ import annotations

import json
import os
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import EXAMPLES
from laxity import Host, _core, tracefile
from laxity.lab import kvm_image, kvm_policies, machine
from laxity.lab.files import RESULTS
from laxity.lab.kvm_machine import KvmMachine
from laxity.policies import TABLE
from laxity.substrates.kvm import collect, known
from laxity.substrates.kvm.boot import boot_all
from laxity.substrates.kvm.plan import RUN, SCRIPT, Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conftest import Laxity
    from laxity.policies import Policy
    from laxity.resolved import Resolved

pytestmark = [
    pytest.mark.xen,
    pytest.mark.skipif(shutil.which(machine.QEMU) is None, reason=f"there is no {machine.QEMU}"),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="kernel and compiler are Debian's"),
]

HERE = [policy for policy in TABLE.values() if policy.own_of is None and "kvm" in policy.substrates]
EVENTS = int(os.environ.get("LAXITY_SCX_EVENTS", "30000"))
SEED = int(os.environ.get("LAXITY_SEED", "1"))


def boot(
    plan: Path, policies: Sequence[Policy], out: Path, *, memory_mib: int = 512, **options: Any
) -> Path:
    """Carries a plan out on a host with these policies, and returns the directory of results."""
    schedulers = kvm_policies.build(policies, print)
    kvm_image.programs(print)
    image = kvm_image.build(print)
    out.mkdir()
    made = KvmMachine(image, plan, memory_mib=memory_mib, schedulers=schedulers, **options)
    return made.run(out, print)


SERVERS = """\
duration = "500 ms"

[host]
cpus = 1
policy = "deferrable"

[[domain]]
name = "control"
budget = "3 ms"
period = "10 ms"
tasks = [{ name = "loop", cost = "1 ms", period = "10 ms", offset = "2 ms" }]

[[domain]]
name = "small"
budget = "2 ms"
period = "10 ms"
workload = { kind = "cpu-bound" }

[[domain]]
name = "large"
budget = "5 ms"
period = "20 ms"
workload = { kind = "cpu-bound" }
"""


def test_budgets_hold_and_a_run_repeats_to_the_byte(laxity: Laxity, tmp_path: Path) -> None:
    host, out = tmp_path / "host.toml", tmp_path / "out"
    host.write_text(SERVERS, "utf-8")
    done = laxity("run", host, "--on", "kvm", "--check-determinism", "-o", out, "--json")
    assert "Deterministic: two runs, the same result" in done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["substrate"], result["policy"]) == ("kvm", "deferrable")
    control, small, large = result["domains"]
    assert (control["jobs"], control["missed"]) == (49, 0)
    assert small["cpu_ns"] / 5e8 == pytest.approx(0.2, rel=0.001)
    assert large["cpu_ns"] / 5e8 == pytest.approx(0.25, rel=0.001)
    assert int((out / "kvm" / RESULTS / "run" / "decisions").read_text()) > 100
    # What the policy did is in the trace: every 10 ms small's budget is full, and then used up.
    records = tracefile.records(tracefile.find(out))
    of_small = records[records["domain"] == 1]
    full, empty = (
        of_small[of_small["kind"] == tracefile.number_of(kind)] for kind in ("replenish", "exhaust")
    )
    assert len(full) == len(empty) == 50
    # A turn is paid for to the switch, so that the next one has that much less.
    used_ns = empty["time_ns"] - full["time_ns"]
    assert full["argument"].max() <= 2_000_000 < full["argument"].min() + SWITCH_NS
    assert (used_ns > full["argument"] - SWITCH_NS).all()


SEVERAL = """\
duration = "300 ms"

[host]
cpus = 2
policy = "deferrable"
time-slice = "5 ms"
tick = "2 ms"
accounting = "6 ms"

[[domain]]
name = "first"
vcpus = 2
affinity = [0]
budget = "3 ms"
period = "10 ms"
tasks = [
    { name = "loop", cost = "1 ms", period = "10 ms" },
    { name = "second", cost = "1 ms", period = "10 ms", vcpu = 1 },
]

[[domain]]
name = "second"
affinity = [1]
budget = "3 ms"
period = "10 ms"
workload = { kind = "cpu-bound" }

[[domain]]
name = "red"
budget = "2 ms"
period = "10 ms"
workload = { kind = "cpu-bound" }

[[domain]]
name = "blue"
budget = "2 ms"
period = "10 ms"
workload = { kind = "cpu-bound" }
"""


def test_several_cpus_keep_affinities(tmp_path: Path) -> None:
    """Both in one boot. Two CPUs take short turns by instructions: nothing is timed.

    A policy with a queue for each CPU leaves a VCPU where it is. The other may take it to any CPU
    that it may run on; whether it does depends on how the two CPUs share the instructions.
    """
    place, out = tmp_path / "plan", tmp_path / "out"
    place.mkdir()
    hosts = {
        policy: Host.parse(SEVERAL).resolve([f"host.policy={policy}"])
        for policy in ("deferrable", "credit")
    }
    plans = {policy: Plan.of(host.host, mode="live") for policy, host in hosts.items()}
    script = ""
    for policy, plan in plans.items():
        (place / f"{policy}.sh").write_text(plan.script(), "utf-8")
        script += f'(. "$PLAN/{policy}.sh") || exit 1\nmv "$RESULTS/{RUN}" "$RESULTS/{policy}"\n'
    (place / SCRIPT).write_text(script, "utf-8")
    results = boot(place, [TABLE[policy] for policy in plans], out, memory_mib=1024, cpus=2)
    for policy, host in hosts.items():
        trace = out / f"{policy}.laxtrace"
        run = collect.run(host, results / policy, trace, wall_ns=0)
        assert int((results / policy / "decisions").read_text()) > 100
        # What the others leave to the first guest under credit depends on when the tick looks.
        if policy == "deferrable":
            assert all(task.jobs > 2 * task.missed for task in run.domains[0].tasks)
        went: dict[int, set[int]] = {}
        decided_ns = [[0], [0]]
        for record in tracefile.records(trace):
            kind = tracefile.KINDS[record["kind"] - 1]
            if kind == "run":
                went.setdefault(int(record["domain"]), set()).add(int(record["cpu"]))
            elif kind == "schedule":
                decided_ns[int(record["cpu"])].append(int(record["time_ns"]))
        # No CPU waits for an alarm that was lost: each has a turn to begin or to end every 10 ms,
        # unless a VCPU has it to itself, which credit may come to.
        for times_ns in decided_ns if policy == "deferrable" else decided_ns[:1]:
            assert all(after - before < 50e6 for before, after in pairwise([*times_ns, 300e6]))
        assert (went[0], went[1]) == ({0}, {1})
        others = [went[domain] for domain in (2, 3) if domain in went]
        assert others, "one of those without a CPU of their own ran"
        if policy == "deferrable":
            assert all(len(cpus) == 1 for cpus in others)


SHARES = """\
duration = "1 s"

[host]
cpus = 1
policy = "credit"

[[domain]]
name = "much"
weight = 611
tasks = [{ name = "work", cost = "140 ms", period = "200 ms" }]

[[domain]]
name = "some"
weight = 113
tasks = [{ name = "work", cost = "13 ms", period = "100 ms" }]

[[domain]]
name = "little"
weight = 44
tasks = [{ name = "work", cost = "1 ms", period = "20 ms" }]
"""


TOGETHER = """\
duration = "100 ms"

[host]
cpus = 1
policy = "polling"

[[domain]]
name = "first"
priority = 1
budget = "2 ms"
period = "10 ms"
tasks = [{ name = "work", cost = "1 ms", period = "10 ms" }]

[[domain]]
name = "second"
priority = 2
budget = "3 ms"
period = "10 ms"
tasks = [{ name = "work", cost = "1 ms", period = "20 ms" }]

[[domain]]
name = "third"
priority = 3
budget = "3 ms"
period = "30 ms"
tasks = [{ name = "work", cost = "1 ms", period = "30 ms" }]
"""


def test_guests_that_tell_are_lent_to_and_credit_keeps_its_clock(tmp_path: Path) -> None:
    """Four policies in one boot, since a boot is what takes longest.

    Free time goes to the earliest deadline under lending, and to the first priority otherwise:
    vision needs more than its budget, and logging, which has no deadline, comes before it here.
    Under credit accounting begins with the run, and ticks are no decisions: the same VCPUs run as
    in the simulator. Under polling guests that wake at one instant have the budgets of the periods
    that begin then.
    """
    host = Host.load(EXAMPLES / "overload.toml")
    changed = ("duration=600 ms", "domain.logging.priority=2", "domain.vision.priority=3")
    extra = ("domain.logging.extratime=true", "domain.vision.extratime=true")
    hosts = {
        "lending": host.resolve([*changed, "host.policy=lending"]),
        "sporadic": host.resolve([*changed, *extra, "host.policy=sporadic"]),
        "credit": Host.parse(SHARES).resolve([]),
        "polling": Host.parse(TOGETHER).resolve([]),
    }
    runs = boot_all(hosts, "repeatable", tmp_path / "out", print)
    credit, trace = runs.pop("credit"), tmp_path / "sim.laxtrace"
    sim = Host.parse(SHARES).run(set=known.costs(hosts["credit"]), trace=trace, seen=credit.trace)
    agreement = json.loads(_core.agreement(str(trace), str(credit.trace)))
    assert agreement["same_ratio"] > 0.95
    missed = [domain.missed for domain in sim.domains]
    assert [domain.missed for domain in credit.domains] == missed
    assert sum(missed) > 0
    polling = runs.pop("polling")
    assert [(domain.jobs, domain.missed) for domain in polling.domains] == [(10, 0), (5, 0), (3, 0)]
    for name, run in runs.items():
        control, vision, logging = run.domains
        assert (control.jobs, control.missed) == (150, 0)
        assert vision.jobs == 30
        assert logging.cpu_ns >= 60_000_000 * 0.999
        if name == "lending":
            assert vision.missed == 0
            # What it was lent beyond its budget of 40 %.
            assert vision.cpu_ns > 270_000_000
        else:
            assert vision.missed > 10


def test_bpf_decides_as_the_simulator(tmp_path: Path) -> None:
    """All policies in one boot, since a boot is what takes longest."""
    assert len(HERE) > 1
    lines = [f"compare {policy.name} {SEED} {EVENTS}\n" for policy in HERE]
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / "plan.sh").write_text("".join(lines), "utf-8")
    limit_s = 1800 + EVENTS * len(HERE) / 100
    results = boot(plan, HERE, tmp_path / "out", limit_s=limit_s)
    compared = (results / "compared").read_text().splitlines()
    assert [line.split()[:3] for line in compared] == [
        [policy.name, "same", str(EVENTS)] for policy in HERE
    ]
    # An answer is not always the same one: the policy chose often, and on other CPUs.
    assert all(int(line.split()[3]) > EVENTS / 20 for line in compared)
    assert sum(int(line.split()[4]) for line in compared) > len(HERE)


FULL = """\
duration = "1 s"

[host]
cpus = 1
policy = "deferrable"

[[domain]]
name = "small"
budget = "2 ms"
period = "10 ms"
priority = 1
workload = { kind = "cpu-bound" }

[[domain]]
name = "large"
budget = "5 ms"
period = "10 ms"
priority = 2
workload = { kind = "cpu-bound" }
"""

BESIDE = """\
(sh -c 'renice -n 19 $$ && echo $$ >/tmp/ordinary; while :; do :; done' &)
(. "$PLAN/{name}.sh") || exit 1
kill "$(cat /tmp/ordinary)"
mv "$RESULTS/{run}" "$RESULTS/{name}"
"""
"""A run beside an ordinary task that always has something to do, and leaves its time to those that
load the scheduler before."""

PERIOD_NS = 10_000_000
SWITCH_NS = 20_000
"""More than a switch takes, which a VCPU pays for afterwards."""
SHARED = (Path(__file__).parents[2] / "kvm/bpf/shared.h").read_text("utf-8")
RESERVE_NS, RESERVE_PERIOD_NS = (
    int(number) for number in re.findall(r"#define SCX_RESERVE(?:_PERIOD)?_NS (\d+)", SHARED)
)


def test_nobody_starves(tmp_path: Path) -> None:
    """All in one boot: an ordinary task where budgets leave time, and where they leave none; and a
    VCPU that the policy lets wait.
    """
    place, out = tmp_path / "plan", tmp_path / "out"
    place.mkdir()
    beside = {
        name: Host.parse(FULL).resolve([f"domain.large.budget={budget}"])
        for name, budget in {"idle": "5 ms", "full": "8 ms"}.items()
    }
    seldom_and_always = ("domain.small.budget=20 ms", "domain.small.period=2 s")
    waits = Host.parse(FULL).resolve([*seldom_and_always, "domain.large.budget=10 ms"])
    script = ""
    for name, host in beside.items():
        (place / f"{name}.sh").write_text(Plan.of(host.host).script(), "utf-8")
        script += BESIDE.format(name=name, run=RUN)
    before, window = Plan.of(waits.host).script().rsplit("window", 1)
    patience = 'echo "patience 100000000" >>/tmp/scheduler.domains'
    (place / SCRIPT).write_text(f"{script}{before}{patience}\nwindow{window}", "utf-8")
    results = boot(place, [TABLE["deferrable"]], out)
    _ordinary_tasks_have_idle_time_and_a_reserve(beside, results, out)
    _a_vcpu_that_waits_for_long_gets_moments(waits, results, out)


def _ordinary_tasks_have_idle_time_and_a_reserve(
    hosts: dict[str, Resolved], results: Path, out: Path
) -> None:
    reserve_ns = {}
    for name, host in hosts.items():
        trace = out / f"{name}.laxtrace"
        run = collect.run(host, results / name, trace, wall_ns=0)
        small, large = (domain.cpu_ns / 1e9 for domain in run.domains)
        other = json.loads(trace.with_suffix(collect.SUMMARY).read_text())["foreign_ns"] / 1e9
        reserve_ns[name] = int((results / name / "others").read_text().split()[1])
        # No budget pays for the reserve, nor for what it takes to decide.
        assert small == pytest.approx(0.2, rel=0.001)
        if name == "idle":
            assert large == pytest.approx(0.5, rel=0.001)
            assert other == pytest.approx(0.3, rel=0.01)
        else:
            # Its server comes last, and lacks what the reserve takes.
            reserve = RESERVE_NS / RESERVE_PERIOD_NS
            assert large == pytest.approx(0.8 - reserve, rel=0.001)
            assert other == pytest.approx(reserve, rel=0.05)
        assert most_in_a_period_ns(trace, domain=0) < 2_000_000 + SWITCH_NS
        large_ns = host.host["domains"][1]["parameters"]["budget_ns"]
        assert most_in_a_period_ns(trace, domain=1) < large_ns + SWITCH_NS
    # A reserve is not needed where there is idle time.
    assert reserve_ns["idle"] == 0
    assert reserve_ns["full"] > 0


def most_in_a_period_ns(trace: Path, domain: int) -> int:
    """The most that the VCPU of a domain had in one of the periods of 10 ms, by a trace."""
    had_ns: dict[int, int] = {}
    begins_ns = 0
    for record in tracefile.records(trace):
        if int(record["domain"]) != domain:
            continue
        kind, time_ns = tracefile.KINDS[record["kind"] - 1], int(record["time_ns"])
        if kind == "run":
            begins_ns = time_ns
        elif kind == "stop":
            while begins_ns < time_ns:
                period = begins_ns // PERIOD_NS
                ends_ns = min(time_ns, (period + 1) * PERIOD_NS)
                had_ns[period] = had_ns.get(period, 0) + ends_ns - begins_ns
                begins_ns = ends_ns
    return max(had_ns.values())


def _a_vcpu_that_waits_for_long_gets_moments(host: Resolved, results: Path, out: Path) -> None:
    """The kernel would take a scheduler off that leaves a thread for 30 s; here, for a tenth."""
    trace = out / "run.laxtrace"
    run = collect.run(host, results / RUN, trace, wall_ns=0)
    seldom, busy = (domain.cpu_ns for domain in run.domains)
    runs = [
        record
        for record in tracefile.records(trace)
        if tracefile.KINDS[record["kind"] - 1] == "run" and int(record["domain"]) == 0
    ]
    # Its budget is in one piece, and each moment too short for its guest to do much.
    assert len(runs) > 5
    assert 0 < seldom - 20_000_000 < 50_000 * len(runs)
    assert seldom + busy == pytest.approx(1e9, rel=0.01)
