"""Appliances: made of packages, booted by QEMU, and served by."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

import pytest
from laxity.appliances import image
from laxity.lab.machine import QEMU
from sip_scenarios import credentials

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Laxity

REALM = "voice.example"
ADDRESS = "10.0.2.15"
"""A guest's address in the network that QEMU itself is, which reaches nothing but our ports."""
ARGUMENTS = (
    "console=ttyS0 quiet loglevel=1 cryptomgr.notests mitigations=off no_timer_check"
    " rootfstype=ramfs"
)
BOOT_S = 1200.0
ASK_S = 2.0
"""Until a question is asked again by UDP. By TCP it would be another, from another port."""
LOOPBACK = f"127.{1 + (os.getpid() >> 16) % 254}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""This process's own address of this computer: a free port stays free until QEMU takes it."""
MIB = 2**20

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(QEMU) is None, reason=f"there is no {QEMU}"),
    pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="this is not Debian"),
]


@contextmanager
def booted(
    made: image.Appliance, arguments: str, *ports: tuple[str, int], memory_mib: int = 128
) -> Iterator[Path]:
    """A machine whose console is in the file; it is off afterwards."""
    console = made.root.with_suffix(".console")
    forwards = "".join(
        f",hostfwd={kind}:{LOOPBACK}:{local(port)}-{ADDRESS}:{port}" for kind, port in ports
    )
    words = [
        QEMU,
        "-M",
        "pc",
        "-accel",
        "tcg",
        "-m",
        str(memory_mib),
        "-nodefaults",
        "-display",
        "none",
    ]
    words += ["-kernel", str(made.kernel), "-initrd", str(made.root)]
    words += ["-append", f"{ARGUMENTS} {arguments}", "-serial", f"file:{console}"]
    words += ["-netdev", f"user,id=net{forwards}"]
    words += ["-device", "virtio-net-pci,netdev=net,romfile="]
    with subprocess.Popen(words) as machine:
        try:
            until = time.monotonic() + BOOT_S
            while "laxity: up at" not in (console.read_text() if console.exists() else ""):
                assert machine.poll() is None, "it is off"
                assert time.monotonic() < until, console.read_text()
                time.sleep(0.1)
            yield console
        finally:
            machine.kill()


@cache
def local(_: int) -> int:
    """A port of this computer that nobody else has, for that one of the machine."""
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        found: int = free.getsockname()[1]
        return found


def ask(kind: socket.SocketKind, port: int, question: bytes, console: Path) -> bytes:
    """The answer, however long the server takes to come up."""
    until = time.monotonic() + BOOT_S
    while time.monotonic() < until:
        with socket.socket(socket.AF_INET, kind) as asking:
            asking.settimeout(ASK_S if kind == socket.SOCK_DGRAM else BOOT_S)
            try:
                asking.connect((LOOPBACK, local(port)))
                asking.send(question)
                # What is asked again by UDP comes from the same port: there it is answered.
                while kind == socket.SOCK_DGRAM and time.monotonic() < until:
                    with suppress(TimeoutError):
                        return asking.recv(4096)
                    asking.send(question)
                if answer := asking.recv(4096):
                    return answer
            except OSError:
                time.sleep(0.2)
    raise AssertionError(console.read_text())


def register(user: str, transport: str, *proof: str) -> bytes:
    lines = [
        f"REGISTER sip:{ADDRESS} SIP/2.0",
        f"Via: SIP/2.0/{transport} 127.0.0.1:5080;rport;branch=z9hG4bK-{user}-{len(proof)}",
        f"From: <sip:{user}@{ADDRESS}>;tag=1",
        f"To: <sip:{user}@{ADDRESS}>",
        f"Call-ID: {user}-{len(proof)}",
        *("CSeq: 1 REGISTER", *proof),
        f"Contact: <sip:{user}@127.0.0.1:5080>",
        "Expires: 600",
        *("Max-Forwards: 70", "Content-Length: 0", "", ""),
    ]
    return "\r\n".join(lines).encode()


