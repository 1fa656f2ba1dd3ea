"""The quality of calls: PESQ of what was heard, and the E-model beside it."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from laxity.errors import InputError
from laxity.voice import coders, e_model, g722, opus, spandsp
from laxity.voice.call import G722
from laxity.voice.playout import BUFFER_NS, Playout, played
from laxity.voice.reference import SAMPLES_PER_SECOND, reference
from laxity.workers.processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from laxity.voice.call import Call, Coding
    from laxity.voice.spandsp import Samples

TOLL_QUALITY = 4.0
"""PESQ of toll quality, and the line in its plots (soft-real-time-xen, section 4)."""

PESQ_DEAD = 0.0
"""The paper's scale ends here: from 0 (bad) to 4.5 (best)."""

SHORTEST_S = 3.2
"""PESQ wants so much speech at least (ITU-T P.862.3)."""

PART_SHORTEST_S = 8.0
"""And is meant for tests from here on: what is left over of a long call joins the part before."""

Dead = Literal["no packets", "silent", "too short"]
"""Why a call is dead: nothing arrived; less than `SHORTEST_S` of it arrived in time to be heard;
there was less of it from the beginning, of which PESQ would make up to 1.6."""


@dataclass(frozen=True)
class CallQuality:
    """What became of a call, and how good it was."""

    name: str
    packets: int
    """Sent."""
    lost: int
    """Packets that never arrived."""
    late: int
    """Those that arrived when their turn to be heard was over: lost to the listener too."""
    duplicates: int
    reordered: int
    pesq: float
    """PESQ of P.862, -0.5 to 4.5, as the papers give it; `PESQ_DEAD` if the call is dead."""
    mos_lqo: float
    """The same as a mean opinion score (P.862.1), 1.02 to 4.55; 1 if the call is dead."""
    r: float
    """The E-model's rating, 0 to 100, from delay and loss; 0 if the call is dead."""
    e_model_mos: float
    """The E-model's mean opinion score, 1 to 4.5."""
    delay_ns: int | None
    """From the mouth to the ear, on average; None if nothing arrived."""
    is_delay_known: bool
    """False: the delay is at least this much. What the network always takes is not known."""
    dead: Dead | None
    """None if the call can be judged."""

    @property
    def loss(self) -> float:
        """The part of the packets that never arrived."""
        return self.lost / self.packets if self.packets else 1.0

    @property
    def late_ratio(self) -> float:
        """The part of the packets that was late."""
        return self.late / self.packets if self.packets else 0.0

    @property
    def is_toll_quality(self) -> bool:
        """PESQ of 4 or better."""
        return self.dead is None and self.pesq >= TOLL_QUALITY


@dataclass(frozen=True)
class Summary:
    """Many calls together."""

    calls: int
    toll_quality: int
    """With PESQ of 4 or better."""
    dead: int
    pesq: dict[str, float]
    """`min`, `p5`, `p25`, `p50`, `p75` and `max`: each that of a call, dead ones too."""
    delay_ns: dict[str, int]
    """From the mouth to the ear: `p50` and `max` of the calls of which anything arrived."""
    loss: float
    """The part of all packets that never arrived."""
    late_ratio: float
    """The part of all packets that was late."""


def summary(calls: Sequence[CallQuality]) -> Summary:
    """Sums up at least one call."""
    scores = np.array([call.pesq for call in calls])
    delays = [call.delay_ns for call in calls if call.delay_ns is not None]
    packets = max(1, sum(call.packets for call in calls))
    return Summary(
        calls=len(calls),
        toll_quality=sum(call.is_toll_quality for call in calls),
        dead=sum(call.dead is not None for call in calls),
        pesq={name: float(_quantile(scores, percent)) for name, percent in PERCENTS.items()},
        delay_ns={name: int(_quantile(delays, PERCENTS[name])) for name in ("p50", "max")}
        if delays
        else {},
        loss=sum(call.lost for call in calls) / packets,
        late_ratio=sum(call.late for call in calls) / packets,
    )


PERCENTS = {"min": 0, "p5": 5, "p25": 25, "p50": 50, "p75": 75, "max": 100}


def _quantile(values: npt.ArrayLike, percent: float) -> float:
    """One of the values, by nearest rank."""
    return float(np.percentile(np.asarray(values), percent, method="inverted_cdf"))


