"""Makes the guest of protection's tests: Debian's kernel, and a first root with nothing in it but
the program `crates/laxity-protect/tests/guest/counter.c` and the modules of virtio.

    .venv/bin/python tools/counter_guest.py

It goes to `target/protect`, where the tests look for it, and is made anew only when something has
changed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from laxity.errors import InputError
from laxity.lab import cpio, image

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "crates/laxity-protect/tests/guest/counter.c"
OUT = ROOT / "target/protect"

MODULES = (
    *("virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("virtio_mmio", "failover", "net_failover", "virtio_net", "virtio-rng"),
)
"""In the order in which they need each other."""


def main() -> int:
    """2 if something is missing, which is said."""
    try:
        kernel = image.kernel(MODULES)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    OUT.mkdir(parents=True, exist_ok=True)
    program = OUT / "counter"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s"]
    subprocess.run(["gcc", *flags, SOURCE, "-o", program], check=True)  # noqa: S607
    root = cpio.archive(
        [
            cpio.file("init", program, executable=True),
            cpio.character_device("dev/console", 5, 1),
            *(
                cpio.file(f"modules/{number}.ko", kernel.modules / f"{name}.ko")
                for number, name in enumerate(MODULES)
            ),
        ]
    )
    (OUT / "counter.cpio").write_bytes(root)
    link = OUT / "kernel"
    link.unlink(missing_ok=True)
    link.hardlink_to(kernel.kernel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
