"""Calls on Xen: real packets from dom0, which has the phones, through netback to a guest and back.

Pure. The driver domain of a host file is dom0 itself. It has a bridge, the guest of the media
server has an interface on it, and `laxity-media` runs at both ends: in dom0 it is the calls'
parties and measures, in the guest it is the media server. In a plan:

    network laxity0 ADDRESS/BITS        dom0's bridge
    pin Domain-0 0,1 ...                a mask for each of its VCPUs
    connect laxity-media ADDRESS/BITS   the guest's interface
    program laxity-media /laxity-media relay ...
    calls ADDRESS:PORT STREAMS SAMPLE PAGES   those of the next window, and room for their trace
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.lab.files import HOTPLUG
from laxity.resolved import calls_of, network_of, refuse_processing, server_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laxity.resolved_schema import Domain, ResolvedHost

PROGRAM = "laxity-media"
"""In dom0 among the lab's programs; in the root of a guest with a network at its top."""
BRIDGE = "laxity0"
DOM0_ADDRESS = "192.0.2.1"
GUEST_ADDRESS = "192.0.2.{}"
GUEST_FIRST = 10
PREFIX_BITS = 24
"""Addresses for documentation (RFC 5737): nobody else has them."""
CONTROL_PORT = 2223

PACKETS_A_SECOND = 50
"""The packets of a stream of G.711."""
TRACED_BYTES = 1500
"""The most that a packet's way through dom0 and a guest adds to the trace: some 500 bytes where
nobody else runs."""
TRACED_BYTES_MAX = 110 << 20
PAGES_WITHOUT = 3000
"""The pages of Xen's trace buffer for all that is not packets."""
PAGE_BYTES = 4096


def driver(host: ResolvedHost) -> Domain | None:
    """The domain of a resolved host that is dom0 itself."""
    network = host["network"]
    if network is None or network["driver"] is None:
        return None
    return host["domains"][network["driver"]]


def guests(host: ResolvedHost) -> list[Domain]:
    """The domains of a resolved host that are created."""
    return [domain for domain in host["domains"] if domain is not driver(host)]


def media_server(host: ResolvedHost) -> Domain | None:
    """The domain that the calls go through."""
    if host["calls"] is None:
        return None
    return host["domains"][host["calls"]["media_server"]]


def refuse(host: ResolvedHost) -> None:
    """Raises InputError for calls that guests on Xen cannot have."""
    calls, network = calls_of(host), network_of(host)
    if calls["rate"] or calls["signalling_server"] is not None:
        raise InputError(
            "`[calls]` come and go, or have a signalling server, and on Xen all are there from the "
            "start",
            "have `streams` alone, or run it in the simulator or on Linux",
        )
    if calls["call_control"] is not None:
        raise InputError(
            "`calls.call-control` is a domain, and no guest on Xen is one",
            "leave it out, or run it in the simulator",
        )
    refuse_processing(host, "Xen")
    if network["native"]:
        raise InputError(
            "`host.native` is true, and on Xen every server is a virtual machine",
            "add --set host.native=false, or run it in the simulator or on Linux",
        )
    if not calls["streams"]:
        raise InputError("`calls.streams` is 0, and on Xen there are no others", "have some")
    if traced_bytes(host) > TRACED_BYTES_MAX:
        most = TRACED_BYTES_MAX // (PACKETS_A_SECOND * TRACED_BYTES)
        raise InputError(
            f"`calls.streams` are {calls['streams']} for {host['duration_ns'] / 1e9:g} s, and Xen "
            f"can trace {most} for one second",
            f"add --set calls.streams={max(1, int(most * 1e9 / host['duration_ns']))}, or make "
            "`duration` shorter",
        )
    for nic in network["nics"]:
        if nic["domain"] != network["driver"]:
            owner = host["domains"][nic["domain"]]["name"]
            raise InputError(
                f"`nic.{nic['name']}` is {owner}'s own (VMM bypass), and on the emulated machine "
                "dom0 has all",
                "leave `domain` out, or run it in the simulator",
            )
    if "ns" not in (_work(media_server(host)) or {"ns": 0}):
        raise InputError(
            "`work` of the media server is a distribution, and on Xen a packet's work always takes "
            "as long",
            'write work = "5 us", say',
        )


def traced_bytes(host: ResolvedHost) -> int:
    """What Xen traces of a window's packets, at most."""
    calls = host["calls"]
    if calls is None:
        return 0
    seconds: float = host["duration_ns"] / 1e9
    return int(calls["streams"] * PACKETS_A_SECOND * seconds * TRACED_BYTES)


def _work(domain: Domain | None) -> dict[str, int] | None:
    return None if domain is None else server_of(domain)["own_work"]


def interface(home: str) -> str:
    """The line of a guest's configuration for its interface."""
    return f'vif = ["script={home}/{HOTPLUG},bridge={BRIDGE}"]'


def before_boot() -> Iterator[str]:
    """Lines of a plan before guests are created."""
    yield f"network {BRIDGE} {DOM0_ADDRESS}/{PREFIX_BITS}"


def before_start(name: str, host: ResolvedHost) -> Iterator[str]:
    """Lines of a plan for the media server's guest, which is `name` there, before it starts."""
    server = media_server(host)
    assert server is not None  # noqa: S101 - for the types: there are calls
    work = server_of(server)
    address = GUEST_ADDRESS.format(GUEST_FIRST)
    arguments = [
        *(f"/{PROGRAM}", "relay", "--json"),
        *("--control", f"{address}:{CONTROL_PORT}", "--control-from", DOM0_ADDRESS),
        *("--address", address),
        *("--threads", str(work["threads"])),
        *("--work", f"{(_work(server) or {'ns': 0})['ns']} ns"),
        *(["--transcode"] if work["transcode"] else []),
    ]
    yield f"connect {name} {address}/{PREFIX_BITS}"
    yield shlex.join(["program", name, *arguments])


def before_window(host: ResolvedHost) -> Iterator[str]:
    """Lines of a plan for the calls of the next window."""
    calls = calls_of(host)
    address = GUEST_ADDRESS.format(GUEST_FIRST)
    pages = PAGES_WITHOUT + traced_bytes(host) // PAGE_BYTES
    yield f"calls {address}:{CONTROL_PORT} {calls['streams']} {calls['sample']} {pages}"
