"""The basic flows of RFC 3261 through real Kamailio: SIPp's phones, authentication and media."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from ipaddress import IPv4Interface
from threading import Thread
from typing import TYPE_CHECKING

import pytest
import sip_scenarios as sip
from attempts import first_unspoiled, require
from laxity import programs
from laxity.errors import InputError
from laxity.namespaces.network import CLIENT, Machine, switch
from laxity.namespaces.process import Place, Process, process
from laxity.servers import registrar, signalling, users
from sip_scenarios import (
    CALLEE_TAG,
    PCMA,
    acknowledge,
    answered,
    await_,
    called,
    credentials,
    description,
    ended,
    hear,
    hung_up,
    invite,
    register,
    reply,
    request,
    scenario,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CLIENTS, BALANCER, SERVER, MEDIA = "192.0.2.9", "192.0.2.21", "192.0.2.31", "192.0.2.41"
INDIRECT = "192.0.2.32"
"""A server that tells of calls at `BETWEEN_PORT`."""
IMPATIENT = "192.0.2.33"
"""A server that lets a call ring for two seconds, and not for minutes as the others."""
REALM = "voice.example"
PASSWORDS = {"anna": "blue", "bela": "green", "carl": "red"}
LOAD = {f"user{number}": "load" for number in range(20)}
PORTS = {"anna": 5070, "bela": 5080, "carl": 5090}
CONTROL_PORT = 2223
BETWEEN_PORT = CONTROL_PORT + 1
ANSWERS_LOST = 8
"""More than Kamailio's module rtpengine asks for at once, which is six times in six seconds."""
ANSWER_TRIES_MAX = 600
"""A second each."""
RINGING_MS = 2_000
FLOW_S_MAX = 120.0
"""For a flow that takes two seconds on an idle machine: requests are sent again for 32 s alone."""
FORGOTTEN_S = 60.0
"""Time after which nothing of a call that failed is sent again, 35 s by Kamailio's timers."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("kamailio", "sipp", "ip", "nsenter"))),
        reason="needs root, kamailio, sip-tester and iproute2",
    ),
]


def accounts() -> users.Accounts:
    """Those of the passwords above."""

    def ha1(user: str) -> str:
        return hashlib.md5(f"{user}:{REALM}:{(PASSWORDS | LOAD)[user]}".encode()).hexdigest()  # noqa: S324

    return users.Accounts(REALM, {user: ha1(user) for user in PASSWORDS | LOAD})


@contextmanager
def phone(
    place: Place, name: str, text: str, *more: str, server: str = BALANCER
) -> Iterator[Process]:
    """A phone of SIPp's that does what a scenario says, once."""
    user = name.partition("-")[0]
    (place.files / f"{name}.xml").write_text(text)
    other = more[0] if more else ""
    credentials = f"[authentication username={user} password={PASSWORDS[user]}]"
    (place.files / f"{name}.csv").write_text(f"SEQUENTIAL\n{user};{credentials};{other}\n")
    command = ["sipp", "-sf", f"{name}.xml", "-inf", f"{name}.csv", "-m", "1", "-nostdin"]
    command += ["-i", CLIENTS, "-p", str(PORTS[user]), "-mp", str(PORTS[user] + 4_000)]
    command += [*signalling.ENDURING, "-trace_err", "-error_file", f"{name}.errors", *more[1:]]
    with process(name, [*command, f"{server}:{signalling.SIP_PORT}"], place) as started:
        yield started


def ends(place: Place, name: str, started: Process) -> None:
    """Waits for a phone to have done all of its scenario."""
    try:
        code = started.popen.wait(FLOW_S_MAX)
    except subprocess.TimeoutExpired:
        code = None
    errors = place.files / f"{name}.errors"
    said = errors.read_text() if errors.exists() else started.complaint()
    require(code == 0, f"{name} ended with {code}: {said}")


