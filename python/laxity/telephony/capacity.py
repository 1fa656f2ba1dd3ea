"""How many streams, or calls, a host carries within its limits."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import directory as directories
from laxity.errors import InputError
from laxity.resolved import calls_of
from laxity.results.acceptance import KINDS, limits_of
from laxity.results.design import Remedy
from laxity.results.origin import Origin, load_origin, save_origin
from laxity.results.records import decoded, encoded
from laxity.results.run import Run
from laxity.substrates.substrate import refuse
from laxity.telephony.bottleneck import Bottleneck, bottleneck
from laxity.voice.scoring import SCORED, scored_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.resolved_schema import Calls, ResolvedHost
    from laxity.results.acceptance import Limit
    from laxity.results.schema import Profile, Telephony
    from laxity.substrates.substrate import Substrate

NO_CALLS = "this host has no calls"
ADD_CALLS = "add [calls] with streams = 100, say"
CANDIDATES = 4
"""Loads that are tried at a time."""
RAMP = 8
"""Parts of the least load that failed, at whose ends loads are tried below it and above."""
SEEDS_MAX = 10_000
"""Runs of one load, whose results are in memory together."""
STREAMS_MAX, RATE_MAX = 100_000, 36_000_000
"""That a host file may have; calls an hour."""
MOST = {"calls.streams": STREAMS_MAX, "calls.rate": RATE_MAX}
"""The same by what is varied."""
CAPACITY = "capacity.json"


@dataclass(frozen=True)
class Tried:
    """A load, and whether the host carried it."""

    load: int
    """Streams, or calls an hour."""
    runs: tuple[Run, ...]
    """One for each seed, with the quality of the streams that missed most."""
    gives_out: Bottleneck | None
    """What gave out in the first run that was not accepted; None if all were."""

    @property
    def telephonies(self) -> list[Telephony]:
        """The telephony of each run."""
        return [run.telephony for run in self.runs if run.telephony is not None]

    @property
    def accepted(self) -> int:
        """The runs in which all limits held."""
        return sum(telephony.accepted is True for telephony in self.telephonies)

    @property
    def held(self) -> bool:
        """Whether all limits held in every run."""
        return self.accepted == len(self.runs)

    @property
    def limits(self) -> list[Limit]:
        """Each limit in the run that came nearest to it, or broke it by most."""
        by_name: dict[str, list[Limit]] = {}
        for telephony in self.telephonies:
            for limit in limits_of(telephony):
                by_name.setdefault(limit.name, []).append(limit)
        return [max(limits, key=lambda limit: limit.badness) for limits in by_name.values()]

    def to_json(self) -> dict[str, object]:
        """Returns the load, the limits, and the result of each run."""
        return {
            "load": self.load,
            "held": self.held,
            "accepted": self.accepted,
            "limits": [asdict(limit) for limit in self.limits],
            "gives_out": self.gives_out and asdict(self.gives_out),
            "runs": [run.to_json() for run in self.runs],
        }


@dataclass(frozen=True, repr=False)
class Capacity:
    """How much a host carries within its limits."""

    key: str
    """What was varied: `calls.streams` or `calls.rate`."""
    own: int
    """What the host file asks for, which was tried too."""
    most: int
    """The greatest load that could be asked, as far as the search went: a host file has no more,
    the substrate refuses more, or more takes more than there is. It is tried if nothing below it
    failed."""
    tried: tuple[Tried, ...]
    """All loads, ascending."""
    origin: Origin = field(repr=False)
    remedies: tuple[Remedy, ...] = ()
    """Changes to the host, the best first, if they were asked for."""

    def __repr__(self) -> str:
        """One line: what is carried."""
        carried = f"{self.carried.load:,}" if self.carried else "nothing"
        return f"<laxity.Capacity {self.origin.name}: {self.key} {carried} carried>"

    @property
    def limit_names(self) -> list[str]:
        """The limits that any load was held against, in the order of tables."""
        known = {limit.name for tried in self.tried for limit in tried.limits}
        return [name for name in KINDS if name in known]

    @property
    def is_scored(self) -> bool:
        """Whether the quality of any stream was scored; runs may be too short for it."""
        return "MOS" in self.limit_names

    @property
    def refused(self) -> Tried | None:
        """The least load that failed; None if nothing did."""
        return next((each for each in self.tried if not each.held), None)

    @property
    def carried(self) -> Tried | None:
        """The greatest load up to which every load that was tried held; None if there is none."""
        refused = self.refused
        held = [each for each in self.tried if refused is None or each.load < refused.load]
        return held[-1] if held else None

    @property
    def isolated(self) -> list[Tried]:
        """Loads that held above one that did not: they are not carried, and not to be relied on."""
        refused = self.refused
        return [
            each
            for each in self.tried
            if refused is not None and each.load > refused.load and each.held
        ]

    @property
    def passed(self) -> bool:
        """Whether what the host file asks for is carried."""
        return self.carried is not None and self.carried.load >= self.own

    @property
    def seeds(self) -> list[int]:
        """The seeds with which every load was tried."""
        return [run.seed for run in self.tried[0].runs]

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles whose costs the runs used."""
        return self.tried[0].runs[0].profiles

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity capacity --json` prints."""
        carried, refused = self.carried, self.refused
        return {
            "key": self.key,
            "own": self.own,
            "most": self.most,
            "passed": self.passed,
            "seeds": self.seeds,
            "carried": carried and carried.load,
            "refused": refused and refused.load,
            "gives_out": refused and refused.gives_out and refused.gives_out.long,
            "isolated": [each.load for each in self.isolated],
            "profiles": [asdict(profile) for profile in self.profiles],
            "tried": [each.to_json() for each in self.tried],
            "remedies": [encoded(remedy) for remedy in self.remedies],
        }

    def save(self, directory: str | Path) -> Path:
        """Writes `capacity.json` and the host file; `directory` as for `Run.save`."""
        with directories.output(Path(directory)) as staging:
            self.write(staging)
        return Path(directory)

    def write(self, directory: Path) -> None:
        """Writes the same into a directory that is there."""
        save_origin(directory, "capacity", self.origin)
        directories.write_json(directory / CAPACITY, self.to_json())

    @classmethod
    def load(cls, directory: str | Path) -> Capacity:
        """Reads what `save` wrote; InputError if it is something else."""
        path = Path(directory)
        origin = load_origin(path, "capacity")
        content = directories.read_json(path / CAPACITY)
        tried = tuple(
            Tried(
                each["load"],
                tuple(Run.from_json(run, origin) for run in each["runs"]),
                Bottleneck(**each["gives_out"]) if each["gives_out"] else None,
            )
            for each in content["tried"]
        )
        remedies = decoded(content.get("remedies", []), tuple[Remedy, ...])
        return cls(content["key"], content["own"], content["most"], tried, origin, remedies)


def find_capacity(
    host: Resolved,
    on: Substrate,
    seeds: int,
    say: Say,
    looking: Say,
) -> Capacity:
    """Finds how many streams, or calls an hour, the host carries within `[calls.acceptance]`.

    Varies `calls.streams` if the host has streams that are always there, otherwise `calls.rate`, to
    one part in a hundred, each load with the host's seed and those that follow. A load holds if all
    limits hold with every seed. MOS is of the sampled streams that missed most, and of all sampled
    streams at the load that is carried. Loads that the substrate refuses, or that take more than
    there is, are not tried. `looking` is told what load is being tried. Raises InputError if the
    host has no calls or is refused.
    """
    if not host.has_streams:
        raise InputError(NO_CALLS, ADD_CALLS)
    if seeds < 1:
        raise InputError(f"a load is tried with at least one seed, not {seeds}")
    if seeds > SEEDS_MAX:
        raise InputError(
            f"a load is tried with at most {SEEDS_MAX:,} seeds, not {seeds:,}",
            "the runs of a load are in memory together",
        )
    refuse(on, [host])
    host.require_scorer()
    calls = calls_of(host.host)
    key = "calls.streams" if calls["streams"] else "calls.rate"
    own = calls["streams"] or _calls_an_hour(calls)
    numbers = range(host.host["seed"], host.host["seed"] + seeds)

    def at(load: int) -> Resolved:
        return host.changed([_override(key, load)])

    def of_seeds(load: int) -> list[Resolved]:
        return [at(load).changed([f"seed={seed}"]) for seed in numbers]

    def run(load: int, most: int | None) -> Tried:
        looking(f"trying {load:,}" if most else f"listening at {load:,}")
        runs = scored_many(on.run_many(of_seeds(load), say=say, streams=True), most=most)
        return _tried(load, runs, host.host)

    tried, upper = search(
        own,
        MOST[key],
        lambda load: run(load, SCORED),
        lambda load: bool(on.refusals(at(load)) or on.excess(of_seeds(load))),
    )
    while True:
        found = Capacity(key, own, upper, tuple(tried), host.origin(on.words))
        carried = found.carried
        if carried is None:
            return found
        whole = run(carried.load, None)
        tried = [whole if each.load == carried.load else each for each in tried]
        if whole.held:
            return replace(found, tried=tuple(tried))


def _calls_an_hour(calls: Calls) -> int:
    rate = calls["rate"]
    return 0 if rate is None else rate["millionths_per_hour"] // 1_000_000


def _tried(load: int, runs: Iterable[Run], host: ResolvedHost) -> Tried:
    # Their packets are large, and have been scored.
    kept = tuple(replace(run, streams=()) for run in runs)
    for run in kept:
        if run.telephony is not None and not run.telephony.accepted:
            return Tried(load, kept, bottleneck(run, run.telephony, host))
    return Tried(load, kept, None)


def _override(key: str, load: int) -> str:
    return f"{key}={load}" if key == "calls.streams" else f"{key}={load} /h"


def search(
    start: int,
    most: int,
    probe: Callable[[int], Tried],
    is_too_much: Callable[[int], bool] = lambda _: False,
) -> tuple[list[Tried], int]:
    """Tries loads of 1 to `most` around the greatest that is carried, to one part in a hundred.

    First `start` and its doubles up to `most`, or its halves; then between the last that held and
    the first that did not, some at a time; then a ramp around these, since more load may do better
    than less. Where a load of the ramp fails below all others, it goes on from there. Instead of a
    load that is too much, the greatest below it that is not is tried, and nothing above. The loads
    come back ascending, and with them the most that could be tried.
    """
    ramp = _Ramp(most, probe, is_too_much)
    load = start
    while True:
        ramp.try_all([load, min(2 * load, ramp.most)])
        low, high = ramp.ends()
        if high is None and 2 * load < ramp.most:
            load *= 4
        elif low == 0 and high is not None and high > 1:
            load = max(1, high // 4)
        else:
            break
    ends = None
    while ends != (ends := ramp.ends()):
        ramp.try_all(_between(*ends))
    return [ramp.tried[load] for load in sorted(ramp.tried)], ramp.most


def _between(low: int, high: int | None) -> list[int]:
    """What to try next, if loads hold up to `low` and one fails at `high`."""
    if high is None:
        return [low * part // RAMP for part in range(1, RAMP)]
    if high - low <= max(1, low // 100):
        return [high * part // RAMP for part in range(1, RAMP + RAMP // 2 + 1)]
    steps = min(CANDIDATES, high - low - 1)
    return [low + (high - low) * step // (steps + 1) for step in range(1, steps + 1)]


class _Ramp:
    """Loads that were tried, each once."""

    def __init__(
        self, most: int, probe: Callable[[int], Tried], is_too_much: Callable[[int], bool]
    ) -> None:
        self.tried: dict[int, Tried] = {}
        self.most = most
        """The greatest load that may be tried, as far as is known."""
        self._probe = probe
        self._is_too_much = is_too_much

    def try_all(self, loads: Iterable[int]) -> None:
        for load in sorted(set(loads)):
            self._try(load)

    def _try(self, load: int) -> None:
        if load in self.tried or not 1 <= load <= self.most:
            return
        lower = [each for each in self.tried if each < load]
        # A least load that is too much is refused as a run of it is.
        if lower and self._is_too_much(load):
            above = range(max(lower) + 1, load)
            self.most = max(lower) + bisect_left(above, True, key=self._is_too_much)
            self._try(self.most)
        else:
            self.tried[load] = self._probe(load)

    def ends(self) -> tuple[int, int | None]:
        """The greatest load below which nothing failed, and the least that failed."""
        bad = min((load for load, each in self.tried.items() if not each.held), default=None)
        held = [
            load for load, each in self.tried.items() if each.held and (bad is None or load < bad)
        ]
        return max(held, default=0), bad
