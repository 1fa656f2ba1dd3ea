"""Phones that use TLS, to which nobody can connect, and phones that use UDP."""

from __future__ import annotations

import re
import socket
import ssl
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Literal, Protocol

from laxity.servers.addresses import family, literal
from laxity.servers.control import Media, description, media_of, socket_in
from laxity.servers.signalling import SIP_PORT, TLS_PORT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANSWER_S_MAX = 600.0
"""It is no verdict: what does not come by then is taken for lost."""
MESSAGE_BYTES_MAX = 65_535
VOICE_S = 0.5
"""Until a packet of voice is sent again."""


def headers(message: str, name: str) -> list[str]:
    """Returns the values of a header, in order."""
    return re.findall(rf"^{name}: *(.*?)\r?$", message, re.MULTILINE | re.IGNORECASE)


class Connection(Protocol):
    """What messages go through."""

    def sendall(self, octets: bytes) -> None: ...
    def recv(self, octets_max: int) -> bytes: ...


class Datagrams:
    """A UDP socket: requests go to one server, and answers to whoever has asked."""

    def __init__(self, bound: socket.socket, server: str) -> None:
        self._socket, self._server = bound, (server, SIP_PORT)
        self._asked_by = self._server

    def sendall(self, octets: bytes) -> None:
        is_answer = octets.startswith(b"SIP/2.0 ")
        self._socket.sendto(octets, self._asked_by if is_answer else self._server)

    def recv(self, octets_max: int) -> bytes:
        datagram, self._asked_by = self._socket.recvfrom(octets_max)
        return datagram


class Phone:
    """A user's phone."""

    def __init__(
        self,
        user: str,
        domain: str,
        connection: Connection,
        transport: Literal["tls", "udp"],
        here: tuple[str, int],
        voice: socket.socket,
    ) -> None:
        self.user, self.domain, self._connection = user, domain, connection
        self._transport, self._here = transport, f"{literal(here[0])}:{here[1]}"
        self.contact = f"sip:{user}@{self._here};transport={transport}"
        self.voice = voice
        self.description = description(Media(here[0], voice.getsockname()[1], 0))
        self._received = ""
        self._requests = 0

    def send(self, method: str, uri: str, *more: str, to: str = "", call: str = "") -> str:
        """Sends a request, with a description if it is an INVITE; returns its Call-ID."""
        self._requests += 1
        unique = f"{self.user}-{self._requests}-{time.monotonic_ns()}"
        call = call or unique
        lines = [
            f"{method} {uri} SIP/2.0",
            f"Via: SIP/2.0/{self._transport.upper()} {self._here};branch=z9hG4bK{unique}",
            f"From: <sip:{self.user}@{self.domain}>;tag={self.user}",
            f"To: {to or f'<{uri}>'}",
            f"Call-ID: {call}",
            f"CSeq: {self._requests} {method}",
            *(f"Contact: <{self.contact}>", "Max-Forwards: 70", *more),
        ]
        self._send(lines, self.description if method == "INVITE" else "")
        return call

    def answer(self, request: str) -> None:
        """Accepts a request, with a description if it is an INVITE."""
        (to,) = headers(request, "To")
        lines = ["SIP/2.0 200 OK", f"To: {to if 'tag=' in to else f'{to};tag={self.user}'}"]
        for name in ("Via", "Record-Route", "From", "Call-ID", "CSeq"):
            lines += [f"{name}: {value}" for value in headers(request, name)]
        is_invite = request.startswith("INVITE")
        self._send([*lines, f"Contact: <{self.contact}>"], self.description if is_invite else "")

    def _send(self, lines: list[str], body: str) -> None:
        kind = ["Content-Type: application/sdp"] if body else []
        text = "\r\n".join([*lines, *kind, f"Content-Length: {len(body)}", "", body])
        self._connection.sendall(text.encode())

    def hear(self, begins: str) -> str:
        """The next message with this beginning; others go by."""
        until_s = time.monotonic() + ANSWER_S_MAX
        while time.monotonic() < until_s:
            head, is_whole, rest = self._received.partition("\r\n\r\n")
            length = int(headers(head, "Content-Length")[0]) if is_whole else 0
            if not is_whole or len(rest) < length:
                more = self._connection.recv(MESSAGE_BYTES_MAX)
                assert more, f"{self.user}'s connection has ended"
                self._received += more.decode()
                continue
            message, self._received = f"{head}\r\n\r\n{rest[:length]}", rest[length:]
            if message.startswith(begins):
                return message
        raise AssertionError(f"{self.user} hears no {begins}")

    def register(self) -> str:
        """Registers, and returns the answer."""
        self.send("REGISTER", f"sip:{self.domain}", to=f"<sip:{self.user}@{self.domain}>")
        return self.hear("SIP/2.0 ")


