"""Makes the guests of protection's tests: Debian's kernel, and a first root with nothing in it but
a program of `crates/laxity-protect/tests/guest` and the modules that it needs.

    .venv/bin/python tools/build/counter_guest.py

The guest `counter` keeps its counts in blocks of a disk, `database` in a database of SQLite, and
`check-database` looks at what a host left of that. The guest `postgresql` keeps them in a database
of PostgreSQL, and has its root on the disk, which is made here, as root. They go to
`target/protect`, where the tests look for them.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from laxity.appliances.image import MODULES
from laxity.errors import InputError
from laxity.lab import cpio, image, packages
from laxity.lab.errors import LabError

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "crates/laxity-protect/tests/guest"
OUT = ROOT / "target/protect"

FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-s")
SQLITE = "libsqlite3-dev"
"""The package with SQLite's static library, and its place there."""
SQLITE_LIBRARY = "usr/lib/x86_64-linux-gnu/libsqlite3.a"

POSTGRESQL = (
    *("busybox-static", "postgresql-15", "libpq-dev", "libpq5"),
    # The libraries of the server and of its clients.
    *("libc6", "libgcc-s1", "libstdc++6", "libicu72", "libxml2", "zlib1g"),
    *("liblz4-1", "liblzma5", "libzstd1"),
    *("libssl3", "libgssapi-krb5-2", "libkrb5-3", "libk5crypto3", "libkrb5support0"),
    *("libcom-err2", "libkeyutils1", "libldap-2.5-0", "libsasl2-2", "libgnutls30"),
    *("libp11-kit0", "libidn2-0", "libunistring2", "libtasn1-6", "libnettle8", "libhogweed6"),
    *("libgmp10", "libffi8", "libpam0g", "libaudit1", "libcap-ng0"),
    *("libsystemd0", "libcap2", "libgcrypt20", "libgpg-error0"),
)
SERVER = Path("usr/lib/postgresql/15")
SERVER_PROGRAMS = ("initdb", "postgres", "pg_checksums")
SERVER_MODULES = ("amcheck", "dict_snowball", "plpgsql")
"""PostgreSQL's check of tables and indexes, and what initdb loads."""
SERVER_FILES = Path("usr/share/postgresql/15")
LIBPQ = "usr/lib/x86_64-linux-gnu/libpq.so.5"

UNRESOLVED = ("-Wl,--allow-shlib-undefined",)
"""The libraries of libpq are the guest's, and the linker does not look for them."""

NOBODY = 65534
"""The user who runs the server and owns its data."""
INITDB = (
    *(f"/{SERVER}/bin/initdb", "--pgdata=/data", "--username=postgres", "--auth=trust"),
    # Each page of a table or an index has a checksum.
    *("--data-checksums", "--no-sync", "--no-locale", "--encoding=UTF8", "--wal-segsize=1"),
)
ONE_SERVER = (f"/{SERVER}/bin/postgres", "--single", "-j", "-D", "/data", "postgres")
"""A server for its standard input, where a statement ends with an empty line."""
DISK_BYTES = 160 << 20

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
        program("counter", "-static", "counter.c", "blocks.c")
        with image.unpacked((SQLITE,)) as package:
            include, library = f"-I{package / 'usr/include'}", package / SQLITE_LIBRARY
            # The library can load extensions, which needs shared libraries. Nobody asks it to.
            sqlite = ("-static", include, library, "-lm", "-Wl,--no-warnings")
            program("database", "counter.c", "database.c", "counts.c", *sqlite)
            program("check-database", "check-database.c", "counts.c", *sqlite)
        root("counter", kernel, COUNTER_MODULES)
        root("database", kernel, DATABASE_MODULES)
        link = OUT / "kernel"
        link.unlink(missing_ok=True)
        link.hardlink_to(kernel.kernel)
        with image.unpacked(POSTGRESQL) as package:
            postgresql(package, kernel)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def program(name: str, *words: str | Path) -> None:
    """Compiles a program of these sources and options."""
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


def postgresql(package: Path, kernel: image.Kernel) -> None:
    """Writes the guest with PostgreSQL: a first root that mounts the disk, and the disk.

    Raises InputError unless root does it: the data on the disk are another user's.
    """
    disk = OUT / "postgresql.disk"
    disk.unlink(missing_ok=True)
    if os.geteuid() != 0:
        raise InputError("a disk with PostgreSQL needs root to make it", "run it as root")
    archive = cpio.archive(
        [
            cpio.file("init", SOURCES / "postgresql.init", executable=True),
            cpio.file("bin/busybox", package / "bin/busybox", executable=True),
            cpio.character_device("dev/console", 5, 1),
            cpio.directory("disk"),
            *image.numbered("modules", kernel.modules, DATABASE_MODULES),
        ]
    )
    (OUT / "postgresql.cpio").write_bytes(archive)
    tree = OUT / "postgresql"
    shutil.rmtree(tree, ignore_errors=True)
    lay_server(package, tree)
    libpq = package / LIBPQ
    include = f"-I{package / 'usr/include/postgresql'}"
    program("postgresql/init", "counter.c", "postgresql.c", include, libpq, *UNRESOLVED)
    make_database(tree)
    # A host takes no image that others than its owner may read.
    disk.touch(mode=0o600)
    size = str(DISK_BYTES >> 10) + "k"
    packages.run("mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", tree, disk, size)
    shutil.rmtree(tree)


def lay_server(package: Path, tree: Path) -> None:
    """Puts into a directory what the server needs of the unpacked packages."""
    programs = [package / SERVER / "bin" / name for name in SERVER_PROGRAMS]
    modules = [package / SERVER / "lib" / f"{name}.so" for name in SERVER_MODULES]
    libpq = package / LIBPQ
    for entry in [
        *image.libraries(package, [*programs, *modules, libpq], also=[libpq]),
        *(
            cpio.file(str(path.relative_to(package)), path, executable=True)
            for path in [*programs, *modules]
        ),
        # initdb has a shell start the server.
        cpio.file("bin/sh", package / "bin/busybox", executable=True),
        cpio.file("etc/passwd", b"nobody:x:%d:%d::/:/bin/sh\n" % (NOBODY, NOBODY)),
    ]:
        place = tree / entry.name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(entry.content)
        place.chmod(entry.mode & 0o777)
    shutil.copytree(package / SERVER_FILES, tree / SERVER_FILES)
    for name in ("proc", "dev", "tmp", "data"):
        (tree / name).mkdir()
    os.mknod(tree / "dev/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    for name, mode in {"dev/null": 0o666, "tmp": 0o1777, "data": 0o700}.items():
        (tree / name).chmod(mode)
    os.chown(tree / "data", NOBODY, NOBODY)


def make_database(tree: Path) -> None:
    """Makes the database in a directory with a server."""
    chroot = ("chroot", f"--userspec={NOBODY}:{NOBODY}", str(tree))
    packages.run(*chroot, *INITDB)
    with (tree / "data/postgresql.conf").open("a") as configuration:
        configuration.write((SOURCES / "postgresql.conf").read_text("utf-8"))
    done = subprocess.run(
        (*chroot, *ONE_SERVER),
        input=(SOURCES / "postgresql.sql").read_text("utf-8"),
        capture_output=True,
        text=True,
        check=False,
    )
    # The server goes on after an error.
    if done.returncode or "ERROR" in done.stderr:
        raise LabError(f"the database is not made: {done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
