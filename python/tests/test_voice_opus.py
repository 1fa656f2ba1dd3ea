"""Opus: out of captures, through libopus, and what is heard of it."""

from __future__ import annotations

import ctypes
import json
import random
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from conftest import needs_spandsp
from laxity import _core, voice
from laxity.errors import InputError
from laxity.voice import Opus, coders, opus, playout, quality
from laxity.voice import capture as captures
from laxity.voice.call import OPUS_PACKETS_MS
from laxity.voice.reference import reference
from test_voice_capture import Packet, pcap

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity


def _has_opus() -> bool:
    try:
        coders.opus()
    except InputError:
        return False
    return True


pytestmark = [
    pytest.mark.slow,
    needs_spandsp,
    pytest.mark.skipif(not _has_opus(), reason="there is no libopus (Debian package libopus0)"),
]

MS = 1_000_000
PACKET_NS = 20 * MS
SAMPLES = 160
"""The samples of a packet, at the rate at which speech is compared."""
DESCRIBED = (
    b"SIP/2.0 200 OK\r\nContent-Type: application/sdp\r\n\r\nv=0\r\no=- 1 1 IN IP4 192.0.2.2\r\n"
    b"s=-\r\nc=IN IP4 192.0.2.2\r\nt=0 0\r\nm=audio 5004 RTP/AVP 111\r\n"
    b"a=rtpmap:111 opus/48000/2\r\n"
)


def spoken(*, error_correction: bool, silent_s: int = 0) -> list[bytes]:
    """The reference speech as a phone codes it: full-band mono at 32 kbit/s.

    With a silence in it the phone's encoder says which packets need not be sent: short ones.
    """
    library = coders.opus()
    state = library.opus_encoder_create(48_000, 1, 2_048, None)
    # Bit rate, bandwidth, error correction, expected loss, discontinuous transmission.
    loss_percent = 10 if error_correction else 0
    settings = (
        *((4_002, 32_000), (4_008, 1_105)),
        *((4_012, int(error_correction)), (4_014, loss_percent), (4_016, int(silent_s > 0))),
    )
    for request, value in settings:
        assert library.opus_encoder_ctl(ctypes.c_void_p(state), request, value) == 0
    speech = 6 * np.fft.irfft(np.fft.rfft(reference()), 6 * reference().size)
    speech[48_000 * 8 : 48_000 * (8 + silent_s)] = 0
    room = ctypes.create_string_buffer(1_500)
    packets = []
    for said in speech.astype(np.int16).reshape(-1, 960):
        size = library.opus_encode(state, said.ctypes.data, 960, ctypes.addressof(room), 1_500)
        packets.append(room.raw[:size])
    library.opus_encoder_destroy(state)
    return packets


def decoded(packets: list[bytes], heard: np.ndarray, *, error_correction: bool) -> np.ndarray:
    """What libopus itself makes of them, where those that are not heard are missing."""
    library = coders.opus()
    state = library.opus_decoder_create(8_000, 1, None)
    samples = np.zeros((len(packets), SAMPLES), np.int16)
    for number, piece in enumerate(samples):
        given, is_before = packets[number] if heard[number] else None, 0
        if given is None and error_correction and heard[number + 1 : number + 2].all():
            given, is_before = packets[number + 1], 1
        size = len(given or b"")
        library.opus_decode(state, given, size, piece.ctypes.data, SAMPLES, is_before)
    library.opus_decoder_destroy(state)
    return samples.ravel()


def rtp(number: int, payload: bytes, ssrc: int = 1, timestamp: int | None = None) -> bytes:
    timestamp = ((number * 960 if timestamp is None else timestamp) + 4_294_960_000) % 2**32
    return struct.pack("!BBHII", 0x80, 111, (65_500 + number) % 65_536, timestamp, ssrc) + payload


