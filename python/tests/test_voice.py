"""Voice quality, from packets to a score."""

from __future__ import annotations

import ctypes
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_spandsp
from hypothesis import given, settings
from hypothesis import strategies as st
from laxity import voice
from laxity.errors import InputError
from laxity.voice import coders, e_model, g722, playout, quality, spandsp
from laxity.voice.call import LOST, Call
from laxity.voice.reference import PATH, SAMPLES_PER_SECOND, reference

MS = 1_000_000
PACKET_NS = 20 * MS
SCRIPT = Path(__file__).parents[2] / "tools" / "build" / "reference_speech.py"

pytestmark = [needs_spandsp, pytest.mark.slow]


def call(
    packets: int = 1500, delay_ns: int = 5 * MS, name: str = "call", **changes: object
) -> Call:
    """One that goes well: a packet every 20 ms, each as fast as the other."""
    sent_ns = np.arange(packets) * PACKET_NS
    fields = {"sequence": np.arange(packets), "sent_ns": sent_ns, "arrived_ns": sent_ns + delay_ns}
    return Call(name, **{**fields, **changes})  # type: ignore[arg-type]


def losing(loss: float, seed: int, packets: int = 1500) -> Call:
    """Packets are lost at random."""
    whole = call(packets)
    lost = np.random.default_rng(seed).random(packets) < loss
    return call(packets, arrived_ns=np.where(lost, LOST, whole.arrived_ns))


# The reference speech


def test_reference_speech_is_what_it_is_said_to_be() -> None:
    with wave.open(str(PATH)) as file:
        assert (file.getframerate(), file.getsampwidth(), file.getnchannels()) == (8000, 2, 1)
    speech = reference().astype(float)
    assert speech.size == 30 * 8000
    assert np.abs(speech).max() < 32_000, "it is not clipped"
    frames = speech.reshape(-1, 160)
    levels = 10 * np.log10((frames**2).mean(axis=1) / 32_768**2)
    talking = levels > -26 - 15.9
    # Somebody speaks about half of the time, as in a conversation's louder half.
    assert 0.5 < talking.mean() < 0.8
    assert 10 * np.log10((10 ** (levels[talking] / 10)).mean()) == pytest.approx(-26, abs=0.5)
    # Before the first word there is noise, and nowhere silence.
    assert speech[:3200].std() == pytest.approx(20, abs=0.7)
    assert (frames.std(axis=1) > 15).all()
    # It is within the telephone's band.
    power = np.abs(np.fft.rfft(speech)) ** 2
    hertz = np.fft.rfftfreq(speech.size, 1 / 8000)
    assert power[(hertz > 200) & (hertz < 3400)].sum() > 0.95 * power.sum()


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="there is no espeak-ng")
def test_reference_speech_can_be_made_again(tmp_path: Path) -> None:
    program = shutil.which("espeak-ng")
    assert program is not None
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    if " 1.51" not in version.stdout:
        pytest.skip(f"another espeak-ng speaks otherwise: {version.stdout}")
    path = tmp_path / "again.wav"
    subprocess.run([sys.executable, SCRIPT, path], check=True, stdout=subprocess.DEVNULL)
    with wave.open(str(path)) as file:
        again = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    # Another processor may round otherwise.
    assert np.abs(again.astype(int) - reference()).max() <= 1


# G.711 and concealment


@pytest.mark.parametrize(
    ("law", "octets", "back"),
    [("mu", [0xFF, 0x80, 0x00], (0, 32_124)), ("a", [0xD5, 0xAA, 0x2A], (8, 32_256))],
)
def test_g711_knows_the_ends_of_its_tables(
    law: spandsp.Law, octets: list[int], back: tuple[int, int]
) -> None:
    samples = np.array([0, 32_767, -32_768], np.int16)
    assert spandsp.encode(samples, law).tolist() == octets
    assert tuple(spandsp.decode(np.array(octets[:2], np.uint8), law)) == back


@pytest.mark.parametrize("law", spandsp.LAWS)
def test_g711_is_its_own_inverse(law: spandsp.Law) -> None:
    octets = np.arange(256, dtype=np.uint8)
    samples = spandsp.decode(octets, law)
    assert (spandsp.decode(spandsp.encode(samples, law), law) == samples).all()
    assert np.unique(samples).size == (255 if law == "mu" else 256)  # mu-law has two zeros.


