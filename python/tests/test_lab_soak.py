"""The soak: what is done with its console, and a short one of the real hypervisor."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from laxity.lab import machine
from laxity.lab import soak as soaking
from laxity.lab.errors import LabError
from laxity.substrates.xen.plan import MACHINE_MEMORY_MIB

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity


def test_the_plan_names_its_guests() -> None:
    files = soaking.plan(7, 60, 5)
    watched, soaks = files["plan.sh"].splitlines()
    assert watched.startswith("echo 1 >/proc/sys/kernel/watchdog || fail ")
    assert soaks.startswith("laxity-soak 7 60 5 soak-1 soak-2 ")
    guests = soaks.partition(" 2>")[0].split()[4:]
    assert {f"{name}.cfg" for name in guests} | {"plan.sh"} == set(files)
    memory = [
        int(line.removeprefix("memory = "))
        for name in guests
        for line in files[f"{name}.cfg"].splitlines()
        if line.startswith("memory = ")
    ]
    assert sum(memory) <= MACHINE_MEMORY_MIB
    assert sum(soaking.VCPUS) > soaking.CPUS


@pytest.mark.parametrize(
    "line",
    [
        "(XEN) Assertion '!pool->cpus' failed at common/sched/laxity/laxity.c:612",
        "(XEN) Xen BUG at core.c:2014",
        "(XEN) Panic on CPU 1:",
        "[   12.345] BUG: kernel NULL pointer dereference",
        "[   12.345] rcu: INFO: rcu_sched self-detected stall on CPU",
        "[   12.345] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
    ],
)
def test_a_complaint_is_refused(line: str, tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    console.write_text(f"(XEN) fine\n{line}\n(XEN) fine\n")
    with pytest.raises(LabError, match=r"on the console: .*"):
        soaking.refuse_complaints(console)


def test_what_qemu_makes_xen_say_is_no_complaint(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    console.write_text(
        "(XEN) SELFTEST FAILURE: CORRECT BEHAVIOR CANNOT BE GUARANTEED\n"
        "(XEN) arch/x86/pv/emul-priv-op.c:1030:d2v0 RDMSR 0xc0010055 unimplemented\n"
        "(XEN) Breaking affinity for d1v0\n"
        "soak   57.723 set pool 0 to no policy\n"
    )
    soaking.refuse_complaints(console)


@pytest.mark.xen
@pytest.mark.skipif(shutil.which(machine.QEMU) is None, reason=f"there is no {machine.QEMU}")
def test_a_short_soak(laxity: Laxity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Booting guests is most of a short soak.
    monkeypatch.setattr(soaking, "VCPUS", (2, 1, 3))
    done = laxity("lab", "soak", "--minutes", "0.25", "-o", tmp_path / "out")
    assert "of guests done" in done.stderr
    assert "console.log" in done.stdout
