"""What a media server's work on a packet takes on this machine, by the libraries that servers use.

A packet of 20 ms is decoded and encoded, protected and unprotected as SRTP, mixed for a conference,
and recorded. The CPU time of each call is measured with the states of many streams by turns, as a
server has them. What reading the clock and calling a library from Python takes is measured by calls
that do nothing, and left out.
"""

from __future__ import annotations

import ctypes
import struct
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from tempfile import TemporaryFile, gettempdir
from time import thread_time_ns
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity import _core, extras
from laxity.calibration.step import Step
from laxity.errors import InputError
from laxity.voice.coders import CODECS, G711_OCTETS, OCTETS_MAX, doubled
from laxity.voice.reference import SAMPLES_PER_SECOND, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from laxity.progress import Progress
    from laxity.voice.coders import Call, Codec, Coder

    Array = npt.NDArray[Any]

Times = dict[str, "Array"]
"""By step, the CPU time of each packet."""

STREAMS = 20
"""Streams whose packets are processed by turns."""
PACKETS = 50
"""Packets of each stream, in a round."""
PARTICIPANTS = 8
"""The size of a conference."""

RTP_HEADER_OCTETS = 12
RTP_VERSION_2 = 0x80
RECORD_OCTETS = 16 + 14 + 20 + 8 + RTP_HEADER_OCTETS + G711_OCTETS
"""A packet of G.711 in a pcap file: the record's header, Ethernet, IPv4, UDP, RTP, voice."""
SRTP_KEY_OCTETS = 16 + 14
"""AES-128's key, and the salt (RFC 3711)."""

UNPROTECT, PROTECT, MIX, RECORD = "unprotect SRTP", "protect SRTP", "mix", "record"


@dataclass(frozen=True)
class Extent:
    """How much is measured in a round."""

    streams: int = STREAMS
    packets: int = PACKETS
    """The number of each stream's packets."""
    participants: int = PARTICIPANTS
    """The size of a conference."""

    @property
    def turns(self) -> Iterator[tuple[int, int]]:
        """Numbers of packets and streams: each stream has its turn, and then its next packet."""
        return (
            (packet, stream) for packet in range(self.packets) for stream in range(self.streams)
        )


EXTENT = Extent()