def test_concealment_leaves_what_is_whole_and_fills_what_is_not() -> None:
    frames = reference()[: 160 * 200].reshape(200, 160)
    assert (spandsp.conceal(frames, [True] * 200) == frames).all()
    there = np.ones(200, np.bool_)
    there[100:110] = False
    heard = spandsp.conceal(frames, there)
    # Nothing changes before a gap, and after it only the first frame, which is blended in.
    assert (heard[:100] == frames[:100]).all()
    assert (heard[111:] == frames[111:]).all()
    assert heard[100].any()
    assert not heard[105:110].any(), "it has faded out after 50 ms"
    # What stands where nothing came plays no part.
    other = np.where(there[:, None], frames, 1234).astype(np.int16)
    assert (spandsp.conceal(other, there) == heard).all()


def test_concealment_takes_no_frames_that_spandsp_would_write_past() -> None:
    frames = reference()[: 30 * 400].reshape(400, 30)
    assert spandsp.conceal(frames, [True] * 399 + [False]).shape == frames.shape
    with pytest.raises(ValueError, match="frames of 29 samples"):
        spandsp.conceal(frames[:, :29], [True] * 400)


def test_without_spandsp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spandsp, "LIBRARY", "libspandsp.so.0")
    spandsp.library.cache_clear()
    with pytest.raises(InputError, match=r"libspandsp\.so\.0") as caught:
        voice.score(call())
    assert "libspandsp2" in str(caught.value.help)


# Calls


def test_sequence_numbers_wrap() -> None:
    plain = losing(0.05, 1, 750)
    wrapped = call(750, sequence=(plain.sequence + 65_000) % 65_536, arrived_ns=plain.arrived_ns)
    assert wrapped.packets == 750
    assert voice.score(wrapped) == voice.score(plain)


def test_numbers_that_are_counted_on_stay_so() -> None:
    assert call(70_000).packets == 70_000
    with pytest.raises(InputError, match="70000 comes after 4464"):
        call(2, sequence=np.array([4464, 70_000]))


def test_duplicates_and_reordered_packets_change_nothing_but_their_count() -> None:
    whole = call(500)
    rng = np.random.default_rng(4)
    # Every tenth twice, the second time later than its turn; neighbours exchanged.
    again = np.arange(0, 500, 10)
    order = np.concatenate([np.arange(500).reshape(-1, 2)[:, ::-1].ravel(), again])
    mixed = Call(
        "mixed",
        whole.sequence[order],
        whole.sent_ns[order],
        whole.arrived_ns[order] + np.where(np.arange(550) < 500, 0, 900 * MS),
    )
    assert (mixed.duplicates, mixed.reordered) == (50, 0)
    shuffled = rng.integers(0, 50 * MS, 500)
    late = call(500, arrived_ns=whole.arrived_ns + shuffled)
    assert late.reordered > 50
    ours, theirs = voice.score(mixed), voice.score(whole)
    assert (ours.pesq, ours.lost, ours.late, ours.r) == (theirs.pesq, 0, 0, theirs.r)


def test_a_duplicate_that_comes_in_time_saves_one_that_is_late() -> None:
    whole = call(500)
    late = whole.arrived_ns.copy()
    late[100] += 100 * MS
    assert voice.score(call(500, arrived_ns=late)).late == 1
    twice = Call(
        "twice",
        np.append(whole.sequence, 100),
        np.append(whole.sent_ns, whole.sent_ns[100]),
        np.append(late, whole.arrived_ns[100] + MS),
    )
    assert voice.score(twice).late == 0


