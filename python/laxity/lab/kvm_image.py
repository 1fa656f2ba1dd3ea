"""What the emulated KVM host boots: a kernel of Debian's, with KVM's modules, and BusyBox.

The kernel is the newest of the next Debian's backports: what this Debian has is older than the
scheduling classes of interest. It is taken from where this machine gets Debian, by apt, into
`target/kvm`; the system's own configuration of apt stays as it is.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import places
from laxity.lab import cpio, packages
from laxity.lab.errors import LabError
from laxity.lab.image import unpacked_kernel

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE = places.cache("kvm")
KVM = places.SOURCES / "kvm"

SUITE = "trixie-backports"
FLAVOUR = "cloud-amd64"
"""The smallest of Debian's kernels that has KVM."""
BINARY, MODULES = "linux-binary-", "linux-modules-"
BUSYBOX = "busybox-static"

KVM_MODULES = ("irqbypass", "kvm", "kvm-amd")
"""In the order in which the host loads them. The emulated processor is AMD's."""

PROGRAMS = ("laxity-vmm", "laxity-ftrace", "laxity-shelf")
"""Static programs of the host, of `kvm/programs`."""

DIRECTORIES = ("bin", "dev", "proc", "sys", "tmp", "laxity", "modules", "plan", "results")

KERNEL, ROOT = "kernel", "root.cpio"


@dataclass(frozen=True)
class Image:
    """What a host boots, in the cache."""

    version: str
    """The kernel's."""
    kernel: Path
    """An ELF file, which starts without unpacking itself."""
    root: Path
    """The root file system, without Laxity's own files."""


def build(say: Callable[[str], None]) -> Image:
    """Makes the image of the newest packages, or finds it in the cache.

    Several processes may do so at once: one makes it, the others wait. Raises LabError if a program
    or a package is missing.
    """
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            raise LabError(f"the lab needs {program}", "run it on Debian 12")
    with packages.only_one(CACHE / "image.lock"):
        options = packages.suite(SUITE, CACHE / "apt")
        version = newest(packages.ask_apt("apt-cache", *options, "pkgnames", MODULES))
        kernel = packages.downloads((BINARY + version, MODULES + version), options)
        busybox = packages.downloads((BUSYBOX,))
        place = CACHE / f"image-{_digest(repr((kernel, busybox)))}"
        if not place.is_dir():
            say(f"making the image of a KVM host with Linux {version}, once for these packages")
            staging = CACHE / "image.new"
            shutil.rmtree(staging, ignore_errors=True)
            unpacked, made = staging / "unpacked", staging / "made"
            made.mkdir(parents=True)
            kept = CACHE / "packages"
            found = [*packages.fetch(kernel, kept, options), *packages.fetch(busybox, kept)]
            for package in found:
                packages.run("dpkg-deb", "--extract", package, unpacked)
            (bootable,) = unpacked.glob("usr/lib/modules/*/vmlinuz")
            (made / KERNEL).write_bytes(unpacked_kernel(bootable))
            (made / ROOT).write_bytes(_root(unpacked))
            made.rename(place)
            shutil.rmtree(staging)
    return Image(version, place / KERNEL, place / ROOT)


def newest(names: str) -> str:
    """Returns the version and flavour of the newest kernel among names of packages, a line each.

    Raises LabError if there is none.
    """
    pattern = rf"^{MODULES}((\d+)\.(\d+)\.(\d+)\S*-{FLAVOUR})$"
    found = re.findall(pattern, names, re.MULTILINE)
    if not found:
        raise LabError(
            f"{SUITE} has no package {MODULES}VERSION-{FLAVOUR}",
            f"remove {CACHE / 'apt'}, so that its lists are fetched again",
        )
    name: str = max(found, key=lambda each: tuple(map(int, each[1:])))[0]
    return name


def programs(say: Callable[[str], None]) -> Path:
    """The directory of the host's static programs, made anew where their sources changed.

    Raises LabError if that fails.
    """
    if shutil.which("make") is None:
        raise LabError("the lab needs make", "as root, `apt-get install make gcc libc6-dev`")
    place = CACHE / "programs"
    with packages.only_one(CACHE / "programs.lock"):
        if not place.is_dir():
            say("making the programs of the KVM host")
        packages.run("make", "--silent", f"--directory={KVM / 'programs'}", f"OUT={place}")
    return place


def ours() -> bytes:
    """The archive of what is Laxity's own on the host: scripts and programs."""
    made, scripts = programs(_say_nothing), KVM / "lab"
    return cpio.archive(
        [
            cpio.file("init", scripts / "init", executable=True),
            cpio.file("laxity/lib.sh", scripts / "lib.sh"),
            *(cpio.file(f"laxity/{name}", made / name, executable=True) for name in PROGRAMS),
        ]
    )


def _say_nothing(line: str) -> None:
    del line


def _digest(text: str) -> str:
    """Names an image: a change of a package, or of how it is made, gives another."""
    return hashlib.sha256(Path(__file__).read_bytes() + text.encode()).hexdigest()[:16]


def _root(unpacked: Path) -> bytes:
    busybox = unpacked / "bin/busybox"
    there = {path.name.split(".")[0]: path for path in unpacked.rglob("*.ko.xz")}
    modules = []
    for number, name in enumerate(KVM_MODULES):
        if name not in there:
            raise LabError(f"the kernel's packages have no module {name}")
        content = lzma.decompress(there[name].read_bytes())
        modules.append(cpio.Entry(f"modules/{number}-{name}.ko", 0o100644, content))
    return cpio.archive(
        [
            *(cpio.directory(name) for name in DIRECTORIES),
            cpio.character_device("dev/console", 5, 1),
            cpio.character_device("dev/null", 1, 3),
            cpio.file("bin/busybox", busybox, executable=True),
            *(
                cpio.link(f"bin/{name}", "busybox")
                for name in packages.run(busybox, "--list").split()
                if name != "busybox"
            ),
            *modules,
        ]
    )
