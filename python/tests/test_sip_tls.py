"""SIP over TLS and IPv6: from phones to a balancer, and from there to a registrar and back."""

from __future__ import annotations

import base64
import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import ip_interface
from typing import TYPE_CHECKING

import pytest
from laxity import programs
from laxity.namespaces.network import CLIENT, Machine, switch
from laxity.namespaces.process import Place, process
from laxity.servers import identity, registrar, signalling
from laxity.servers.addresses import literal
from laxity.servers.control import socket_in
from sip_phones import ANSWER_S_MAX, Call, phone

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from laxity.namespaces.network import Interface
    from laxity.servers.identity import Identity

CLIENTS = ("192.0.2.9", "2001:db8::9")
BALANCERS, BALANCERS_6 = ("192.0.2.21", "192.0.2.22"), ("2001:db8::21", "2001:db8::22")
REGISTRARS, REGISTRARS_6 = ("192.0.2.31", "192.0.2.32"), ("2001:db8::31", "2001:db8::32")
MEDIA, CONTROL_PORT = ("192.0.2.41", "2001:db8::41"), 2223
DOMAIN = "voice.example"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("kamailio", "openssl", "ip", "nsenter"))),
        reason="needs root, kamailio, openssl and iproute2",
    ),
]


def interfaces(both: tuple[str, str]) -> list[Interface]:
    return [ip_interface(f"{both[0]}/24"), ip_interface(f"{both[1]}/64")]


@contextmanager
def two_stages(
    files: Path, servers: Path | None = None, *, has_media: bool = False
) -> Iterator[tuple[Path, Identity]]:
    """Balancers and registrars with TLS; the clients' namespace, and who the domain is.

    `servers` is another certificate than the registrars', which the balancers are to believe.
    """
    ours, own = identity.make(DOMAIN, files), identity.make("signalling", files)
    registrars = list(zip(REGISTRARS, REGISTRARS_6, strict=True))
    balancers = list(zip(BALANCERS, BALANCERS_6, strict=True))
    all_ = [*registrars, *balancers, MEDIA]
    machines = [Machine(both[0], interfaces(both)) for both in all_]
    with ExitStack() as stack:
        spaces = stack.enter_context(switch(interfaces(CLIENTS), machines))
        media = None
        if has_media:
            media = signalling.MediaControl(f"{MEDIA[0]}:{CONTROL_PORT}")
            relay = [str(programs.find("laxity-media")), "relay", "--control", media.address]
            relay += ["--control-from", ",".join(REGISTRARS), "--address", ",".join(MEDIA)]
            place = Place(spaces[MEDIA[0]], files=files)
            stack.enter_context(process("relay", relay, place)).wait_for_port(CONTROL_PORT)
        for both in registrars:
            place = Place(spaces[both[0]], files=files)
            name = f"registrar-{both[0]}"
            stack.enter_context(signalling.proxy(name, both, place, identity=own, media=media))
        tls = signalling.Tls(ours, servers or own.certificate)
        servers_ = [address for both in registrars for address in both]
        for both in balancers:
            place = Place(spaces[both[0]], files=files)
            name = f"balancer-{both[0]}"
            stack.enter_context(signalling.balancer(name, both, servers_, place, tls=tls))
        yield spaces[CLIENT], ours


def test_phones_are_called_over_the_connections_that_they_made(tmp_path: Path) -> None:
    with two_stages(tmp_path) as (clients, ours), ExitStack() as stack:

        def one(user: str, balancer: str, trusted: Path | None = ours.certificate) -> None:
            made = phone(clients, balancer, user, DOMAIN, trusted)
            phones[user] = stack.enter_context(made)
            assert phones[user].register().startswith("SIP/2.0 200 ")

        phones = {}
        one("anna", BALANCERS[0])
        one("bela", BALANCERS[1])
        one("cleo", BALANCERS[1], None)
        one("dora", BALANCERS_6[0])
        one("emil", BALANCERS_6[1], None)
        # The users are on both registrars, so that calls go by both.
        users = list(phones)
        halves = [set(registrar.bindings(clients, each, users)) for each in REGISTRARS]
        assert all(halves)
        # Whoever comes over IPv6 comes to the same registrar.
        assert halves == [set(registrar.bindings(clients, each, users)) for each in REGISTRARS_6]
        for each in BALANCERS_6:
            assert set(registrar.bindings(clients, each, users)) == set(users)
        for caller in users:
            for callee in users:
                if caller != callee:
                    Call(phones[caller], phones[callee]).end()
                    Call(phones[caller], phones[callee]).end_by_callee()
        Call(phones["anna"], phones["bela"], "sips").end()
        # A plain phone has no TLS, which the caller wants all the way.
        phones["anna"].send("INVITE", f"sips:cleo@{DOMAIN}")
        assert phones["anna"].hear("SIP/2.0 4").startswith("SIP/2.0 480 ")


