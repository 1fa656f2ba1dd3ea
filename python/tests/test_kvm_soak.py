"""The soak of KVM: what is drawn, how traces and logs are judged, and a short one."""

from __future__ import annotations

import shutil
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from laxity import tracefile
from laxity.lab import machine
from laxity.lab.errors import LabError
from laxity.policies import TABLE
from laxity.substrates.kvm import soak, soak_plan

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity

MS = 1_000_000
DEFERRABLE = TABLE["deferrable"]
S_ALLC = TABLE["s-allc"]

SET = "set a budget=2000000 period=10000000 extratime=0"
CREATE = "create a 9000000000 1 0 - 0 1 9500000000 7 8"
DONE = f"""\
1000
1000 1100 {SET}
1100 1200 {CREATE}
5001000 6001000 set a/1 budget=1000000 period=10000000 extratime=0
8001000 9001000 leave a 1
20001000 21001000 join a 1 0
30001000 31001000 set a budget=3000000 period=10000000 extratime=1
40001000 41001000 destroy a
"""


def life_of(done: str = DONE) -> tuple[soak.Life, list[soak.Done]]:
    start_ns, operations = soak.parse(done)
    (life,) = soak.lives(operations, start_ns, 100 * MS)
    return life, operations


def records(*told: tuple[int, str, int]) -> np.ndarray:
    """Records of a VCPU: ms, kind, argument."""
    made = np.zeros(len(told), tracefile.RECORD)
    for record, (at_ms, kind, argument) in zip(made, told, strict=True):
        record["time_ns"], record["argument"] = at_ms * MS, argument
        record["kind"] = tracefile.number_of(kind)
    return made


def runs(*told: tuple[int, int]) -> soak.Runs:
    """Turns from and to so many ms, after which a VCPU blocks."""
    life, _ = life_of()
    kinds = [((began, "run", 0), (ended, "stop", 0)) for began, ended in told]
    return soak.runs_of(records(*(each for turn in kinds for each in turn)), life)


def test_a_seed_draws_the_same_operations() -> None:
    one, other = (soak_plan.draw(DEFERRABLE, 7, 60) for _ in range(2))
    assert one == other
    assert one != soak_plan.draw(DEFERRABLE, 8, 60)
    kinds = {line.split()[0] for line in one}
    assert kinds >= {"create", "destroy", "pause", "resume", "burst", "set", "pin", "leave", "hog"}


@pytest.mark.parametrize("policy", ["deferrable", "credit", "sedf", "s-allc", "lending"])
def test_what_is_drawn_fits_the_policy(policy: str) -> None:
    lines = soak_plan.draw(TABLE[policy], 1, 600)
    go = lines.index("go")
    budgets: dict[str, float] = {}
    vcpus = dict(zip([line.split()[1] for line in lines[1:go]], soak_plan.VCPUS, strict=True))
    for line in lines[1:]:
        kind, *words = line.split()
        if kind not in ("set", "domain"):
            continue
        given = dict(pair.split("=") for pair in words[1:])
        assert all(TABLE[policy].uses(key) for key in given)
        if "budget" in given:
            share = int(given["budget"]) / int(given["period"])
            name, _, number = words[0].partition("/")
            for vcpu in range(vcpus[name]):
                if number in ("", str(vcpu)):
                    budgets[f"{name}/{vcpu}"] = share
            least = soak_plan.SHARE_LEAST * sum(soak_plan.VCPUS)
            assert sum(budgets.values()) <= (soak_plan.SHARE + least) / soak_plan.MILLION
    assert bool(budgets) == TABLE[policy].uses("budget")


def test_intervals_are_those_in_which_a_budget_binds() -> None:
    life, done = life_of()
    assert life.threads == [7, 8]
    first = soak.intervals(done, life, 0)
    assert [(each.budget_ns, each.from_ns, each.to_ns) for each in first] == [
        (2 * MS, 200, 30 * MS)
    ]
    second = soak.intervals(done, life, 1)
    assert [(each.budget_ns, each.from_ns, each.to_ns) for each in second] == [
        (2 * MS, 200, 5 * MS),
        (1 * MS, 6 * MS, 8 * MS),
        (2 * MS, 21 * MS, 30 * MS),
    ]


def test_another_guest_of_the_name_is_another_life() -> None:
    again = DONE + "50001000 50001000 set a budget=4000000 period=10000000 extratime=0\n"
    again += f"60001000 61001000 {CREATE.replace(' 7 8', ' 9 10')}\n"
    start_ns, done = soak.parse(again)
    one, other = soak.lives(done, start_ns, 100 * MS)
    assert (one.ends_ns, other.ends_ns) == (41 * MS, 100 * MS)
    (interval,) = soak.intervals(done, other, 0)
    assert (interval.budget_ns, interval.from_ns) == (4 * MS, 61 * MS)
    assert soak.intervals(done, one, 0)[0].budget_ns == 2 * MS


