"""Debian's own libvirt and QEMU for tests, in the emulated KVM host and here."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

from laxity.lab import cpio, kvm_image, packages

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = (
    *("libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients", "qemu-system-x86"),
    "python3",
)
SHARED = ("libvirt", "qemu", "seabios", "vgabios")
"""The directories of /usr/share that are needed."""
LEFT_OUT = (
    *("etc/", "usr/lib/ipxe/", "usr/libexec/qemu-system-i386", "usr/bin/qemu-system-i386"),
    *("usr/bin/qemu-storage-daemon", "usr/bin/qemu-system-x86_64-microvm"),
    *(
        f"usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_{name}.so"
        for name in ("interface", "network", "nodedev", "nwfilter", "secret", "storage")
    ),
)
"""What takes memory and time, and is not needed."""

DIRECTORIES = ("etc/libvirt", "var/log/libvirt/qemu", "var/cache/libvirt", "var/lib/libvirt")
USERS = "root:x:0:0::/:/bin/sh\nlibvirt-qemu:x:64055:104::/var/lib/libvirt:/bin/false\n"
GROUPS = "root:x:0:\nkvm:x:104:\nlibvirt-qemu:x:64055:\n"
CONFIGURATION = """\
security_driver = "none"
namespaces = []
stdio_handler = "file"
"""
"""What libvirt's driver for QEMU needs on a host without systemd and AppArmor."""

SCRIPT = f"""\
mkdir -p /run {" ".join(f"/{name}" for name in DIRECTORIES)}
ln -sfn /run /var/run
echo '{USERS}' >/etc/passwd
echo '{GROUPS}' >/etc/group
hostname host
echo '127.0.0.1 host' >/etc/hosts
echo '{CONFIGURATION}' >/etc/libvirt/qemu.conf
chown root:kvm /dev/kvm
chmod 660 /dev/kvm
PATH=$PATH:/usr/bin:/usr/sbin:/sbin
"""
"""Makes of the emulated host one on which `libvirtd` starts; the rest of a plan follows."""


def root() -> Path:
    """The directory in which the packages are unpacked, once for these versions."""
    downloads = packages.with_dependencies(PACKAGES)
    names = hashlib.sha256(repr(downloads).encode()).hexdigest()[:16]
    place = kvm_image.CACHE / f"libvirt-{names}"
    with packages.only_one(kvm_image.CACHE / "libvirt.lock"):
        if not place.is_dir():
            new = kvm_image.CACHE / "libvirt.new"
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            for package in packages.fetch(downloads, kvm_image.CACHE / "packages"):
                packages.run("dpkg-deb", "--extract", package, new)
            new.rename(place)
    return place


def entries() -> list[cpio.Entry]:
    """The files of the packages."""
    directory = root()
    found = []
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        shared = name.startswith("usr/share/") and name.split("/")[2] not in SHARED
        if shared or name.startswith(LEFT_OUT):
            continue
        if path.is_symlink():
            found.append(cpio.link(name, str(path.readlink())))
        elif path.is_file():
            found.append(cpio.file(name, path, executable=True))
    return found
