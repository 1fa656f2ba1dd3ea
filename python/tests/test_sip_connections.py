"""Strangers who hold connections of SIP over TCP or TLS take no memory that others need."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack, closing, contextmanager, suppress
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING

import pytest
from laxity.appliances import image
from laxity.namespaces.network import CLIENT, Machine, switch
from laxity.namespaces.process import Place, process
from laxity.servers import identity, registrar, signalling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENTS, SERVER = "192.0.2.9", "192.0.2.31"
STRANGERS = 4_500
"""Connections, more than fit into the memory of either server here."""
TLS_CONNECTIONS = {"appliance": 200, "host": signalling.CONNECTIONS}
"""Those that each takes over TLS, which need more memory."""
USERS = 500
RATE_PER_S = 100

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("kamailio", "sipp", "ip", "nsenter"))),
        reason="needs root, kamailio, sip-tester and iproute2",
    ),
]


def words_of_the_appliance(files: Path, variables: dict[str, str]) -> list[str]:
    """Returns the words with which the appliance starts Kamailio, but for its places."""
    programs = files / "programs"
    programs.mkdir()
    for name, does in (("kamailio", 'printf "%s\\n" "$@"'), ("mkdir", "true")):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    serves = ["sh", "-c", f"at() {{ echo $1; }}; . {image.FILES}/serve-signalling"]
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "address": SERVER, **variables}
    done = subprocess.run(serves, env=environment, capture_output=True, text=True, check=True)
    _, words = done.stdout.split("-f\n/kamailio.cfg\n")
    found = words.splitlines()
    for option in ("-w", "-Y", "-P"):
        number = found.index(option)
        del found[number : number + 2]
    return [word.replace('"/etc/', f'"{files}/') for word in found]


@contextmanager
def serving(where: str, port: int, there: Place) -> Iterator[None]:
    has_tls = port == signalling.TLS_PORT
    own = identity.make("signalling", there.files) if has_tls else None
    if where == "host":
        with signalling.proxy("server", [SERVER], there, identity=own):
            yield
        return
    command = ["kamailio", "-f", str(signalling.FILES / "kamailio.cfg")]
    command += words_of_the_appliance(there.files, {"tls": "1"} if has_tls else {})
    command += ["-w", str(there.files), "-Y", str(there.files), "-P", str(there.files / "pid")]
    with process("server", command, there, own_processes=True) as started:
        started.wait_for_port(signalling.SIP_PORT)
        yield


def hello() -> bytes:
    """What a client of TLS says first: until it says more, its connection takes most memory."""
    context, sent = ssl.create_default_context(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="voice.example").do_handshake()
    return sent.read()


@contextmanager
def held(namespace: Path, port: int) -> Iterator[list[socket.socket]]:
    """Connections that say next to nothing: those that could be made."""
    begins = hello() if port == signalling.TLS_PORT else b"R"
    with ExitStack() as stack:
        made = []
        for _ in range(STRANGERS):
            stranger = registrar.socket_in(namespace, socket.SOCK_STREAM)
            stack.enter_context(closing(stranger))
            try:
                stranger.connect((SERVER, port))
                stranger.send(begins)
            except OSError:
                continue
            made.append(stranger)
        yield made


@pytest.mark.parametrize("port", [signalling.SIP_PORT, signalling.TLS_PORT])
@pytest.mark.parametrize("where", ["appliance", "host"])
def test_connections_leave_memory_for_everybody_else(tmp_path: Path, where: str, port: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * STRANGERS:
        pytest.skip(f"a process may have {hard} files open here")
    machine = Machine(SERVER, [IPv4Interface(f"{SERVER}/24")])
    with switch([IPv4Interface(f"{CLIENTS}/24")], [machine]) as spaces, ExitStack() as stack:
        here, there = (Place(spaces[each], files=tmp_path) for each in (CLIENT, SERVER))
        stack.enter_context(serving(where, port, there))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        strangers = stack.enter_context(held(here.namespace, port))
        assert len(strangers) > signalling.CONNECTIONS
        said = signalling.registrations(USERS, RATE_PER_S, here, server=SERVER, client=CLIENTS)
        assert (said["succeeded"], said["failed"]) == (USERS, 0)
        served = sum(map(is_answered, strangers))
        if port == signalling.TLS_PORT:
            assert 0 < served <= TLS_CONNECTIONS[where]
        else:
            assert served == 0


def is_answered(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    with suppress(OSError):
        return stranger.recv(1) != b""
    return False
