"""A soak: ten minutes of whatever an administrator may do to domains, at random, on real Xen.

It runs on the hypervisor with assertions, with more VCPUs than CPUs. xen/programs/laxity-soak.c
does what is to be done, and checks guests and budgets; here the machine is made, and its console
is searched for complaints of the hypervisor or of dom0's kernel.

In repeatable mode a seed gives the same soak every time, to the byte.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.lab import fingerprint, image, pv_guest
from laxity.lab.errors import LabError
from laxity.lab.files import (
    CONSOLE,
    GUEST_ROOT,
    SCRIPT,
)
from laxity.lab.xen_machine import XenMachine

if TYPE_CHECKING:
    from laxity.lab.modes import Mode
    from laxity.progress import Say

CPUS = 3
VCPUS = (2, 1, 3, 2, 4)
"""The VCPUs of each guest; dom0 has as many as there are CPUs."""

SLACK_NS = {"repeatable": 5_000_000, "live": 500_000_000}
"""How much longer than its budget a VCPU may run, once in an interval, before an interrupt of the
emulated machine ends that. In repeatable mode the CPUs take short turns; live, they wait for those
of the computer that they run on."""

SHIFT = 2
"""A slow computer: more happens at once in it, and ten of its minutes pass sooner."""

SECONDS_A_MINUTE = 60
PREPARE_S = 3600.0
"""Wall time for the boot, the guests, and the end."""
WALL_S_PER_S = 60.0
"""Wall time that a second in the machine may take. Both only stop what hangs."""

COMPLAINTS = re.compile(
    r"\(XEN\).*("
    r"Assertion .* failed|Xen (BUG|WARN)|Panic on CPU|FATAL|WARNING|[Ww]atchdog|stuck|"
    r"double fault|page fault|GENERAL PROTECTION"
    r")|soft lockup|hung_task|blocked for more than|self-detected stall|detected stalls|"
    r"Kernel panic|BUG:|Call Trace:"
)
"""What the hypervisor or dom0's kernel print when something is wrong."""


def soak(seed: int, minutes: float, mode: Mode, directory: Path, say: Say) -> None:
    """Soaks for that many minutes of the machine's time. Leaves `console.log` in the directory.

    Raises LabError if anything was not as it must be, and says how to repeat it.
    """
    hypervisor = image.hypervisor("debug", say)
    built = image.build(say=say)
    seconds = round(minutes * SECONDS_A_MINUTE)
    say(f"soaking for {minutes:g} minutes, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
        for name, text in plan(seed, seconds, SLACK_NS[mode]).items():
            (Path(temporary) / name).write_text(text, "utf-8")
        machine = XenMachine(
            hypervisor,
            built,
            Path(temporary),
            mode=mode,
            cpus=CPUS,
            shift=SHIFT,
            xen_arguments=f"sched=laxity laxity=deferrable dom0_max_vcpus={CPUS}",
            limit_s=PREPARE_S + WALL_S_PER_S * seconds,
        )
        try:
            machine.run(directory, say)
            refuse_complaints(directory / CONSOLE)
        except LabError as error:
            parts = fingerprint.read(directory) or {}
            say(f"on the machine {parts.get('fingerprint')}: see {directory / fingerprint.FILE}")
            again = f"laxity lab soak --seed {seed} --minutes {minutes:g} --mode {mode}"
            raise LabError(error.message, f"{error.help}; again: {again}") from None


def plan(seed: int, seconds: int, slack_ns: int) -> dict[str, str]:
    """The files of a plan that soaks: its script, and the guests' configurations."""
    guests = {f"soak-{number}": vcpus for number, vcpus in enumerate(VCPUS, 1)}
    words = f"laxity-soak {seed} {seconds} {slack_ns} {' '.join(guests)}"
    # The lab starts dom0's kernel without the watchdog that complains of CPUs that stay in it.
    script = (
        'echo 1 >/proc/sys/kernel/watchdog || fail "dom0 has no watchdog"\n'
        f'{words} 2>"$RESULTS/said" || fail "$(cat "$RESULTS/said")"\n'
    )
    return {SCRIPT: script} | {
        f"{name}.cfg": pv_guest.configuration(name, GUEST_ROOT, vcpus=vcpus)
        for name, vcpus in guests.items()
    }


def refuse_complaints(console: Path) -> None:
    """Raises LabError if there is one on the console."""
    for line in console.read_text("utf-8", "replace").splitlines():
        if COMPLAINTS.search(line):
            raise LabError(f"on the console: {line.strip()}", f"the console is in {console}")
