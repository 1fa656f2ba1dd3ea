"""The emulated machine that boots Xen: the hypervisor, and dom0's kernel and root."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from laxity.lab import cpio, image
from laxity.lab.files import STILL_KERNEL_ARGUMENTS
from laxity.lab.machine import ROOT, Machine, option

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from laxity.lab.image import Image
    from laxity.lab.machine import Crashes

XEN, KERNEL = "xen", "kernel"
"""The names of the hypervisor and of dom0's kernel in QEMU's working directory.

QEMU passes these names to Xen, which reads over them character by character. Names that depended on
the checkout or on a temporary directory would change how many instructions the boot takes, and so
all times.
"""

PROCESSOR = "qemu64,+svm,+rdrand"
"""It has random numbers: kernels without any look for some every two seconds."""

CRASHES = (
    # With its reason, which is the next line, however much later a busy computer writes it.
    (re.compile(r"Panic on CPU \d+:\n"), "Xen has crashed"),
    (re.compile(r"Hardware Dom0 (crashed|halted|shutdown)"), "dom0 has ended too early"),
    (re.compile(r"Kernel panic - not syncing"), "dom0's kernel has crashed"),
    (
        re.compile(r"Could not (construct|set up) (domain 0|DOM0)", re.IGNORECASE),
        "dom0 cannot start",
    ),
)

XEN_ARGUMENTS = (
    "console=com1 com1=115200 dom0=pv noreboot timer_slop=0"
    # What only takes time at a boot under emulation.
    " bootscrub=0"
)
DOM0_ARGUMENTS = (
    "console=hvc0 quiet loglevel=4 panic=1"
    # The self-tests of cryptography are most of the boot, the protection of memory some of it.
    " cryptomgr.notests audit=0 mitigations=off rodata=off"
    f" {STILL_KERNEL_ARGUMENTS}"
)


@dataclass(frozen=True)
class XenMachine(Machine):
    """An emulated Xen host."""

    hypervisor: Path
    """A 32-bit ELF file, as a boot loader takes it: `xen/xen` of a build."""
    image: Image
    plan: Path
    """The directory of plan.sh and what belongs to it."""
    dom0_memory_mib: int = 320
    """dom0 keeps the results in memory until the end."""
    guests_memory_mib: int = 1728
    xen_arguments: str = ""
    """On Xen's command line, behind those that the lab needs."""
    beside: bytes = b""
    """An archive of what else dom0's root has."""

    firmware: ClassVar[tuple[str, ...]] = ("bios-256k.bin", "multiboot_dma.bin")
    crashes: ClassVar[Crashes] = CRASHES

    def contents(self) -> dict[str, bytes]:
        """See Machine."""
        return {
            "xen": self.hypervisor.read_bytes(),
            "kernel": self.image.kernel.read_bytes(),
            "root": self.image.root.read_bytes(),
            "programs": image.ours() + self.beside,
        }

    def fill(self, directory: Path, contents: Mapping[str, bytes]) -> None:
        """See Machine."""
        (directory / XEN).symlink_to(self.hypervisor.resolve())
        (directory / KERNEL).symlink_to(self.image.kernel.resolve())
        root = contents["root"] + contents["programs"] + cpio.plan(self.plan)
        (directory / ROOT).write_bytes(root)

    def boot(self, *arguments: str) -> list[str]:
        """See Machine; the arguments are dom0's."""
        xen = (
            f"{XEN_ARGUMENTS} dom0_mem={self.dom0_memory_mib}M,max:{self.dom0_memory_mib}M"
            f" {self.xen_arguments}"
        )
        dom0 = " ".join([DOM0_ARGUMENTS, *arguments])
        return [
            *("-cpu", ",+".join((PROCESSOR, *self.features))),
            *("-m", str(self.dom0_memory_mib + self.guests_memory_mib)),
            *("-kernel", XEN, "-append", xen.strip()),
            *("-initrd", f"{KERNEL} {option(dom0)},{ROOT}"),
        ]
