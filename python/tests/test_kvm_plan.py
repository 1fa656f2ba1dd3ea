"""Plans for KVM hosts: what the host is told to do, and what is refused before anything boots."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from laxity import Host, InputError, files
from laxity.lab import kvm_image
from laxity.lab.errors import LabError
from laxity.substrates.kvm import Kvm, known
from laxity.substrates.kvm.plan import POLICY_MIB_MAX, Plan

if TYPE_CHECKING:
    from conftest import Laxity

DEADLINE = """\
duration = "1 s"

[host]
cpus = 1
policy = "deadline"

[[domain]]
name = "control"
budget = "3 ms"
period = "10 ms"
tasks = [{ name = "loop", cost = "1 ms", period = "10 ms", offset = "2 ms" }]

[[domain]]
name = "batch-jobs"
budget = "5 ms"
period = "20 ms"
workload = { kind = "cpu-bound" }
"""


def plan(*overrides: str, **options: Any) -> Plan:
    return Plan.of(Host.parse(DEADLINE).resolved(overrides), **options)


def test_a_plan_is_this_script(tmp_path: Path) -> None:
    made = plan()
    made.write(tmp_path)
    script = (tmp_path / "plan.sh").read_text()
    subprocess.run(["sh", "-n", tmp_path / "plan.sh"], check=True)  # noqa: S607
    assert script.splitlines()[1:-1] == [
        "real_time",
        "scheduler jiffies 0",
        "domain control 1 100 max 0",
        "order control tasks 1000000,10000000,10000000,2000000,0",
        "order control cpu_bound 0",
        "order control thread 0 0 deadline 3000000 10000000 10000000 0",
        "domain batch-jobs 1 100 max 0",
        "order batch-jobs tasks ''",
        "order batch-jobs cpu_bound 1",
        "order batch-jobs thread 0 0 deadline 5000000 20000000 20000000 0",
    ]
    # The start leaves each thread the periods that its work takes.
    assert made.lead_ns >= 4 * 10_000_000
    assert script.splitlines()[-1] == f"window run 1000000000 {made.lead_ns} {made.traced_mib} 0"


def test_exits_are_recorded_where_they_are_asked_for() -> None:
    assert plan(exits=True).script().splitlines()[-2] == "exits"
    assert "exits" not in plan().script().split()
    assert Kvm(exits=True).words == ("--on", "kvm", "--exits")


def test_a_policy_has_memory_for_its_events() -> None:
    """An hour, the longest run, fits what laxity-scx takes, and the kernel's arena."""
    ours = plan("host.policy=deferrable", "duration=1 h")
    assert ours.script().split()[-1] == str(ours.policy_mib)
    assert 1000 < ours.policy_mib < POLICY_MIB_MAX
    assert _defined("programs/laxity-scx.c", "TRACE_MIB_MAX") == POLICY_MIB_MAX
    assert _defined("bpf/shared.h", "SCX_ARENA_PAGES") * 4096 > POLICY_MIB_MAX << 20


def _defined(file: str, name: str) -> int:
    text = (Path(__file__).parents[2] / "kvm" / file).read_text("utf-8")
    (value,) = re.findall(rf"^#define {name} (\d+)$", text, re.MULTILINE)
    return int(value)


def test_a_model_of_this_host_has_what_is_known_of_it(tmp_path: Path) -> None:
    """Unless the file has its own, or time does not repeat, or Linux's own scheduler runs."""
    ours = Host.parse(DEADLINE).resolve(["host.policy=deferrable"])
    model = ours.changed(Kvm().settled(tmp_path, ours)).host
    assert model["costs"]["context_switch"] == {"ns": known.SWITCH_NS}
    assert model["timer_latency_ns"] == known.TIMER_LATENCY_NS
    polling = ours.changed(["host.policy=polling"])
    (behind,) = (line for line in Plan.of(polling.host).script().splitlines() if "behind" in line)
    late_ns = polling.changed(Kvm().settled(tmp_path, polling)).host["timer_latency_ns"]
    assert behind == f"behind {late_ns - known.TIMER_LATENCY_NS}"
    assert "behind" not in Plan.of(ours.host).script()
    shares = ours.changed(["host.policy=credit", "host.time-slice=1 ms"])
    shares = shares.changed(Kvm().settled(tmp_path, shares))
    assert shares.host["settings"]["time_slice_ns"] == 1_000_000 + known.SLICE_LATENCY_NS
    assert shares.host["timer_latency_ns"] == 0
    assert Kvm(mode="live").settled(tmp_path, ours) == []
    assert Kvm().settled(tmp_path, Host.parse(DEADLINE).resolve([])) == []
    given = ours.changed(["host.costs={}", "host.timer-latency=0 ns"])
    assert Kvm().settled(tmp_path, given) == []


def test_jobs_take_what_they_take_beside_their_work() -> None:
    beside_ns = 2 * known.INTERRUPT_NS + known.JOB_NS
    file = """
duration = "1 s"
host = { cpus = 1, policy = "deferrable" }
domain = [{ name = "a", budget = "10 ms", period = "20 ms", tasks = [
    { name = "long", cost = "8 ms", period = "20 ms" },
    { name = "full", cost = "1 ms", period = "20 ms", deadline = "1 ms" },
] }]
"""
    host = Host.parse(file).resolve([])
    tasks = host.changed(known.jobs(host)).host["domains"][0]["tasks"]
    assert [task["cost_ns"] for task in tasks] == [8_000_000 + beside_ns, 1_000_000]

    ticks = ["host.policy=credit", "host.tick=1 ms", "host.accounting=1 ms"]
    host = Host.parse(file).resolve(ticks)
    (long, _) = host.changed(known.jobs(host)).host["domains"][0]["tasks"]
    assert long["cost_ns"] == 8_000_000 + beside_ns + 8 * known.TICK_NS


