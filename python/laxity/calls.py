"""What a telephone engineer asks of a run: was it good enough, and how many streams fit?"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from laxity.errors import InputError
from laxity.telephony import LOST, PACKET_NS, Quality, Scores, WorstCall

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from laxity.host import Host
    from laxity.results import Run
    from laxity.telephony import Telephony

    Progress = Callable[[int, int], None]

NO_CALLS = "this host has no calls"
FULL = 0.97
"""CPUs of which more is used are the bottleneck: what is left is lost between decisions."""
CANDIDATES = 4
"""Loads that are tried at a time."""
STREAMS_MAX, RATE_MAX = 100_000, 36_000_000
"""That a host file may have; calls an hour."""


def scored(run: Run, progress: Progress | None = None) -> Run:
    """The run with the quality of its sampled streams: PESQ, and the E-model beside it.

    Pieces that the end of the run left too short to be judged are left out. A run without streams
    that are long enough comes back as it is.
    """
    from laxity import voice  # noqa: PLC0415 - scoring takes a second to load

    shortest = voice.SHORTEST_S * 1e9 / PACKET_NS
    streams = [stream for stream in run.streams if stream.arrived_ns.size >= shortest]
    if run.telephony is None or not streams:
        return run
    calls = []
    for stream in streams:
        numbers = np.arange(stream.arrived_ns.size)
        arrived_ns = np.where(stream.arrived_ns == LOST, voice.LOST, stream.arrived_ns)
        sent_ns = stream.start_ns + numbers * PACKET_NS
        calls.append(voice.Call(f"stream {stream.stream}", numbers, sent_ns, arrived_ns))
    found = voice.score_calls(calls, progress=progress)
    worst = min(range(len(found)), key=lambda place: (found[place].pesq, -found[place].loss))
    call = found[worst]
    quality = Quality(
        scored=len(found),
        toll_quality=sum(call.is_toll_quality for call in found),
        dead=sum(call.dead is not None for call in found),
        pesq=_scores([call.pesq for call in found]),
        mos_lqo=_scores([call.mos_lqo for call in found]),
        e_model_mos=_scores([call.e_model_mos for call in found]),
        worst=WorstCall(
            stream=streams[worst].stream,
            call=streams[worst].call,
            pesq=call.pesq,
            e_model_mos=call.e_model_mos,
            loss_ratio=call.loss,
            late_ratio=call.late_ratio,
        ),
    )
    pesq = {id(stream): call.pesq for stream, call in zip(streams, found, strict=True)}
    kept = tuple(replace(stream, pesq=pesq.get(id(stream))) for stream in run.streams)
    return replace(run, telephony=replace(run.telephony, quality=quality), streams=kept)


def _scores(values: list[float]) -> Scores:
    at = np.percentile(values, [0, 5, 50, 100], method="inverted_cdf")
    return Scores(*(float(score) for score in at))


@dataclass(frozen=True)
class Limit:
    """One thing that a run must keep to be accepted."""

    name: str
    """`loss`, `delay` or `MOS`."""
    limit: float
    found: float | None
    """None where nothing was measured: no packet came."""
    held: bool


def acceptance(telephony: Telephony, limits: Mapping[str, Any]) -> list[Limit]:
    """Whether the limits of `[calls.acceptance]` held: loss and delay (99.9 %) below, MOS at least.

    MOS is of the worst scored stream (PESQ, on P.862.1's scale of opinions); it is left out as long
    as there is no quality. Delay is in ns. `limits` is that part of the resolved host.
    """
    voice = telephony.voice
    delay_ns = voice.delay_ns.p999
    found = [
        Limit("loss", limits["loss"], voice.loss_ratio, voice.loss_ratio < limits["loss"]),
        Limit(
            "delay",
            limits["delay_ns"],
            delay_ns,
            delay_ns is not None and delay_ns < limits["delay_ns"],
        ),
    ]
    if telephony.quality is not None:
        mos = telephony.quality.mos_lqo.min
        found.append(Limit("MOS", limits["mos"], mos, mos >= limits["mos"]))
    return found


def bottleneck(run: Run, telephony: Telephony, host: Mapping[str, Any]) -> str:
    """What of the host gave out first, in a run in which something did."""
    drops = telephony.drops
    used = sum(domain.cpu_ns for domain in run.domains) / (run.duration_ns * host["cpus"])
    used += run.overhead.loss_ratio
    driver = next((d["name"] for d in host["domains"] if _kind(d) == "driver"), None)
    media = host["domains"][host["calls"]["media_server"]]["name"]
    first = driver or media
    places = {
        "the wire of a network card": drops.wire + drops.nic_transmit,
        f"the CPU time of {first}, which takes packets out of the network card too late": (
            drops.nic_receive
        ),
        f"the CPU time of {media}, which takes packets out of its ring too late": drops.netback,
        f"the CPU time of {media}, whose threads take packets out of their sockets too late": (
            drops.socket
        ),
        f"the CPU time of {driver}, which takes {media}'s packets too late": drops.netfront,
        "what may be held of a protected domain's output": drops.held,
    }
    place, dropped = max(places.items(), key=lambda item: item[1])
    if not dropped:
        place = _slowest(run, host)
    return f"{place}; all CPUs are full" if used > FULL and "wire" not in place else place


def _slowest(run: Run, host: Mapping[str, Any]) -> str:
    """Who keeps packets waiting, of those who have them in their hands."""
    path = [
        (of_host, domain)
        for of_host, domain in zip(host["domains"], run.domains, strict=True)
        if _kind(of_host) not in (None, "bursts")
    ]
    for of_host, domain in path:
        if domain.cpu_ns > FULL * run.duration_ns * len(of_host["vcpus"]):
            return f"the VCPUs of {domain.name}, which are never idle"
    latest = max(
        (domain for _, domain in path), key=lambda each: each.waits.max_ns if each.waits else 0
    )
    return f"the CPU: {latest.name} waits for one too long"


def _kind(domain: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of JSON
    return domain["workload"]["kind"] if domain["workload"] else None


@dataclass(frozen=True)
class Tried:
    """A load, and whether the host carried it."""

    load: int
    """Streams, or calls an hour."""
    run: Run
    telephony: Telephony
    limits: list[Limit]

    @property
    def held(self) -> bool:
        """Whether all limits held."""
        return all(limit.held for limit in self.limits)

    def to_json(self) -> dict[str, Any]:
        """Returns the load, the limits, and what was found of calls and voice."""
        return {
            "load": self.load,
            "held": self.held,
            "limits": [asdict(limit) for limit in self.limits],
            "telephony": self.telephony.to_json(),
        }


def _tried(load: int, run: Run, limits: Mapping[str, Any]) -> Tried:
    if run.telephony is None:
        raise InputError(NO_CALLS, "add [calls] with streams = 100, say")
    return Tried(load, run, run.telephony, acceptance(run.telephony, limits))


@dataclass(frozen=True)
class Capacity:
    """How much a host carries within its limits."""

    key: str
    """What was varied: `calls.streams` or `calls.rate`."""
    carried: Tried | None
    """The greatest load below which nothing failed; None if even the least one failed."""
    refused: Tried | None
    """The least load that failed; None if nothing did."""
    gives_out: str | None
    """What gave out at `refused`."""
    tried: tuple[Tried, ...]
    """All loads, ascending."""

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `laxity capacity --json` prints."""
        return {
            "key": self.key,
            "carried": self.carried and self.carried.to_json(),
            "refused": self.refused and self.refused.to_json(),
            "gives_out": self.gives_out,
            "tried": [each.to_json() for each in self.tried],
        }


def capacity(
    host: Host, overrides: Sequence[str], progress: Callable[[str], None] | None = None
) -> Capacity:
    """Finds how many streams, or calls an hour, the host carries within `[calls.acceptance]`.

    Varies `calls.streams` if the host has streams that are always there, otherwise `calls.rate`, to
    one part in a hundred. Loss and delay decide, and PESQ of the sampled streams at the result.
    """
    resolved = host.resolved(overrides)
    calls = resolved["calls"]
    if calls is None:
        raise InputError(NO_CALLS, "add [calls] with streams = 100, say")
    key = "calls.streams" if calls["streams"] else "calls.rate"
    start = calls["streams"] or max(1, calls["rate"] // 1_000_000)
    limits = calls["acceptance"]

    def tell(loads: Sequence[int]) -> None:
        if progress is not None:
            progress("trying " + ", ".join(f"{load:,}" for load in loads))

    def probe(loads: Sequence[int]) -> list[Tried]:
        tell(loads)
        runs = host.run_many([[*overrides, _override(key, load)] for load in loads])
        return [_tried(load, run, limits) for load, run in zip(loads, runs, strict=True)]

    tried = search(start, STREAMS_MAX if calls["streams"] else RATE_MAX, probe)
    bad = next((each for each in tried if not each.held), None)
    good = [each for each in tried if bad is None or each.load < bad.load]
    # What is heard of it is looked at last: it takes longer than the run.
    while good:
        last = good[-1]
        whole = host.run(set=[*overrides, _override(key, last.load)])
        heard = _tried(last.load, scored(whole), limits)
        good[-1] = heard
        if heard.held:
            break
        bad = good.pop()
    carried = good[-1] if good else None
    why = None if bad is None else bottleneck(bad.run, bad.telephony, resolved)
    return Capacity(key, carried, bad, why, tuple(tried))


def _override(key: str, load: int) -> str:
    return f"{key}={load}" if key == "calls.streams" else f"{key}={load} /h"


def search(start: int, most: int, probe: Callable[[Sequence[int]], list[Tried]]) -> list[Tried]:
    """Tries loads of 1 to `most` around the greatest that is carried, to one part in a hundred.

    First `start` and its doubles, or its halves, then between the last that held and the first that
    did not, some at a time. The loads come back ascending.
    """
    tried: dict[int, Tried] = {}

    def try_all(loads: Sequence[int]) -> None:
        new = sorted({load for load in loads if load not in tried and 1 <= load <= most})
        if new:
            tried.update({each.load: each for each in probe(new)})

    def ends() -> tuple[int, int | None]:
        bad = min((load for load, each in tried.items() if not each.held), default=None)
        held = [load for load, each in tried.items() if each.held and (bad is None or load < bad)]
        return max(held, default=0), bad

    load = start
    while True:
        try_all([load, 2 * load])
        low, high = ends()
        if high is None and 2 * load < most:
            load *= 4
        elif low == 0 and high is not None and high > 1:
            load = max(1, high // 4)
        else:
            break
    while True:
        low, high = ends()
        if high is None or high - low <= max(1, low // 100):
            break
        steps = min(CANDIDATES, high - low - 1)
        try_all([low + (high - low) * step // (steps + 1) for step in range(1, steps + 1)])
        if ends() == (low, high):
            break
    return [tried[load] for load in sorted(tried)]
