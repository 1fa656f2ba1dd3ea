"""The emulated machine that boots a KVM host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from laxity.lab import cpio, kvm_image
from laxity.lab.files import NO_STATISTICS_ARGUMENTS
from laxity.lab.machine import ROOT, Machine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from laxity.lab.kvm_image import Image
    from laxity.lab.kvm_policies import Schedulers
    from laxity.lab.machine import Crashes

KERNEL = "kernel"
"""The name of the kernel in QEMU's working directory."""

PROCESSOR = "EPYC,+svm,-rdrand,-rdseed"
"""One that KVM knows to virtualize, without what would enter a run from outside."""

ARGUMENTS = (
    "console=ttyS0 quiet loglevel=4 panic=1 tsc=reliable"
    # What only takes time at a boot under emulation.
    " cryptomgr.notests audit=0 mitigations=off rodata=off"
    # What the kernel does for itself beside guests; every 200 ms it looks which memory is used.
    f" {NO_STATISTICS_ARGUMENTS} damon_stat.enabled=N"
    # On a busy computer an emulated timer is late, for which Linux would not boot.
    " no_timer_check"
)

CRASHES = (
    # With several CPUs in live mode.
    (re.compile(r"Oops: int3:"), "QEMU executed what the host's kernel had changed: run it again"),
    (re.compile(r"Kernel panic - not syncing"), "the host's kernel has crashed"),
    (re.compile(r"^\[ *\d+\.\d+\] (BUG|Oops|WARNING):"), "the host's kernel complains"),
)


@dataclass(frozen=True)
class KvmMachine(Machine):
    """An emulated KVM host."""

    image: Image
    plan: Path
    """The directory of plan.sh."""
    memory_mib: int = 512
    schedulers: Schedulers | None = None
    """What can schedule VCPUs in place of Linux's own schedulers."""
    beside: bytes = b""
    """An archive of what else the host's root has."""
    arguments: str = ""
    """On the kernel's command line, behind those that the lab needs."""

    firmware: ClassVar[tuple[str, ...]] = ("bios-256k.bin", "pvh.bin")
    crashes: ClassVar[Crashes] = CRASHES

    def contents(self) -> dict[str, bytes]:
        """See Machine."""
        contents = {
            "kernel": self.image.kernel.read_bytes(),
            "root": self.image.root.read_bytes(),
            "programs": kvm_image.ours(),
        }
        if self.schedulers is not None:
            contents["schedulers"] = self.schedulers.archive()
        if self.beside:
            contents["beside"] = self.beside
        return contents

    def fill(self, directory: Path, contents: Mapping[str, bytes]) -> None:
        """See Machine."""
        (directory / KERNEL).symlink_to(self.image.kernel.resolve())
        parts = ("root", "programs", "schedulers", "beside")
        root = b"".join(contents.get(name, b"") for name in parts) + cpio.plan(self.plan)
        (directory / ROOT).write_bytes(root)

    def boot(self, *arguments: str) -> list[str]:
        """See Machine."""
        return [
            *("-cpu", ",+".join((PROCESSOR, *self.features))),
            *("-m", str(self.memory_mib), "-kernel", KERNEL, "-initrd", ROOT),
            *("-append", " ".join(filter(None, [ARGUMENTS, self.arguments, *arguments]))),
        ]
