"""Real KVM in the emulated machine, as people call it."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from laxity.lab import machine
from test_kvm_plan import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity

pytestmark = [
    pytest.mark.xen,
    pytest.mark.skipif(shutil.which(machine.QEMU) is None, reason=f"there is no {machine.QEMU}"),
    pytest.mark.skipif(shutil.which("apt-get") is None, reason="the kernel is Debian's"),
]

MS = 1_000_000


def test_sched_deadline_keeps_budgets(laxity: Laxity, tmp_path: Path) -> None:
    """It gives what the host file says: a budget in each period, and no more.

    What the host had after exits is the rest of what the guest needs for its jobs.
    """
    host, out = tmp_path / "host.toml", tmp_path / "out"
    host.write_text(DEADLINE, "utf-8")
    words = ("run", host, "--on", "kvm", "--exits", "--set", "host.jiffy=0 ms")
    # That runs repeat to the byte, test_kvm_policies.py shows, where more takes part in them.
    done = laxity(*words, "-o", out, "--json")
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["substrate"], result["policy"]) == ("kvm", "deadline")
    assert result["machine"] == json.loads((out / "kvm/machine.json").read_text())
    control, batch = result["domains"]
    # The last deadline is after the end.
    assert (control["jobs"], control["missed"]) == (99, 0)
    response_ns = control["tasks"][0]["response_ns"]
    assert MS <= response_ns["p50"] < 1.1 * MS
    # 25 % of the CPU for who computes for ever.
    assert 0.2485 <= batch["cpu_ns"] / 1e9 <= 0.2515
    found = json.loads(laxity("why", out, "--json").stdout)
    guests = {guest["vcpu"]: guest for guest in found["guests"]}
    counts = {
        name: {exits["reason"]: exits["count"] for exits in guest["exits"]}
        for name, guest in guests.items()
    }
    # It halts after each job. The other one has halted before the run, and is interrupted by the
    # host in it.
    assert counts["control"]["halt"] == 100
    assert counts["batch-jobs"]["halt"] == 0
    assert counts["batch-jobs"]["interrupt"] > 50
    own = guests["control"]
    own_ns = own["ran_ns"] - sum(exits["ns"] for exits in own["exits"])
    assert 100 * MS <= own_ns < 1.02 * 100 * MS
    laxity("report", out)
    assert "Exits of guests" in (out / "report.html").read_text("utf-8")
    laxity("trace", out, "--perfetto")


def test_the_fair_class_divides_by_weight(laxity: Laxity, tmp_path: Path) -> None:
    host = tmp_path / "host.toml"
    host.write_text(
        'duration = "2 s"\n[host]\ncpus = 1\npolicy = "eevdf"\n'
        '[[domain]]\nname = "heavy"\nweight = 300\nworkload = { kind = "cpu-bound" }\n'
        '[[domain]]\nname = "light"\nweight = 100\nworkload = { kind = "cpu-bound" }\n',
        "utf-8",
    )
    result = json.loads(laxity("run", host, "--on", "kvm", "--json").stdout)
    heavy, light = (domain["cpu_ns"] / 2e9 for domain in result["domains"])
    assert abs(heavy - 0.75) < 0.01
    assert abs(light - 0.25) < 0.01


def test_the_lab_boots_twice_to_the_same_bytes(laxity: Laxity, tmp_path: Path) -> None:
    done = laxity("lab", "kvm", "boot", "--check-determinism", "-o", tmp_path / "boot")
    assert "Deterministic: two boots, the same bytes" in done.stderr
    assert "/dev/kvm" in done.stdout
    assert (tmp_path / "boot/console.log").is_file()