@pytest.mark.parametrize("error_correction", [False, True])
def test_a_capture_sounds_like_what_libopus_makes_of_its_packets(
    tmp_path: Path, laxity: Laxity, *, error_correction: bool
) -> None:
    """The capture has the reference speech: what is inferred of its coding must do it justice."""
    packets = spoken(error_correction=error_correction)
    random_numbers = np.random.default_rng(7)
    is_lost, is_late = random_numbers.random(len(packets)) < 0.05, np.arange(len(packets)) % 97 == 5
    jitter_ns = random_numbers.integers(0, 20 * MS, len(packets)) + is_late * 200 * MS
    jitter_ns[:2] = 0
    is_lost[:2] = False
    sent: list[Packet] = [(0, DESCRIBED)]
    sent += [
        (int(number * PACKET_NS + jitter_ns[number]), rtp(number, packet))
        for number, packet in enumerate(packets)
        if not is_lost[number]
    ]
    path = tmp_path / "opus.pcap"
    path.write_bytes(pcap(sent))
    [found] = json.loads(laxity("voice", path, "--json").stdout)["calls"]
    assert found["opus"]["error_correction"] == error_correction
    assert found["opus"]["bandwidth"] == "full"
    mean_bit_s = sum(map(len, packets)) * 8 / (len(packets) * 0.02)
    assert found["opus"]["bit_s"] == pytest.approx(mean_bit_s, rel=0.05)
    assert (found["lost"], found["late"]) == (is_lost.sum(), (is_late & ~is_lost).sum())

    def directly(heard: np.ndarray, *, with_copies: bool = error_correction) -> float:
        samples = decoded(packets, heard, error_correction=with_copies)
        judged = quality.judge([samples], samples.size)
        assert judged is not None
        return judged[0]

    is_heard = ~is_lost & ~is_late
    assert found["pesq"] == pytest.approx(directly(is_heard), abs=0.1)
    # The tolerance is small beside what loss does, and what the copies do.
    if error_correction:
        assert directly(is_heard) - directly(is_heard, with_copies=False) > 0.3
    else:
        assert directly(np.ones_like(is_heard)) - directly(is_heard) > 0.3


def test_silence_that_libopus_does_not_send_is_left_out(tmp_path: Path, laxity: Laxity) -> None:
    packets = spoken(error_correction=False, silent_s=6)
    sent = [place for place, packet in enumerate(packets) if len(packet) > 2]
    unsent = sent[-1] - sent[0] + 1 - len(sent)
    assert unsent > 200
    path = tmp_path / "silence.pcap"
    path.write_bytes(
        pcap(
            (place * PACKET_NS, rtp(number, packets[place], timestamp=place * 960))
            for number, place in enumerate(sent)
        )
    )
    [found] = json.loads(laxity("voice", path, "--opus", 111, "--json").stdout)["calls"]
    assert (found["packets"], found["lost"], found["late"]) == (len(sent), 0, 0)
    assert found["left_out"]["silent_ns"] == unsent * PACKET_NS
    assert found["pesq"] > voice.TOLL_QUALITY


def test_packets_are_parsed_as_libopus_parses_them(tmp_path: Path) -> None:
    """Each stream has one payload twice. Half of the payloads are those of an encoder, changed."""
    seed = random.SystemRandom().randrange(2**32)
    drawn = random.Random(seed)  # noqa: S311 - not for secrets
    speech = spoken(error_correction=True)
    library = coders.opus()
    library.opus_packet_get_bandwidth.argtypes = [ctypes.c_char_p]
    library.opus_packet_get_nb_channels.argtypes = [ctypes.c_char_p]
    payloads = []
    for number in range(3_000):
        payload = bytearray(drawn.choice(speech) if number % 2 else drawn.randbytes(40))
        payload[0] = drawn.randrange(256)
        # Frames have few octets, so that lengths fit now and then.
        payload[1:4] = bytes(drawn.choice([0, 1, 2, 3, 66, 130, 252, 255]) for _ in range(3))
        payloads.append(bytes(payload[: drawn.randrange(3, 40)]))
    path = tmp_path / "random.pcap"
    # Streams that follow each other sooner are taken for one.
    sent = [
        (number * 2_500 * MS, rtp(place, payload, number))
        for number, payload in enumerate(payloads)
        for place in range(2)
    ]
    path.write_bytes(pcap(sent))
    text, _ = _core.rtp_streams(str(path), [111])
    valid = 0
    for stream, payload in zip(json.loads(text)["streams"], payloads, strict=True):
        starts, sizes = (ctypes.c_void_p * 48)(), (ctypes.c_int16 * 48)()
        frames = library.opus_packet_parse(payload, len(payload), None, starts, sizes, None)
        samples = library.opus_packet_get_samples_per_frame(payload, 48_000) * frames
        if frames <= 0 or samples > 5_760:
            assert "none of Opus" in stream["problem"], (seed, payload)
            continue
        valid += 1
        if "problem" in stream:
            # Its timestamps are 20 ms apart, and its packets have more.
            assert samples > 960, (seed, payload, stream)
            continue
        assert stream["packet_ns"] * 48 == samples * MS, (seed, payload)
        bandwidth = library.opus_packet_get_bandwidth(payload) - 1_101
        names = ("narrow", "medium", "wide", "superwide", "full")
        assert stream["opus"]["bandwidth"] == names[bandwidth], (seed, payload)
        is_stereo = library.opus_packet_get_nb_channels(payload) == 2
        assert stream["opus"]["stereo"] == is_stereo, (seed, payload)
    assert 300 < valid < 2_700, seed


