"""Calls out of captures: what is found, what is refused, and `laxity voice`."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import tracemalloc
import wave
from typing import TYPE_CHECKING

import numpy as np
import pytest
from conftest import needs_spandsp
from laxity import programs, voice
from laxity.errors import InputError
from laxity.voice import capture as captures
from test_files import laxity_in_little_memory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from conftest import Laxity

pytestmark = pytest.mark.slow

MS = 1_000_000
START_NS = 1_700_000_000 * 10**9

Packet = tuple[int, bytes]
"""When, ns after the start, and the octets of a UDP datagram."""


def rtp(number: int, ssrc: int, payload_type: int = 0, size: int = 160) -> bytes:
    timestamp = (number * size + 4_294_960_000) % 2**32
    header = struct.pack("!BBHII", 0x80, payload_type, (65_500 + number) % 65_536, timestamp, ssrc)
    return header + b"\xff" * size


def stream(
    ssrc: int, packets: int = 400, lost: Iterable[int] = (), payload_type: int = 0
) -> list[Packet]:
    gone = set(lost)
    return [
        (number * 20 * MS + 3 * MS, rtp(number, ssrc, payload_type))
        for number in range(packets)
        if number not in gone
    ]


def pcap(packets: Iterable[Packet], *, is_ipv6: bool = False) -> bytes:
    """Ethernet, IP and UDP in little-endian pcap of microseconds, as tcpdump writes it."""
    records = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262_144, 1)]
    for time_ns, data in sorted(packets, key=lambda packet: packet[0]):
        udp = struct.pack("!HHHH", 40_000, 5_004, 8 + len(data), 0) + data
        if is_ipv6:
            ip = b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(udp), 17, 64)
            ip += b"".join(b"\xfe\x80" + bytes(13) + end for end in (b"\x01", b"\x02"))
        else:
            ip = b"\x08\x00" + struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0)
            ip += b"\xc0\x00\x02\x01\xc0\x00\x02\x02"
        frame = b"\x02" * 12 + ip + udp
        seconds, rest_ns = divmod(START_NS + time_ns, 10**9)
        records.append(struct.pack("<IIII", seconds, rest_ns // 1000, len(frame), len(frame)))
        records.append(frame)
    return b"".join(records)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "calls.pcap"


def test_a_call_is_found_as_it_arrived(path: Path) -> None:
    packets = stream(0xABC, lost=[7, 8, 300])
    packets.append((packets[50][0] + MS, packets[50][1]))
    late_ns = packets[100][0] + 47 * MS
    packets[100] = (late_ns, packets[100][1])
    packets[0] = (packets[0][0] + 2 * MS, packets[0][1])
    path.write_bytes(pcap(packets))
    found = captures.read(path)
    (call,) = found.calls
    assert call.name == "00000abc 192.0.2.1:40000>192.0.2.2:5004"
    assert (call.packets, call.duplicates, call.reordered) == (400, 1, 1)
    assert call.packet_ns == 20 * MS
    assert call.laws == ("mu",)
    assert not call.is_delay_known
    delays = (call.arrived_ns - call.sent_ns) / MS
    # All are as fast as the fastest but the duplicate, the first and the one that was held up.
    assert sorted(delays)[-4:] == [0, 1, 2, 47]
    assert set(range(400)) - set(call.sequence - call.sequence.min()) == {7, 8, 300}


def test_g722_is_decoded_as_g722(path: Path, laxity: Laxity) -> None:
    lost = range(200, 210)
    path.write_bytes(pcap([*stream(1, 400, lost, 9), *stream(2, 400, lost)]))
    wide, narrow = captures.read(path).calls
    assert (wide.laws, narrow.laws) == (("g722",), ("mu",))
    assert wide.packet_ns == narrow.packet_ns == 20 * MS
    assert (wide.arrived_ns == narrow.arrived_ns).all()
    of_wide, of_narrow = json.loads(laxity("voice", path, "--json").stdout)["calls"]
    assert of_wide["lost"] == of_narrow["lost"] == 10
    assert of_wide["pesq"] != of_narrow["pesq"]


def test_streams_that_cannot_be_scored_are_named_and_the_others_found(path: Path) -> None:
    talk = stream(2)
    pause = [(at, rtp(n + 7 * (n > 9), 3)) for n, (at, _) in enumerate(stream(3))]
    pause = [(at, octets[:2] + rtp(n, 3)[2:4] + octets[4:]) for n, (at, octets) in enumerate(pause)]
    digits = stream(4)
    digits[20] = (digits[20][0], rtp(20, 4, 101))
    path.write_bytes(
        pcap([*stream(1, payload_type=8), *talk, *pause, *digits, *stream(5, 50, (), 18)])
    )
    found = captures.read(path)
    assert [call.laws for call in found.calls] == [("a",), ("mu",), ("mu",)]
    (besides,) = found.left_out.items()
    assert besides[0].split()[0] == "00000003"
    assert (besides[1].pauses, besides[1].silent_ns) == (1, 7 * 20 * MS)
    whys = {one.name.split()[0]: one.why for one in found.unscored}
    assert list(whys) == ["00000004", "00000005"]
    assert whys["00000004"] == "changes from payload type 0 to 101"
    assert (
        whys["00000005"]
        == "has payload type 18; 0 (PCMU), 8 (PCMA), 9 (G.722) or one of Opus was expected"
    )


def test_a_stream_of_packets_too_short_to_be_concealed_is_not_scored(path: Path) -> None:
    short = [(number * 20 * MS, rtp(number, 1, size=29)) for number in range(400)]
    shortest = [(number * 20 * MS, rtp(number, 2, size=30)) for number in range(400)]
    path.write_bytes(pcap([*short, *shortest]))
    found = captures.read(path)
    assert [call.packet_ns for call in found.calls] == [3_750_000]
    (left,) = found.unscored
    assert (left.name.split()[0], left.packets) == ("00000001", 400)
    assert left.why == "has packets of 3.625 ms, which are too short to be concealed"


@pytest.mark.parametrize(
    ("octets", "what"),
    [
        (b"", "neither pcap nor pcapng"),
        (b"[host]\ncpus = 1\n", "neither pcap nor pcapng"),
        (pcap([]), "has no RTP: of 0 packets"),
        (pcap([(0, b"INVITE sip:a@b SIP/2.0\r\n")] * 3), "3 not RTP"),
        (pcap(stream(1, 1))[:-5], "no RTP: .* the file ends in the middle of packet 1"),
        (pcap([(n * MS, rtp(n, 1, size=8)) for n in range(9)]), "no call .* has packets of 1 ms"),
        (pcap(stream(1, payload_type=18)), "no call that can be scored: .* payload type 18"),
    ],
)
def test_what_has_no_calls_is_refused(path: Path, octets: bytes, what: str, laxity: Laxity) -> None:
    path.write_bytes(octets)
    with pytest.raises(InputError, match=what):
        captures.read(path)
    assert "help: " in laxity("voice", path, code=2).stderr


def test_what_is_no_file_is_refused(tmp_path: Path, laxity: Laxity) -> None:
    assert "there is no file" in laxity("voice", tmp_path / "none.pcap", code=2).stderr
    assert "is a directory" in laxity("voice", tmp_path, code=2).stderr


@needs_spandsp
def test_the_table_has_the_worst_first_and_says_what_it_left_out(
    path: Path, laxity: Laxity
) -> None:
    lost = np.flatnonzero(np.random.default_rng(1).random(400) < 0.1)
    late = [(at + 200 * MS * (n % 50 == 49), octets) for n, (at, octets) in enumerate(stream(3))]
    packets = [*stream(1), *stream(2, lost=lost), *late, *stream(4, 100), *stream(5, 9, (), 3)]
    path.write_bytes(pcap([*packets, (5, b"hello")]))
    output = laxity("voice", path).stdout
    rows = [line.split() for line in output.splitlines() if line.startswith("000000")]
    assert [row[0] for row in rows] == ["00000004", "00000002", "00000003", "00000001"]
    assert rows[0][1:3] == ["too", "short"]
    assert rows[2][-2:] == ["0", "2.00"]
    assert "25.0 % of 4 calls of toll quality (PESQ 4 or better), 1 dead" in output
    assert "1 stream not scored:" in output
    assert "payload type 3" in output
    assert max(map(len, output.splitlines())) <= 80

    content = json.loads(laxity("voice", path, "--json", "--one-in", 2, "--playout", "1 s").stdout)
    assert [call["name"].split()[0] for call in content["calls"]] == ["00000001", "00000003"]
    assert content["calls"][1]["late"] == 0
    assert content["summary"]["toll_quality"] == content["summary"]["calls"] == 2
    assert content["not_rtp"] == 1


@needs_spandsp
def test_a_capture_that_was_cut_is_scored_up_to_there_and_says_what_is_no_speech(
    path: Path, laxity: Laxity
) -> None:
    talk = stream(2)
    # A key was pressed while the packets 200 to 209 would have been spoken.
    event = rtp(200, 2, 101, size=4)[:4] + rtp(200, 2)[4:12] + bytes(4)
    for number in range(200, 210):
        talk[number] = (talk[number][0], event[:2] + rtp(number, 2)[2:4] + event[4:])
    path.write_bytes(pcap([*stream(1), *talk])[:-5])
    output = laxity("voice", path).stdout
    assert "The file ends in the middle of packet 800: scored up to there" in output
    assert "1 call scored over what is speech, without:\n  00000002 " in output
    assert "    10 packets of tones, 1 pause, 0.2 s in all\n" in output
    assert "100 % of 2 calls of toll quality" in output
    assert max(map(len, output.splitlines())) <= 80
    content = json.loads(laxity("voice", path, "--json").stdout)
    assert content["cut_packet"] == 800
    assert content["calls"][0]["left_out"] is None
    assert content["calls"][1]["left_out"]["event_packets"] == 10
    assert [call["packets"] for call in content["calls"]] == [400, 389]


@needs_spandsp
@pytest.mark.parametrize(("step_ns", "code"), [(20 * MS, 0), (2_900 * 20 * MS, 2)])
def test_a_capture_cannot_claim_a_call_that_is_far_longer_than_what_it_has(
    path: Path, step_ns: int, code: int
) -> None:
    """Each packet is 2,900 after the one before: strays, or, with times that allow it, no call."""
    hostile = [(number * step_ns, rtp(number * 2_900, 1)) for number in range(5_000)]
    hostile.append((hostile[-1][0] + 20 * MS, rtp(4_999 * 2_900 + 1, 1)))
    path.write_bytes(pcap(hostile))
    assert laxity_in_little_memory([["voice", str(path)]]) == [code]


@needs_spandsp
def test_what_scoring_takes_does_not_grow_with_the_length_of_a_call() -> None:
    def sparse(between: int) -> voice.Call:
        sequence = np.arange(300) * between
        times = sequence * 20 * MS
        return voice.Call("sparse", sequence, times, times)

    def peak_bytes(between: int) -> int:
        tracemalloc.start()
        voice.score(sparse(between))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    voice.score(sparse(1))  # What is made once is there from now on.
    # 90 s and 9 min, of which the speech alone has 8.6 MB. A place and a time for each packet stay.
    assert peak_bytes(90) < peak_bytes(15) + 1_000_000


@needs_spandsp
def test_addresses_of_ipv6_are_shown_as_they_are(path: Path, laxity: Laxity) -> None:
    path.write_bytes(pcap(stream(1, 160), is_ipv6=True))
    assert "[fe80::1]:40000>[fe80::2]:5004" in laxity("voice", path).stdout


@needs_spandsp
def test_what_is_heard_can_be_listened_to(path: Path, tmp_path: Path, laxity: Laxity) -> None:
    path.write_bytes(pcap(stream(1)))
    heard = tmp_path / "heard"
    laxity("voice", path, "--wav", heard)
    (file,) = heard.iterdir()
    with wave.open(str(file)) as sound:
        assert (sound.getnframes(), sound.getframerate()) == (400 * 160, 8000)
        samples = np.frombuffer(sound.readframes(64_000), "<i2")
    assert samples.std() > 500
    assert "exists already" in laxity("voice", path, "--wav", heard, code=2).stderr


def test_an_adaptive_buffer_is_asked_for(path: Path, laxity: Laxity) -> None:
    path.write_bytes(pcap(stream(1)))
    assert (
        "playout adaptive from 40 ms"
        in laxity("voice", path, "--adaptive", "--playout", "40 ms").stdout
    )
    fixed, adaptive = (
        json.loads(laxity("voice", path, "--json", *words).stdout) for words in ([], ["--adaptive"])
    )
    assert (fixed["adaptive"], adaptive["adaptive"]) == (False, True)
    assert adaptive["calls"][0]["delay_ns"] < fixed["calls"][0]["delay_ns"]


def test_options_that_make_no_sense_are_refused(path: Path, laxity: Laxity) -> None:
    path.write_bytes(pcap(stream(1)))
    assert "unknown unit" in laxity("voice", path, "--playout", "5 x", code=2).stderr
    laxity("voice", path, "--one-in", 0, code=2)


@needs_spandsp
@pytest.mark.skipif(programs.built("laxity-media") is None, reason="laxity-media is not built")
def test_a_capture_of_real_packets(path: Path) -> None:
    """What laxity-media says of its own streams, and what is read of its capture."""
    found = programs.built("laxity-media")
    assert found is not None
    words = [str(found), "loop", "--streams", "5", "--duration", "4 s", "--json", "--transcode"]
    done = subprocess.run([*words, "--capture", path], check=True, capture_output=True, text=True)
    sink = json.loads(done.stdout)["sink"]
    calls = captures.read(path).calls
    assert len(calls) == 5
    assert {call.laws for call in calls} == {("a",)}
    assert sum(call.sequence.size - call.duplicates for call in calls) == sink["received"]
    for quality in voice.score_calls(calls):
        assert quality.dead is None
        if quality.lost == quality.late == 0:
            assert quality.mos_lqo > 4.2


def test_a_reader_that_cannot_read_is_told_so(path: Path, laxity: Laxity) -> None:
    path.write_bytes(pcap(stream(1)))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads everything")
    assert "Permission denied" in laxity("voice", path, code=2).stderr
