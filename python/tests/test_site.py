"""Sites of two stages: balancers by themselves, and a whole site through the death of a host."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, contextmanager
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING

import pytest
from laxity.linux import registrar, signalling
from laxity.linux.network import CLIENT, Machine, switch
from laxity.linux.process import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENTS = "192.0.2.9"
BALANCERS = ("192.0.2.21", "192.0.2.22")
REGISTRARS = ("192.0.2.31", "192.0.2.32")
USERS = [f"user{number}" for number in range(24)]

needs_sip = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("kamailio", "sipp", "ip", "nsenter"))),
    reason="needs root, kamailio, sip-tester and iproute2",
)


@contextmanager
def two_stages(files: Path) -> Iterator[Place]:
    """Two balancers before two registrars, all of them real, and none a virtual machine."""
    addresses = [*BALANCERS, *REGISTRARS]
    machines = [Machine(a, IPv4Interface(f"{a}/24")) for a in addresses]
    with ExitStack() as stack:
        places = stack.enter_context(switch(IPv4Interface(f"{CLIENTS}/24"), machines))
        for address in REGISTRARS:
            definitions = {"LISTEN": f"udp:{address}:{signalling.SIP_PORT}", "CHILDREN": "1"}
            place = Place(places[address], files=files)
            stack.enter_context(signalling.kamailio(f"registrar-{address}", definitions, place))
        for address in BALANCERS:
            place = Place(places[address], files=files)
            name = f"balancer-{address}"
            stack.enter_context(signalling.balancer(name, address, REGISTRARS, place))
        yield Place(places[CLIENT], files=files)


@needs_sip
def test_a_user_is_always_sent_to_the_same_registrar(tmp_path: Path) -> None:
    with two_stages(tmp_path) as clients:
        counted = signalling.registrations(
            len(USERS), 50.0, clients, server=BALANCERS[0], client=CLIENTS
        )
        assert (counted["succeeded"], counted["failed"]) == (len(USERS), 0)

        def known(address: str) -> set[str]:
            return set(registrar.bindings(clients.namespace, address, USERS))

        # Each knows its own, together they know all, whichever balancer is asked.
        halves = [known(address) for address in REGISTRARS]
        assert all(halves)
        assert not halves[0] & halves[1]
        assert halves[0] | halves[1] == set(USERS)
        assert known(BALANCERS[1]) == set(USERS)

        # Calls find the callee there, and everything within the dialog the server that has it.
        traffic = signalling.Traffic(calls=12, rate_per_s=12.0, hold_ns=500_000_000)
        made = signalling.users(traffic, clients, "orders", server=BALANCERS[1], client=CLIENTS)
        with made as users:
            users.caller.popen.wait(30)
            counted = users.stop()
        assert (counted["established"], counted["failed"]) == (traffic.calls, 0)


@needs_sip
def test_a_balancer_says_that_it_is_there_and_passes_on_nothing_else(tmp_path: Path) -> None:
    with two_stages(tmp_path) as clients:
        there = registrar.ask(clients.namespace, BALANCERS[0], "OPTIONS", BALANCERS[0])
        assert there.startswith(b"SIP/2.0 200 ")
        elsewhere = f"<sip:{CLIENTS}:5999;lr>"
        refused = registrar.ask(
            clients.namespace, BALANCERS[0], "OPTIONS", f"user@{CLIENTS}", route=elsewhere
        )
        assert refused.startswith(b"SIP/2.0 403 ")