def test_the_signalling_appliance_registers_users(laxity: Laxity, tmp_path: Path) -> None:
    names = ("anna", "bela")
    users = tmp_path / "users"
    users.touch(mode=0o600)
    digests = {name: hashlib.md5(f"{name}:{REALM}:blue".encode()).hexdigest() for name in names}  # noqa: S324
    users.write_text("".join(f"{name}:{REALM}:{ha1}\n" for name, ha1 in digests.items()))
    said = laxity("appliance", "signalling", "-o", tmp_path, "--users", users).stdout
    assert str(tmp_path / "signalling.cpio") in said
    made = image.Appliance(tmp_path / "kernel", tmp_path / "signalling.cpio")
    assert made.root.stat().st_size < 22 * MIB
    address = f"address={ADDRESS}/24 gateway=10.0.2.2 tls=1"
    ports = (("udp", 5060), ("tcp", 5060), ("tcp", 5061))
    with booted(made, address, *ports) as console:
        answers = []
        for user, kind in zip(names, (socket.SOCK_DGRAM, socket.SOCK_STREAM), strict=True):
            transport = "UDP" if kind == socket.SOCK_DGRAM else "TCP"
            challenge = ask(kind, 5060, register(user, transport), console).decode()
            assert challenge.startswith("SIP/2.0 401 "), challenge
            proof = credentials(challenge, user, "blue", "REGISTER", f"sip:{ADDRESS}")
            answers.append(ask(kind, 5060, register(user, transport, proof), console))
        # A balancer believes the appliance's own certificate and no other.
        context = ssl.create_default_context(cafile=tmp_path / image.CERTIFICATE)
        with (
            socket.create_connection((LOOPBACK, local(5061)), BOOT_S) as plain,
            context.wrap_socket(plain, server_hostname="signalling") as connection,
        ):
            connection.send(register(names[0], "TLS"))
            assert connection.recv(4096).startswith(b"SIP/2.0 401 ")
        assert "authentication is off" not in console.read_text()
    assert made.root.stat().st_mode & 0o777 == 0o600
    for answer, user in zip(answers, names, strict=True):
        assert answer.startswith(b"SIP/2.0 200 OK"), answer
        assert f"<sip:{user}@127.0.0.1:5080>;expires=600".encode() in answer


def test_the_media_appliance_is_told_of_calls(tmp_path: Path) -> None:
    made = image.build("media", tmp_path, print)
    assert made.root.stat().st_size < 12 * MIB
    address = f"address={ADDRESS}/24 gateway=10.0.2.2"
    with booted(made, f"{address} control_from=10.0.2.2", ("udp", 2223)) as console:
        pong = ask(socket.SOCK_DGRAM, 2223, b'1 {"command":"ping"}', console)
        sdp = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
        offer = {
            "command": "offer",
            "call-id": "1",
            "from-tag": "a",
            "sdp": f"{sdp}m=audio 5004 RTP/AVP 0\r\n",
        }
        answer = ask(socket.SOCK_DGRAM, 2223, b"2 " + json.dumps(offer).encode(), console)
    assert json.loads(pong[2:])["result"] == "pong"
    assert f"c=IN IP4 {ADDRESS}" in json.loads(answer[2:])["sdp"]


@pytest.mark.parametrize(("name", "memory_mib"), [("media", 128), ("rtpengine", 512)])
def test_a_media_server_gets_nothing_from_strangers(
    tmp_path: Path, name: str, memory_mib: int
) -> None:
    made = image.build(name, tmp_path, print)
    address = f"address={ADDRESS}/24 gateway=10.0.2.2 control_from=192.0.2.31,192.0.2.32"
    # Laxity's own refuses strangers, too. A port without a server answers nobody only if the filter
    # drops what comes there: the kernel would refuse the connection, which this end would see.
    ports = ("udp", 2223), ("tcp", 2224)
    with booted(made, address, *ports, memory_mib=memory_mib) as console:
        until = time.monotonic() + BOOT_S
        while "is open to 192.0.2.31,192.0.2.32 alone" not in console.read_text():
            assert time.monotonic() < until, console.read_text()
            time.sleep(0.1)
        with socket.create_connection((LOOPBACK, local(2224))) as closed:
            closed.settimeout(5 * ASK_S)
            with pytest.raises(TimeoutError):
                closed.recv(1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.connect((LOOPBACK, local(2223)))
            stranger.settimeout(ASK_S)
            for _ in range(3):
                stranger.send(b'1 {"command":"ping"}')
                with pytest.raises(TimeoutError):
                    stranger.recv(1)


def test_an_appliance_without_an_address_says_so(tmp_path: Path) -> None:
    made = image.build("media", tmp_path, print)
    with pytest.raises(AssertionError, match="it is off"), booted(made, ""):
        pass
    assert "error: there is no address=" in (tmp_path / "media.console").read_text()


def test_an_appliance_that_is_none_is_refused(laxity: Laxity) -> None:
    refused = laxity("appliance", "coffee", code=2)
    assert "there is no appliance 'coffee'" in refused.stderr
    assert "there are signalling, media, rtpengine" in refused.stderr
