"""Parties of calls that notice what a media server's failure does to what they hear.

A party sends RTP in packets of 20 ms, plain or as SRTP with keys by DTLS (RFC 5764), whose
handshake `openssl` does. A packet is heard if it has the payload type that was agreed on and the
sound of the first one, and if SRTP proves who it is from.
"""

from __future__ import annotations

import hashlib
import re
import selectors
import ssl
import struct
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

from laxity.errors import InputError
from laxity.namespaces.process import Place, process
from laxity.servers import identity
from laxity.servers.control import Media, description, media_of, socket_in
from pylibsrtp import Error, Policy, Session

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

    from laxity.servers.control import Control
    from laxity.servers.identity import Identity

PACKET_NS, PACKET_SAMPLES = 20_000_000, 160
HEADER = struct.Struct("!BBHII")
"""Version and marks, payload type, sequence number, timestamp, SSRC (RFC 3550, 5.1)."""
PCMU = 0
DTLS_FIRST, DTLS_LAST = 20, 63
"""The first octet of DTLS where SRTP uses the same port (RFC 5764, 5.1.2)."""
HANDSHAKE, CLIENT_HELLO = 22, 1
"""Types of a record and of a message (RFC 6347)."""
TYPE_OF_MESSAGE = 13
"""Where the message's type stands, after the record's header."""
PROFILE = "SRTP_AES128_CM_SHA1_80"
KEY_BYTES, SALT_BYTES = 16, 14
KEYS = re.compile(r"Keying material: ([0-9A-F]+)")
LOOPBACK = "127.0.0.1"
SEQUENCE_NUMBERS, TIMESTAMPS = 2**16, 2**32
"""How many there are; they begin anew after the last one."""
READY_S_MAX = 600.0
"""What takes longer is taken for hung."""
LINGER_S = 0.5
"""For the last packets to arrive."""


@dataclass(frozen=True)
class Heard:
    """A packet that was heard."""

    arrived_ns: int
    timestamp: int
    source: int
    """The SSRC."""


@dataclass
class Secured:
    """The secured side of a party: an `openssl` that has the association, and SRTP by its keys."""

    openssl: socket.socket
    """Where its datagrams come from and go to, on the loopback interface."""
    output: Path
    """What it says."""
    is_client: bool
    key: bytes = b""
    """What it encrypts with, once there are keys, and sessions of libsrtp."""
    sending: Session | None = None
    receiving: Session | None = None

    def has_keys(self) -> bool:
        """Whether the handshake is over; SRTP has its keys then."""
        if self.sending is None:
            found = KEYS.search(self.output.read_text(errors="replace"))
            if found is None:
                return False
            self._use(bytes.fromhex(found[1]))
        return True

    def _use(self, material: bytes) -> None:
        keys, salts = material[: 2 * KEY_BYTES], material[2 * KEY_BYTES :]
        client, server = (
            keys[side * KEY_BYTES :][:KEY_BYTES] + salts[side * SALT_BYTES :][:SALT_BYTES]
            for side in range(2)
        )
        own, other = (client, server) if self.is_client else (server, client)
        self.key = own[:KEY_BYTES]
        self.receiving = Session(Policy(key=other, ssrc_type=Policy.SSRC_ANY_INBOUND))
        self.sending = Session(Policy(key=own, ssrc_type=Policy.SSRC_ANY_OUTBOUND))