def test_reclaiming_is_a_flag_of_the_thread() -> None:
    lines = plan("domain.batch-jobs.reclaim=true").script().splitlines()
    assert "order control thread 0 0 deadline 3000000 10000000 10000000 0" in lines
    assert "order batch-jobs thread 0 0 deadline 5000000 20000000 20000000 1" in lines


def test_the_fair_class_has_weights_and_quotas() -> None:
    words = ("host.policy=eevdf", "domain.control.weight=512", "domain.control.quota=20 ms")
    lines = plan(*words, "domain.control.quota-period=50 ms").script().splitlines()
    assert "domain control 1 512 '20000 50000' 0" in lines
    assert "domain batch-jobs 1 256 'max 100000' 0" in lines
    assert "order control thread 0 0 other 0" in lines


def test_priorities_are_those_of_the_host_file() -> None:
    lines = plan("host.policy=fifo", "domain.control.rt-priority=30").script().splitlines()
    assert "order control thread 0 0 fifo 30" in lines


def test_a_policy_of_ours_gets_settings_and_parameters() -> None:
    lines = plan("host.policy=sedf", "host.quantum=1 ms").script().splitlines()
    assert "sched_ext sedf 1 quantum=1000000" in lines
    assert "parameters control budget=3000000 period=10000000 extratime=0" in lines
    assert "order batch-jobs thread 0 0 ext" in lines
    assert "begin control 0" in lines
    assert "order control tells 1" not in lines


def test_guests_tell_a_policy_that_listens() -> None:
    lines = plan("host.policy=lending").script().splitlines()
    assert lines.count("order control tells 1") == 1


def test_a_policy_of_ours_has_several_cpus() -> None:
    words = ("host.policy=sedf", "host.cpus=2", "domain.batch-jobs.affinity=[1]")
    lines = plan(*words, "domain.batch-jobs.vcpus=2", mode="live").script().splitlines()
    assert "sched_ext sedf 2 quantum=0" in lines
    assert "begin batch-jobs 1 1" in lines
    assert "order batch-jobs thread 1 1 ext" in lines
    with pytest.raises(InputError, match=r"at most 64 CPUs"):
        plan("host.policy=sedf", "host.cpus=65", mode="live")


@pytest.mark.parametrize(
    ("override", "refusal"),
    [
        ("host.policy=credit2", "`host.policy` is 'credit2'"),
        ("host.cpus=2", "`host.cpus` is 2"),
        ("host.jiffy=1 ms", "`host.jiffy` is 1000000 ns"),
        ("domain.control.period=5 s", "SCHED_DEADLINE"),
        ("domain.control.tasks.loop.jitter=1 ms", "`domain.control.tasks.loop.jitter` is not 0"),
        ("duration=2 h", "`duration` is longer than the hour"),
        (
            'domain.control.helpers=[{name="io",cost="1 ms",period="1 s",budget="1 ms"}]',
            "`domain.control.helpers` is given",
        ),
    ],
)
def test_what_linux_cannot_do_is_refused(override: str, refusal: str) -> None:
    with pytest.raises(InputError) as error:
        plan(override)
    assert refusal in str(error.value)
    assert error.value.help


def test_the_newest_kernel_is_taken() -> None:
    names = [f"linux-modules-7.{minor}+deb13-cloud-amd64" for minor in ("2.9", "2.12", "3.4")]
    names += ["linux-modules-7.3.4+deb13-amd64", "linux-modules-6.19.14+deb13-cloud-amd64"]
    assert kvm_image.newest("\n".join(names)) == "7.3.4+deb13-cloud-amd64"
    with pytest.raises(LabError, match="has no package"):
        kvm_image.newest("linux-modules-7.3.4+deb13-amd64")


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("--set", "host.cpus=1"), "there is none"),
        (("--check-determinism", "--mode", "live"), "needs boots that repeat"),
        (("--interactive",), "needs a terminal"),
    ],
)
def test_what_the_lab_cannot_boot(laxity: Laxity, words: tuple[str, ...], refusal: str) -> None:
    assert refusal in laxity("lab", "kvm", "boot", *words, code=2).stderr


def test_differences_of_directories(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        (place / "in").mkdir(parents=True)
        (place / "in/same").write_text("same")
        (place / "in/changed").write_text(place.name)
        (place / place.name).touch()
    assert files.differing(one, one) == []
    assert files.differing(one, other) == ["in/changed", "one", "other"]


def test_a_profile_is_asked_for_before_the_window() -> None:
    *_, profiled, window = plan(profiled=("pick_task_idle", "pick_task_fair")).script().splitlines()
    assert profiled == "profile pick_task_idle pick_task_fair"
    assert window.startswith("window ")
    assert plan(profiled=("pick_task_idle",)).memory_mib > plan().memory_mib