@contextmanager
def call_with_keys(
    files: Path, transport: str, keys: dict[str, str]
) -> Iterator[tuple[Path, Call, list[socket.socket]]]:
    """A call of two phones, with what each says of keys, and their sockets for voice.

    The caller is anna, who uses IPv4, and the callee bela, who uses IPv6.
    """
    with two_stages(files, has_media=True) as (clients, ours), ExitStack() as stack:
        phones = []
        for user, balancer in zip(keys, (BALANCERS[0], BALANCERS_6[1]), strict=True):
            made = phone(clients, balancer, user, DOMAIN, ours.certificate)
            phones.append(stack.enter_context(made))
            secured = phones[-1].description.replace("RTP/AVP", transport)
            phones[-1].description = f"{secured}{keys[user]}\r\n"
            assert phones[-1].register().startswith("SIP/2.0 200 ")
        call = Call(*phones)
        assert keys["anna"] in call.invite
        assert keys["bela"] in call.accepted
        yield clients, call, [each.voice for each in phones]


def sends_to(told: str, address: str) -> tuple[str, int]:
    """Where a phone sends its voice to: the media server's address, and a port of the call."""
    assert f" {address}\r\n" in told
    (port,) = re.findall(r"^m=audio (\d+) ", told, re.MULTILINE)
    return address, int(port)


def test_encrypted_voice_goes_from_phone_to_phone(tmp_path: Path) -> None:
    """The media server has no keys: each phone has its own, which it tells the other in SIP."""
    pylibsrtp = pytest.importorskip("pylibsrtp")
    secrets = [user.encode() * 7 + b".." for user in ("anna", "bela")]
    crypto = "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:"
    keys = [crypto + base64.b64encode(secret).decode() for secret in secrets]
    both = {"anna": keys[0], "bela": keys[1]}
    with call_with_keys(tmp_path, "RTP/SAVP", both) as (_, call, voices):
        for sender, told in enumerate((call.accepted, call.invite)):
            policy = partial(pylibsrtp.Policy, key=secrets[sender])
            out, into = (
                pylibsrtp.Session(policy(ssrc_type=kind))
                for kind in (pylibsrtp.Policy.SSRC_ANY_OUTBOUND, pylibsrtp.Policy.SSRC_ANY_INBOUND)
            )
            packet = b"\x80\x00" + bytes([0, 1, *range(8)]) + bytes([sender] * 160)
            encrypted = out.protect(packet)
            voices[sender].sendto(encrypted, sends_to(told, MEDIA[sender]))
            heard = voices[1 - sender].recv(2048)
            assert encrypted == heard != packet
            assert into.unprotect(heard) == packet


def test_phones_agree_on_keys_through_the_media_server(tmp_path: Path) -> None:
    """DTLS-SRTP, whose handshake is beside the voice (RFC 5764)."""
    bela = identity.make("bela", tmp_path)
    both = {"anna": "a=setup:active", "bela": "a=setup:passive"}
    with (
        call_with_keys(tmp_path, "UDP/TLS/RTP/SAVP", both) as (clients, call, voices),
        ExitStack() as stack,
    ):
        ports = [voice.getsockname()[1] for voice in voices]
        here, there = f"{CLIENTS[0]}:{ports[0]}", f"{literal(CLIENTS[1])}:{ports[1]}"
        for voice in voices:
            voice.close()
        place = Place(clients, files=tmp_path)
        srtp = ["-dtls1_2", "-use_srtp", "SRTP_AES128_CM_SHA1_80"]
        server = ["openssl", "s_server", *srtp, "-accept", there]
        server += ["-cert", str(bela.certificate), "-key", str(bela.key)]
        # It ends with its input.
        listening = process("bela", server, place, stdin=subprocess.PIPE)
        stack.enter_context(listening).wait_for_port(ports[1])
        address, port = sends_to(call.accepted, MEDIA[0])
        client = ["openssl", "s_client", *srtp, "-bind", here, "-connect", f"{address}:{port}"]
        client += ["-CAfile", str(bela.certificate), "-verify_return_error"]
        said = stack.enter_context(process("anna", client, place)).finish()
        assert "SRTP Extension negotiated, profile=SRTP_AES128_CM_SHA1_80" in said