class Between:
    """Stands before the media server, and loses some of the answers that it is told of."""

    def __init__(self, namespace: Path, to_lose: int) -> None:
        """Begins to pass orders on."""
        self.to_lose = to_lose
        self._socket, self._relay = (registrar.socket_in(namespace) for _ in range(2))
        self._socket.bind((MEDIA, BETWEEN_PORT))
        self._relay.bind((MEDIA, 0))
        self._thread = Thread(target=self._pass_on)
        self._thread.start()

    def close(self) -> None:
        self._relay.sendto(b"", (MEDIA, BETWEEN_PORT))
        self._thread.join()
        self._socket.close()
        self._relay.close()

    def _pass_on(self) -> None:
        while True:
            order, sender = self._socket.recvfrom(65_535)
            if order == b"":
                return
            if self.to_lose > 0 and b"7:command6:answer" in order:
                self.to_lose -= 1
                continue
            self._relay.sendto(order, (MEDIA, CONTROL_PORT))
            self._socket.sendto(self._relay.recv(65_535), sender)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    """A balancer, a server with authentication and a media server, none a virtual machine."""
    files = tmp_path_factory.mktemp("sip")
    try:
        relay = programs.find("laxity-media")
    except InputError as error:
        pytest.skip(str(error))
    addresses = (BALANCER, SERVER, INDIRECT, IMPATIENT, MEDIA)
    machines = [Machine(a, [IPv4Interface(f"{a}/24")]) for a in addresses]
    with ExitStack() as stack:
        namespaces = stack.enter_context(switch([IPv4Interface(f"{CLIENTS}/24")], machines))
        at = {name: Place(namespace, files=files) for name, namespace in namespaces.items()}
        command = [str(relay), "relay", "--control", f"{MEDIA}:{CONTROL_PORT}"]
        command += ["--address", MEDIA, "--control-from", f"{SERVER},{IMPATIENT},{MEDIA}"]
        stack.enter_context(process("relay", command, at[MEDIA])).wait_for_port(CONTROL_PORT)
        for address, port, ringing_ms in (
            (SERVER, CONTROL_PORT, None),
            (INDIRECT, BETWEEN_PORT, None),
            (IMPATIENT, CONTROL_PORT, RINGING_MS),
        ):
            server = signalling.proxy(
                f"server-{address}",
                [address],
                at[address],
                media=signalling.MediaControl(f"{MEDIA}:{port}"),
                accounts=accounts(),
                ringing_ms=ringing_ms,
            )
            stack.enter_context(server)
        stack.enter_context(signalling.balancer("balancer", [BALANCER], [SERVER], at[BALANCER]))
        yield at


def flows(flow: Callable[[], None]) -> None:
    """Lets phones do their scenarios.

    A phone that answers half a second late, as on a busy machine, gets the request a second time,
    and SIPp may take that for the next request of its scenario. The flow then begins anew.
    """
    first_unspoiled(lambda _: flow(), after=lambda: time.sleep(FORGOTTEN_S))


def have_registered(here: Place, server: str) -> Place:
    def once(user: str) -> None:
        with phone(here, user, scenario("register", register()), server=server) as started:
            ends(here, user, started)

    for user in PASSWORDS:
        flows(partial(once, user))
    return here


@pytest.fixture(scope="module")
def clients(places: dict[str, Place]) -> Place:
    """Where the phones are, all of them registered."""
    return have_registered(places[CLIENT], BALANCER)


HOLD = description("sendonly", version=2)
HELD = description("recvonly", version=2)
RESUMED = description(version=3)
FLOWS = {
    "call": ((called(), ended(3)), (answered(), hung_up())),
    "cancel": (
        (
            invite(),
            await_("180"),
            request("CANCEL", 2, branch="[branch-3]"),
            await_("200"),
            await_("487"),
            request("ACK", 2, to_tag=sip.TO_TAG, branch="[branch-6]"),
        ),
        (sip.ringing(),),
    ),
    "busy": (
        (
            invite(),
            await_("486"),
            request("ACK", 2, to_tag=sip.TO_TAG, branch="[branch-3]"),
        ),
        (hear("INVITE"), reply("486 Busy Here", tag=CALLEE_TAG, reliable=True), hear("ACK")),
    ),
    "no answer": (
        (
            invite(),
            await_("180"),
            await_("408"),
            request("ACK", 2, to_tag=sip.TO_TAG, branch="[branch-4]"),
        ),
        (sip.ringing(),),
    ),
    "hold": (
        (
            called(),
            within("INVITE", 3, body=HOLD),
            await_("100", optional=True),
            await_("200", action=sip.MEDIA),
            acknowledge(3),
            within("INVITE", 4, body=RESUMED),
            await_("100", optional=True),
            await_("200", action=sip.MEDIA),
            acknowledge(4),
            ended(5),
        ),
        (
            answered(),
            hear("INVITE", action=sip.MEDIA + sip.on_hold()),
            reply("200 OK", body=HELD, reliable=True),
            hear("ACK"),
            hear("INVITE", action=sip.MEDIA),
            reply("200 OK", body=RESUMED, reliable=True),
            hear("ACK"),
            hung_up(),
        ),
    ),
    "refresh": (
        (
            called(),
            # The session's timer, without a session description.
            within("UPDATE", 3, "Session-Expires: 1800;refresher=uac", "Supported: timer"),
            await_("200"),
            # Another codec, offered by the other party.
            within("UPDATE", 4, body=description(law=PCMA, version=2)),
            await_("200", action=sip.MEDIA),
            # A refusal leaves the call as it was.
            within("INVITE", 5, body=description(version=3)),
            await_("100", optional=True),
            await_("488"),
            request("ACK", 5, "[routes]", uri="[next_url]", to_tag=sip.TO_TAG, branch="[branch-3]"),
            # Without an offer: the other party makes it.
            within("INVITE", 6),
            await_("100", optional=True),
            await_("200", action=sip.MEDIA),
            acknowledge(6, body=description(version=4)),
            ended(7),
        ),
        (
            answered(),
            hear("UPDATE"),
            reply("200 OK", "Session-Expires: 1800;refresher=uac"),
            hear("UPDATE", action=sip.MEDIA),
            reply("200 OK", body=description(law=PCMA, version=2)),
            hear("INVITE", action=sip.MEDIA),
            reply("488 Not Acceptable Here", reliable=True),
            hear("ACK"),
            hear("INVITE"),
            reply("200 OK", body=description(version=3), reliable=True),
            hear("ACK", action=sip.MEDIA),
            hung_up(),
        ),
    ),
    "options": (
        (
            request("OPTIONS", 1, to_tag=""),
            '<recv response="407" auth="true"/>\n',
            request("OPTIONS", 2, sip.CREDENTIALS),
            await_("200"),
        ),
        (hear("OPTIONS"), reply("200 OK", "Allow: INVITE, ACK, BYE", tag=CALLEE_TAG)),
    ),
}