def test_a_packet_that_no_row_tells_of_is_lost() -> None:
    whole = losing(0.1, 3, 750)
    kept = whole.has_arrived
    kept[[0, -1]] = True
    told = call(750, arrived_ns=np.where(kept, call(750).arrived_ns, LOST))
    silent = Call("call", told.sequence[kept], told.sent_ns[kept], told.arrived_ns[kept])
    assert voice.score(silent) == voice.score(told)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"sequence": [0, 5000], "packets": 2}, "5000 comes after 0"),
        ({"sent_ns": np.zeros(3, np.int64)}, "1500 sequence numbers, 3 times sent"),
        ({"sent_ns": np.zeros(1500)}, "sent_ns is of type float64"),
        ({"sequence": np.zeros((3, 2), np.int64)}, r"shape \(3, 2\)"),
        ({"arrived_ns": np.full(1500, -5)}, "a time before 0"),
        ({"arrived_ns": np.zeros(1500, np.int64)}, "arrives before it is sent"),
        ({"packet_ns": 0}, "packets of 0 ns"),
        ({"packet_ns": 20 * MS + 1}, "packets of 20000001 ns"),
        ({"packet_ns": 29 * 125_000}, r"(?s)packets of 3\.625 ms.*at least 3\.75 ms"),
        ({"laws": ()}, "laws"),
        ({"laws": ("opus",)}, "opus"),
    ],
)
def test_what_is_no_call_is_refused(changes: dict[str, object], what: str) -> None:
    with pytest.raises(InputError, match=what):
        call(**changes)  # type: ignore[arg-type]


# The playout buffer


def test_the_buffer_lets_packets_be_late_by_its_depth_and_no_more() -> None:
    arrived = call(100).arrived_ns.copy()
    arrived[50] += 60 * MS
    arrived[51] += 60 * MS + 1
    result = playout.fixed(call(100, arrived_ns=arrived))
    assert np.flatnonzero(~result.heard).tolist() == [51]
    assert (result.lost, result.late) == (0, 1)
    # 20 ms to collect it, 5 ms on its way, 60 ms in the buffer.
    assert result.delay_ns == 85 * MS


