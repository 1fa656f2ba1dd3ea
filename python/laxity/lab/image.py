"""What the emulated machine boots: dom0's kernel and root, made of Debian's packages.

Nothing here needs root: packages are fetched by `apt-get download`, unpacked by `dpkg-deb` into a
directory, and what the lab needs of them becomes an archive that Linux unpacks at its boot. That
part changes only with the packages, so it is kept in `target/xen`, named by them. What changes with
Laxity itself, the programs and scripts of `xen/`, is small and comes on top with each boot.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import struct
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import places
from laxity.lab import cpio, files, packages
from laxity.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from laxity.lab.modes import Variant

CACHE = places.cache("xen")
XEN = places.SOURCES / "xen"

KERNEL_PACKAGE = "linux-image-amd64"
"""Depends on the package of the newest kernel of this Debian."""

PACKAGES = (
    *("xen-utils-4.17", "xenstore-utils", "busybox-static"),
    # The libraries of the first two. xl aborts at its exit without libgcc.
    *("libc6", "libgcc-s1", "libncurses6", "libtinfo6", "libuuid1", "libyajl2"),
    *("liblzma5", "libzstd1", "zlib1g"),
    *("libxencall1", "libxendevicemodel1", "libxenevtchn1", "libxenforeignmemory1"),
    *("libxengnttab1", "libxenhypfs1", "libxenmisc4.17", "libxenstore4"),
    *("libxentoolcore1", "libxentoollog1"),
)

XEN_PROGRAMS = ("xl", "xenstored", "xenconsoled", "xen-init-dom0", "xentrace")
XENSTORE_PROGRAMS = ("xenstore-ls", "xenstore-read", "xenstore-rm", "xenstore-write")
LIBRARY_DIRECTORIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
LOADER = "lib64/ld-linux-x86-64.so.2"
LIBGCC = "libgcc_s.so.1"

MODULES = ("xen-privcmd", "xenfs", "xen-evtchn", "xen-gntdev", "xen-gntalloc")
"""In the order in which dom0 loads them: xenfs needs what xen-privcmd exports."""

NETBACK_MODULES = ("llc", "stp", "bridge", "xen-netback")
"""What dom0 loads for a network."""
NETFRONT_MODULES = ("xen-netfront",)
"""What a guest loads."""
TELLING_MODULE = "xen-privcmd"
"""What a guest loads that tells Xen's scheduler what it works on."""
OTHER_MODULES = (*NETBACK_MODULES, *NETFRONT_MODULES, TELLING_MODULE)
"""Those that dom0 does not always load."""

DIRECTORIES = (
    *("dev", "proc", "sys", "tmp", "run/xen", "var/lib/xen", "var/lib/xenstored"),
    *("var/lock", "var/log/xen/console", "plan", "results"),
)

LINKS = (("var/run", "/run"), ("run/lock", "/var/lock"), ("sbin", "/bin"))

XL_CONFIGURATION = b'autoballoon="off"\n'
"""dom0 keeps the memory that it boots with."""

GUEST_PROGRAM = "laxity-guest"
"""Runs alone in a guest, as its first process."""

DOM0_PROGRAMS = ("laxity-sched", "laxity-trace", "laxity-still", "laxity-shelf", "laxity-soak")
"""Static programs that dom0 runs, of `xen/programs`."""

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

PAGE_BYTES = 4096
GROWTH = rb"\xba(\x00\x00\x00\x08)\x48\xc7\x05.{4}\x02\x00\x00\x00"
"""In machine code: edx = pages of 512 GiB; p2m's vm.flags = VM_ALLOC."""

IMAGES_KEPT = 3
KERNELS_KEPT = 8
"""More than there are choices of modules: those in use at once are not removed."""

SEGMENT_HEADER_BYTES = 56
"""The length of a segment's header in an ELF file of 64 bits."""

STATIC_TARGET = "x86_64-unknown-linux-gnu"
"""Named, so that what runs during the build is not made static itself."""

STATIC_FLAGS = (
    *("-C target-feature=+crt-static", "-C strip=symbols"),
    # Messages of panics name source files: not by where they are on this computer.
    f"--remap-path-prefix={os.environ.get('CARGO_HOME', Path.home() / '.cargo')}=/cargo",
    f"--remap-path-prefix={places.CHECKOUT}=/laxity",
)