def test_a_balancer_tells_users_nothing_where_a_registrar_is_another(tmp_path: Path) -> None:
    other = identity.make("other", tmp_path)
    with (
        two_stages(tmp_path, other.certificate) as (clients, ours),
        phone(clients, BALANCERS[0], "anna", DOMAIN, ours.certificate) as anna,
    ):
        anna.send("REGISTER", f"sip:{DOMAIN}", to=f"<sip:anna@{DOMAIN}>")
        log = tmp_path / f"balancer-{BALANCERS[0]}.err"
        until_s = time.monotonic() + ANSWER_S_MAX
        while "certificate verify failed" not in log.read_text():
            assert time.monotonic() < until_s, log.read_text()
            time.sleep(0.05)
        assert registrar.bindings(clients, BALANCERS[0], ["anna"]) == []


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_nothing_older_than_tls_1_2_is_spoken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # OpenSSL as it is on an old machine, which refuses nothing by itself.
    configuration = tmp_path / "openssl.cnf"
    sections = ("openssl_conf = all", "[all]", "ssl_conf = ssl", "[ssl]", "system_default = any")
    any_ = ("[any]", "MinProtocol = TLSv1", "CipherString = DEFAULT@SECLEVEL=0")
    configuration.write_text("".join(f"{line}\n" for line in (*sections, *any_)))
    monkeypatch.setenv("OPENSSL_CONF", str(configuration))
    with two_stages(tmp_path) as (clients, _):
        for address in (BALANCERS[0], REGISTRARS[0]):
            for newest, is_served in (
                (ssl.TLSVersion.TLSv1_1, False),
                (ssl.TLSVersion.TLSv1_2, True),
                (ssl.TLSVersion.TLSv1_3, True),
            ):
                assert shakes_hands(clients, address, newest) == is_served, (address, newest)


def shakes_hands(clients: Path, address: str, newest: ssl.TLSVersion) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # Python's own limits would refuse before the server does.
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, newest
    with socket_in(clients, socket.SOCK_STREAM) as plain:
        plain.connect((address, signalling.TLS_PORT))
        try:
            context.wrap_socket(plain).close()
        except ssl.SSLError:
            return False
    return True


def test_a_stranger_reaches_no_phone_by_a_route_of_their_own(tmp_path: Path) -> None:
    with (
        two_stages(tmp_path) as (clients, ours),
        phone(clients, BALANCERS[0], "anna", DOMAIN, ours.certificate) as anna,
        phone(clients, BALANCERS[0], "mallory", DOMAIN, ours.certificate) as mallory,
    ):
        for each in (anna, mallory):
            assert each.register().startswith("SIP/2.0 200 ")
        flow = re.findall(r"flow=([^;>]+)", Call(anna, mallory).invite)[-1]
        route = f"Route: <sip:{BALANCERS[0]}:5061;transport=tls;lr;flow={flow}>"
        # The route is anna's, from the call, and leads mallory nowhere.
        mallory.send("INFO", f"sip:nobody@{DOMAIN}", route)
        assert mallory.hear("SIP/2.0 ").startswith("SIP/2.0 404 ")


def test_servers_make_no_connections_of_tls_to_where_a_user_says(tmp_path: Path) -> None:
    with (
        two_stages(tmp_path) as (clients, ours),
        phone(clients, BALANCERS[0], "anna", DOMAIN, ours.certificate) as anna,
        phone(clients, BALANCERS[0], "mallory", DOMAIN) as mallory,
        socket_in(clients, socket.SOCK_STREAM) as listening,
    ):
        listening.bind((CLIENTS[0], 0))
        listening.listen()
        port = listening.getsockname()[1]
        mallory.contact = f"sip:mallory@{CLIENTS[0]}:{port};transport=tls"
        assert mallory.register().startswith("SIP/2.0 200 ")
        anna.send("INVITE", f"sip:mallory@{DOMAIN}")
        assert anna.hear("SIP/2.0 477 ")
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
