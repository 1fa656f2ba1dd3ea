"""Values that are tried for what a file leaves open whose host no analysis judges.

Such are hosts with calls, and policies that go by weights. Each open value has a ladder: a few
values that span what is sensible, the usual one first.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from itertools import chain, product
from typing import TYPE_CHECKING

from laxity.design.halving import Change, is_possible
from laxity.errors import InputError, core_errors
from laxity.policies import TABLE, default_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from laxity.resolved import Resolved
    from laxity.resolved_schema import Link, ResolvedHost

POLICIES = ("credit", "credit2", "s-base", "s-ab", "s-allc")
"""Policies that are tried for hosts with Xen: they know weights, and need no budgets.

Three of scheduler S's variants span what its parts do, so that no trial is spent on the others.
"""

SERVERS = tuple(
    name
    for name, policy in TABLE.items()
    if policy.uses("budget") and policy.own_of is None and "xen" in policy.substrates
)
"""Policies that need budgets, for files that leave these open."""

LAXITY = "1 ms"
"""The usual laxity of domains that serve packets under scheduler S."""

PERIODS_MS = (10, 2, 5, 20, 50)

SHARES = (0.5, 0.05, 0.1, 0.2, 0.3, 0.7, 0.9)
"""Parts of a CPU, as budgets of each VCPU."""

PARTS = (0.5, 0.1, 0.25, 0.75, 1.0)
"""Parts of what an agreement's minimum may be beside as many others."""

MOST_PARTS = (1.0, 0.1, 0.25, 0.5, 0.75)
"""Parts of the link, as maxima of agreements."""

AGREED = re.compile(r"(link\.agreements\.(\d+)\.)(minimum|maximum)")

UNLIMITED = "100 Gbit/s"
"""What stands for a maximum that is open, which has no default."""

INTERVALS = ("100 ms", "25 ms", "50 ms", "200 ms", "400 ms")
"""Intervals from one checkpoint to the next."""

RINGS = (256, 64, 1024, 4096)

COMBINATIONS_MAX = 128
"""Up to so many combinations of values are all tried; of more, those of the best values."""

FEW_CPUS = 8
"""Up to so many CPUs, runs of CPUs may overlap, and any number of them is tried."""


@dataclass(frozen=True)
class Ladder:
    """Values of what is left open at some paths, which go together."""

    paths: tuple[str, ...]
    rungs: tuple[tuple[str, ...], ...]
    """Overrides, one for each path."""


@dataclass(frozen=True)
class OpenValues:
    """What a host file leaves open."""

    ladders: tuple[Ladder, ...]

    @property
    def first(self) -> tuple[str, ...]:
        """Overrides with the first value of each."""
        return tuple(override for ladder in self.ladders for override in ladder.rungs[0])

    @property
    def changes(self) -> Iterator[Change]:
        """The first values, then each other value of one ladder with the first of the others.

        All combinations of values, if these are few.
        """
        if math.prod(len(ladder.rungs) for ladder in self.ladders) <= COMBINATIONS_MAX:
            for rungs in product(*(ladder.rungs for ladder in self.ladders)):
                overrides = tuple(chain.from_iterable(rungs))
                yield Change(_said(overrides), overrides)
            return
        yield Change(_said(self.first), self.first)
        for ladder in self.ladders:
            for rung in ladder.rungs[1:]:
                yield Change(_said(rung), rung, frozenset(ladder.paths))

    def with_change(self, change: Change) -> list[str]:
        """Overrides of all values, with those of a change in place of the first for its paths."""
        values = dict(override.split("=", 1) for override in (*self.first, *change.overrides))
        return [f"{path}={value}" for path, value in values.items()]


def open_values(host: Resolved) -> OpenValues:
    """Returns what the host file leaves open. Raises as `ladders` does."""
    with core_errors():
        paths = host.file.open_paths(host.overrides)
    found = ladders(paths, host) if paths else []
    if "host.policy" not in paths:
        return OpenValues(tuple(found))
    policy, *others = found
    first = OpenValues(tuple(others)).first
    possible = tuple(rung for rung in policy.rungs if is_possible(host, (*rung, *first)))
    # If none is, the first says why.
    return OpenValues((Ladder(policy.paths, possible or policy.rungs), *others))


def _said(overrides: Iterable[str]) -> str:
    return ", ".join(override.replace("=", " = ", 1) for override in overrides)


def ladders(paths: Sequence[str], host: Resolved) -> list[Ladder]:
    """Returns a ladder for each value that the host file leaves open.

    A budget and a period that are both open are one ladder, and so are a minimum and a maximum.
    Raises InputError if nothing is known that could be tried for a value, and HostError if the file
    is wrong.
    """
    given = [f"{path}={UNLIMITED}" for path in paths if path.endswith(".maximum")]
    with core_errors():
        opened = host.file.placeholders([*host.overrides, *given])
    of_host: ResolvedHost = json.loads(opened)
    # The policy decides most, and is named first.
    left = sorted(paths, key=lambda path: path != "host.policy")
    has_budgets = any(path.endswith(".budget") for path in left)
    found = []
    for path in left:
        if any(
            path.endswith(second) and f"{path.removesuffix(second)}{first}" in left
            for first, second in ((".budget", ".period"), (".minimum", ".maximum"))
        ):
            continue
        found.append(_ladder(path, left, of_host, has_budgets=has_budgets))
    return found


