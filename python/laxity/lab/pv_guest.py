"""The configuration of a PV guest of the Xen lab, as xl takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.lab.files import (
    GUEST_ARGUMENTS,
    HOME,
    KERNEL,
    MEMORY_MIB,
    MEMORY_PER_VCPU_MIB,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def memory_mib(vcpus: int) -> int:
    """Returns the memory of a guest with so many VCPUs."""
    return MEMORY_MIB + MEMORY_PER_VCPU_MIB * (vcpus - 1)


def configuration(
    name: str, ramdisk: str, *, vcpus: int = 1, more: Sequence[str] = (), home: str = HOME
) -> str:
    """Returns the configuration of a guest whose kernel and ramdisk are in dom0's directory `home`.

    `more` are further lines, such as its CPUs and its interfaces.
    """
    lines = [
        'type = "pv"',
        f'name = "{name}"',
        f'kernel = "{home}/{KERNEL}"',
        f'ramdisk = "{home}/{ramdisk}"',
        f'extra = "{GUEST_ARGUMENTS}"',
        f"memory = {memory_mib(vcpus)}",
        f"vcpus = {vcpus}",
        *more,
        # The cycle counter as it is: guests set their clocks by it.
        'tsc_mode = "native"',
        'on_poweroff = "destroy"',
        'on_reboot = "destroy"',
        'on_crash = "destroy"',
    ]
    return "\n".join(lines) + "\n"