def test_a_first_packet_that_is_slow_makes_all_of_the_call_later() -> None:
    arrived = call(100).arrived_ns.copy()
    arrived[0] += 15 * MS
    assert playout.fixed(call(100, arrived_ns=arrived)).delay_ns == 100 * MS


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Calls of few packets, with everything that can happen to them."""
    packets = draw(st.integers(1, 12))
    rows = draw(st.lists(st.integers(0, packets - 1), min_size=1, max_size=20))
    delays = draw(st.lists(st.integers(-1, 90), min_size=len(rows), max_size=len(rows)))
    sent = [row * PACKET_NS for row in rows]
    arrived = [LOST if d < 0 else at + d * MS for at, d in zip(sent, delays, strict=True)]
    return Call("drawn", rows, sent, arrived)  # type: ignore[arg-type]


def obvious(call: Call, buffer_ns: int) -> tuple[list[bool], list[bool]]:
    """A receiver, millisecond for millisecond: which packets are heard, and which ever came."""
    lowest, highest = call.sequence.min(), call.sequence.max()
    arrivals = sorted(
        (int(at), int(number))
        for number, at in zip(call.sequence, call.arrived_ns, strict=True)
        if at != LOST
    )
    buffer: set[int] = set()
    came: set[int] = set()
    heard: set[int] = set()
    starts: dict[int, int] = {}
    now_ns = 0
    while arrivals or any(at >= now_ns for at in starts.values()):
        while arrivals and arrivals[0][0] <= now_ns:
            at, number = arrivals.pop(0)
            if not starts:
                for other in range(lowest, highest + 1):
                    starts[other] = at + buffer_ns + (other - number) * call.packet_ns
            buffer.add(number)
            came.add(number)
        for number, start in starts.items():
            if start == now_ns and number in buffer:
                heard.add(number)
        now_ns += MS
    everyone = range(lowest, highest + 1)
    return [number in heard for number in everyone], [number in came for number in everyone]


@settings(deadline=None, max_examples=300)
@given(calls(), st.integers(0, 100))
def test_the_buffer_is_the_obvious_receiver(drawn: Call, buffer_ms: int) -> None:
    result = playout.fixed(drawn, buffer_ms * MS)
    heard, came = obvious(drawn, buffer_ms * MS)
    assert (result.heard.tolist(), result.arrived.tolist()) == (heard, came)
    assert result.lost + result.late + int(result.heard.sum()) == drawn.packets
    deeper = playout.fixed(drawn, (buffer_ms + 10) * MS)
    assert not (result.heard & ~deeper.heard).any(), "a deeper buffer loses nothing"


# The adaptive buffer


def due_ns(delays: list[int], spurts: list[int], pauses: list[int], buffer: int) -> list[int]:
    return playout._due_ns(np.array(delays), np.array(spurts), np.array(pauses), buffer).tolist()


def test_another_spurt_is_played_four_deviations_after_the_average() -> None:
    memory, rest = 0.998002, 1 - 0.998002
    deviation = memory * (memory * 60 * MS / 4)
    average = memory * 10 * MS + rest * 90 * MS
    deviation += rest * (90 * MS - average)
    found = due_ns([10 * MS, 90 * MS], [0, 1], [0, 500 * MS], 60 * MS)
    # Within a spurt nothing changes: the first has the depth that was asked for.
    assert found == [70 * MS, pytest.approx(average + 4 * deviation, abs=1)]
    assert due_ns([10 * MS, 90 * MS], [0, 0], [0], 60 * MS) == [70 * MS, 70 * MS]


def test_a_pause_shrinks_to_nothing_at_most() -> None:
    delays = [200 * MS] + [0] * 3_000
    spurts = [0] * 3_000 + [1]
    assert due_ns(delays, spurts, [0, 900 * MS], 60 * MS)[-1] < 100 * MS
    assert due_ns(delays, spurts, [0, 50 * MS], 60 * MS)[-1] == 210 * MS


def test_talk_spurts_are_those_of_the_reference_speech() -> None:
    spurts, pauses_ns = playout._spurts(PACKET_NS, 3_000)
    assert (np.diff(spurts) >= 0).all()
    assert spurts[0] == 0
    assert pauses_ns.size == spurts[-1] + 1
    assert pauses_ns[1:].min() >= 200 * MS
    # Somebody says a sentence every few seconds.
    assert 10 <= spurts[1_499] <= 20
    halves, _ = playout._spurts(PACKET_NS // 2, 3_000)
    assert abs(int(halves[-1]) - int(spurts[1_499])) <= 2
    begin = np.flatnonzero(np.diff(spurts)) + 1
    packets = np.resize(reference(), 3_000 * 160).astype(float).reshape(-1, 160)
    level_dbov = 10 * np.log10(np.mean(packets**2, axis=1) / 2**30)
    assert (level_dbov[begin] >= -41.9).all()
    assert (level_dbov[begin - 1] < -41.9).all()


def test_the_adaptive_buffer_follows_a_delay_that_the_fixed_one_does_not() -> None:
    later = np.where(np.arange(3_000) < 1_000, 0, 100 * MS)
    slow = call(3_000, arrived_ns=call(3_000).arrived_ns + later)
    fixed, adaptive = playout.played(slow), playout.played(slow, adaptive=True)
    assert not fixed.heard[1_000:].any()
    assert adaptive.heard[:1_000].all()
    assert adaptive.heard[2_000:].all()
    assert 0 < adaptive.late < 1_000
    assert voice.score(slow).dead == "silent" or voice.score(slow).pesq < 2
    assert voice.score(slow, adaptive=True).pesq > 2.5


def test_the_adaptive_buffer_waits_less_where_little_differs() -> None:
    calm = call(3_000)
    fixed, adaptive = playout.played(calm), playout.played(calm, adaptive=True)
    assert fixed.heard.all()
    assert adaptive.heard.all()
    assert fixed.delay_ns is not None
    assert adaptive.delay_ns is not None
    assert adaptive.delay_ns < fixed.delay_ns / 2
    [one] = voice.score_calls([calm], adaptive=True)
    assert one.delay_ns == adaptive.delay_ns
    assert one == voice.score(calm, adaptive=True)
    assert one.r > voice.score(calm).r


@settings(deadline=None, max_examples=100)
@given(calls(), st.integers(0, 100))
def test_a_call_of_one_spurt_has_the_fixed_buffer(drawn: Call, buffer_ms: int) -> None:
    fixed = playout.played(drawn, buffer_ms * MS)
    adaptive = playout.played(drawn, buffer_ms * MS, adaptive=True)
    assert (adaptive.heard == fixed.heard).all()
    assert (adaptive.arrived == fixed.arrived).all()


# PESQ


@pytest.mark.parametrize(
    ("laws", "least", "most"),
    [(("mu",), 4.30, 4.45), (("a",), 4.30, 4.45), (("mu", "a"), 4.20, 4.35)],
)
def test_without_loss_it_is_as_good_as_g711(
    laws: tuple[spandsp.Law, ...], least: float, most: float
) -> None:
    """Around the 4.34 measured of other speech with the same noise; the speech makes the rest."""
    found = voice.score(call(laws=laws))
    assert least < found.mos_lqo < most
    assert found.pesq == pytest.approx(quality.raw_pesq(found.mos_lqo))
    assert found.is_toll_quality
    assert found.dead is None


@pytest.fixture(scope="module")
def by_loss() -> dict[float, list[voice.CallQuality]]:
    return {
        loss: voice.score_calls([losing(loss, seed) for seed in range(4)])
        for loss in (0.0, 0.01, 0.05, 0.2)
    }


def test_loss_costs_what_was_measured_before(by_loss: dict[float, list[voice.CallQuality]]) -> None:
    """Around 4.05 and 3.34, measured of other speech; which frames are lost makes up to 0.3."""
    means = {loss: np.mean([one.mos_lqo for one in all_]) for loss, all_ in by_loss.items()}
    assert 3.9 < means[0.01] < 4.25
    assert 3.1 < means[0.05] < 3.6
    assert list(means.values()) == sorted(means.values(), reverse=True)
    ratings = [np.mean([one.r for one in all_]) for all_ in by_loss.values()]
    assert ratings == sorted(ratings, reverse=True)


def test_concealment_is_better_than_silence() -> None:
    """On average; of a frame or two, silence can be the better guess."""
    for loss, gain in ((0.02, 0.1), (0.05, 0.2)):
        scores = []
        for seed in range(3):
            lost = losing(loss, seed, 750)
            buffered = playout.fixed(lost)
            concealed = quality.audio(lost, buffered)
            spoken = np.resize(quality._coded(("mu",)), concealed.size)
            zeroed = np.where(np.repeat(buffered.heard, 160), spoken, 0)
            judged = [
                quality.judge([heard.astype(np.int16)], heard.size) for heard in (concealed, zeroed)
            ]
            scores.append([one[0] for one in judged if one is not None])
        better, worse = np.mean(scores, axis=0)
        assert better > worse + gain, loss


def test_late_packets_are_heard_as_little_as_lost_ones() -> None:
    lost = losing(0.03, 5, 750)
    arrived = np.where(lost.has_arrived, lost.arrived_ns, lost.sent_ns + 500 * MS)
    late = voice.score(call(750, arrived_ns=arrived))
    gone = voice.score(lost)
    assert (late.pesq, late.mos_lqo) == (gone.pesq, gone.mos_lqo)
    assert (late.lost, late.late, gone.lost, gone.late) == (0, gone.lost, gone.lost, 0)
    assert late.late_ratio == gone.loss > 0


def test_sound_stands_where_its_packet_was_spoken() -> None:
    lost = losing(0.05, 2)
    buffered = playout.fixed(lost)
    heard = quality.audio(lost, buffered).reshape(-1, 160)
    whole = quality._coded(("mu",)).reshape(-1, 160)
    untouched = buffered.heard & np.append(True, buffered.heard[:-1])
    assert (heard[untouched] == whole[untouched]).all()
    assert not (heard[~buffered.heard] == whole[~buffered.heard]).all()


def test_a_part_of_the_reference_and_packets_of_other_lengths() -> None:
    assert voice.score(call(400)).mos_lqo > 4.2
    ten = np.arange(1000)
    short = Call("10 ms", ten, ten * 10 * MS, ten * 10 * MS + MS, packet_ns=10 * MS)
    assert voice.score(short).mos_lqo > 4.2
    assert voice.score(short).delay_ns == 71 * MS


def test_a_long_call_is_the_mean_of_its_parts() -> None:
    good, bad = call(1500).arrived_ns, losing(0.2, 1).arrived_ns
    arrived = np.concatenate([good, np.where(bad == LOST, LOST, bad + 1500 * PACKET_NS)])
    both = voice.score(call(3000, arrived_ns=arrived))
    parts = voice.score(call()).pesq, voice.score(losing(0.2, 1)).pesq
    assert both.pesq == pytest.approx(np.mean(parts), abs=0.02)
    # A rest of less than 8 s belongs to the part before it, and changes little.
    assert voice.score(call(1700)).pesq == pytest.approx(parts[0], abs=0.05)


def test_pesq_is_on_the_papers_scale() -> None:
    # P.862.1: its greatest, 4.5, is 4.549; 4, toll quality, is 4.154.
    for raw, mapped in ((-0.5, 1.017), (4.0, 4.154), (4.5, 4.549)):
        assert 0.999 + 4 / (1 + math.exp(-1.4945 * raw + 4.6607)) == pytest.approx(mapped, abs=1e-3)
        assert quality.raw_pesq(mapped) == pytest.approx(raw, abs=0.02)


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (call(arrived_ns=np.full(1500, LOST)), "no packets"),
        (call(0), "no packets"),
        (call(159), "too short"),
        (call(160), None),
        (call(arrived_ns=np.where(np.arange(1500) < 159, call().arrived_ns, LOST)), "silent"),
        (call(arrived_ns=call().arrived_ns + np.arange(1500) * MS), "silent"),
        (call(arrived_ns=np.where(np.arange(1500) < 100, LOST, call().arrived_ns)), None),
    ],
)
def test_a_dead_call_is_scored_as_dead(of: Call, why: str | None) -> None:
    found = voice.score(of)
    assert found.dead == why
    if why is not None:
        assert (found.pesq, found.mos_lqo, found.r, found.e_model_mos) == (0, 1, 0, 1)
        assert not found.is_toll_quality


def test_a_call_of_which_nothing_is_heard_is_silent() -> None:
    assert quality.judge([np.zeros(240_000, np.int16)], 240_000) is None
    # PESQ finds no utterance in a sound that is far too soft, or gives a score; it is no crash.
    faint = np.zeros(240_000, np.int16)
    faint[::2000] = 1
    judged = quality.judge([faint], faint.size)
    assert judged is None or judged[0] < 2


def test_scores_are_the_same_on_every_run_and_in_every_process() -> None:
    several = [losing(0.02, seed, 800) for seed in range(5)]
    first, second = voice.score_calls(several), voice.score_calls(several)
    assert first == second == [voice.score(one) for one in several]


INTERRUPTED = """
import signal
import numpy as np
from laxity.voice import Call, score_calls
signal.signal(signal.SIGINT, signal.default_int_handler)
def call(packets):
    sent_ns = np.arange(packets) * 20_000_000
    return Call("call", np.arange(packets), sent_ns, sent_ns)
