"""Two network namespaces with a cable between them: the clients', and the media server's."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.linux.groups import PREFIX, is_left_behind

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACES = Path("/run/netns")
CLIENT, SERVER = "client", "server"
ADDRESSES = {CLIENT: "192.0.2.1", SERVER: "192.0.2.2"}
"""Of the network that is kept for examples (RFC 5737): nobody outside has them."""
CABLE = "media0"


@contextmanager
def network() -> Iterator[dict[str, str]]:
    """The namespaces by side, for as long as they are needed."""
    names = {side: f"{PREFIX}{os.getpid()}-{side}" for side in ADDRESSES}
    for path in NAMESPACES.glob(f"{PREFIX}*"):
        if is_left_behind(path.name):
            _ip("netns", "delete", path.name)
    try:
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
        for name in names.values():
            if (NAMESPACES / name).exists():
                _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(
            f"cannot make network namespaces: {done.stderr.strip()}",
            "be root, on a kernel with network namespaces and veth",
        )
