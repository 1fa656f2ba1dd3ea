"""The change to a host that lets it carry most streams.

Changes are told apart by simulation, by successive halving (Jamieson and Talwalkar, 2016): all are
tried shortly, the better half for longer, and so on. Before each further round the best change of
each kind is also joined with the best of all, so that pairs and triples of changes are tried only
where their parts are good. All of a round have the same seed and so the same packets (common random
numbers). The best of the last round are then tried with other seeds and for longer, and what
carries most of these with other seeds again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity import extras, substrates
from laxity.design.answered import answered
from laxity.design.ladders import LAXITY, POLICIES, Ladder, ladders
from laxity.errors import HostError, InputError, core_errors
from laxity.policies import SCHEDULER_S
from laxity.progress import silent
from laxity.resolved import ending
from laxity.results.acceptance import limits_of
from laxity.results.design import Design, Remedy
from laxity.telephony.capacity import STREAMS_MAX
from laxity.voice.scoring import SCORED, scored_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.resolved_schema import Nic, ResolvedHost
    from laxity.workers.workers import Workers

ROUNDS = (
    (1, 1, (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)),
    (2, 1, (0.75, 1.0, 1.25, 1.5, 1.75, 2.0)),
    (4, 3, (0.4, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
)
"""Seconds and seeds of the runs of a load, and loads as factors of what was carried in the round
before; at first of the streams that the file asks for."""

GREATER, SMALLER = (1.2, 1.5, 2.0, 3.0, 4.0), (0.1, 0.2, 0.4, 0.6, 0.8)
"""Where all loads of a round hold, or none does: as factors of the greatest, or of the least."""

WIDENED_MAX = 3
"""How often a change's loads are made greater, or smaller, in a round."""

KEPT = 2
"""One in this many goes on to the next round."""

SEEDS, SECONDS = 3, 10
"""Runs that check what was found: with seeds that it was not chosen by, and longer."""

LOWER = 0.9
"""A load that fails there is lowered by this factor."""

ATTEMPTS_MAX, HALF = 10, 0.5
"""After so many attempts it is halved."""

NAMED_MAX = 20
"""Other changes that are named, those that carry most first."""

WEIGHT = 4096
"""The weight of domains that come first: sixteen times the usual one."""


CAPS = (25, 50)
"""Percent of each VCPU to which domains that serve nothing may be capped."""

COALESCING = '{ time = "1 ms", packets = 32 }'


@dataclass(frozen=True)
class Change:
    """A change to a host."""

    what: str
    overrides: tuple[str, ...]
    kinds: frozenset[str] = frozenset()
    """What it changes; changes that have one in common are not joined."""

    def joined(self, other: Change) -> Change:
        """Both changes together."""
        return Change(
            f"{self.what}; {other.what}",
            (*self.overrides, *other.overrides),
            self.kinds | other.kinds,
        )


def has_calls(host: Resolved) -> bool:
    """Whether the host file, which may leave values open, has calls."""
    return host.gives("calls")