KERNEL = "kernel"
ROOT = "root.cpio"


@dataclass(frozen=True)
class Image:
    """What a machine boots, in the cache."""

    kernel: Path
    """The kernel of dom0 and of guests: an ELF file, which starts without unpacking itself."""
    root: Path
    """The root file system of dom0, without Laxity's own files."""


def build(cache: Path = CACHE, say: Callable[[str], None] = print) -> Image:
    """Makes the image of the packages that apt knows now, or finds it in the cache.

    Several processes may do so at once: one makes it, the others wait. Raises LabError if a program
    or a package is missing.
    """
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            raise LabError(
                f"the lab needs {program}",
                "run it on Debian 12, or boot a Xen host of your own",
            )
    downloads = packages.downloads((*PACKAGES, _kernel_package()))
    place = cache / f"image-{_digest(downloads)}"
    with packages.only_one(cache / "image.lock"):
        if not place.is_dir():
            say("making the image of dom0, once for these packages")
            found = packages.fetch(downloads, cache / "packages")
            staging = cache / "image.new"
            shutil.rmtree(staging, ignore_errors=True)
            unpacked, made = staging / "unpacked", staging / "made"
            made.mkdir(parents=True)
            for package in found:
                packages.run("dpkg-deb", "--extract", package, unpacked)
            kernel = _kernel(unpacked)
            (made / KERNEL).write_bytes(kernel)
            (made / ROOT).write_bytes(cpio.archive(_root(unpacked, kernel)))
            made.rename(place)
            shutil.rmtree(staging)
            _forget_but(IMAGES_KEPT, cache)
    return Image(place / KERNEL, place / ROOT)


@dataclass(frozen=True)
class Kernel:
    """A kernel for guests of any kind, in the cache."""

    kernel: Path
    """An ELF file, which starts without having to unpack itself."""
    modules: Path
    """A directory with the modules that were asked for."""


def kernel(modules: tuple[str, ...], cache: Path = CACHE) -> Kernel:
    """The newest kernel of this Debian with some of its modules, of its package or of the cache.

    Raises LabError if the package or a module is missing.
    """
    downloads = packages.downloads((_kernel_package(),))
    place = cache / f"kernel-{_digest(downloads, *modules)}"
    with packages.only_one(cache / "kernel.lock"):
        if not place.is_dir():
            (package,) = packages.fetch(downloads, cache / "packages")
            staging = cache / "kernel.new"
            shutil.rmtree(staging, ignore_errors=True)
            unpacked, made = staging / "unpacked", staging / "made"
            made.mkdir(parents=True)
            packages.run("dpkg-deb", "--extract", package, unpacked)
            (made / KERNEL).write_bytes(_kernel(unpacked))
            there = _modules(unpacked)
            for name in modules:
                if name not in there:
                    raise LabError(f"{package.name} has no module {name}")
                shutil.copy(there[name], made)
            made.rename(place)
            shutil.rmtree(staging)
            _forget_but(KERNELS_KEPT, cache, "kernel")
    return Kernel(place / KERNEL, place)


@contextmanager
def unpacked(names: tuple[str, ...], cache: Path = CACHE) -> Iterator[Path]:
    """A directory with the newest version of these packages in it, for as long as it is needed.

    Raises LabError if a package is missing.
    """
    with packages.only_one(cache / "packages.lock"):
        found = packages.fetch(packages.downloads(names), cache / "packages")
    with tempfile.TemporaryDirectory(prefix="laxity.") as directory:
        for package in found:
            packages.run("dpkg-deb", "--extract", package, directory)
        yield Path(directory)


