"""dom0 boots and works under every policy: on several CPUs, with more VCPUs than CPUs."""

from __future__ import annotations

import shutil
from itertools import groupby
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
        policy
        for name, policy in TABLE.items()
        if "xen" in policy.substrates and policy.own_of is None and name not in SCHEDULER_S
    ),
    TABLE["s-all"],
]
# A boot is what takes longest: a running Xen goes over to the other policies of a group. The first
# policy of a group, which other tests boot, comes last.
GROUPS = [
    tuple(policy.name for policy in reversed(list(group)))
    for _, group in groupby(POLICIES, key=lambda policy: policy.switch_group)
]
# Where the computer has fewer than three CPUs, those of the machine take turns; two run at once.
CPUS = {TABLE["deferrable"].switch_group: 2}

# Every VCPU of dom0 has something to do at once, and all of them get somewhere.
WORK = f"""
laxity-sched get >"$RESULTS/sched-$policy" || fail "laxity-sched does not say what runs"
for number in $(seq {VCPUS}); do
    (
        count=0
        while [ $count -lt 2000 ]; do count=$((count + 1)); done
        echo $number >>"$RESULTS/done-$policy"
    ) &
done
wait
nproc >"$RESULTS/vcpus-$policy"
"""


def plan(policies: tuple[str, ...]) -> str:
    """The first policy is the one that Xen has booted with."""
    switch = 'do_or_fail laxity-sched set --pool Pool-0 "policy=$policy"\n'
    return "".join(
        f"policy={policy}\n{switch if policy != policies[0] else ''}{WORK}" for policy in policies
    )


@pytest.mark.parametrize("policies", GROUPS, ids="-".join)
def test_dom0_boots_on_several_cpus(policies: tuple[str, ...], tmp_path: Path) -> None:
    directory = tmp_path / "plan"
    directory.mkdir()
    (directory / "plan.sh").write_text(plan(policies))
    machine = XenMachine(
        image.hypervisor("release", lambda _: None),
        image.build(say=lambda _: None),
        directory,
        mode="live",
        cpus=CPUS.get(TABLE[policies[0]].switch_group, 3),
        xen_arguments=f"sched=laxity laxity={policies[0]} dom0_max_vcpus={VCPUS}",
    )
    results = machine.run(tmp_path / "out")
    for policy in policies:
        assert policy in (results / f"sched-{policy}").read_text()
        assert int((results / f"vcpus-{policy}").read_text()) == VCPUS
        done = (results / f"done-{policy}").read_text().split()
        assert sorted(map(int, done)) == list(range(1, VCPUS + 1))