try:
    # One worker has nothing to do while the other judges a day.
    calls = [call(400), call(24 * 3600 * 50)]
    score_calls(calls, processes=2, progress=lambda done, _: print(done, flush=True))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_what_is_judged_without_a_word() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Ctrl-C reaches all processes of a group.
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        os.killpg(process.pid, signal.SIGINT)
        output, error = process.communicate(timeout=600)
    finally:
        process.kill()
    assert (process.returncode, output, error) == (0, b"interrupted\n", b"")


def test_one_call_in_four() -> None:
    several = [replace(losing(0.1, index, 200), name=f"call {index}") for index in range(9)]
    told: list[tuple[int, int]] = []
    found = voice.score_calls(several, one_in=4, progress=lambda *step: told.append(step))
    assert [one.name for one in found] == ["call 0", "call 4", "call 8"]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert voice.score_calls([]) == []


def test_calls_of_which_the_same_is_heard_are_judged_once() -> None:
    lossless = [call(200, delay_ns, f"call {delay_ns}") for delay_ns in (5 * MS, 9 * MS)]
    several = [lossless[0], losing(0.1, 1, 200), lossless[1]]
    told: list[tuple[int, int]] = []
    found = voice.score_calls(several, progress=lambda *step: told.append(step))
    assert told == [(1, 2), (2, 2)]
    assert found == [voice.score(one) for one in several]
    assert found[0].delay_ns != found[2].delay_ns


