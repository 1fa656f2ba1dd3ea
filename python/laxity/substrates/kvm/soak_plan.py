"""What a soak of KVM does, drawn from a seed: pure, and the same for a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from laxity.policies import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from laxity.policies import Policy

CPUS = 2
VCPUS = (2, 1, 2, 1)
"""The VCPUs of each guest."""

MILLION = 1_000_000
SHARE = 400_000
"""Parts in a million of one CPU that the budgets of all VCPUs together are at most. Two busy CPUs
of the emulated machine share its instructions, so that each has half of them."""
SHARE_LEAST, SHARE_MOST = 20_000, 150_000
"""The same of one VCPU."""

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000


@dataclass
class _Guest:
    name: str
    vcpus: int
    parameters: list[dict[str, int]] = field(default_factory=list)
    """What each VCPU has, and last what the domain has."""
    ends_ns: int = -1
    """When its run ends, in the time of rests; -1: it is not there."""
    is_paused: bool = False
    left: set[int] = field(default_factory=set)
    """VCPUs whose threads are ordinary ones."""


def draw(policy: Policy, seed: int, seconds: int) -> list[str]:
    """Returns operations, as laxity-soak takes them, for that many seconds: the same for a seed."""
    return list(_Draw(policy, random.Random(seed), seconds * SECOND_NS).lines())  # noqa: S311 - no secret


class _Draw:
    """Draws operations; knows what is there, and how much of a CPU was given away."""

    def __init__(self, policy: Policy, chance: random.Random, duration_ns: int) -> None:
        self.policy = policy
        self.chance = chance
        self.duration_ns = duration_ns
        self.now_ns = 0
        self.guests = [_Guest(f"soak-{number}", vcpus) for number, vcpus in enumerate(VCPUS, 1)]
        self.hogs = {"hog-1": False, "hog-2": False}

    def lines(self) -> Iterator[str]:
        settings = [PARAMETERS[name] for name in self.policy.parameters]
        pairs = " ".join(f"{each.name}={each.default}" for each in settings if each.is_setting)
        yield f"settings {CPUS} {pairs}".strip()
        for guest in self.guests:
            guest.parameters = [self._parameters(guest)] * (guest.vcpus + 1)
            yield f"domain {guest.name} {_pairs(guest.parameters[-1])}"
        yield "go"
        for guest in self.guests:
            yield from self._create(guest)
        kinds = {
            self._pause: 24,
            self._burst: 6,
            self._set_domain: 10,
            self._set_vcpu: 12,
            self._refuse: 8,
            self._pin: 6,
            self._leave_or_join: 6,
            self._create_one: 8,
            self._destroy: 2,
            self._hog: 4,
        }
        while self.now_ns < self.duration_ns:
            rest_ns = self.chance.randint(1, 400) * MILLISECOND_NS
            self.now_ns += rest_ns
            yield f"rest {rest_ns}"
            (draw_one,) = self.chance.choices(list(kinds), list(kinds.values()))
            yield from draw_one()

    def _one_in(self, count: int) -> bool:
        return self.chance.randrange(count) == 0

    def _there(self) -> list[_Guest]:
        return [guest for guest in self.guests if guest.ends_ns > self.now_ns]

    def _any(self) -> _Guest | None:
        there = self._there()
        return self.chance.choice(there) if there else None

    def _share_of_others(self, but: _Guest) -> int:
        return sum(
            MILLION * each["budget"] // each["period"]
            for guest in self.guests
            if guest is not but
            for each in guest.parameters[:-1]
        )

    def _parameters(self, guest: _Guest) -> dict[str, int]:
        """For each VCPU of the guest."""
        chance, policy = self.chance, self.policy
        drawn: dict[str, int] = {}
        if policy.uses("budget"):
            spare = (SHARE - self._share_of_others(guest)) // guest.vcpus
            most = min(max(spare, SHARE_LEAST), SHARE_MOST)
            drawn["period"] = chance.randint(10_000, 100_000) * 1000
            drawn["budget"] = drawn["period"] // MILLION * chance.randint(SHARE_LEAST, most)
        if policy.uses("priority"):
            drawn["priority"] = chance.randint(1, 5)
        if policy.uses("extratime"):
            drawn["extratime"] = int(self._one_in(6))
        if policy.uses("weight"):
            drawn["weight"] = chance.randint(128, 512)
        if policy.uses("cap"):
            drawn["cap"] = chance.randint(20, 100) if self._one_in(2) else 0
        if policy.uses("laxity"):
            drawn["laxity"] = chance.randint(1, 10) * MILLISECOND_NS if self._one_in(2) else 0
        return drawn

    def _create(self, guest: _Guest) -> Iterator[str]:
        chance, given = self.chance, self._parameters(guest)
        guest.parameters = [given] * (guest.vcpus + 1)
        yield f"set {guest.name} {_pairs(given)}"
        seconds = chance.randint(2, 40)
        tasks = [
            (
                chance.randint(200, 3000) * 1000,
                chance.randint(20, 200) * MILLISECOND_NS,
                chance.randrange(guest.vcpus),
            )
            for _ in range(chance.randint(1, 4))
        ]
        text = ";".join(f"{cost},{period},{period},0,{vcpu}" for cost, period, vcpu in tasks)
        begins = " ".join(str(chance.randrange(CPUS)) for _ in range(guest.vcpus))
        busy, tells = int(self._one_in(3)), int(self.policy.listens)
        yield f"create {guest.name} {seconds * SECOND_NS} {busy} {tells} {text} {begins}"
        guest.ends_ns = self.now_ns + (seconds + 1) * SECOND_NS
        guest.is_paused = False
        guest.left = set()

    def _create_one(self) -> Iterator[str]:
        # Behind its end a guest has some time to go.
        gone = [guest for guest in self.guests if guest.ends_ns + 2 * SECOND_NS < self.now_ns]
        gone = [guest for guest in gone if not guest.is_paused]
        if gone:
            yield from self._create(self.chance.choice(gone))

    def _destroy(self) -> Iterator[str]:
        if guest := self._any():
            yield f"destroy {guest.name}"
            guest.ends_ns, guest.is_paused = -3 * SECOND_NS, False

    def _pause(self) -> Iterator[str]:
        guests = [guest for guest in self.guests if guest.is_paused] + self._there()
        if not guests:
            return
        guest = self.chance.choice(guests)
        # Most of the time most of them run.
        if not guest.is_paused and not self._one_in(3):
            return
        guest.is_paused = not guest.is_paused
        yield f"{'pause' if guest.is_paused else 'resume'} {guest.name}"
        if guest.ends_ns >= 0:
            guest.ends_ns = max(guest.ends_ns, self.now_ns)

    def _burst(self) -> Iterator[str]:
        guest = self._any()
        if guest and not guest.is_paused:
            yield f"burst {guest.name} {self.chance.randint(2, 30)}"

    def _set_domain(self) -> Iterator[str]:
        if guest := self._any():
            given = self._parameters(guest)
            guest.parameters = [given] * (guest.vcpus + 1)
            yield f"set {guest.name} {_pairs(given)}"

    def _set_vcpu(self) -> Iterator[str]:
        guest = self._any()
        if not guest or not self.policy.uses("budget"):
            return
        vcpu = self.chance.randrange(guest.vcpus)
        if vcpu in guest.left:
            return
        guest.parameters = list(guest.parameters)
        guest.parameters[vcpu] = self._parameters(guest)
        yield f"set {guest.name}/{vcpu} {_pairs(guest.parameters[vcpu])}"

    def _refuse(self) -> Iterator[str]:
        if guest := self._any():
            wrong = {
                "weight": ["weight=0", "weight=65536"],
                "budget": ["budget=0", "budget=-1", "period=0", "budget=9 period=8"],
            }
            kinds = [
                each for name, words in wrong.items() if self.policy.uses(name) for each in words
            ]
            yield f"refuse {guest.name} {self.chance.choice(kinds)}"

    def _pin(self) -> Iterator[str]:
        if guest := self._any():
            cpus = [cpu for cpu in range(CPUS) if self._one_in(2)] or list(range(CPUS))
            vcpu = self.chance.randrange(guest.vcpus)
            yield f"pin {guest.name} {vcpu} {','.join(map(str, cpus))}"

    def _leave_or_join(self) -> Iterator[str]:
        guest = self._any()
        if not guest or guest.is_paused:
            return
        vcpu = self.chance.randrange(guest.vcpus)
        if vcpu in guest.left:
            guest.left.remove(vcpu)
            guest.parameters = list(guest.parameters)
            guest.parameters[vcpu] = guest.parameters[-1]
            yield f"join {guest.name} {vcpu} {self.chance.randrange(CPUS)}"
        elif self._one_in(2):
            guest.left.add(vcpu)
            yield f"leave {guest.name} {vcpu}"

    def _hog(self) -> Iterator[str]:
        name = self.chance.choice(list(self.hogs))
        self.hogs[name] = not self.hogs[name]
        yield f"hog {name} {self.chance.randint(-5, 10)}" if self.hogs[name] else f"unhog {name}"


def _pairs(parameters: Mapping[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in parameters.items())
