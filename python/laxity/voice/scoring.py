"""The voice quality of the sampled streams of runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from laxity.results import acceptance
from laxity.results.schema import Quality, Scores, WorstCall
from laxity.results.streams import LOST, PACKET_NS
from laxity.voice.call import LOST as LOST_PACKET
from laxity.voice.call import Call
from laxity.voice.playout import played
from laxity.voice.quality import SHORTEST_S, score_calls, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from laxity.results.run import Run
    from laxity.results.streams import KeptStream
    from laxity.voice.quality import CallQuality

    Progress = Callable[[int, int], None]


SCORED = 3
"""Streams of a run that are scored where not all are: those that missed most."""


def scored(run: Run, progress: Progress | None = None) -> Run:
    """The run with the quality of its sampled streams: PESQ, and the E-model beside it.

    Pieces that the end of the run left too short to be judged are left out. A run without streams
    that are long enough comes back as it is.
    """
    return scored_many([run], progress=progress)[0]


def judged(runs: Sequence[Run], progress: Progress | None = None) -> list[Run]:
    """Runs with as much quality as tells whether they are accepted.

    All sampled streams of those whose loss and delay are good enough, of the others the few that
    missed most.
    """
    is_open = [run.telephony is not None and run.telephony.accepted for run in runs]
    whole = iter(scored_many([run for run, is_it in zip(runs, is_open, strict=True) if is_it]))
    failed = [run for run, is_it in zip(runs, is_open, strict=True) if not is_it]
    part = iter(scored_many(failed, most=SCORED, progress=progress))
    return [next(whole if is_it else part) for is_it in is_open]


def scored_many(
    runs: Sequence[Run], *, most: int | None = None, progress: Progress | None = None
) -> list[Run]:
    """`scored` for many runs at once; with `most` only that number of streams of each, the worst.

    The worst are those of which most packets were not heard.
    """
    chosen = [_calls_of(run, most) for run in runs]
    found = {}
    for adaptive in {_is_adaptive(run) for run in runs}:
        calls = [
            call
            for run, streams in zip(runs, chosen, strict=True)
            if _is_adaptive(run) == adaptive
            for _, call in streams
        ]
        scores = score_calls(calls, adaptive=adaptive, progress=progress) if calls else ()
        found[adaptive] = iter(scores)
    return [
        _with_quality(run, [(stream, next(found[_is_adaptive(run)])) for stream, _ in streams])
        for run, streams in zip(runs, chosen, strict=True)
    ]


def _is_adaptive(run: Run) -> bool:
    return run.telephony is not None and run.telephony.playout == "adaptive"


def _calls_of(run: Run, most: int | None) -> list[tuple[KeptStream, Call]]:
    """The streams that are long enough to be scored, as calls."""
    shortest = SHORTEST_S * 1e9 / PACKET_NS
    calls = []
    for stream in run.streams:
        if stream.arrived_ns.size < shortest:
            continue
        numbers = np.arange(stream.arrived_ns.size)
        arrived_ns = np.where(stream.arrived_ns == LOST, LOST_PACKET, stream.arrived_ns)
        sent_ns = stream.start_ns + numbers * PACKET_NS
        name = f"stream {stream.stream}"
        calls.append((stream, Call(name, numbers, sent_ns, arrived_ns)))
    if most is None or len(calls) <= most:
        return calls
    adaptive = _is_adaptive(run)
    return sorted(calls, key=lambda pair: float(played(pair[1], adaptive=adaptive).heard.mean()))[
        :most
    ]


def _with_quality(run: Run, found: list[tuple[KeptStream, CallQuality]]) -> Run:
    if run.telephony is None or not found:
        return run
    qualities = [quality for _, quality in found]
    total = summary(qualities)
    stream, worst = min(found, key=lambda pair: (pair[1].pesq, -pair[1].loss))
    quality = Quality(
        scored=len(found),
        toll_quality=total.toll_quality,
        dead=total.dead,
        pesq=_scores([each.pesq for each in qualities]),
        mos_lqo=_scores([each.mos_lqo for each in qualities]),
        e_model_mos=_scores([each.e_model_mos for each in qualities]),
        delay_ns=total.delay_ns.get("p50"),
        late_ratio=total.late_ratio,
        worst=WorstCall(
            stream=stream.stream,
            call=stream.call,
            pesq=worst.pesq,
            e_model_mos=worst.e_model_mos,
            loss_ratio=worst.loss,
            late_ratio=worst.late_ratio,
        ),
    )
    pesq = {id(stream): quality.pesq for stream, quality in found}
    kept = tuple(replace(stream, pesq=pesq.get(id(stream))) for stream in run.streams)
    telephony = acceptance.judged(replace(run.telephony, quality=quality))
    return replace(run, telephony=telephony, streams=kept)


def _scores(values: list[float]) -> Scores:
    at = np.percentile(values, [0, 5, 50, 100], method="inverted_cdf")
    lowest, p5, median, highest = map(float, at)
    return Scores(min=lowest, p5=p5, p50=median, max=highest)