@dataclass
class Party:
    """A party of a call."""

    name: str
    voice: socket.socket
    sequence: int
    """The number of its next packet."""
    secured: Secured | None = None
    to: Media | None = None
    """Where it speaks to, once it knows."""
    sent: int = 0
    heard: list[Heard] = field(default_factory=list)
    not_understood_ns: list[int] = field(default_factory=list)
    """When packets came that were of another payload type or sound, or not proved."""
    hellos_ns: list[int] = field(default_factory=list)
    """When it was asked for a handshake after it had its keys."""
    _sound: bytes | None = None

    @property
    def media(self) -> Media:
        """Where it listens, and what it speaks."""
        address, port = self.voice.getsockname()
        return Media(address, port, PCMU)

    def speak(self) -> None:
        """Sends a packet, once it knows where to."""
        if self.to is None:
            return
        number = self.sequence
        self.sequence += 1
        self.sent += 1
        timestamp = number * PACKET_SAMPLES % TIMESTAMPS
        source = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:4], "big")
        head = (0x80, self.to.payload_type, number % SEQUENCE_NUMBERS, timestamp, source)
        packet = HEADER.pack(*head) + bytes([source % 256]) * PACKET_SAMPLES
        if self.secured is not None and self.secured.sending is not None:
            packet = self.secured.sending.protect(packet)
        self._send(packet)

    def _send(self, datagram: bytes) -> None:
        if self.to is None:
            return
        # The network refuses what is for a server that is gone: a packet is lost then.
        with suppress(OSError):
            self.voice.sendto(datagram, (self.to.address, self.to.port))

    def pass_on(self, openssl: socket.socket) -> None:
        """Passes on what its `openssl` says."""
        # Where nobody listens yet, what was sent is refused, and said again later.
        with suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                self._send(openssl.recv(2048))

    def hear(self) -> None:
        """Takes all that has come."""
        with suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                self._take(self.voice.recv(2048), time.monotonic_ns())

    def _take(self, datagram: bytes, now_ns: int) -> None:
        if self.to is None:
            return
        if self.secured is not None:
            if DTLS_FIRST <= datagram[0] <= DTLS_LAST:
                asks = (datagram[0], datagram[TYPE_OF_MESSAGE]) == (HANDSHAKE, CLIENT_HELLO)
                if asks and self.secured.sending is not None:
                    self.hellos_ns.append(now_ns)
                with suppress(ConnectionRefusedError):
                    self.secured.openssl.send(datagram)
                return
            if self.secured.receiving is None:
                return
            try:
                datagram = self.secured.receiving.unprotect(datagram)
            except Error:
                self.not_understood_ns.append(now_ns)
                return
        _, kind, _, timestamp, source = HEADER.unpack(datagram[: HEADER.size])
        if kind & 0x7F != self.to.payload_type:
            self.not_understood_ns.append(now_ns)
            return
        self._sound = self._sound or datagram[HEADER.size :]
        if datagram[HEADER.size :] != self._sound:
            self.not_understood_ns.append(now_ns)
            return
        self.heard.append(Heard(now_ns, timestamp, source))


@dataclass(frozen=True)
class Call:
    """A call, whose parties have been told where to speak to."""

    kind: str
    parties: tuple[Party, Party]