@dataclass(frozen=True)
class Missing:
    """What could not be measured."""

    what: str
    why: str
    help: str
    """What would change that."""

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints of it."""
        return {"what": self.what, "why": self.why, "help": self.help}


@dataclass(frozen=True, eq=False)
class Processing:
    """What a media server's work on a packet takes on this machine."""

    times_ns: dict[str, list[Array]]
    """By step, the CPU time of each packet in each round."""
    libraries: dict[str, str]
    """By step, the library that does it."""
    missing: tuple[Missing, ...]
    participants: int
    """The size of the conference that is mixed."""

    @property
    def steps(self) -> list[Step]:
        """The quantiles of each step."""
        return [Step.of(name, rounds_ns) for name, rounds_ns in self.times_ns.items()]

    @property
    def costs(self) -> dict[str, Step]:
        """What the host file has costs of, by their keys in `[host.network]`."""
        rounds_ns = {key: self.times_ns[step] for key, step in COSTS.items() if self.has(step)}
        if self.has(UNPROTECT, PROTECT):
            both = zip(self.times_ns[UNPROTECT], self.times_ns[PROTECT], strict=True)
            rounds_ns[SRTP] = [one_ns + other_ns for one_ns, other_ns in both]
        return {key: Step.of(key, of_key) for key, of_key in rounds_ns.items()}

    def has(self, *steps: str) -> bool:
        """Whether all of these were measured."""
        return all(step in self.times_ns for step in steps)

    def all_ns(self, step: str) -> Array:
        """The CPU time of each packet, of all rounds."""
        return np.concatenate(self.times_ns[step])

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity calibrate --json` prints of it."""
        return {
            "participants": self.participants,
            "steps": [
                step.to_json() | {"library": self.libraries[step.name]} for step in self.steps
            ],
            "missing": [each.to_json() for each in self.missing],
        }


def decode(codec: str) -> str:
    """The name of the step."""
    return f"decode {codec}"


def encode(codec: str) -> str:
    """The name of the step."""
    return f"encode {codec}"


COSTS = {
    **{
        f"{step.partition(' ')[0]}-{codec.name.replace('.', '').lower()}": step
        for codec in CODECS
        for step in (decode(codec.name), encode(codec.name))
    },
    MIX: MIX,
    RECORD: RECORD,
}
"""Keys of `[host.network]`, each with the step that it is the cost of."""
SRTP = "srtp"
"""The key of both of SRTP's steps together."""
KEYS = (*COSTS, SRTP)


def measure(rounds: int, extent: Extent = EXTENT, progress: Progress | None = None) -> Processing:
    """Measures everything whose library is there, in so many rounds; needs no rights."""
    times_ns: dict[str, list[Array]] = {}
    libraries: dict[str, str] = {}
    missing: dict[str, Missing] = {}
    for done, (what, library, measured) in enumerate([*PARTS] * rounds):
        if progress is not None:
            progress(done, rounds * len(PARTS))
        if what in missing:
            continue
        try:
            found = measured(extent)
        except InputError as error:
            missing[what] = Missing(what, error.message, error.help or "")
            continue
        for step, taken_ns in found.items():
            times_ns.setdefault(step, []).append(taken_ns)
            libraries[step] = library
    return Processing(times_ns, libraries, tuple(missing.values()), extent.participants)


def coding_times_ns(codec: Codec, extent: Extent) -> Times:
    """What each packet took to be encoded, and then to be decoded."""
    speech = _speech(codec)
    encoders = [codec.encoder() for _ in range(extent.streams)]
    decoders = [codec.decoder() for _ in range(extent.streams)]
    # Each stream begins elsewhere in the reference speech.
    said = [
        speech[(packet + stream * len(speech) // extent.streams) % len(speech)]
        for packet, stream in extent.turns
    ]
    rooms = np.zeros((len(said), codec.packet_octets or OCTETS_MAX), np.uint8)
    encoding_ns, sizes = _coded_ns(encoders, said, rooms)
    octets = [codec.encoded(*of) for of in zip(rooms, sizes, strict=True)]
    heard = np.zeros((len(said), codec.packet_samples), np.int16)
    decoding_ns, _ = _coded_ns(decoders, octets, heard)
    return {decode(codec.name): decoding_ns, encode(codec.name): encoding_ns}


def _speech(codec: Codec) -> Array:
    """The reference speech, a packet a row."""
    speech = reference() if codec.samples_per_second == SAMPLES_PER_SECOND else doubled(reference())
    packets = speech.size // codec.packet_samples
    return speech[: packets * codec.packet_samples].reshape(packets, -1)


def _coded_ns(
    coders: list[Coder], given: Sequence[Array], rooms: Array
) -> tuple[Array, list[int | None]]:
    """What the coders, by turns, take for each packet, and what the library told of it."""
    packets = [
        coders[number % len(coders)].calls(packet, room)
        for number, (packet, room) in enumerate(zip(given, rooms, strict=True))
    ]
    return calls_ns(packets)


def calls_ns(packets: list[list[Call]]) -> tuple[Array, list[int | None]]:
    """The CPU time of each packet's calls, without that of calling; and the last call's result.

    The same number of calls of a function that does nothing, with the same arguments, tells what
    calling takes. The median of these is left out of each time.
    """
    without_ns = int(np.median(_called_ns([_idle(calls) for calls in packets])[0]))
    taken_ns, results = _called_ns(packets)
    return np.maximum(taken_ns - without_ns, 0), results


def _called_ns(packets: list[list[Call]]) -> tuple[Array, list[int | None]]:
    taken_ns = np.empty(len(packets), np.int64)
    results: list[int | None] = []
    for number, calls in enumerate(packets):
        result = None
        start_ns = thread_time_ns()
        for function, arguments in calls:
            result = function(*arguments)
        taken_ns[number] = thread_time_ns() - start_ns
        results.append(result)
    return taken_ns, results


def _idle(calls: list[Call]) -> list[Call]:
    """Calls of libc's `abs` instead, which looks at the first argument alone."""
    idle: list[Call] = []
    for function, arguments in calls:
        nothing = ctypes.CDLL(None)["abs"]
        nothing.argtypes = function.argtypes
        idle.append((nothing, arguments))
    return idle


def srtp_times_ns(extent: Extent) -> Times:
    """What each packet took to be protected, and then to be unprotected.

    libsrtp is called through `pylibsrtp`, which copies the packet. What that takes is not left out.
    """
    extras.require("pylibsrtp")
    from pylibsrtp import Policy, Session  # noqa: PLC0415 - only this needs it

    keys = [stream.to_bytes(SRTP_KEY_OCTETS, "big") for stream in range(extent.streams)]
    outbound, inbound = (
        [Session(Policy(key=key, ssrc_type=direction)) for key in keys]
        for direction in (Policy.SSRC_ANY_OUTBOUND, Policy.SSRC_ANY_INBOUND)
    )
    plain = [_rtp(packet, stream) + bytes(G711_OCTETS) for packet, stream in extent.turns]
    protecting_ns, protected = _passed_ns([session.protect for session in outbound], plain)
    unprotecting_ns, back = _passed_ns([session.unprotect for session in inbound], protected)
    if back != plain:
        raise InputError("libsrtp does not give back what it protected", "install it anew")
    return {UNPROTECT: unprotecting_ns, PROTECT: protecting_ns}


def _rtp(packet: int, stream: int) -> bytes:
    """RTP's header of a packet of 20 ms of G.711 (RFC 3550, section 5.1)."""
    timestamp = packet * G711_OCTETS
    return struct.pack("!BBHII", RTP_VERSION_2, 0, packet & 0xFFFF, timestamp, stream + 1)


def _passed_ns(
    functions: Sequence[Callable[[bytes], bytes]], packets: Sequence[bytes]
) -> tuple[Array, list[bytes]]:
    """The CPU time of each packet, without that of reading the clock, and what it became."""
    taken_ns = np.empty(len(packets), np.int64)
    made = []
    for number, packet in enumerate(packets):
        function = functions[number % len(functions)]
        start_ns = thread_time_ns()
        begun_ns = thread_time_ns()
        result = function(packet)
        taken_ns[number] = (thread_time_ns() - begun_ns) - (begun_ns - start_ns)
        made.append(result)
    return np.maximum(taken_ns, 0), made


def mixing_times_ns(extent: Extent) -> Times:
    """What mixing takes for a packet of one participant, at each of as many times as packets."""
    octets = reference().astype("<i2").tobytes()
    times = extent.streams * extent.packets
    taken_ns = np.frombuffer(
        _core.mixing_ns(octets, extent.participants, G711_OCTETS, times), "<i8"
    )
    return {MIX: np.maximum(taken_ns // extent.participants, 0)}


def recording_times_ns(extent: Extent) -> Times:
    """What one packet takes to be written to the stream's file, where temporary files are."""
    write = ctypes.CDLL(None)["write"]
    write.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    write.restype = ctypes.c_ssize_t
    record = np.zeros(RECORD_OCTETS, np.uint8)
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(extent.streams)]
        taken_ns, written = calls_ns(
            [
                [(write, (files[stream].fileno(), record.ctypes.data, record.size))]
                for _, stream in extent.turns
            ]
        )
    if set(written) != {RECORD_OCTETS}:
        raise InputError(f"a packet could not be written to {gettempdir()}", "make room there")
    return {RECORD: taken_ns}


def transcoded_pairs(processing: Processing) -> Iterator[tuple[str, str]]:
    """The pairs of codecs that were measured, in their order."""
    names = [codec.name for codec in CODECS if processing.has(decode(codec.name))]
    return combinations(names, 2)


PARTS: Sequence[tuple[str, str, Callable[[Extent], Times]]] = [
    *((codec.name, codec.library, partial(coding_times_ns, codec)) for codec in CODECS),
    ("SRTP", "libsrtp", srtp_times_ns),
    ("conferences", "Laxity's", mixing_times_ns),
    ("recording", "write()", recording_times_ns),
]
"""What is measured, and whose work it is."""