@pytest.mark.parametrize("flow", FLOWS)
def test_a_basic_flow(clients: Place, flow: str) -> None:
    calling, being_called = FLOWS[flow]
    server = BALANCER
    if flow == "no answer":
        # Phones of the other flows may take longer than that on a busy machine.
        server = IMPATIENT
        have_registered(clients, server)

    def once() -> None:
        with phone(clients, "bela", scenario(flow, *being_called)) as callee:
            callee.wait_for_port(PORTS["bela"])
            calls = scenario(flow, *calling)
            with phone(clients, "anna", calls, "bela", server=server) as caller:
                ends(clients, "anna", caller)
                ends(clients, "bela", callee)

    flows(once)


def test_what_the_media_server_was_not_told_of_is_not_passed_on(places: dict[str, Place]) -> None:
    here = have_registered(places[CLIENT], INDIRECT)

    def once() -> None:
        with (
            closing(Between(places[MEDIA].namespace, ANSWERS_LOST)) as between,
            phone(here, "bela", scenario("call", answered(), hung_up())) as callee,
        ):
            callee.wait_for_port(PORTS["bela"])
            calling = scenario("call", called(), ended(3))
            with phone(here, "anna", calling, "bela", server=INDIRECT) as caller:
                ends(here, "anna", caller)
                ends(here, "bela", callee)
            assert between.to_lose == 0

    flows(once)


def test_a_call_is_transferred(clients: Place) -> None:
    calling = scenario(
        "refer",
        invite(),
        await_("200", begins=True, action=sip.MEDIA),
        acknowledge(2),
        sip.referred(3, f"<sip:carl@{BALANCER}>"),
        hear("NOTIFY"),
        reply("200 OK"),
        ended(4),
    )

    def once() -> None:
        with (
            phone(clients, "carl", scenario("target", answered(), hung_up())) as third,
            phone(clients, "bela", scenario("refer", sip.transferred()), "carl") as callee,
        ):
            for started, name in ((third, "carl"), (callee, "bela")):
                started.wait_for_port(PORTS[name])
            with phone(clients, "anna", calling, "bela") as caller:
                for name, each in (("anna", caller), ("bela", callee), ("carl", third)):
                    ends(clients, name, each)

    flows(once)


