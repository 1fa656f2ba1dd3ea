"""dom0 boots under every policy: on several CPUs, with more VCPUs than CPUs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from laxity.lab import image
from laxity.lab.machine import QEMU
from laxity.lab.xen_machine import XenMachine
from laxity.policies import SCHEDULER_S, TABLE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.xen,
    pytest.mark.skipif(shutil.which(QEMU) is None, reason=f"there is no {QEMU}"),
]

VCPUS = 7
POLICIES = [
    *(
        name
        for name, policy in TABLE.items()
        if "xen" in policy.substrates and policy.own_of is None and name not in SCHEDULER_S
    ),
    "s-all",
]

# Every VCPU of dom0 has something to do at once, and all of them get somewhere.
PLAN = f"""
laxity-sched get >"$RESULTS/sched"
for number in $(seq {VCPUS}); do
    (
        count=0
        while [ $count -lt 2000 ]; do count=$((count + 1)); done
        echo $number >>"$RESULTS/done"
    ) &
done
wait
nproc >"$RESULTS/vcpus"
"""


# Where the computer has fewer than three CPUs, those of the machine take turns; two run at once.
@pytest.mark.parametrize(
    ("policy", "cpus"), [*((policy, 3) for policy in POLICIES), ("deferrable", 2)]
)
def test_dom0_boots_on_several_cpus(policy: str, cpus: int, tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / "plan.sh").write_text(PLAN)
    machine = XenMachine(
        image.hypervisor("release", lambda _: None),
        image.build(say=lambda _: None),
        plan,
        mode="live",
        cpus=cpus,
        xen_arguments=f"sched=laxity laxity={policy} dom0_max_vcpus={VCPUS}",
    )
    results = machine.run(tmp_path / "out")
    assert policy in (results / "sched").read_text()
    assert int((results / "vcpus").read_text()) == VCPUS
    assert sorted(map(int, (results / "done").read_text().split())) == list(range(1, VCPUS + 1))