class Call:
    """A call from a phone to another one, which has accepted it."""

    def __init__(self, caller: Phone, callee: Phone, scheme: str = "sip") -> None:
        self._caller, self._callee = caller, callee
        self._call = caller.send("INVITE", f"{scheme}:{callee.user}@{callee.domain}")
        self.invite = callee.hear("INVITE ")
        callee.answer(self.invite)
        self.accepted = caller.hear("SIP/2.0 200 ")
        (self._to,) = headers(self.accepted, "To")
        self._uri = headers(self.accepted, "Contact")[0].strip("<>")
        routes = headers(self.accepted, "Record-Route")
        self._routes = [f"Route: {each}" for each in reversed(routes)]
        self._within("ACK")

    def _within(self, method: str) -> str:
        sent = self._caller.send(method, self._uri, *self._routes, to=self._to, call=self._call)
        assert sent == self._call
        return self._callee.hear(f"{method} ")

    def speak(self) -> None:
        """Each says something until the other hears it, through whatever is between them."""
        ways = (
            (self._caller, self._callee, self.accepted),
            (self._callee, self._caller, self.invite),
        )
        for speaker, hearer, told in ways:
            to = media_of(told)
            packet = b"\x80\x00" + self.invite[:170].encode()
            hearer.voice.settimeout(VOICE_S)
            until_s = time.monotonic() + ANSWER_S_MAX
            heard = b""
            while heard != packet:
                assert time.monotonic() < until_s, f"{hearer.user} does not hear {speaker.user}"
                speaker.voice.sendto(packet, (to.address, to.port))
                with suppress(TimeoutError):
                    heard = hearer.voice.recv(MESSAGE_BYTES_MAX)

    def end(self) -> None:
        """The caller hangs up."""
        self._callee.answer(self._within("BYE"))
        self._caller.hear("SIP/2.0 200 ")

    def end_by_callee(self) -> None:
        """The callee hangs up."""
        uri = headers(self.invite, "Contact")[0].strip("<>")
        routes = [f"Route: {each}" for each in headers(self.invite, "Record-Route")]
        (to,) = headers(self.invite, "From")
        self._callee.send("BYE", uri, *routes, to=to, call=self._call)
        self._caller.answer(self._caller.hear("BYE "))
        self._callee.hear("SIP/2.0 200 ")


@contextmanager
def phone(
    namespace: Path, server: str, user: str, domain: str, trusted: Path | None = None
) -> Iterator[Phone]:
    """A phone: over TLS, which believes only who is the domain by this certificate; or over UDP."""
    kind = socket.SOCK_DGRAM if trusted is None else socket.SOCK_STREAM
    with ExitStack() as stack:
        plain = stack.enter_context(socket_in(namespace, kind, family(server)))
        voice, asking = (
            stack.enter_context(socket_in(namespace, family=family(server))) for _ in range(2)
        )
        asking.connect((server, SIP_PORT))
        address = asking.getsockname()[0]
        voice.bind((address, 0))
        for each in (plain, voice):
            each.settimeout(ANSWER_S_MAX)
        if trusted is None:
            plain.bind((address, 0))
            here = address, plain.getsockname()[1]
            yield Phone(user, domain, Datagrams(plain, server), "udp", here, voice)
            return
        plain.connect((server, TLS_PORT))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(trusted)
        connection = stack.enter_context(context.wrap_socket(plain, server_hostname=domain))
        # The Contact of most phones is an address at which nobody listens.
        yield Phone(user, domain, connection, "tls", (address, 9), voice)