class Conversation:
    """All parties of all calls: each hears and passes on at any time, and speaks when told to."""

    def __init__(self, place: Place, address: str, control: Control) -> None:
        """Parties are at the address, in the namespace of the place."""
        self._place, self._address, self._control = place, address, control
        self.calls: list[Call] = []
        self._selector = selectors.DefaultSelector()
        self._stack = ExitStack()
        self._ends, self._speaks = Event(), Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Begins to listen."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it."""
        self._ends.set()
        self._thread.join()
        self._stack.close()

    def _run(self) -> None:
        due_ns: int | None = None
        while not self._ends.is_set():
            wait_s = 0.005 if due_ns is None else max(0, due_ns - time.monotonic_ns()) / 1e9
            for key, _ in self._selector.select(wait_s):
                key.data()
            if not self._speaks.is_set():
                due_ns = None
                continue
            due_ns = due_ns or time.monotonic_ns()
            if time.monotonic_ns() >= due_ns:
                due_ns += PACKET_NS
                for party in self.parties:
                    party.speak()

    @property
    def parties(self) -> list[Party]:
        """Those of all calls."""
        return [each for call in self.calls for each in call.parties]

    def came_since(self, ns: int) -> list[int]:
        """How many packets have come to each party, whether heard or not."""
        return [
            sum(heard.arrived_ns >= ns for heard in each.heard)
            + sum(came_ns >= ns for came_ns in each.not_understood_ns)
            for each in self.parties
        ]

    def talk(self) -> None:
        """All speak from now on."""
        self._speaks.set()

    def hush(self) -> None:
        """All are silent; what they have said arrives."""
        self._speaks.clear()
        time.sleep(LINGER_S)

    def call(
        self, kind: str, flags: Mapping[str, object], *, is_secured: bool, first: int = 1
    ) -> Call:
        """Sets up a call of two parties, whose packets have numbers from `first` on."""
        caller, callee = (self._party(f"{kind}-{side}", first) for side in ("caller", "callee"))
        tags = {"call_id": kind, "from_tag": "caller", "to_tag": "callee"}
        own: Identity | None = None
        others: Identity | None = None
        if is_secured:
            own, others = (identity.make(each.name, self._place.files) for each in (caller, callee))
        offer = _description(caller.media, own, "actpass")
        offered = self._control.ask("offer", **tags, sdp=offer, **flags)["sdp"]
        callee.to = media_of(offered)
        media = Media(callee.media.address, callee.media.port, callee.to.payload_type)
        answer = _description(media, others, "active")
        answered = self._control.ask("answer", **tags, sdp=answer)["sdp"]
        caller.to = media_of(answered)
        if own is not None and others is not None:
            # A party that is passive waits for the other one.
            self._secure(caller, own, is_client="a=setup:passive" in answered)
            self._secure(callee, others, is_client=True)
            self._await_keys(caller, callee)
        made = Call(kind, (caller, callee))
        self.calls.append(made)
        return made

    def _party(self, name: str, first: int) -> Party:
        bound = self._stack.enter_context(socket_in(self._place.namespace))
        bound.bind((self._address, 0))
        bound.setblocking(False)
        made = Party(name, bound, first)
        self._selector.register(bound, selectors.EVENT_READ, made.hear)
        return made

    def _await_keys(self, *parties: Party) -> None:
        until_s = time.monotonic() + READY_S_MAX
        while not all(each.secured and each.secured.has_keys() for each in parties):
            if time.monotonic() > until_s:
                raise InputError(f"{parties[0].name} gets no keys")
            time.sleep(0.05)

    def _secure(self, party: Party, own: Identity, *, is_client: bool) -> None:
        """Starts the party's `openssl`, which the party stands before."""
        own_side = self._stack.enter_context(socket_in(self._place.namespace))
        own_side.bind((LOOPBACK, 0))
        with socket_in(self._place.namespace) as free:
            free.bind((LOOPBACK, 0))
            other = free.getsockname()
        command = ["openssl", "s_client" if is_client else "s_server", "-dtls1_2"]
        command += ["-use_srtp", PROFILE, "-cert", str(own.certificate), "-key", str(own.key)]
        command += ["-keymatexport", "EXTRACTOR-dtls_srtp"]
        command += ["-keymatexportlen", str(2 * (KEY_BYTES + SALT_BYTES))]
        if is_client:
            command += ["-connect", f"{LOOPBACK}:{own_side.getsockname()[1]}"]
            command += ["-bind", f"{LOOPBACK}:{other[1]}"]
        else:
            command += ["-accept", f"{LOOPBACK}:{other[1]}", "-verify", "1"]
        own_side.connect(other)
        own_side.setblocking(False)
        output = self._place.files / f"{party.name}.out"
        party.secured = Secured(own_side, output, is_client)
        self._selector.register(own_side, selectors.EVENT_READ, partial(party.pass_on, own_side))
        # It ends with its input.
        started = process(party.name, command, self._place, stdin=subprocess.PIPE)
        self._stack.enter_context(started)


def _description(media: Media, own: Identity | None, setup: str) -> str:
    """What a party says of itself: without an identity, without security."""
    said = description(media)
    if own is None:
        return said
    certificate = ssl.PEM_cert_to_DER_cert(own.certificate.read_text())
    print_ = hashlib.sha256(certificate).hexdigest().upper()
    fingerprint = ":".join(print_[at : at + 2] for at in range(0, len(print_), 2))
    lines = [f"a=setup:{setup}", f"a=fingerprint:sha-256 {fingerprint}", "a=rtcp-mux"]
    secured = said.replace("RTP/AVP", "UDP/TLS/RTP/SAVP")
    return secured + "".join(f"{line}\r\n" for line in lines)
