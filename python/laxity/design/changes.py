"""Changes to a host with calls that may let it carry more streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.design.halving import Change
from laxity.design.ladders import FEW_CPUS, LAXITY, POLICIES, is_round
from laxity.policies import SCHEDULER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laxity.resolved_schema import Nic, ResolvedHost

WEIGHT = 4096
"""The weight of domains that come first: sixteen times the usual one."""

CAPS = (25, 50)
"""Percent of each VCPU to which domains that serve nothing may be capped."""

COALESCING = '{ time = "1 ms", packets = 32 }'


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
    counts = [count for count in range(1, cpus) if cpus <= FEW_CPUS or is_round(count)]
    for count in counts:
        for first in dict.fromkeys(map(tuple, (driver, serving))):
            rest = [name for name in names if name not in first]
            if first and rest:
                yield _pinned([(list(first), count), (rest, cpus - count)])
        for more in counts:
            if more < cpus - count and driver and media and others:
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