def score(
    call: Call,
    playout_ns: int = BUFFER_NS,
    sounds_like: CallQuality | None = None,
    *,
    adaptive: bool = False,
) -> CallQuality:
    """How good a call was, through a playout buffer of that depth; the same on every run.

    An adaptive buffer begins with that depth.

    A call of more than 30 s is judged in parts of that length, and `pesq` and `mos_lqo` are their
    means. `sounds_like` is a call of which the very same was heard, and which has been judged.
    """
    playout = played(call, playout_ns, adaptive=adaptive)
    dead = _why_dead(call, playout)
    pesq_score, mos_lqo = PESQ_DEAD, 1.0
    if sounds_like is not None:
        dead = sounds_like.dead
        pesq_score, mos_lqo = sounds_like.pesq, sounds_like.mos_lqo
    elif dead is None:
        judged = judge(heard(call, playout), call.packets * _packet_samples(call))
        if judged is None:
            dead = "silent"
        else:
            pesq_score, mos_lqo = judged
    r = 0.0
    if dead is None and playout.delay_ns is not None:
        loss = float((~playout.heard).mean())
        r = e_model.r_factor(playout.delay_ns / 1e6, loss, burst_ratio(playout.heard))
        r = min(100.0, max(0.0, r))
    return CallQuality(
        name=call.name,
        packets=call.packets,
        lost=playout.lost,
        late=playout.late,
        duplicates=call.duplicates,
        reordered=call.reordered,
        pesq=pesq_score,
        mos_lqo=mos_lqo,
        r=r,
        e_model_mos=e_model.mos(r),
        delay_ns=playout.delay_ns,
        is_delay_known=call.is_delay_known,
        dead=dead,
    )