def answer(
    clients: Place,
    method: str,
    uri: str,
    *headers: str,
    name: str = "anna",
    to_tag: str = "",
    server: str = SERVER,
) -> str:
    """The status that a request gets, without any phone."""
    with closing(registrar.socket_in(clients.namespace)) as asking:
        asking.bind((CLIENTS, 0))
        asking.settimeout(1.0)
        here = ":".join(map(str, asking.getsockname()))
        number = os.urandom(6).hex()
        lines = [f"{method} {uri} SIP/2.0", f"Via: SIP/2.0/UDP {here};branch=z9hG4bK{number}"]
        lines += [f"From: <sip:{name}@{REALM}>;tag=1", f"To: <sip:{name}@{REALM}>{to_tag}"]
        lines += [f"Call-ID: {number}", f"CSeq: 1 {method}", "Max-Forwards: 70", *headers]
        message = "\r\n".join([*lines, "Content-Length: 0", "", ""]).encode()
        for _ in range(ANSWER_TRIES_MAX):
            asking.sendto(message, (server, signalling.SIP_PORT))
            try:
                while True:
                    text = asking.recv(65_535).decode()
                    if not text.startswith("SIP/2.0 1"):
                        return text
            except TimeoutError:
                continue
    raise AssertionError("no answer")


def status(answer: str) -> int:
    return int(answer.split()[1])


@pytest.mark.parametrize("method", ["REGISTER", "INVITE", "MESSAGE"])
def test_who_proves_nothing_is_asked_to(clients: Place, method: str) -> None:
    uri = f"sip:{REALM}" if method == "REGISTER" else f"sip:bela@{REALM}"
    challenge = answer(clients, method, uri)
    assert status(challenge) == (401 if method == "REGISTER" else 407)
    for user, password in (("anna", "wrong"), ("nobody", "blue")):
        header = credentials(challenge, user, password, method, uri)
        assert status(answer(clients, method, uri, header)) in {401, 407}
    # Right, and in the name of another.
    header = credentials(answer(clients, method, uri), "bela", PASSWORDS["bela"], method, uri)
    contact = f"Contact: <sip:bela@{CLIENTS}:5999>"
    assert status(answer(clients, method, uri, header, contact)) == 403


def test_credentials_are_good_once(clients: Place) -> None:
    uri = f"sip:{REALM}"
    contact = f"Contact: <sip:anna@{CLIENTS}:{PORTS['anna']}>"
    header = credentials(answer(clients, "REGISTER", uri), "anna", "blue", "REGISTER", uri)
    assert status(answer(clients, "REGISTER", uri, header, contact)) == 200
    stolen = f"Contact: <sip:anna@{CLIENTS}:5999>"
    assert status(answer(clients, "REGISTER", uri, header, stolen)) == 401


ANNA = ("anna", PASSWORDS["anna"])
ELSEWHERE = f"<sip:{CLIENTS}:5999;lr>"
STRICT = f"<sip:y@{CLIENTS}:5999>"


@pytest.mark.parametrize("server", [SERVER, BALANCER])
@pytest.mark.parametrize("route", [ELSEWHERE, STRICT, f"<sip:{SERVER};lr>, {ELSEWHERE}"])
def test_nobody_is_relayed_by_a_route_of_their_own(clients: Place, server: str, route: str) -> None:
    uri = f"sip:x@{CLIENTS}:5999"
    with closing(registrar.socket_in(clients.namespace)) as listening:
        listening.bind((CLIENTS, 5999))
        listening.settimeout(0.2)
        for tag in ("", ";tag=forged"):
            said = answer(clients, "OPTIONS", uri, f"Route: {route}", to_tag=tag, server=server)
            assert status(said) in ({481, 403} if tag else {403, 404, 407}), said
        # Somebody who proves who they are is passed on to users alone, too.
        to = f"sip:bela@{REALM}"
        proof = credentials(answer(clients, "MESSAGE", to, server=SERVER), *ANNA, "MESSAGE", to)
        said = answer(clients, "MESSAGE", to, proof, f"Route: {route}", server=server)
        assert status(said) == 403, said
        # A tag and a route through the server alone, as within a dialog that there is not.
        own = f"Route: <sip:{SERVER};lr>"
        assert status(answer(clients, "BYE", uri, own, to_tag=";tag=forged", server=server)) == 481
        with pytest.raises(TimeoutError):
            listening.recv(1)


def test_a_server_says_what_it_takes(clients: Place) -> None:
    said = answer(clients, "OPTIONS", f"sip:{SERVER}")
    assert status(said) == 200
    assert "Accept: application/sdp" in said
    assert "CANCEL" in said
    assert status(answer(clients, "CANCEL", f"sip:bela@{REALM}")) == 481


def test_a_load_of_users_proves_itself(clients: Place) -> None:
    def registered(password: str | None) -> int:
        parties = {"server": BALANCER, "client": CLIENTS}
        counted = signalling.registrations(len(LOAD), 50.0, clients, password=password, **parties)
        return int(counted["succeeded"])

    assert registered("load") == len(LOAD)
    assert registered("wrong") == 0