def _forget_but(count: int, cache: Path, what: str = "image") -> None:
    """Removes what was made longest ago; the newest may be in use."""
    images = sorted(cache.glob(f"{what}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in images[count:]:
        shutil.rmtree(old, ignore_errors=True)


def programs(say: Callable[[str], None] = print) -> Path:
    """The directory of our static programs, made anew where their sources changed.

    Raises LabError if that fails.
    """
    if shutil.which("make") is None:
        raise LabError(
            "the lab needs make", "as root, `apt-get install make gcc libc6-dev libxen-dev`"
        )
    place = CACHE / "programs"
    with packages.only_one(CACHE / "programs.lock"):
        if not place.is_dir():
            say("making the programs of dom0 and guests")
        packages.run("make", "--silent", f"--directory={XEN / 'programs'}", f"OUT={place}")
    return place


def hypervisor(variant: Variant = "release", say: Callable[[str], None] = print) -> Path:
    """Xen with Laxity's scheduler in it, built by xen/build.sh where its source changed.

    Raises LabError with what that says if it fails.
    """
    say(f"making the hypervisor ({variant}), a minute or two when it is new")
    return _built("build.sh", variant)


def libxl(say: Callable[[str], None] = print) -> Path:
    """The directory of libxl with network buffering, built by xen/libxl.sh where that changed.

    Raises LabError with what that says if it fails.
    """
    say("making libxl with network buffering, some minutes when it is new")
    return _built("libxl.sh")


def _built(script: str, *arguments: str) -> Path:
    """Runs a script of `xen/`, which prints the path of what it made."""
    environment = {"LAXITY_XEN_CACHE": str(CACHE)}
    printed = packages.run(XEN / script, *arguments, environment=environment)
    return Path(printed.splitlines()[-1])


def ours() -> bytes:
    """The archive of what is Laxity's own in dom0: its scripts, programs and the guests' root."""
    made, scripts = programs(lambda _: None), XEN / "lab"
    return cpio.archive(
        [
            cpio.file("init", scripts / "init", executable=True),
            cpio.file("laxity/lib.sh", scripts / "lib.sh"),
            *(cpio.file(f"laxity/{name}", made / name, executable=True) for name in DOM0_PROGRAMS),
            cpio.file(f"laxity/{files.GUEST_ROOT}", tasks_root(made)),
        ]
    )


def network(guests: Iterable[Path], dom0s: Iterable[Path] = ()) -> bytes:
    """The archive of what a network needs besides: modules, and static programs at both ends."""
    made = kernel(OTHER_MODULES)
    hotplug = XEN / "lab" / files.HOTPLUG
    return cpio.archive(
        [
            *(cpio.file(f"laxity/{path.name}", path, executable=True) for path in dom0s),
            cpio.file(f"laxity/{files.HOTPLUG}", hotplug, executable=True),
            cpio.file(f"laxity/{files.NETWORK_ROOT}", network_root(guests)),
            *numbered(f"laxity/{files.MODULES}", made.modules, NETBACK_MODULES),
        ]
    )


def network_root(at_top: Iterable[Path]) -> bytes:
    """The root of a guest with a network: its modules, and static programs at its top."""
    return tasks_root(
        programs(_silent),
        [
            *(cpio.file(path.name, path, executable=True) for path in at_top),
            *numbered(files.MODULES, kernel(OTHER_MODULES).modules, NETFRONT_MODULES),
        ],
    )


def tasks_root(made: Path, beside: Iterable[cpio.Entry] = ()) -> bytes:
    """The root of a guest that runs tasks; `made` is the directory of our static programs."""
    telling = f"{TELLING_MODULE}.ko"
    module = cpio.file(telling, kernel(OTHER_MODULES).modules / telling)
    return guest_root(made / GUEST_PROGRAM, [module, *beside])


def numbered(directory: str, modules: Path, names: Iterable[str]) -> list[cpio.Entry]:
    """Modules of a kernel, named so that each is loaded behind those that it needs."""
    return [
        cpio.file(f"{directory}/{number:02}-{path.name}", path)
        for number, path in enumerate(in_load_order(modules / f"{name}.ko" for name in names))
    ]


def in_load_order(modules: Iterable[Path]) -> list[Path]:
    """Modules of a kernel, each behind those that it says it depends on.

    Raises LabError if one of those is not among them. Kernels differ in who needs whom, even from
    one update to the next.
    """
    paths = {_module_name(path.stem): path for path in modules}
    needs: dict[str, list[str]] = {}
    for name, path in paths.items():
        found = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        needed = found[1].decode().split(",") if found and found[1] else []
        needs[name] = [_module_name(other) for other in needed]
        for other in needs[name]:
            if other not in paths:
                raise LabError(f"the module {name} needs {other}, which is not asked for")
    return [paths[name] for name in TopologicalSorter(needs).static_order()]


def _module_name(text: str) -> str:
    """Returns the name as the kernel writes it; files are named with either sign."""
    return text.replace("-", "_")


def static(program: str, say: Callable[[str], None] = print) -> Path:
    """One of our Rust programs without libraries, as guests have none, made where it changed.

    It is taken from the directory LAXITY_STATIC, if that has it: tests build it with all else that
    they run. Raises LabError if that fails.
    """
    given = os.environ.get("LAXITY_STATIC")
    if given and (made := Path(given) / program).is_file():
        return made
    if places.CHECKOUT is None:
        raise LabError(
            f"{program} for guests is built from its sources, which this package does not contain",
            "run the command in a checkout of Laxity",
        )
    if shutil.which("cargo") is None:
        raise LabError(f"{program} is to be built, and there is no cargo", "install Rust")
    say(f"making {program} for dom0 and guests, a minute or two when it is new")
    place = CACHE / "cargo"
    with packages.only_one(CACHE / "cargo.lock"):
        packages.run(
            *("cargo", "build", "--quiet", "--release", "--locked"),
            *("--package", program, "--target", STATIC_TARGET, "--target-dir", place),
            directory=places.CHECKOUT,
            environment={"RUSTFLAGS": " ".join(STATIC_FLAGS)},
        )
    return place / STATIC_TARGET / "release" / program


def guest_root(program: Path, beside: Iterable[cpio.Entry] = ()) -> bytes:
    """The root of a guest, whose first process is `program`."""
    return cpio.archive(
        [
            cpio.file("init", program, executable=True),
            *beside,
            *(cpio.directory(name) for name in ("dev", "proc", "sys")),
            cpio.character_device("dev/console", 5, 1),
            cpio.character_device("dev/null", 1, 3),
        ]
    )


def _root(unpacked: Path, kernel: bytes) -> list[cpio.Entry]:
    xen = unpacked / "usr/lib/xen-4.17/bin"
    programs = [xen / name for name in XEN_PROGRAMS]
    programs += [unpacked / "usr/bin" / name for name in XENSTORE_PROGRAMS]
    applets = packages.run(unpacked / "bin/busybox", "--list").split()
    modules = _modules(unpacked)
    return [
        *(cpio.directory(name) for name in DIRECTORIES),
        *(cpio.link(name, to) for name, to in LINKS),
        cpio.character_device("dev/console", 5, 1),
        cpio.character_device("dev/null", 1, 3),
        cpio.file("bin/busybox", unpacked / "bin/busybox", executable=True),
        *(cpio.link(f"bin/{name}", "busybox") for name in applets if name != "busybox"),
        *(cpio.file(f"bin/{path.name}", path, executable=True) for path in programs),
        *libraries(unpacked, programs, also=[in_libraries(unpacked, LIBGCC)]),
        *(
            cpio.file(f"modules/{number}-{name}.ko", modules[name])
            for number, name in enumerate(MODULES)
        ),
        cpio.file("etc/xen/xl.conf", XL_CONFIGURATION),
        cpio.file("laxity/kernel", kernel),
    ]


def _modules(unpacked: Path) -> dict[str, Path]:
    return {path.stem: path for path in (unpacked / "lib/modules").rglob("*.ko")}


def libraries(
    unpacked: Path,
    programs: Iterable[Path],
    directories: Iterable[str] = (),
    also: Iterable[Path] = (),
) -> list[cpio.Entry]:
    """All that `programs` of unpacked packages are linked with, `also`, and who loads them.

    `directories` are where libraries are besides the usual ones. Raises LabError if no package has
    one.
    """
    found = {path.name: path for path in also}
    searched = (*LIBRARY_DIRECTORIES, *directories)
    paths = ":".join(str(unpacked / directory) for directory in searched)
    for program in programs:
        listing = packages.run(unpacked / LOADER, "--library-path", paths, "--list", program)
        for name, path in re.findall(r"^\t(\S+) => (.*?)(?: \(0x\w+\))?$", listing, re.MULTILINE):
            if Path(name).name == Path(LOADER).name:
                continue
            if not Path(path).is_relative_to(unpacked):
                raise LabError(
                    f"{program.name} needs the library {name}, which is in none of the packages",
                    "this is not Debian 12: its packages are of other versions",
                )
            found[name] = Path(path)
    return [
        cpio.file(LOADER, unpacked / LOADER, executable=True),
        *(cpio.file(f"{LIBRARY_DIRECTORIES[0]}/{name}", found[name]) for name in sorted(found)),
    ]


def in_libraries(unpacked: Path, name: str) -> Path:
    """A library of unpacked packages. Raises LabError if none has it."""
    for directory in LIBRARY_DIRECTORIES:
        path = unpacked / directory / name
        if path.exists():
            return path
    raise LabError(f"no package has {name}", "this is not Debian 12")


def _kernel(unpacked: Path) -> bytes:
    """The kernel of a package, as small as it can be, for dom0 and guests."""
    (path,) = (unpacked / "boot").glob("vmlinuz-*")
    return _without_zeros(_with_less_to_grow(unpacked_kernel(path)))


def unpacked_kernel(path: Path) -> bytes:
    """The kernel as an ELF file, taken out of the file that unpacks itself.

    Unpacking would take seconds under emulation, in each host and guest. The header's fields are in
    the kernel's `Documentation/x86/boot.rst`. Raises LabError if it is packed in an unknown way.
    """
    data = path.read_bytes()
    real_mode_sectors = data[0x1F1] + 1
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = real_mode_sectors * 512 + offset
    packed = data[start : start + length]
    if packed.startswith(ZSTD_MAGIC):
        import pyarrow as pa  # noqa: PLC0415 - it takes long, and few need it

        # The build of the kernel puts the size behind it.
        (size,) = struct.unpack("<I", packed[-4:])
        return bytes(pa.Codec("zstd").decompress(packed[:-4], size))
    try:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed)
    except lzma.LZMAError:
        raise LabError(
            f"the kernel {path.name} is packed neither by xz nor by zstd", "this is not Debian's"
        ) from None


def _with_less_to_grow(elf: bytes) -> bytes:
    """The same kernel, ready to grow to 16 GiB, not to 512.

    At its boot under Xen, Debian's looks at each page frame that it might have one day, 134 million
    of them, for most of the time that it takes to boot: XEN_BALLOON_MEMORY_HOTPLUG_LIMIT in
    `xen_vmalloc_p2m_tree`, arch/x86/xen/p2m.c. A kernel that does so elsewhere stays as it is.
    """
    found = list(re.finditer(GROWTH, elf, re.DOTALL))
    if len(found) != 1:
        return elf
    limit = struct.pack("<I", (16 << 30) // PAGE_BYTES)
    return elf[: found[0].start(1)] + limit + elf[found[0].end(1) :]


def _without_zeros(elf: bytes) -> bytes:
    """The same program without the zeros at its end, which whoever loads it fills in.

    They are two fifths of Linux, and would be copied several times on the way into each guest.
    """
    (headers,) = struct.unpack_from("<Q", elf, 32)
    (count,) = struct.unpack_from("<H", elf, 56)
    segments = range(headers, headers + count * SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES)
    last = max(segments, key=lambda segment: struct.unpack_from("<Q", elf, segment + 8))
    offset, size = (struct.unpack_from("<Q", elf, last + field)[0] for field in (8, 32))
    content = elf[offset : offset + size].rstrip(b"\0")
    shorter = bytearray(elf[:offset] + content)
    struct.pack_into("<Q", shorter, last + 32, len(content))
    # The section headers stood behind it; no loader reads them.
    struct.pack_into("<Q", shorter, 40, 0)
    struct.pack_into("<HH", shorter, 60, 0, 0)
    return bytes(shorter)


def _kernel_package() -> str:
    """The package that has the newest kernel itself."""
    listing = packages.ask_apt("apt-cache", "depends", "--important", KERNEL_PACKAGE)
    found = re.search(r"Depends: (linux-image-\S+)", listing)
    if found is None:
        raise packages.unknown_package(KERNEL_PACKAGE)
    return found[1]


def _digest(downloads: list[packages.Download], *more: str) -> str:
    """Names an image: a change of a package, or of how it is made, gives another."""
    digest = hashlib.sha256()
    for part in (__file__, cpio.__file__):
        digest.update(Path(part).read_bytes())
    digest.update(repr((downloads, *more) if more else downloads).encode())
    return digest.hexdigest()[:16]


def _silent(line: str) -> None:
    del line
