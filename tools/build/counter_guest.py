"""Makes the guests of protection's tests: Debian's kernel, and a first root with nothing in it but
a program of `crates/laxity-protect/tests/guest` and the modules that it needs.

    .venv/bin/python tools/build/counter_guest.py

The guest `counter` keeps its counts in blocks of a disk, `database` in a database of SQLite, and
`check-database` looks at what a host left of that. They go to `target/protect`, where the tests
look for them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from laxity.appliances.image import MODULES
from laxity.errors import InputError
from laxity.lab import cpio, image

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "crates/laxity-protect/tests/guest"
OUT = ROOT / "target/protect"

FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s")
SQLITE = "libsqlite3-dev"
"""The package with SQLite's static library, and its place there."""
SQLITE_LIBRARY = "usr/lib/x86_64-linux-gnu/libsqlite3.a"

COUNTER_MODULES = (*MODULES, "virtio_blk")
DATABASE_MODULES = (
    *COUNTER_MODULES,
    # A disk behind virtio-scsi.
    *("scsi_common", "scsi_mod", "virtio_scsi"),
    *("crct10dif_common", "crc-t10dif", "crc64", "crc64-rocksoft", "t10-pi", "sd_mod"),
    # ext4 asks for the first by its name.
    *("crc32c_generic", "crc16", "mbcache", "jbd2", "ext4"),
)


def main() -> int:
    """2 if something is missing, which is said."""
    OUT.mkdir(parents=True, exist_ok=True)
    try:
        kernel = image.kernel(DATABASE_MODULES)
        program("counter", "counter.c", "blocks.c")
        with image.unpacked((SQLITE,)) as package:
            include, library = f"-I{package / 'usr/include'}", package / SQLITE_LIBRARY
            # The library can load extensions, which needs shared libraries. Nobody asks it to.
            sqlite = (include, library, "-lm", "-Wl,--no-warnings")
            program("database", "counter.c", "database.c", "counts.c", *sqlite)
            program("check-database", "check-database.c", "counts.c", *sqlite)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    root("counter", kernel, COUNTER_MODULES)
    root("database", kernel, DATABASE_MODULES)
    link = OUT / "kernel"
    link.unlink(missing_ok=True)
    link.hardlink_to(kernel.kernel)
    return 0


def program(name: str, *words: str | Path) -> None:
    """Compiles a static program of these sources and options."""
    sources = [SOURCES / word if str(word).endswith(".c") else word for word in words]
    subprocess.run(["gcc", *FLAGS, *sources, "-o", OUT / name], check=True)  # noqa: S607


def root(name: str, kernel: image.Kernel, modules: tuple[str, ...]) -> None:
    """Writes a first root with a program as its first process."""
    archive = cpio.archive(
        [
            cpio.file("init", OUT / name, executable=True),
            cpio.character_device("dev/console", 5, 1),
            *(
                cpio.file(f"modules/{number}.ko", path)
                for number, path in enumerate(
                    image.in_load_order(kernel.modules / f"{name}.ko" for name in modules)
                )
            ),
        ]
    )
    (OUT / f"{name}.cpio").write_bytes(archive)


if __name__ == "__main__":
    sys.exit(main())
