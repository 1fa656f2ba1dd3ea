"""Laxity's policies as schedulers of Linux: verified BPF, and the program that loads it.

They are made of `policy/src` by the compiler for BPF of Debian's clang 19, with libbpf of
`bookworm-backports`, the first that knows arenas. The packages are unpacked in the cache and not
installed. `kvm/bpf/Makefile` says how.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity.lab import cpio, packages
from laxity.lab.errors import LabError
from laxity.lab.kvm_image import CACHE, KVM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from laxity.policies import Policy

COMPILER = (
    *("clang-19", "libclang-cpp19", "libclang-common-19-dev", "libllvm19", "llvm-19"),
    # What these need besides what every Debian has.
    *("libz3-4", "libedit2", "libffi8", "libxml2", "libbsd0", "libmd0", "libicu72"),
    *("libelf-dev", "zlib1g-dev"),
)
SUITE = "bookworm-backports"
LIBBPF = "libbpf-dev"

PROGRAMS = ("laxity-scx", "laxity-scx-compare")
"""What loads a scheduler, and what compares it with the simulator's policy: `kvm/programs`."""


@dataclass(frozen=True)
class Schedulers:
    """Policies, built for a KVM host."""

    place: Path
    """The directory that has them, and the programs that load them."""
    names: tuple[str, ...]
    """The policies' names."""

    def archive(self) -> bytes:
        """The archive of what the host gets: `laxity/POLICY.bpf.o`, and the programs."""
        return cpio.archive(
            [
                *(
                    cpio.file(f"laxity/{name}.bpf.o", self.place / _object(name))
                    for name in self.names
                ),
                *(
                    cpio.file(f"laxity/{name}", self.place / name, executable=True)
                    for name in PROGRAMS
                ),
            ]
        )

    def loading(self, policy: str) -> dict[str, bytes]:
        """Returns what loads a policy on a host: the files' contents, by name."""
        made = {PROGRAMS[0]: PROGRAMS[0], f"{policy}.bpf.o": _object(policy)}
        return {name: (self.place / file).read_bytes() for name, file in made.items()}


def build(policies: Sequence[Policy], say: Callable[[str], None]) -> Schedulers:
    """Makes the schedulers of policies, or what of them is older than its sources.

    Raises LabError if a program or a package is missing, or a policy cannot be built for BPF.
    """
    for program in ("apt-get", "dpkg-deb", "make", "gcc"):
        if shutil.which(program) is None:
            raise LabError(f"the lab needs {program}", "run it on Debian 12")
    place = CACHE / "bpf"
    with packages.only_one(CACHE / "bpf.lock"):
        tools = _tools(say)
        made = (f"TOOLS={tools}", f"OUT={place}")
        for policy in policies:
            if not (place / _object(policy.name)).is_file():
                say(f"making {policy.name} as a scheduler in BPF")
            words = (f"POLICY={_word(policy.name)}", f"SOURCE={_word(policy.switch_group)}")
            packages.run("make", "--silent", f"--directory={KVM / 'bpf'}", *made, *words)
        packages.run("make", "--silent", f"--directory={KVM / 'programs'}", *made, "scx")
    return Schedulers(place, tuple(policy.name for policy in policies))


def _word(name: str) -> str:
    """The name of a policy or group as C and files have it."""
    return name.replace("-", "_")


def _object(policy: str) -> str:
    return f"{_word(policy)}.bpf.o"


def _tools(say: Callable[[str], None]) -> Path:
    """The directory in which compiler and libraries are unpacked."""
    place = CACHE / "bpf-tools"
    if not place.is_dir():
        say("unpacking the compiler for BPF, once")
        backports = packages.suite(SUITE, CACHE / "apt-backports")
        kept = CACHE / "packages"
        found = [
            *packages.fetch(packages.downloads(COMPILER), kept),
            *packages.fetch(packages.downloads((LIBBPF,), backports), kept, backports),
        ]
        staging = CACHE / "bpf-tools.new"
        shutil.rmtree(staging, ignore_errors=True)
        for package in found:
            packages.run("dpkg-deb", "--extract", package, staging)
        staging.rename(place)
    return place