def opus_call(
    coding: Opus, lost: list[int] | None = None, packet_ns: int = PACKET_NS
) -> voice.Call:
    numbers = np.arange(10_000 * MS // packet_ns)
    sent_ns = numbers * packet_ns
    arrived_ns = sent_ns + 5 * MS
    arrived_ns[lost or []] = voice.LOST
    return voice.Call("call", numbers, sent_ns, arrived_ns, packet_ns=packet_ns, laws=(coding,))


WIDE = Opus(24_000)


def test_a_lost_packet_is_recovered_only_if_the_next_one_is_there_in_time() -> None:
    coding = Opus(32_000, "full", error_correction=True)
    whole, lossy = opus_call(coding), opus_call(coding, [200])
    deep, shallow = (playout.fixed(lossy, depth) for depth in (20 * MS, 20 * MS - 1))
    assert (deep.heard == shallow.heard).all()
    assert deep.early.sum() == lossy.packets - 1
    assert not shallow.early.any()
    said = quality.audio(whole, playout.fixed(whole))
    place = slice(200 * SAMPLES, 201 * SAMPLES)

    def likeness(heard: np.ndarray) -> float:
        return float(np.corrcoef(said[place], heard[place])[0, 1])

    recovered, concealed = (quality.audio(lossy, buffer) for buffer in (deep, shallow))
    assert likeness(recovered) > likeness(concealed)
    assert (recovered[: place.start] == said[: place.start]).all()
    # Calls that sound different are judged apart.
    assert quality._sound(lossy, deep) != quality._sound(lossy, shallow)
    assert quality._sound(opus_call(WIDE), deep) == quality._sound(opus_call(WIDE), shallow)


@pytest.mark.parametrize("low_delay", [False, True])
def test_speech_is_heard_as_much_later_as_its_encoder_waits(*, low_delay: bool) -> None:
    coding = Opus(64_000, "full", low_delay=low_delay, stereo=low_delay)
    one = opus_call(coding)
    buffered = playout.fixed(one)
    assert buffered.delay_ns == 85 * MS + coding.ahead_ns
    heard = quality.audio(one, buffered)
    delay = coding.ahead_ns * 8_000 // 10**9
    likeness = np.corrcoef(reference()[: heard.size - delay], heard[delay:])[0, 1]
    assert likeness > 0.95
    other = np.corrcoef(reference()[: heard.size - delay - 8], heard[delay + 8 :])[0, 1]
    assert other < likeness - 0.1


def test_a_call_that_is_longer_than_the_reference_speech_says_it_again() -> None:
    numbers = np.arange(3_200)
    one = voice.Call("call", numbers, numbers * PACKET_NS, numbers * PACKET_NS, laws=(WIDE,))
    pieces = list(quality.heard(one, playout.fixed(one)))
    assert [piece.size for piece in pieces] == [240_000, 240_000, 200 * SAMPLES]
    # The decoder goes on from where it is, so that they differ a little.
    assert np.corrcoef(pieces[0], pieces[1])[0, 1] > 0.99


@pytest.mark.parametrize("packet_ms", OPUS_PACKETS_MS[::4])
def test_packets_of_any_length_have_about_the_bits_of_the_stream(packet_ms: float) -> None:
    packets = opus.reference_packets(Opus(32_000, "full"), int(packet_ms * MS))
    assert len(packets) == 30_000 / packet_ms
    assert sum(packet.size for packet in packets) * 8 / 30 == pytest.approx(32_000, rel=0.05)


def test_what_is_no_coding_or_no_packet_of_opus_is_refused() -> None:
    for wrong in (lambda: Opus(0), lambda: Opus(24_000, "broad")):  # type: ignore[arg-type]
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="packets of 30 ms, which libopus does not encode"):
        opus_call(WIDE, packet_ns=30 * MS)
    with pytest.raises(InputError, match=r"G\.722 or Opus and another codec"):
        voice.Call("call", *[np.arange(9)] * 3, laws=("mu", WIDE))


def test_a_payload_type_that_nothing_explains_must_be_told(tmp_path: Path, laxity: Laxity) -> None:
    packets = spoken(error_correction=False)[:400]
    path = tmp_path / "opus.pcap"
    path.write_bytes(pcap([(n * PACKET_NS, rtp(n, packet)) for n, packet in enumerate(packets)]))
    assert "say --opus 111 if it is Opus" in laxity("voice", path, code=2).stderr
    assert "greater than or equal to 96" in laxity("voice", path, "--opus", 95, code=2).stderr
    [call] = captures.read(path, [111]).calls
    assert call.opus is not None
    assert "1 call, playout" in laxity("voice", path, "--opus", 96, "--opus", 111).stdout