def test_a_budget_that_is_exceeded_is_seen() -> None:
    interval = soak.Interval(0, 100 * MS, 2 * MS, 10 * MS)
    turns_ns = soak.TURN_NS
    # Two budgets back to back are a deferrable server's right.
    assert soak.overrun_ns(runs((8, 12), (20, 22)), interval) <= 0
    assert soak.overrun_ns(runs((8, 15)), interval) == 3 * MS - turns_ns
    # A little in each period is a lot in many.
    often = soak.overrun_ns(runs(*((at, at + 3) for at in range(0, 100, 10))), interval)
    assert often == 30 * MS - 11 * 2 * MS - 10 * turns_ns
    # What was before the interval is not counted.
    assert soak.overrun_ns(runs((8, 15)), soak.Interval(11 * MS, 99 * MS, 2 * MS, 10 * MS)) < 0


def test_waits_are_those_of_who_could_run() -> None:
    life, _ = life_of()
    told = records((1, "wake", 0), (3, "run", 0), (5, "stop", 1), (12, "run", 0), (13, "stop", 0))
    assert soak.longest_wait_ns(soak.runs_of(told, life)) == (7 * MS, 5 * MS)
    # It never runs again: the wait lasts until its guest is killed.
    forgotten = records((3, "run", 0), (5, "stop", 1))
    assert soak.longest_wait_ns(soak.runs_of(forgotten, life)) == (36 * MS, 5 * MS)
    asleep = records((3, "run", 0), (5, "stop", 0))
    assert soak.longest_wait_ns(soak.runs_of(asleep, life)) == (0, 0)


def test_every_family_has_a_limit() -> None:
    here = [each for each in TABLE.values() if not each.own_of and "kvm" in each.substrates]
    assert {each.family for each in here} == {*soak.WAIT_NS, *soak.NEGLECT_NS}


def neglect_ns(
    told: list[tuple[int, str, int]],
    busy: list[tuple[int, int]],
    until_ms: int = 30,
    slack_ms: int = 0,
) -> int:
    """How long VCPU 1 of the guest, which begins on CPU 1, was left, in ms, where CPU 1 ran others
    in these turns.
    """
    life, done = life_of()
    of_it = records(*told)
    of_it["cpu"] = 1
    turns = records(*(each for on, off in busy for each in ((on, "run", 0), (off, "stop", 1))))
    turns["cpu"] = 1
    found, _ = soak.longest_neglect_ns(
        soak.runs_of(of_it, life),
        soak.places_of(of_it, done, life, 1),
        soak.turns_of(turns, 100 * MS, slack_ms * MS),
        until_ms * MS,
    )
    return found // MS


def test_a_vcpu_is_neglected_while_its_cpu_runs_none() -> None:
    waits = [(1, "wake", 0), (5, "run", 0), (6, "stop", 0)]
    assert neglect_ns(waits, []) == 4
    # The rules gave the CPU to others.
    assert neglect_ns(waits, [(0, 9)]) == 0
    assert neglect_ns(waits, [(0, 2), (4, 9)]) == 2
    # Short interruptions do not count.
    assert neglect_ns(waits, [(0, 2), (3, 9)]) == 1
    assert neglect_ns(waits, [(0, 2), (3, 9)], slack_ms=1) == 0
    assert neglect_ns(waits, [(0, 2), (4, 9)], slack_ms=1) == 2
    # It is not on that CPU any more.
    assert neglect_ns([(1, "wake", 0), (3, "migrate", 0), (5, "run", 0)], [(0, 3)]) == 2
    assert neglect_ns([(1, "wake", 0), (3, "migrate", 0), (5, "run", 0)], [(3, 9)]) == 4
    # It never runs.
    assert neglect_ns([(1, "wake", 0)], [(0, 3)], until_ms=7) == 4


def test_who_is_parked_or_an_ordinary_task_is_not_neglected() -> None:
    parked = [(1, "wake", 0), (2, "class", soak.PARKED), (4, "class", 1), (7, "run", 0)]
    assert neglect_ns(parked, []) == 1 + 3
    # The thread leaves after 8 ms, and is the policy's again after 21 ms.
    assert neglect_ns([(7, "wake", 0), (25, "run", 0)], []) == 1 + 4
    assert neglect_ns([(5, "class", soak.PARKED), (20, "wake", 0), (25, "run", 0)], []) == 4