def score_calls(
    calls: Sequence[Call],
    *,
    one_in: int = 1,
    playout_ns: int = BUFFER_NS,
    adaptive: bool = False,
    processes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[CallQuality]:
    """How good every call was, or the first of every `one_in` as in the papers, in their order.

    Works on all CPUs, or in `processes` processes, and calls `progress(done, all)` after each call
    that had to be judged: calls of which the very same was heard, as all are that missed nothing,
    are judged once.
    """
    if one_in < 1:
        raise InputError(f"one call in {one_in}", "give 1 for all of them, 4 for every fourth")
    chosen = calls[::one_in]
    heard = partial(played, buffer_ns=playout_ns, adaptive=adaptive)
    scored = partial(score, playout_ns=playout_ns, adaptive=adaptive)
    sounds = [_sound(call, heard(call)) for call in chosen]
    first: dict[Sound, Call] = {}
    for sound, call in zip(sounds, chosen, strict=True):
        first.setdefault(sound, call)
    judged = dict(
        zip(first, _judged(list(first.values()), scored, processes, progress), strict=True)
    )
    return [
        judged[sound] if first[sound] is call else scored(call, sounds_like=judged[sound])
        for sound, call in zip(sounds, chosen, strict=True)
    ]


Sound = tuple[tuple["Coding", ...], int, int, bytes]
"""All that decides what is heard of a call."""


def _sound(call: Call, playout: Playout) -> Sound:
    of_packets = playout.heard.tobytes()
    if call.opus is not None and call.opus.error_correction:
        of_packets += playout.early.tobytes()
    heard = sha256(of_packets).digest()
    return call.laws, call.packet_ns, call.packets, heard


def _judged(
    calls: Sequence[Call],
    scored: Callable[[Call], CallQuality],
    processes: int | None,
    progress: Callable[[int, int], None] | None,
) -> list[CallQuality]:
    _prepare(calls)
    done: list[CallQuality] = []
    processes = min(processes or len(os.sched_getaffinity(0)), len(calls))
    if processes < 2:  # noqa: PLR2004 - one needs no help
        for call in calls:
            done.append(scored(call))
            _tell(progress, len(done), len(calls))
        return done
    # Ctrl-C does not reach them: what they do is given up here, however long a call is.
    with closing(Processes(processes)) as workers:
        for _, qualities in workers.results(partial(_scored, scored=scored), calls):
            for quality in qualities:
                done.append(quality)
                _tell(progress, len(done), len(calls))
    return done


def _scored(calls: Sequence[Call], scored: Callable[[Call], CallQuality]) -> list[CallQuality]:
    return [scored(call) for call in calls]


def _tell(progress: Callable[[int, int], None] | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)


def _prepare(calls: Sequence[Call]) -> None:
    """Fails once, before there are processes, if what all of them need is not there."""
    if calls:
        import pesq  # noqa: F401, PLC0415 - only scoring needs it, and the extra may be missing
    if any(call.opus is not None for call in calls):
        coders.opus()
    for laws in {call.laws for call in calls if call.opus is None}:
        if G722 in laws:
            g722.reference_octets()
        else:
            _coded(laws)


def audio(call: Call, playout: Playout) -> Samples:
    """What is heard: the reference speech, coded, in packets, of which some are made up.

    As long as the call, sample for sample beside `np.resize(reference(), ...)`.
    """
    return np.concatenate(list(heard(call, playout)))


def heard(call: Call, playout: Playout) -> Iterator[Samples]:
    """The same in pieces of 30 s or a packet, so that a long call takes no more memory."""
    if call.opus is not None:
        return opus.heard(call, call.opus, playout)
    samples = _packet_samples(call)
    each = max(1, reference().size // samples)
    received = _received(call)

    def blocks() -> Iterator[tuple[Samples, npt.NDArray[np.bool_]]]:
        for first in range(0, call.packets, each):
            is_there = playout.heard[first : first + each]
            of_block = np.arange(first * samples, (first + is_there.size) * samples)
            yield received(of_block.reshape(-1, samples), is_there), is_there

    return (block.ravel() for block in spandsp.concealed(blocks()))


def _received(call: Call) -> Callable[[npt.NDArray[np.int64], npt.NDArray[np.bool_]], Samples]:
    """What a receiver decodes of packets, by the places of their octets and whether they are there.

    Both codecs have an octet for each 125 us. G.711 is decoded octet by octet; G.722's decoder has
    a memory, and goes on with the next packet that is there.
    """
    if G722 in call.laws:
        return g722.Receiver().decode
    spoken = _coded(call.laws)
    return lambda places, _: spoken.take(places, mode="wrap")


def _packet_samples(call: Call) -> int:
    return call.packet_ns * SAMPLES_PER_SECOND // 1_000_000_000


@cache
def _coded(laws: tuple[Coding, ...]) -> Samples:
    """The reference speech after coding and decoding in each law, one after the other."""
    samples = reference()
    for law in laws:
        if law in spandsp.LAWS:
            samples = spandsp.decode(spandsp.encode(samples, law), law)
    samples.setflags(write=False)
    return samples


def _why_dead(call: Call, playout: Playout) -> Dead | None:
    """Before anything is heard."""
    if not playout.arrived.any():
        return "no packets"
    if call.packets * call.packet_ns < SHORTEST_S * 1e9:
        return "too short"
    return "silent" if int(playout.heard.sum()) * call.packet_ns < SHORTEST_S * 1e9 else None


def judge(heard: Iterable[Samples], samples: int) -> tuple[float, float] | None:
    """PESQ and MOS-LQO of speech whose reference begins with it; None if it is silent.

    It comes in pieces of any length, which have `samples` samples together.
    """
    part, shortest = reference().size, round(PART_SHORTEST_S * SAMPLES_PER_SECOND)
    parts = max(1, samples // part + (samples % part >= shortest))
    ends = [*(part * index for index in range(parts)), samples]
    lengths = [end - at for at, end in pairwise(ends)]
    # Each part begins where the reference does.
    found = [
        _mos_lqo(np.resize(reference(), of_part.size), of_part) for of_part in _cut(heard, lengths)
    ]
    if all(score is None for score in found):
        return None
    # A part that is silent counts, with the lowest that PESQ gives.
    scores = [MOS_LQO_LEAST if score is None else score for score in found]
    raw = [raw_pesq(score) for score in scores]
    return float(np.average(raw, weights=lengths)), float(np.average(scores, weights=lengths))


def _cut(pieces: Iterable[Samples], lengths: Sequence[int]) -> Iterator[Samples]:
    """Pieces of any length, as pieces of these lengths."""
    coming = iter(pieces)
    waiting = np.empty(0, np.int16)
    for length in lengths:
        while waiting.size < length:
            waiting = np.concatenate([waiting, next(coming)])
        yield waiting[:length]
        waiting = waiting[length:]


MOS_LQO_LEAST = 1.0167
"""What P.862.1 makes of P.862's least score, -0.5."""


def _mos_lqo(said: Samples, heard: Samples) -> float | None:
    """MOS-LQO (P.862.1) as the package gives it; None if there is nothing to hear."""
    if not heard.any():
        return None
    import pesq  # noqa: PLC0415 - only scoring needs it

    try:
        return float(pesq.pesq(SAMPLES_PER_SECOND, said, heard, "nb"))
    except pesq.NoUtterancesError:
        return None


def raw_pesq(mos_lqo: float) -> float:
    """P.862's score of a MOS-LQO: P.862.1's mapping the other way round (its equation 2)."""
    return float((4.6607 - np.log((4.999 - mos_lqo) / (mos_lqo - 0.999))) / 1.4945)


def burst_ratio(heard: npt.NDArray[np.bool_]) -> float:
    """The mean run of packets that are not heard, against what chance would make of as many.

    The definition is that of G.107 (section 7.5). The ratio is 1 if the runs are shorter than by
    chance, which the formula does not cover, and if there are none.
    """
    missing = ~heard
    runs = int(missing[0]) + int((missing[1:] & ~missing[:-1]).sum())
    if runs == 0 or missing.all():
        return 1.0
    loss = float(missing.mean())
    return max(1.0, float(missing.sum()) / runs * (1 - loss))