def _ladder(path: str, left: list[str], host: ResolvedHost, *, has_budgets: bool) -> Ladder:
    domain = re.fullmatch(r"domain\.(.+)\.([^.]+)", path)
    if domain and domain[2] == "budget":
        period = f"domain.{domain[1]}.period"
        if period in left:
            return _budgets(path, period)
    agreed = AGREED.fullmatch(path)
    if agreed and (link := _link(host)):
        keys = [key for key in ("minimum", "maximum") if f"{agreed[1]}{key}" in left]
        return _agreed(agreed[1], keys, link, int(agreed[2]))
    values = _values(path, domain, host, has_budgets=has_budgets)
    if values is None:
        raise InputError(
            f"`laxity design` cannot find a value for `{path}`",
            "write a value; open may be here: policy; of a domain "
            f"{', '.join(OF_DOMAIN)}; an agreement's minimum and maximum; a "
            "protected domain's interval; a card's ring",
        )
    return Ladder((path,), tuple((f"{path}={value}",) for value in values))


def _values(
    path: str, domain: re.Match[str] | None, host: ResolvedHost, *, has_budgets: bool
) -> Iterable[str] | None:
    """The values to try for one path, which `domain` is if it leads to a domain's key."""
    if path == "host.policy":
        return (*SERVERS, *POLICIES) if has_budgets else POLICIES
    values: Iterable[str] | None = None
    number = _number(host, domain[1]) if domain else None
    if domain and number is not None and domain[2] in OF_DOMAIN:
        values = OF_DOMAIN[domain[2]](host, number)
    elif re.fullmatch(r"protect\.domains\.\d+\.interval", path):
        values = INTERVALS
    elif re.fullmatch(r"nic\..+\.ring", path):
        values = map(str, RINGS)
    return values


def _number(host: ResolvedHost, name: str) -> int | None:
    """The number of a domain that a path names, by its own name or by its number; None if none."""
    names = [domain["name"] for domain in host["domains"]]
    if name in names:
        return names.index(name)
    return int(name) if name.isdecimal() else None


def _budgets(budget: str, period: str) -> Ladder:
    return Ladder(
        (budget, period),
        tuple(
            (f"{budget}={period_ms * 1000 * share:.0f} us", f"{period}={period_ms} ms")
            for period_ms in PERIODS_MS
            for share in SHARES
        ),
    )


def _weights(_: ResolvedHost, __: int) -> Iterator[str]:
    usual = default_of("weight")
    return map(str, (usual, usual // 4, usual * 4, usual * 16))


def _caps(host: ResolvedHost, number: int) -> Iterator[str]:
    vcpus = len(host["domains"][number]["vcpus"])
    return (str(percent * vcpus) for percent in (0, 10, 25, 50, 75))


def _laxities(_: ResolvedHost, __: int) -> tuple[str, ...]:
    return (LAXITY, "100 us", "300 us", "3 ms", "10 ms")


def is_round(cpus: int) -> bool:
    """Whether a number of CPUs is a power of two, or one less."""
    return cpus & (cpus + 1) == 0 or cpus & (cpus - 1) == 0


def _affinities(host: ResolvedHost, _: int) -> Iterator[str]:
    """All CPUs, and all runs of neighbouring CPUs whose length is a power of two or one less."""
    cpus = host["cpus"]
    yield str(list(range(cpus)))
    for length in range(1, cpus):
        if is_round(length):
            for first in range(0, cpus - length + 1, 1 if cpus <= FEW_CPUS else length):
                yield str(list(range(first, first + length)))


def _budgets_of_period(host: ResolvedHost, number: int) -> Iterator[str]:
    period_ns = host["domains"][number]["parameters"]["period_ns"]
    return (f"{max(1, round(period_ns * share))} ns" for share in SHARES)


def _periods_of_budget(host: ResolvedHost, number: int) -> Iterator[str]:
    budget_ns = host["domains"][number]["parameters"]["budget_ns"]
    return (f"{round(budget_ns / share)} ns" for share in SHARES)


def _priorities(host: ResolvedHost, number: int) -> Iterator[str]:
    """The place in the file first: priorities that are all open differ."""
    others = (place for place in range(len(host["domains"])) if place != number)
    return (str(place + 1) for place in (number, *others))


OF_DOMAIN: dict[str, Callable[[ResolvedHost, int], Iterable[str]]] = {
    "weight": _weights,
    "cap": _caps,
    "laxity": _laxities,
    "affinity": _affinities,
    "budget": _budgets_of_period,
    "period": _periods_of_budget,
    "priority": _priorities,
}


def _agreed(agreement: str, keys: list[str], link: Link, number: int) -> Ladder:
    """The open ones of an agreement's minimum and maximum, so that they fit each other."""
    of_link = link["agreements"]
    even_bit_s = link["rate_bit_s"] / len(of_link)
    given = of_link[number]
    minima = [given["minimum_bit_s"]]
    if "minimum" in keys:
        most_bit_s = min(even_bit_s, given["maximum_bit_s"])
        minima = [max(1000, round(most_bit_s * part)) for part in PARTS]
    maxima = [given["maximum_bit_s"]]
    if "maximum" in keys:
        maxima = [round(link["rate_bit_s"] * part) for part in MOST_PARTS]
    pairs = (
        {"minimum": minimum, "maximum": maximum}
        for maximum in maxima
        for minimum in minima
        if minimum <= maximum
    )
    return Ladder(
        tuple(f"{agreement}{key}" for key in keys),
        tuple(tuple(f"{agreement}{key}={pair[key]} bit/s" for key in keys) for pair in pairs),
    )


def _link(host: ResolvedHost) -> Link | None:
    network = host["network"]
    return network["link"] if network is not None else None