def find_remedy(host: Resolved, looking: Say, workers: Workers | None = None) -> Design:
    """Finds which change to the host lets it carry most streams, and checks it with other seeds.

    Where the file leaves values open, the changes are other values for these, and nothing else is
    changed. Raises InputError if the host has no streams that are always there, or if nothing is
    known that could be tried for an open value.
    """
    with core_errors():
        paths = host.file.open_paths(host.overrides)
    of_open = ladders(paths, host) if paths else []
    first = tuple(override for ladder in of_open for override in ladder.rungs[0])
    asked, host = host, host.changed(first)
    of_host = host.host
    calls = of_host["calls"]
    own = calls["streams"] if calls is not None else 0
    if not own:
        raise InputError(
            "the host has calls that come and go, and no streams that are always there",
            "write calls.streams, or ask `laxity capacity`",
        )
    if paths:
        as_it_is = Change(_said(first), first)
        changes = _rungs(of_open)
    else:
        as_it_is = Change("as it is", ())
        changes = changes_of(of_host, has_cards=host.file.gives("nic"))
    left = [as_it_is, *(change for change in changes if _is_possible(host, change))]
    carried = dict.fromkeys(left, own)
    known: list[Change] = []
    for number, (seconds, seeds, factors) in enumerate(ROUNDS):
        if number:
            joint = [change for change in _joint(left) if _is_possible(host, change)]
            # What is joined carries about as much as the better of its parts.
            carried |= dict.fromkeys(joint, carried[left[0]])
            left += joint
        looking(f"trying {len(left)} changes for {seconds} s each")
        loads = {change: _loads(max(carried[change], 1), factors) for change in left}
        carried |= _carried(host, loads, seconds, seeds, workers)
        left.sort(key=lambda change: -carried[change])
        kept = max(1, -(-len(left) // KEPT))
        known += [change for change in left if change not in known]
        left = left[:kept]
    winner, streams = _best(host, [(change, carried[change]) for change in left], looking, workers)
    remedies = tuple(
        Remedy(change.what, streams if change is winner else carried[change])
        for change in sorted(known, key=lambda change: (change is not winner, -carried[change]))
    )
    # An override of the winner comes after the first value for the same path.
    values = dict(override.split("=", 1) for override in (*first, *winner.overrides))
    overrides = [f"{path}={value}" for path, value in values.items()]
    return _design(asked, own, winner, overrides, streams, remedies)


def can_be_heard() -> bool:
    """Whether what scores voice is installed."""
    try:
        extras.require("pesq")
    except InputError:
        return False
    return True


def _said(overrides: Iterable[str]) -> str:
    return ", ".join(override.replace("=", " = ", 1) for override in overrides)


def _rungs(of_open: Iterable[Ladder]) -> Iterator[Change]:
    """All but the first rung of each ladder."""
    for ladder in of_open:
        for rung in ladder.rungs[1:]:
            yield Change(_said(rung), rung, frozenset(ladder.paths))


def _design(
    host: Resolved,
    own: int,
    winner: Change,
    overrides: list[str],
    streams: int,
    remedies: tuple[Remedy, ...],
) -> Design:
    holds = streams > 0
    chosen = (
        f"{winner.what}: carries {streams:,} streams, with {SEEDS} seeds that it was not chosen by."
    )
    if not can_be_heard():
        chosen += " What voice sounds like was not judged, which needs the extra `voice`."
    too_few = (
        [f"The file has {own:,} streams, and no change that was tried carries so many."]
        if 0 < streams < own
        else []
    )
    others = [
        f"{remedy.what}: {remedy.streams:,} streams in a short run."
        for remedy in remedies
        if remedy.what != winner.what
    ]
    return Design(
        verdict="holds" if holds else "impossible",
        policy=host.changed(overrides).host["policy"],
        host=answered(host, [*overrides, f"calls.streams={streams}"]).text.decode()
        if holds
        else None,
        cpu_share=None,
        load=0.0,
        guaranteed=0,
        reasons=(chosen, *too_few, *others[:NAMED_MAX]),
        remedies=remedies,
    )


def _is_possible(host: Resolved, change: Change) -> bool:
    """Whether the host file allows the change: it may have values that contradict it."""
    try:
        return bool(host.changed(change.overrides).host)
    except HostError:
        return False


def _joint(best: Sequence[Change]) -> list[Change]:
    """The best of these changes joined with the best of each other kind."""
    changes = [change for change in best if change.kinds]
    if not changes:
        return []
    first, joint, kinds = changes[0], [], set(changes[0].kinds)
    for change in changes[1:]:
        if not change.kinds & kinds:
            joint.append(first.joined(change))
            kinds |= change.kinds
    known = {change.overrides for change in best}
    return [change for change in joint if change.overrides not in known]


def changes_of(host: ResolvedHost, *, has_cards: bool = False) -> Iterator[Change]:
    """Changes that may help: weights, caps, CPUs, the policy, and the way of packets.

    `has_cards` says whether the host file has `[[nic]]`. The host file may not allow what some of
    the changes need.
    """
    kinds = {
        domain["name"]: domain["workload"]["kind"] if domain["workload"] else None
        for domain in host["domains"]
    }
    driver = [name for name, kind in kinds.items() if kind == "driver"]
    media = [name for name, kind in kinds.items() if kind == "media-server"]
    serving = [*driver, *media]
    others = [name for name in kinds if name not in serving]
    for first in dict.fromkeys(map(tuple, (driver, media, serving))):
        if first and others:
            yield Change(
                f"weight {WEIGHT} for {' and '.join(first)}",
                tuple(f"domain.{name}.weight={WEIGHT}" for name in first),
                frozenset({"weight"}),
            )
    computing = [
        domain
        for domain in host["domains"]
        if domain["cpu_bound"] or kinds[domain["name"]] in ("cpu-bound", "bursts")
    ]
    for percent in CAPS:
        if computing:
            yield Change(
                f"cap of {percent} % for each VCPU of "
                f"{' and '.join(domain['name'] for domain in computing)}",
                tuple(
                    f"domain.{domain['name']}.cap={percent * len(domain['vcpus'])}"
                    for domain in computing
                ),
                frozenset({"cap"}),
            )
    yield from _policies(host, serving)
    yield from _ways_of_packets(host, driver, media, has_cards=has_cards)
    yield from _cpus_apart(host["cpus"], driver, media, others)


def _policies(host: ResolvedHost, serving: Sequence[str]) -> Iterator[Change]:
    """Other policies, those of scheduler S with a laxity for the domains that serve packets."""
    if host["policy"] not in POLICIES:
        return
    has_laxity = any(domain["parameters"]["laxity_ns"] for domain in host["domains"])
    for policy in POLICIES:
        if policy == host["policy"]:
            continue
        needs = policy in SCHEDULER_S and not has_laxity
        said = f", laxity {LAXITY} for {' and '.join(serving)}" if needs else ""
        laxities = [f"domain.{name}.laxity={LAXITY}" for name in serving if needs]
        yield Change(
            f"policy {policy}{said}", (f"host.policy={policy}", *laxities), frozenset({"policy"})
        )


def _ways_of_packets(
    host: ResolvedHost, driver: Sequence[str], media: Sequence[str], *, has_cards: bool
) -> Iterator[Change]:
    """Cards that interrupt less often, and cards that media servers drive themselves.

    Cards of the host keep their other settings. A new card is like the driver domain's first one.
    """
    network = host["network"]
    if not driver or not media or network is None:
        return
    name, names = media[0], [domain["name"] for domain in host["domains"]]
    cards, driven = network["nics"], [names[card["domain"]] for card in network["nics"]]
    taken = {card["name"] for card in cards}
    new_name = next(
        new for new in (f"eth{number}" for number in range(len(cards) + 1)) if new not in taken
    )
    like = next((card for card, by in zip(cards, driven, strict=True) if by in driver), None)
    for what, coalescing in (("", None), ("interrupts coalesced", COALESCING)):
        as_written = [_card(card, by, coalescing) for card, by in zip(cards, driven, strict=True)]
        if has_cards:
            kept = [f"nic.{card}.coalesce={coalescing}" for card in sorted(taken) if coalescing]
        else:
            kept = [f"nic=[{', '.join(as_written)}]"]
        if what:
            yield Change(what, tuple(kept), frozenset({"cards"}))
        if like is None or name in driven:
            continue
        own = _card({**like, "name": new_name}, name, coalescing)
        if has_cards:
            also_own = [*kept, f"nic.{len(cards)}={own}"]
        else:
            also_own = [f"nic=[{', '.join([*as_written, own])}]"]
        also = f", {what}" if what else ""
        yield Change(
            f"a card that {name} drives itself{also}", tuple(also_own), frozenset({"cards"})
        )


def _card(card: Nic, domain: str, coalescing: str | None) -> str:
    """A card as an element of `nic`, with interrupts coalesced as is said, or as they are."""
    if coalescing is None and card["coalesce_ns"]:
        packets = card["coalesce_packets"]
        coalescing = f'{{ time = "{card["coalesce_ns"]} ns", packets = {packets} }}'
    settings = {
        "name": f'"{card["name"]}"',
        "domain": f'"{domain}"',
        "rate": f'"{_rate(card["rate_bit_s"])}"',
        "ring": str(card["ring"]),
        "coalesce": coalescing,
    }
    given = (f"{key} = {value}" for key, value in settings.items() if value is not None)
    return f"{{ {', '.join(given)} }}"


def _rate(bit_s: int) -> str:
    """A rate in the greatest unit of which it is a whole number."""
    units = ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s"), (1, "bit/s"))
    return next(f"{bit_s // unit} {name}" for unit, name in units if bit_s % unit == 0)


def _cpus_apart(
    cpus: int, driver: Sequence[str], media: Sequence[str], others: Sequence[str]
) -> Iterator[Change]:
    """CPUs of their own for the domains that serve packets."""
    serving = [*driver, *media]
    names = [*serving, *others]
    for count in range(1, cpus):
        for first in dict.fromkeys(map(tuple, (driver, serving))):
            rest = [name for name in names if name not in first]
            if first and rest:
                yield _pinned([(list(first), count), (rest, cpus - count)])
        for more in range(1, cpus - count):
            if driver and media and others:
                parts = [(driver, count), (media, more), (others, cpus - count - more)]
                yield _pinned(parts)


def _pinned(parts: Sequence[tuple[Sequence[str], int]]) -> Change:
    """Parts of the CPUs for some domains each, in order."""
    overrides, said, begin = [], [], 0
    for number, (names, count) in enumerate(parts):
        places = list(range(begin, begin + count))
        begin += count
        overrides += [f"domain.{name}.affinity={places}" for name in names]
        whom = "the others" if number == len(parts) - 1 else " and ".join(names)
        said.append(f"{whom} on {count}")
    return Change(f"CPUs apart: {', '.join(said)}", tuple(overrides), frozenset({"CPUs"}))


def _loads(around: int, factors: Sequence[float]) -> list[int]:
    return sorted({min(max(1, round(around * factor)), STREAMS_MAX) for factor in factors})


def _carried(
    host: Resolved,
    loads: dict[Change, list[int]],
    seconds: int,
    seeds: int,
    workers: Workers | None,
) -> dict[Change, int]:
    """The greatest load of each change up to which all loads held with all seeds; 0 if none did.

    Where the greatest of a change's loads holds, greater ones are tried, and smaller ones where the
    least fails.
    """
    carried = dict.fromkeys(loads, 0)
    for _ in range(1 + WIDENED_MAX):
        held = _which_held(host, loads, seconds, seeds, workers)
        further: dict[Change, list[int]] = {}
        for change, of_change in loads.items():
            failed = [load for load in of_change if not held[change, load]]
            holding = [load for load in of_change if not failed or load < failed[0]]
            if holding:
                carried[change] = holding[-1]
            if not failed and of_change[-1] < STREAMS_MAX:
                further[change] = _loads(of_change[-1], GREATER)
            elif not holding and not carried[change] and of_change[0] > 1:
                further[change] = _loads(of_change[0], SMALLER)
        if not further:
            break
        loads = further
    return carried


def _which_held(
    host: Resolved,
    loads: dict[Change, list[int]],
    seconds: int,
    seeds: int,
    workers: Workers | None,
) -> dict[tuple[Change, int], bool]:
    """Whether each load of each change held with all seeds."""
    first = host.host["seed"]
    asked = [(change, load) for change, of_change in loads.items() for load in of_change]
    results = _held(
        [
            host.changed([*_load(host, change, load, seconds), f"seed={first + number}"])
            for change, load in asked
            for number in range(seeds)
        ],
        workers,
    )
    return {of: all(results[index * seeds : (index + 1) * seeds]) for index, of in enumerate(asked)}


def _load(host: Resolved, change: Change, streams: int, seconds: int) -> list[str]:
    """A host with a change and so many streams, for so long; what comes later does not come."""
    ends = ending(host.host, seconds * 10**9)
    return [*change.overrides, f"calls.streams={streams}", *ends]


def _confirming_s(host: ResolvedHost) -> int:
    """How long a run is that confirms: it has the host's failure."""
    protect = host["network"] and host["network"].get("protect")
    whole_s = -(-host["duration_ns"] // 10**9)
    return max(SECONDS, whole_s) if protect and protect["failure"] else SECONDS


def _held(hosts: list[Resolved], workers: Workers | None, *, heard: bool = False) -> list[bool]:
    """Whether loss and delay of each kept to their limits; with `heard`, the opinion score too."""
    runs = substrates.of("sim").run_many(hosts, say=silent, streams=heard, workers=workers)
    if heard:
        runs = scored_many(runs, most=SCORED)
    return [
        run.telephony is not None and all(limit.held for limit in limits_of(run.telephony))
        for run in runs
    ]


def _best(
    host: Resolved, carried: Sequence[tuple[Change, int]], looking: Say, workers: Workers | None
) -> tuple[Change, int]:
    """The change that carries most in longer runs, and how much with seeds that chose nothing.

    `carried` has what each carried in short runs: none carries more than that.
    """
    first = host.host["seed"] + max(seeds for _, seeds, _ in ROUNDS)
    at_most = dict(carried)
    is_longer: set[Change] = set()
    best, most, tries = carried[0][0], 0, 0
    while at_most:
        # What was tried for longer comes before what carried as much in a short run.
        change = max(at_most, key=lambda each: (at_most[each], each in is_longer))
        streams = at_most[change]
        if streams <= most:
            break
        if change not in is_longer:
            looking(f"{change.what}: {streams:,} streams for longer")
            at_most[change] = _confirmed(host, change, streams, most, first, workers)
            is_longer.add(change)
            continue
        looking(f"confirming {streams:,} streams")
        tries += 1
        del at_most[change]
        streams = _confirmed(host, change, streams, most, first + SEEDS * tries, workers)
        if streams:
            best, most = change, streams
    return best, most


def _confirmed(
    host: Resolved, change: Change, streams: int, most: int, first: int, workers: Workers | None
) -> int:
    """The load that holds for longer, with seeds from the first on, and sounds well enough.

    0 if it is not more than `most`.
    """
    heard = can_be_heard()
    attempt = 0
    while streams > most:
        load = _load(host, change, streams, _confirming_s(host.host))
        seeds = [host.changed([*load, f"seed={first + number}"]) for number in range(SEEDS)]
        if all(_held(seeds, workers, heard=heard)):
            return streams
        attempt += 1
        streams = int(streams * (LOWER if attempt < ATTEMPTS_MAX else HALF))
    return 0