def test_a_neglected_vcpu_fails_and_one_that_is_starved_by_the_rules_does_not() -> None:
    life, done = life_of()
    seen = soak._Seen(S_ALLC, 0, "")
    starved = soak.Runs(*(np.array(each) for each in ([], [], [0], [60 * soak.SECOND_NS])))
    seen.take(life, 0, starved, done)
    seen.take_neglect(life, 0, 500 * MS, 0)
    assert "the most of a wait in which the CPU of the VCPU ran none: 500.0 ms (a/0)" in seen.told()
    with pytest.raises(LabError, match=r"a/1, thread 8, could run at 7\.000 s and waited, and for"):
        seen.take_neglect(life, 1, 2001 * MS, 7 * soak.SECOND_NS)
    with pytest.raises(LabError, match=r"waited for 60\.000 s, and 6 s are the most"):
        soak._Seen(TABLE["credit"], 0, "").take(life, 0, starved, done)
    with pytest.raises(LabError, match=r"waited for 60\.000 s, and 2 s are the most"):
        soak._Seen(TABLE["sedf"], 0, "").take(life, 0, starved, done)


@pytest.mark.parametrize(
    ("policy", "traces"), [("s-allc", True), ("credit", False), ("deferrable", False)]
)
def test_what_the_policy_does_is_traced_where_it_is_judged(policy: str, traces: bool) -> None:
    files = soak.plan(TABLE[policy], 1, 60)
    first, second = files["operations"].splitlines()[:2]
    assert first.startswith("settings ")
    assert second.startswith("trace " if traces else "domain ")
    assert (soak.POLICY_EVENTS in files[soak.SCRIPT]) == traces


@pytest.mark.parametrize(
    "line",
    [
        "[   12.3] BUG: kernel NULL pointer dereference, address: 0",
        "[   12.3] WARNING: CPU: 0 PID: 99 at kernel/sched/ext.c:1234 dispatch_enqueue+0x1/0x2",
        "[   12.3] rcu: INFO: rcu_preempt self-detected stall on CPU",
        "[   12.3] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
        "[   12.3] INFO: task laxity-vmm:12 blocked for more than 20 seconds.",
        '[   12.3] sched_ext: BPF scheduler "laxity" disabled (runtime error)',
        '[   12.3] sched_ext: BPF scheduler "laxity" disabled (runnable task stall)',
        "[   12.3] BUG kmalloc-64 (Not tainted): Right Redzone overwritten",
    ],
)
def test_a_complaint_is_refused(line: str, tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_text(f"[    1.0] fine\n{line}\n[    2.0] fine\n")
    with pytest.raises(LabError, match=r"in the kernel's log: .*"):
        soak.refuse_complaints(log)


def test_what_every_host_says_is_no_complaint(tmp_path: Path) -> None:
    log = tmp_path / "kernel.log"
    log.write_text(
        f"[    0.0] Command line: console=ttyS0 {soak.ARGUMENTS}\n"
        "[    0.1] kfence: initialized - using 2097152 bytes for 255 objects\n"
        "[   14.5] Ext server disabled on CPU 0, system may malfunction due to starvation.\n"
        '[   27.6] sched_ext: BPF scheduler "laxity" enabled\n'
        '[  123.4] sched_ext: BPF scheduler "laxity" disabled (unregistered from user space)\n'
    )
    soak.refuse_complaints(log)


def test_rests_fill_the_time() -> None:
    lines = soak_plan.draw(DEFERRABLE, 3, 60)
    rests = [int(line.split()[1]) for line in lines if line.startswith("rest ")]
    assert 60e9 <= sum(rests) < 60.4e9
    # What is done comes one by one, in no burst that an administrator could not make.
    kinds = [line.split()[0] for line in lines[lines.index(f"rest {rests[0]}") :]]
    assert all("rest" in pair or pair == ("set", "create") for pair in pairwise(kinds))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--policy", "fifo"), "'fifo' is no policy of Laxity that runs on KVM"),
        (("--minutes", "13"), "add --minutes 12, and repeat it with other seeds"),
    ],
)
def test_what_cannot_soak_is_refused(
    words: tuple[str, ...], message: str, laxity: Laxity, tmp_path: Path
) -> None:
    done = laxity("lab", "kvm", "soak", *words, "-o", tmp_path / "out", code=2)
    assert message in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.xen
@pytest.mark.skipif(shutil.which(machine.QEMU) is None, reason=f"there is no {machine.QEMU}")
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="kernel and compiler are Debian's")
def test_a_short_soak(laxity: Laxity, tmp_path: Path) -> None:
    done = laxity("lab", "kvm", "soak", "--minutes", "0.1", "-o", tmp_path / "out")
    assert "5 guests; the longest wait of a VCPU that could run" in done.stdout
    assert "intervals with a budget" in done.stdout
    assert (tmp_path / "out/soak.laxtrace").stat().st_size > 0
