"""Strangers who hold connections of SIP over TCP take no memory that others need."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
from contextlib import ExitStack, closing, contextmanager
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING

import pytest
from laxity.appliances import image
from laxity.namespaces.network import CLIENT, Machine, switch
from laxity.namespaces.process import Place, process
from laxity.servers import registrar, signalling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENTS, SERVER = "192.0.2.9", "192.0.2.31"
STRANGERS = 4_500
"""Connections, more than fit into the memory of either server here."""
USERS = 500
RATE_PER_S = 100

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("kamailio", "sipp", "ip", "nsenter"))),
        reason="needs root, kamailio, sip-tester and iproute2",
    ),
]


def words_of_the_appliance(files: Path) -> list[str]:
    """Returns the words with which the appliance starts Kamailio, but for its places."""
    programs = files / "programs"
    programs.mkdir()
    for name, does in (("kamailio", 'printf "%s\\n" "$@"'), ("mkdir", "true")):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    serves = ["sh", "-c", f". {image.FILES}/serve-signalling"]
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "first": SERVER}
    done = subprocess.run(serves, env=variables, capture_output=True, text=True, check=True)
    _, words = done.stdout.split("-f\n/kamailio.cfg\n")
    found = words.splitlines()
    for option in ("-w", "-Y", "-P"):
        number = found.index(option)
        del found[number : number + 2]
    return found


@contextmanager
def serving(where: str, there: Place) -> Iterator[None]:
    if where == "host":
        with signalling.proxy("server", SERVER, there):
            yield
        return
    command = ["kamailio", "-f", str(signalling.FILES / "kamailio.cfg")]
    command += words_of_the_appliance(there.files)
    command += ["-w", str(there.files), "-Y", str(there.files), "-P", str(there.files / "pid")]
    with process("server", command, there, own_processes=True) as started:
        started.wait_for_port(signalling.SIP_PORT)
        yield


@contextmanager
def held(namespace: Path) -> Iterator[int]:
    """Connections that say next to nothing; how many could be made."""
    with ExitStack() as stack:
        made = 0
        for _ in range(STRANGERS):
            stranger = registrar.socket_in(namespace, socket.SOCK_STREAM)
            stack.enter_context(closing(stranger))
            try:
                stranger.connect((SERVER, signalling.SIP_PORT))
                stranger.send(b"R")
            except OSError:
                continue
            made += 1
        yield made


@pytest.mark.parametrize("where", ["appliance", "host"])
def test_connections_leave_memory_for_everybody_else(tmp_path: Path, where: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * STRANGERS:
        pytest.skip(f"a process may have {hard} files open here")
    machine = Machine(SERVER, IPv4Interface(f"{SERVER}/24"))
    with switch(IPv4Interface(f"{CLIENTS}/24"), [machine]) as spaces, ExitStack() as stack:
        here, there = (Place(spaces[each], files=tmp_path) for each in (CLIENT, SERVER))
        stack.enter_context(serving(where, there))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        assert stack.enter_context(held(here.namespace)) > signalling.CONNECTIONS
        said = signalling.registrations(USERS, RATE_PER_S, here, server=SERVER, client=CLIENTS)
        assert (said["succeeded"], said["failed"]) == (USERS, 0)
