"""The change to a host that lets it carry most streams.

Changes are told apart by simulation, by successive halving (Jamieson and Talwalkar, 2016): all are
tried shortly, the better half for longer, and so on. All of a round have the same seed and so the
same packets (common random numbers). What is found is then tried with other seeds.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity import substrates
from laxity.design.answered import answered
from laxity.errors import InputError
from laxity.progress import silent
from laxity.results.acceptance import limits_of
from laxity.results.design import Design, Remedy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.resolved_schema import ResolvedHost
    from laxity.workers.workers import Workers

ROUNDS = ((1, (0.25, 0.5, 1.0, 2.0, 4.0)), (2, (0.75, 1.0, 1.25, 1.5, 1.75)), (4, (0.9, 1.0, 1.1)))
"""Seconds of each run, and loads as factors of what was carried in the round before; at first of
the streams that the file asks for."""

KEPT = 2
"""One in this many goes on to the next round."""

SEEDS, SECONDS = 3, 10
"""Runs that check what was found: with seeds that it was not chosen by, and longer."""

LOWER = 0.9
"""A load that fails there is lowered by this factor."""

ATTEMPTS_MAX = 10

WEIGHT = 4096
"""The weight of domains that come first: sixteen times the usual one."""


@dataclass(frozen=True)
class Change:
    """A change to a host."""

    what: str
    overrides: tuple[str, ...]


def has_calls(host: Resolved) -> bool:
    """Whether the host file, which may leave values open, has calls."""
    return "calls" in tomllib.loads(host.text.decode()) or any(
        override.startswith("calls") for override in host.overrides
    )


def find_remedy(host: Resolved, looking: Say, workers: Workers | None = None) -> Design:
    """Finds which change to the host lets it carry most streams, and checks it with other seeds.

    Raises InputError if the host has no streams that are always there.
    """
    of_host = host.host
    calls = of_host["calls"]
    own = calls["streams"] if calls is not None else 0
    if not own:
        raise InputError(
            "the host has calls that come and go, and no streams that are always there",
            "write calls.streams, or ask `laxity capacity`",
        )
    as_it_is = Change("as it is", ())
    changes = [as_it_is, *changes_of(of_host)]
    carried = dict.fromkeys(changes, own)
    best: dict[Change, int] = {}
    left = changes
    for seconds, factors in ROUNDS:
        looking(f"trying {len(left)} changes for {seconds} s each")
        loads = {change: _loads(max(carried[change], 1), factors) for change in left}
        found = _carried(host, loads, seconds, workers)
        carried |= found
        best |= found
        left = sorted(left, key=lambda change: -found[change])[: max(1, -(-len(left) // KEPT))]
    winner = left[0]
    streams = _confirmed(host, winner, carried[winner], looking, workers)
    remedies = tuple(
        Remedy(change.what, streams if change is winner else best[change])
        for change in sorted(best, key=lambda change: -best[change])
    )
    return _design(host, winner, streams, remedies)


def _design(host: Resolved, winner: Change, streams: int, remedies: tuple[Remedy, ...]) -> Design:
    holds = streams > 0
    chosen = (
        f"{winner.what}: carries {streams:,} streams, with {SEEDS} seeds that it was not chosen by."
    )
    overrides = [*winner.overrides, f"calls.streams={streams}"]
    others = [
        f"{remedy.what}: {remedy.streams:,} streams in a short run."
        for remedy in remedies
        if remedy.what != winner.what
    ]
    return Design(
        verdict="holds" if holds else "impossible",
        policy=host.host["policy"],
        host=answered(host, overrides).text.decode() if holds else None,
        cpu_share=None,
        load=0.0,
        guaranteed=0,
        reasons=(chosen, *others),
        remedies=remedies,
    )


def changes_of(host: ResolvedHost) -> Iterator[Change]:
    """Changes that may help: weights, and CPUs for the domains that serve packets."""
    names = [domain["name"] for domain in host["domains"]]
    kinds = [
        domain["workload"]["kind"] if domain["workload"] else None for domain in host["domains"]
    ]
    driver = [name for name, kind in zip(names, kinds, strict=True) if kind == "driver"]
    media = [name for name, kind in zip(names, kinds, strict=True) if kind == "media-server"]
    serving = [*driver, *media]
    others = [name for name in names if name not in serving]
    cpus = host["cpus"]
    for first in dict.fromkeys(map(tuple, (driver, media, serving))):
        if first and others:
            yield Change(
                f"weight {WEIGHT} for {' and '.join(first)}",
                tuple(f"domain.{name}.weight={WEIGHT}" for name in first),
            )
    for count in range(1, cpus):
        for first in dict.fromkeys(map(tuple, (driver, serving))):
            rest = [name for name in names if name not in first]
            if first and rest:
                yield _pinned([(list(first), count), (rest, cpus - count)])
        for more in range(1, cpus - count):
            if driver and others:
                yield _pinned([(driver, count), (media, more), (others, cpus - count - more)])


def _pinned(parts: Sequence[tuple[Sequence[str], int]]) -> Change:
    """Parts of the CPUs for some domains each, in order."""
    overrides, said, begin = [], [], 0
    for number, (names, count) in enumerate(parts):
        places = list(range(begin, begin + count))
        begin += count
        overrides += [f"domain.{name}.affinity={places}" for name in names]
        whom = "the others" if number == len(parts) - 1 else " and ".join(names)
        said.append(f"{whom} on {count}")
    return Change(f"CPUs apart: {', '.join(said)}", tuple(overrides))


def _loads(around: int, factors: Sequence[float]) -> list[int]:
    return sorted({max(1, round(around * factor)) for factor in factors})


def _carried(
    host: Resolved, loads: dict[Change, list[int]], seconds: int, workers: Workers | None
) -> dict[Change, int]:
    """The greatest load of each change up to which all loads held; 0 if none did."""
    asked = [(change, load) for change, of_change in loads.items() for load in of_change]
    results = _held(
        [
            host.changed([*change.overrides, f"calls.streams={load}", f"duration={seconds} s"])
            for change, load in asked
        ],
        workers,
    )
    carried = dict.fromkeys(loads, 0)
    failed: set[Change] = set()
    for (change, load), held in zip(asked, results, strict=True):
        if not held:
            failed.add(change)
        elif change not in failed:
            carried[change] = load
    return carried


def _held(hosts: list[Resolved], workers: Workers | None) -> list[bool]:
    """Whether loss and delay of each kept to their limits."""
    runs = substrates.of("sim").run_many(hosts, say=silent, workers=workers)
    return [
        run.telephony is not None and all(limit.held for limit in limits_of(run.telephony))
        for run in runs
    ]


def _confirmed(
    host: Resolved, winner: Change, streams: int, looking: Say, workers: Workers | None
) -> int:
    """The load that holds with other seeds and for longer."""
    first = host.host["seed"] + 1
    for _ in range(ATTEMPTS_MAX):
        looking(f"confirming {streams:,} streams")
        load = [*winner.overrides, f"calls.streams={streams}", f"duration={SECONDS} s"]
        seeds = [host.changed([*load, f"seed={first + number}"]) for number in range(SEEDS)]
        if streams and all(_held(seeds, workers)):
            return streams
        streams = int(streams * LOWER)
    return 0