def test_one_call_in_none_is_refused() -> None:
    with pytest.raises(InputError, match="one call in 0"):
        voice.score_calls([call()], one_in=0)


# The E-model


def test_e_model_gives_what_g107_publishes() -> None:
    assert e_model.r_factor() == pytest.approx(93.2, abs=0.05)
    # Annex B's table, and 93.2's own opinion score.
    for r, mos in ((90, 4.34), (80, 4.03), (70, 3.60), (60, 3.10), (50, 2.58), (93.2, 4.41)):
        assert e_model.mos(r) == pytest.approx(mos, abs=0.01)
    assert (e_model.mos(-3), e_model.mos(0), e_model.mos(100), e_model.mos(120)) == (1, 1, 4.5, 4.5)


def test_e_model_agrees_with_the_known_approximation_of_delay() -> None:
    """Cole and Rosenbluth, Voice over IP performance monitoring (2001), section 3.1."""
    for delay_ms in range(0, 301, 10):
        fitted = 0.024 * delay_ms + 0.11 * max(0.0, delay_ms - 177.3)
        assert e_model.r_factor() - e_model.r_factor(delay_ms) == pytest.approx(fitted, abs=1.1)


def test_e_model_of_loss() -> None:
    # By hand: 95 * 2 / (2 + 25.1), and with runs twice as long 95 * 2 / (1 + 25.1).
    clear = e_model.r_factor()
    assert clear - e_model.r_factor(0, 0.02) == pytest.approx(7.011, abs=1e-3)
    assert clear - e_model.r_factor(0, 0.02, 2) == pytest.approx(7.280, abs=1e-3)
    bare = e_model.Parameters(bpl=e_model.BPL_G711)
    assert clear - e_model.r_factor(0, 0.02, parameters=bare) == pytest.approx(30.159, abs=1e-3)


