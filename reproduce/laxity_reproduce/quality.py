"""Runs of hosts with calls: the voice quality of the calls that were sampled, and what it cost."""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from laxity import _core, voice
from laxity.errors import core_errors
from laxity.results.records import decoded
from laxity.results.schema import RunResult, Waits
from laxity.results.streams import KeptStream, streams_of_core

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from laxity.resolved_schema import ResolvedHost
    from laxity.results.schema import DomainResult

PACKET_NS = 20_000_000
"""The speech in a packet of G.711, as the papers have it."""


class Use(NamedTuple):
    """What a domain did."""

    cpu_ns: int
    stalled_ns: int
    cache_misses: int
    waits: int
    """How often its VCPUs waited for a CPU, however shortly."""
    wait_total_ns: int
    wait_max_ns: int

    @property
    def wait_mean_us(self) -> float:
        """Scheduling latency; 0 if it never waited."""
        return self.wait_total_ns / 1000 / self.waits if self.waits else 0.0


class Outcome(NamedTuple):
    """What a run of a host with calls came to."""

    pesq: list[float]
    """PESQ of the sampled calls that were whole when the run ended; 0 for dead ones."""
    loss_ratio: float
    delay_p50_ns: int
    delay_p99_ns: int
    calls_failed: int
    """Never set up; they have no voice that could be judged."""
    duration_ns: int
    domains: dict[str, Use]

    @property
    def toll_percent(self) -> float:
        """The part of the sampled calls that is of toll quality."""
        return toll_percent(self.pesq)


def toll_percent(scores: Sequence[float]) -> float:
    """The part of some calls, by their PESQ, that is at 4 or better."""
    return 100 * sum(score >= voice.TOLL_QUALITY for score in scores) / len(scores)


def scores(streams: Iterable[KeptStream], hold_ns: int) -> list[float]:
    """PESQ of the streams that were whole when the run ended."""
    whole = [stream for stream in streams if stream.arrived_ns.size == hold_ns // PACKET_NS]
    found = voice.score_calls([_call(stream) for stream in whole], processes=1)
    return [quality.pesq for quality in found]


def _call(stream: KeptStream) -> voice.Call:
    sequence = np.arange(stream.arrived_ns.size)
    return voice.Call(
        str(stream.stream), sequence, stream.start_ns + sequence * PACKET_NS, stream.arrived_ns
    )


def measure(host: bytes, name: str, overrides: Sequence[str]) -> Outcome:
    """Runs a host, and listens to the calls that it samples."""
    with core_errors():
        complete = _core.HostFile(host, name).complete(list(overrides))
        text, _, kept = complete.run()
    resolved: ResolvedHost = json.loads(complete.json())
    result = decoded(json.loads(text), RunResult)
    found, of_host = result.telephony, resolved["calls"]
    assert found is not None  # noqa: S101, for the types: the hosts of these papers have calls.
    assert of_host is not None  # noqa: S101, as above.
    delay, calls = found.voice.delay_ns, found.calls
    return Outcome(
        pesq=scores(streams_of_core(kept), of_host["hold_ns"]),
        loss_ratio=found.voice.loss_ratio,
        delay_p50_ns=delay.p50 or 0,
        delay_p99_ns=delay.p99 or 0,
        calls_failed=calls.failed if calls else 0,
        duration_ns=resolved["duration_ns"],
        domains={domain.name: _use(domain) for domain in result.domains},
    )


def _use(domain: DomainResult) -> Use:
    waits = domain.waits or Waits(count=0, total_ns=0, max_ns=0)
    return Use(
        *(domain.cpu_ns, domain.stalled_ns, domain.cache_misses),
        *(waits.count, waits.total_ns, waits.max_ns),
    )


def measure_all(
    host: bytes,
    name: str,
    overrides: Sequence[Sequence[str]],
    progress: Callable[[int], None] | None = None,
) -> list[Outcome]:
    """Runs a host once with each list of overrides, on all CPUs; `progress` is told how many are
    done.
    """
    found = []
    processes = min(len(os.sched_getaffinity(0)), len(overrides))
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for outcome in pool.map(partial(measure, host, name), overrides):
            found.append(outcome)
            if progress is not None:
                progress(len(found))
    return found
