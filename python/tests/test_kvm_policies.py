"""Laxity's policies as schedulers of the emulated KVM host: verified BPF, as people run it."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from laxity.lab import kvm_image, kvm_policies, machine
from laxity.lab.files import RESULTS
from laxity.lab.kvm_machine import KvmMachine
from laxity.policies import TABLE

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity

pytestmark = [
    pytest.mark.xen,
    pytest.mark.skipif(shutil.which(machine.QEMU) is None, reason=f"there is no {machine.QEMU}"),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="kernel and compiler are Debian's"),
]

HERE = [policy for policy in TABLE.values() if policy.own_of is None and "kvm" in policy.substrates]
EVENTS = int(os.environ.get("LAXITY_SCX_EVENTS", "3000"))
SEED = int(os.environ.get("LAXITY_SEED", "1"))

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
    # The run is short, and other tasks of the host come first.
    assert small["cpu_ns"] / 5e8 == pytest.approx(0.2, rel=0.01)
    assert large["cpu_ns"] / 5e8 == pytest.approx(0.25, rel=0.01)
    assert int((out / "kvm" / RESULTS / "run" / "decisions").read_text()) > 100


def test_bpf_decides_as_the_simulator(tmp_path: Path) -> None:
    """All policies in one boot, since a boot is what takes longest."""
    assert len(HERE) > 1
    lines = [f"compare {policy.name} {SEED} {EVENTS}\n" for policy in HERE]
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / "plan.sh").write_text("".join(lines), "utf-8")
    schedulers = kvm_policies.build(HERE, print)
    kvm_image.programs(print)
    image = kvm_image.build(print)
    out = tmp_path / "out"
    (out / RESULTS).mkdir(parents=True)
    limit_s = 1800 + EVENTS * len(HERE) / 100
    KvmMachine(image, plan, memory_mib=512, schedulers=schedulers, limit_s=limit_s).run(out, print)
    compared = (out / RESULTS / "compared").read_text().splitlines()
    assert [line.split()[:3] for line in compared] == [
        [policy.name, "same", str(EVENTS)] for policy in HERE
    ]
    # An answer is not always the same one: the policy chose often.
    assert all(int(line.split()[3]) > EVENTS / 20 for line in compared)