def test_e_model_term_by_term() -> None:
    """Worked out by hand from the equations, with Ro 94.769 and No -61.179 of the defaults."""
    plain = e_model.DEFAULTS
    ro, no = 94.769, -61.179
    # Q 19.808, G 29.80, Y 1.816, Z 0.788: 27.91, and 0.97 of one unit.
    many = e_model.Parameters(qdu=14)
    worse = e_model._simultaneous(many, ro, no, 0) - e_model._simultaneous(plain, ro, no, 0)
    assert worse == pytest.approx(26.94, abs=0.03)
    # Rle 89.43 and 387.5: 15.94 and 0.58.
    echoing = e_model.Parameters(wepl_db=20)
    worse = e_model._delayed(echoing, ro, no, 50) - e_model._delayed(plain, ro, no, 50)
    assert worse == pytest.approx(15.36, abs=0.03)
    # TERV 34.78, Re 131.94: 0.60, and 0.18 of the listener's echo.
    loud = e_model.Parameters(telr_db=30)
    assert e_model._delayed(loud, ro, no, 0.5) == pytest.approx(0.778, abs=0.01)


@given(st.floats(0, 1000), st.floats(0, 1), st.floats(1, 10), st.floats(0, 1))
def test_e_model_only_gets_worse(delay: float, loss: float, burst: float, more: float) -> None:
    r = e_model.r_factor(delay, loss, burst)
    # The talker's echo is a little less than none at first: R gains 0.058 in the first 0.85 ms.
    assert e_model.r_factor(delay + 100 * more, loss, burst) <= r + 0.06
    assert e_model.r_factor(delay, min(1.0, loss + more), burst) <= r + 1e-6
    assert e_model.r_factor(delay, loss, burst + more) <= r + 1e-6
    assert 1 <= e_model.mos(r) <= 4.5


def test_burst_ratio() -> None:
    def of(text: str) -> float:
        return quality.burst_ratio(np.array([letter == "x" for letter in text]))

    assert of("xxxx") == of("....") == 1
    # Two runs of two in ten: 2 against 1 / (1 - 0.4).
    assert of("x..xxx..xx") == pytest.approx(2 * 0.6)
    # Runs of one are shorter than chance makes them.
    assert of("x.x.x.x.x.") == 1
    seed = random.SystemRandom().randrange(2**32)
    chance = np.random.default_rng(seed).random(200_000) > 0.1
    assert quality.burst_ratio(chance) == pytest.approx(1, abs=0.02), seed


# G.722


def test_g722_without_loss_is_toll_quality_and_its_decoder_suffers_from_loss() -> None:
    whole = voice.score(call(laws=("g722",)))
    assert whole.pesq > voice.TOLL_QUALITY
    for seed in range(2):
        lossy = losing(0.05, seed)
        wide = voice.score(replace(lossy, laws=("g722",)))
        assert wide.pesq < voice.score(lossy).pesq, "G.711 has no memory"
        assert (wide.lost, wide.late) == (lossy.packets - int(lossy.has_arrived.sum()), 0)


