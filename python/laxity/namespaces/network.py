"""Network namespaces: two with a cable between them, or machines on a switch."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.namespaces.groups import PREFIX, is_left_behind
from laxity.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Interface = IPv4Interface | IPv6Interface

NAMESPACES = Path("/run/netns")
CLIENT, SERVER = "client", "server"
ADDRESSES = {CLIENT: "192.0.2.1", SERVER: "192.0.2.2"}
"""Addresses that are reserved for documentation (RFC 5737): nobody outside has them."""
CABLE = "media0"


CLIENT_ADDRESS = ADDRESSES[CLIENT]
GUEST_ADDRESS = "192.0.2.10"
BRIDGE = "bridge0"
UPLINK = "uplink"


@contextmanager
def taps(names: Sequence[str]) -> Iterator[Path]:
    """A namespace with tap devices on a bridge, whose own address is the client's."""
    namespace = f"{PREFIX}{os.getpid()}-taps"
    _remove_left_behind()
    try:
        with uninterrupted():
            _bridge(namespace, [IPv4Interface(f"{CLIENT_ADDRESS}/24")], names)
        yield NAMESPACES / namespace
    finally:
        _remove([namespace])


@dataclass(frozen=True)
class Machine:
    """One that is to be on a switch."""

    name: str
    addresses: Sequence[Interface]
    taps: tuple[str, ...] = ()
    """For guests, which are in the network as the machine is."""


@contextmanager
def switch(clients: Sequence[Interface], machines: Sequence[Machine]) -> Iterator[dict[str, Path]]:
    """A namespace for each machine by its name, and for the clients under `CLIENT`.

    The clients' has the switch, whose own addresses are theirs.
    """
    names = {
        name: f"{PREFIX}{os.getpid()}-{name}" for name in (CLIENT, *(m.name for m in machines))
    }
    switch = names[CLIENT]
    _remove_left_behind()
    try:
        with uninterrupted():
            _bridge(switch, clients)
            for number, machine in enumerate(machines):
                name = names[machine.name]
                _bridge(name, machine.addresses, machine.taps)
                port = f"port{number}"
                cable = ("link", "add", port, "netns", switch, "type", "veth")
                _ip(*cable, "peer", "name", UPLINK, "netns", name)
                _ip("-n", switch, "link", "set", port, "master", BRIDGE, "up")
                _ip("-n", name, "link", "set", UPLINK, "master", BRIDGE, "up")
        yield {name: NAMESPACES / namespace for name, namespace in names.items()}
    finally:
        _remove(names.values())


def _bridge(namespace: str, addresses: Sequence[Interface], taps: Sequence[str] = ()) -> None:
    """A namespace with a bridge, which has addresses and tap devices."""
    _ip("netns", "add", namespace)
    _ip("-n", namespace, "link", "set", "lo", "up")
    # A bridge that waits before it forwards would look like a guest that does not answer.
    _ip("-n", namespace, "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
    for address in addresses:
        # One of IPv6 would be of use only once nobody else on the link has claimed it.
        at_once = ["nodad"] if address.version == 6 else []  # noqa: PLR2004 - IPv6
        _ip("-n", namespace, "address", "add", str(address), "dev", BRIDGE, *at_once)
    _ip("-n", namespace, "link", "set", BRIDGE, "up")
    for tap in taps:
        _ip("-n", namespace, "tuntap", "add", "dev", tap, "mode", "tap")
        _ip("-n", namespace, "link", "set", tap, "master", BRIDGE, "up")


@contextmanager
def network() -> Iterator[dict[str, str]]:
    """The namespaces by side, for as long as they are needed."""
    names = {side: f"{PREFIX}{os.getpid()}-{side}" for side in ADDRESSES}
    _remove_left_behind()
    try:
        with uninterrupted():
            for name in names.values():
                _ip("netns", "add", name)
            client, server = names[CLIENT], names[SERVER]
            cable = ("link", "add", CABLE, "netns", client, "type", "veth")
            _ip(*cable, "peer", "name", CABLE, "netns", server)
            for side, name in names.items():
                # Servers of one side talk to each other at its address, which is a loop.
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "address", "add", f"{ADDRESSES[side]}/24", "dev", CABLE)
                _ip("-n", name, "link", "set", CABLE, "up")
        yield names
    finally:
        # The cable goes with them.
        _remove(names.values())


@uninterrupted()
def _remove(names: Iterable[str]) -> None:
    for name in names:
        if (NAMESPACES / name).exists():
            _ip("netns", "delete", name)


def _remove_left_behind() -> None:
    """Namespaces of runs that were killed; another run may be removing them, too."""
    for path in NAMESPACES.glob(f"{PREFIX}*"):
        if is_left_behind(path.name):
            try:
                _ip("netns", "delete", path.name)
            except InputError:
                if path.exists():
                    raise


def _ip(*arguments: str) -> None:
    done = subprocess.run(
        ["ip", *arguments],
        capture_output=True,
        text=True,
        check=False,
        # Ctrl-C is this process's to handle.
        process_group=0,
    )
    if done.returncode != 0:
        raise InputError(
            f"cannot make network namespaces: {done.stderr.strip()}",
            "be root, on a kernel with network namespaces and veth",
        )
