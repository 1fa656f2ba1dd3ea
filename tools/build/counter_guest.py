"""Makes the guest of protection's tests: Debian's kernel, and a first root with nothing in it but
the program `crates/laxity-protect/tests/guest/counter.c` and the modules of virtio.

    .venv/bin/python tools/build/counter_guest.py

It goes to `target/protect`, where the tests look for it, and is made anew only when something has
changed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from laxity.appliances.image import MODULES
from laxity.errors import InputError
from laxity.lab import cpio, image

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "crates/laxity-protect/tests/guest/counter.c"
OUT = ROOT / "target/protect"


def main() -> int:
    """2 if something is missing, which is said."""
    try:
        modules = (*MODULES, "virtio_blk")
        kernel = image.kernel(modules)
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
                cpio.file(f"modules/{number}.ko", path)
                for number, path in enumerate(
                    image.in_load_order(kernel.modules / f"{name}.ko" for name in modules)
                )
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
