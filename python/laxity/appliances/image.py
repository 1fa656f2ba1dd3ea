"""Makes appliances, each a kernel and a root file system, from Debian's packages."""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.lab import cpio, image, packages
from laxity.servers import identity, signalling, users

if TYPE_CHECKING:
    from collections.abc import Callable

    from laxity.servers.users import Accounts

FILES = Path(__file__).parent

SIGNALLING, MEDIA, RTPENGINE = "signalling", "media", "rtpengine"
MEDIA_SERVERS = (MEDIA, RTPENGINE)
"""Those that relay calls: Laxity's own media server, and Debian's rtpengine."""
FILTER_PACKAGES = (
    *("busybox-static", "libc6", "nftables", "libnftables1", "libnftnl11", "libmnl0"),
    *("libjansson4", "libgmp10", "libxtables12", "libedit2", "libbsd0", "libmd0", "libtinfo6"),
)
PACKAGES = {
    SIGNALLING: ("busybox-static", "kamailio", "kamailio-tls-modules", "libc6", "libssl3"),
    MEDIA: FILTER_PACKAGES,
    RTPENGINE: (*FILTER_PACKAGES, "rtpengine-daemon"),
}

MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci"),
    *("virtio_mmio", "failover", "net_failover", "virtio_net", "virtio-rng"),
)
"""Kernel modules for the network card and the source of randomness that QEMU gives a guest."""

FILTER_MODULES = ("crc32c_generic", "nfnetlink", "libcrc32c", "nf_tables")
"""What the packet filter of a media server needs; libcrc32c asks for the first by its name."""
NFT = "usr/sbin/nft"

PROTOCOLS = b"tcp 6 TCP\nudp 17 UDP\n"
"""The content of /etc/protocols, in which Kamailio looks up the number of TCP."""
KAMAILIO = "usr/sbin/kamailio"
KAMAILIO_DIRECTORY = "usr/lib/x86_64-linux-gnu/kamailio"
RTPENGINE_PROGRAM = "usr/bin/rtpengine"
LOADED = re.compile(r'^loadmodule "(\w+\.so)"', re.MULTILINE)

KERNEL, ROOT = "kernel", "{}.cpio"
CERTIFICATE = f"{SIGNALLING}.crt"
"""Balancers know a server in an appliance by it. Its key is in no file but the appliance."""


@dataclass(frozen=True)
class Appliance:
    """The files of an appliance, booted by `qemu -kernel … -initrd … -append "address=…"`."""

    kernel: Path
    root: Path


AUTHENTICATION_OFF = "authentication is off: anybody may register and call in anybody's name"


def build(
    name: str, directory: Path, say: Callable[[str], None], accounts: Accounts | None = None
) -> Appliance:
    """Writes an appliance into a directory, which is made if it does not exist.

    The appliance `signalling` serves only the users of `accounts`; without them, authentication is
    off. Raises InputError for an unknown name, LabError if a package or a program is missing.
    """
    if name not in PACKAGES:
        raise InputError(f"there is no appliance {name!r}", f"there are {', '.join(PACKAGES)}")
    if name != SIGNALLING and accounts is not None:
        raise InputError(f"the appliance {name} has no users", "leave `--users` out")
    if name == SIGNALLING and accounts is None:
        say(f"{AUTHENTICATION_OFF}; `--users FILE` switches it on")
    modules = (*MODULES, *FILTER_MODULES) if name in MEDIA_SERVERS else MODULES
    kernel = image.kernel(modules)
    directory.mkdir(parents=True, exist_ok=True)
    names = PACKAGES[name]
    if name == RTPENGINE:
        # Its codecs bring some hundred libraries.
        names = tuple(each.name for each in packages.with_dependencies(names))
    with image.unpacked(names) as unpacked:
        if name == SIGNALLING:
            server = _signalling(unpacked, directory, accounts)
        elif name == MEDIA:
            relay = image.static("laxity-media", say)
            server = _media_server(unpacked, relay, [])
        else:
            relay = unpacked / RTPENGINE_PROGRAM
            server = _media_server(unpacked, relay, [relay])
        root = cpio.archive(
            [
                cpio.file("init", FILES / "init", executable=True),
                cpio.file("serve", FILES / f"serve-{name}"),
                cpio.file("bin/busybox", unpacked / "bin/busybox", executable=True),
                cpio.character_device("dev/console", 5, 1),
                *image.numbered("modules", kernel.modules, modules),
                *server,
            ]
        )
    made = Appliance(directory / KERNEL, directory / ROOT.format(name))
    made.kernel.write_bytes(kernel.kernel.read_bytes())
    # A root with a key is a secret, and one with accounts is as secret as their passwords.
    made.root.unlink(missing_ok=True)
    made.root.touch(mode=0o600 if name == SIGNALLING else 0o644)
    made.root.write_bytes(root)
    return made


def _signalling(unpacked: Path, directory: Path, accounts: Accounts | None) -> list[cpio.Entry]:
    configuration = (signalling.FILES / "kamailio.cfg").read_text("utf-8")
    program = unpacked / KAMAILIO
    modules = unpacked / KAMAILIO_DIRECTORY / "modules"
    loaded = [modules / name for name in LOADED.findall(configuration)]
    proofs = []
    if accounts is not None:
        proofs = [
            cpio.file(f"etc/users/{users.TABLE}", accounts.table().encode()),
            cpio.file("etc/realm", accounts.realm.encode()),
        ]
    with tempfile.TemporaryDirectory(prefix="laxity.") as secret:
        made = identity.make(SIGNALLING, Path(secret))
        certificate, key = made.certificate.read_bytes(), made.key.read_bytes()
    (directory / CERTIFICATE).write_bytes(certificate)
    return [
        *proofs,
        cpio.file(f"etc/{SIGNALLING}.crt", certificate),
        cpio.file(f"etc/{SIGNALLING}.key", key),
        cpio.file("bin/kamailio", program, executable=True),
        cpio.file("kamailio.cfg", configuration.encode()),
        cpio.file("etc/protocols", PROTOCOLS),
        *(cpio.file(f"{KAMAILIO_DIRECTORY}/modules/{path.name}", path) for path in loaded),
        *image.libraries(unpacked, [program, *loaded], [KAMAILIO_DIRECTORY]),
    ]


def _media_server(unpacked: Path, relay: Path, linked: list[Path]) -> list[cpio.Entry]:
    """The program that relays, what it is `linked` with, and the packet filter before it."""
    program = unpacked / NFT
    return [
        cpio.file(f"bin/{relay.name}", relay, executable=True),
        cpio.file("bin/nft", program, executable=True),
        cpio.file("filter", FILES / "filter"),
        cpio.file("serve-media-server", FILES / "serve-media-server"),
        *image.libraries(unpacked, [program, *linked]),
    ]