def test_g722_is_heard_as_it_was_said() -> None:
    heard = quality.audio(call(laws=("g722",)), playout.fixed(call()))
    assert heard.size == reference().size
    delay = (22 + 30) // 2  # That of the codec and of the filter are in samples at 16 kHz.
    likeness = np.corrcoef(reference()[: heard.size - delay], heard[delay:])[0, 1]
    assert likeness > 0.98


def test_g722_is_heard_alike_in_blocks_and_packets_of_any_size() -> None:
    """The decoder and the filter go on from packet to packet, and from block to block."""
    places = np.arange(4_000)
    whole = g722.Receiver().decode(places.reshape(1, -1), np.array([True]))
    receiver = g722.Receiver()
    parts = [
        receiver.decode(part.reshape(-1, 80), np.ones(10, np.bool_))
        for part in places.reshape(-1, 800)
    ]
    assert (np.concatenate(parts).ravel() == whole.ravel()).all()


def test_what_is_not_there_of_g722_is_silent_and_the_rest_goes_on() -> None:
    places = np.arange(1_600).reshape(-1, 160)
    is_there = np.arange(10) != 4
    heard = g722.Receiver().decode(places, is_there)
    assert not heard[4].any()
    whole = g722.Receiver().decode(places, np.ones(10, np.bool_))
    assert (heard[:4] == whole[:4]).all()
    assert (heard[5:] != whole[5:]).any(), "the decoder missed a packet"


def test_g722_stands_alone() -> None:
    with pytest.raises(InputError, match=r"G\.722 or Opus and another codec"):
        call(laws=("mu", "g722"))


# Codecs


CODECS = {codec.name: codec for codec in coders.CODECS}


def through(codec: coders.Codec) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Speech, what a codec makes of it, and the octets of each packet."""
    speech = reference()[:16_000]
    if codec.samples_per_second != SAMPLES_PER_SECOND:
        speech = coders.doubled(speech)
    said = speech[: speech.size // codec.packet_samples * codec.packet_samples]
    encoder, decoder = codec.encoder(), codec.decoder()
    heard = np.zeros_like(said)
    sizes = []
    for samples, room in zip(
        said.reshape(-1, codec.packet_samples), heard.reshape(-1, codec.packet_samples), strict=True
    ):
        octets = np.zeros(codec.packet_octets or coders.OCTETS_MAX, np.uint8)
        packet = codec.encoded(octets, coders.called(encoder.calls(samples, octets)))
        coders.called(decoder.calls(packet, room))
        sizes.append(packet.size)
    return said, heard, sizes


@pytest.mark.parametrize(
    ("name", "delay", "likeness", "octets"),
    [
        ("G.711", 0, 0.999, 160),
        ("G.722", 22, 0.999, 160),
        ("Opus", 104, 0.95, 60),
        ("G.729", 40, 0.8, 20),
    ],
)
def test_a_codec_gives_back_what_was_said(
    name: str, delay: int, likeness: float, octets: int
) -> None:
    """After the codec's own delay, in samples."""
    try:
        said, heard, sizes = through(CODECS[name])
    except InputError as error:
        pytest.skip(str(error))
    assert heard.size == said.size
    after = np.corrcoef(said[: said.size - delay], heard[delay:])[0, 1]
    assert after > likeness
    other = np.corrcoef(said[: said.size - delay - 60], heard[delay + 60 :])[0, 1]
    assert other < after - 0.1
    assert np.mean(sizes) == pytest.approx(octets, rel=0.2)


def test_doubled_speech_is_the_same_at_twice_the_rate() -> None:
    def tone(rate: int) -> np.ndarray:
        return (8_000 * np.sin(2 * np.pi * 700 * np.arange(rate // 10) / rate)).astype(np.int16)

    off = np.abs(coders.doubled(tone(8_000)).astype(int) - tone(16_000))
    assert off[40:-40].max() <= 2


def test_a_codec_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    for what, package in (("Opus", "libopus0"), ("G.729", "libbcg729-0")):
        coders.opus.cache_clear()
        coders.bcg729.cache_clear()
        with pytest.raises(InputError, match=f"{what} needs lib") as caught:
            CODECS[what].decoder()
        assert caught.value.help == f"install it; Debian's package is {package}"


def test_a_packet_that_is_not_encoded_is_refused() -> None:
    with pytest.raises(InputError, match="libopus does not encode Opus: error -1"):
        CODECS["Opus"].encoded(np.zeros(10, np.uint8), -1)
