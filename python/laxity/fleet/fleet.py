"""Fleet files: load one, then place its guests."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import _core, files
from laxity.design.placement import Outcome
from laxity.errors import InputError, core_errors
from laxity.fleet import bounds, calls, conflict, exact, greedy, neighbourhood
from laxity.fleet.cuts import Cuts
from laxity.fleet.held import Holding
from laxity.fleet.moves import least_moves, moves_of
from laxity.fleet.problem import FleetFile, Placement, Problem
from laxity.progress import silent
from laxity.resolved import overrides_of
from laxity.results.fleet import Conflict, FleetDesign, PlacedHost, TooMuch
from laxity.results.records import decoded
from laxity.text import listed, number, percent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laxity.progress import Say
    from laxity.workers.workers import Workers

PARTS_MAX = 8
"""Parts of a fleet that is too large for the solver which it looks at, at most."""

NAMED_MAX = 12
"""Guests without room that are named in words."""

MARGINS = (1.0, 1.1, 1.25)
"""Budgets of guests with calls are raised by these factors while simulation refuses hosts."""


class Fleet:
    """A fleet file."""

    def __init__(self, text: bytes, name: str) -> None:
        """Takes the text; what it says is checked when it is used."""
        self.text = text
        self.name = name

    @classmethod
    def load(cls, path: str | Path) -> Fleet:
        """Reads a fleet file. Raises InputError if it cannot be read."""
        path = Path(path)
        return cls(
            files.read(path, files.HOST_BYTES_MAX, "a fleet file, such as fleet.toml"), str(path)
        )

    @classmethod
    def parse(cls, text: str, name: str = "fleet.toml") -> Fleet:
        """Takes the text of a fleet file; `name` is what messages call it."""
        return cls(text.encode(), name)

    def __repr__(self) -> str:
        """Names the file."""
        return f"<laxity.Fleet {self.name}>"

    def has_calls(self, set: str | Iterable[str] = ()) -> bool:
        """Whether a guest has calls, which are simulated. Raises HostError if the file is wrong."""
        _, file = self._read(overrides_of(set))
        return any(guest.streams for guest in file.guests)

    def design(
        self,
        *,
        set: str | Iterable[str] = (),
        looking: Say = silent,
        workers: Workers | None = None,
    ) -> FleetDesign:
        """Places the guests so that every host holds, also after the failure of any one host.

        `set` has overrides, `looking` is told what is going on, and `workers` simulate calls in
        place of this process. Raises HostError if the file or an override is wrong, or if no
        analysis knows what a guest needs.
        """
        overrides = overrides_of(set)
        core, file = self._read(overrides)
        with core_errors():
            core.refuse(sorted({host.like for host in file.hosts}))
        needs = calls.needs(core, file, looking, workers)
        for guest, need in needs.items():
            if need is None:
                return _silent(file.guests[guest].name)
        for factor in MARGINS:
            found_by_simulation = [
                override
                for guest, need in needs.items()
                if need is not None
                for override in need.overrides(file.guests[guest].name, factor)
            ]
            if found_by_simulation:
                core, file = self._read([*overrides, *found_by_simulation])
            looking("looking at each guest")
            design = _Design(core, file, looking, workers)
            found = replace(design.found(), too_much=design.too_much())
            found = _without_proof(found, file, needs, refused=design.refused > 0)
            if found.verdict != "unknown" or not (needs and design.refused):
                break
        return found

    def _read(self, overrides: list[str]) -> tuple[_core.FleetFile, FleetFile]:
        with core_errors():
            core = _core.FleetFile(self.text, self.name, overrides)
            return core, decoded(json.loads(core.fleet()), FleetFile)


def _silent(guest: str) -> FleetDesign:
    """A guest whose calls are more than whole CPUs carry."""
    demand = Conflict("guest", (guest,), f"{guest} runs")
    said = f"1 demand cannot hold. A CPU for each of its VCPUs does not carry {guest}'s streams."
    return FleetDesign("impossible", reasons=(said,), conflict=(demand,), is_minimal=True)


def _without_proof(
    found: FleetDesign, file: FleetFile, searched: Iterable[int], *, refused: bool
) -> FleetDesign:
    """What rests on a search or a simulation that came to an end is no proof of a conflict.

    `searched` are the guests whose budgets were found by simulation; with `refused`, hosts were
    refused.
    """
    named = {guest for demand in found.conflict for guest in demand.guests}
    by_simulation = sorted(named.intersection(file.guests[guest].name for guest in searched))
    judged = sorted(
        guest.name for guest in file.guests if refused and guest.streams and guest.name in named
    )
    unproved = [too for too in found.too_much if not too.is_proved and named.issuperset(too.guests)]
    if found.verdict != "impossible" or not (by_simulation or judged or unproved):
        return found
    demands = "; ".join(demand.said for demand in found.conflict)
    if by_simulation:
        why = (
            f"The budget of {', '.join(by_simulation)} is what calls need beside the worst "
            "neighbours; less may be enough beside others, so this proves nothing. Give budgets to "
            "ask whether these hold."
        )
    elif judged:
        why = (
            f"Simulation refused hosts with the calls of {', '.join(judged)}; with other values "
            "these might hold, so this proves nothing."
        )
    else:
        why = (
            "Not all CPUs were tried that guests may have on a host, so this proves nothing: "
            f"{unproved[0].hosts[0]} might hold with {listed(unproved[0].guests, 'and')}."
        )
    said = f"No placement was found in which all of this holds: {demands}. {why}"
    return replace(found, verdict="unknown", reasons=(said,), is_minimal=False)


class _Design:
    """One question of a fleet."""

    def __init__(
        self, core: _core.FleetFile, file: FleetFile, looking: Say, workers: Workers | None
    ) -> None:
        self._core, self._file, self._looking = core, file, looking
        self._holding = Holding(core, file, workers)
        self._cuts = Cuts(self._holding)
        self._names = [guest.name for guest in file.guests]

    @property
    def refused(self) -> int:
        """The hosts that hold by analysis and did not in simulation."""
        return self._holding.judge.refused

    def too_much(self) -> tuple[TooMuch, ...]:
        """Guests that cannot share a host of some sort."""
        return tuple(
            TooMuch(
                tuple(host.name for host in self._file.hosts if host.like == like),
                tuple(self._names[guest] for guest in sorted(guests)),
                self._holding.is_proved(like, guests),
            )
            for like, guests in self._cuts
        )

    def found(self) -> FleetDesign:
        problem = Problem.of(self._file)
        begun = greedy.place(problem, self._holding, self._cuts, self._looking)
        placement = None if problem.missing(begun) else begun
        least = least_moves(problem, self._cuts)
        small = exact.fits(problem)
        if small and (placement is None or len(_moved(problem, placement)) > least):
            outcome = exact.place(problem, self._holding, self._cuts, self._looking, near=placement)
            if outcome is Outcome.IMPOSSIBLE and placement is None:
                return self._impossible(problem)
            if isinstance(outcome, Placement):
                placement, least = outcome, len(_moved(problem, outcome))
        if placement is None:
            proved = self._proved(problem)
            if proved is not None:
                return proved
            placement = neighbourhood.place(
                problem, self._holding, self._cuts, self._looking, begun
            )
        if placement is None:
            left_out = tuple(self._names[guest] for guest in problem.missing(begun))
            said = tuple(self._unknown(problem, left_out))
            return FleetDesign(verdict="unknown", reasons=said, left_out=left_out)
        return self._placed(problem, placement, least)

    def _proved(self, problem: Problem) -> FleetDesign | None:
        """The demands of some guests that cannot hold together, where all are too many to solve."""
        self._looking("adding up what guests need")
        over = bounds.overfull(problem, self._holding)
        if over is not None:
            if exact.fits(over.problem) and self._is_impossible(over.problem):
                return self._impossible(over.problem)
            return self._conflict(over.problem, over.said)
        solvable = (part for part in bounds.parts(problem) if exact.fits(part))
        for part in islice(solvable, PARTS_MAX):
            self._looking(f"{len(part.guests)} guests that may only be on certain hosts")
            if self._is_impossible(part):
                return self._impossible(part)
        return None

    def _placed(self, problem: Problem, placement: Placement, least: int) -> FleetDesign:
        self._looking("checking the host files")
        loads: list[dict[int | None, frozenset[int]]] = [{} for _ in self._file.hosts]
        for (host, failed), guests in placement.loads().items():
            loads[host][failed] = guests
        hosts = tuple(
            self._host(place, of_host, problem, placement) for place, of_host in enumerate(loads)
        )
        moves = tuple(moves_of(problem, placement))
        found = FleetDesign("holds", hosts, moves, least)
        return replace(found, reasons=tuple(self._reasons(problem, found)))

    def _host(
        self,
        number: int,
        loads: dict[int | None, frozenset[int]],
        problem: Problem,
        placement: Placement,
    ) -> PlacedHost:
        of_host = self._file.hosts[number]
        own = loads.pop(None, frozenset())
        text, guaranteed = self._written(number, own) if own else (None, 0)
        for guests in loads.values():
            self._written(number, guests)
        share = self._share(number, own)
        promised = [sum(map(problem.minimum, guests)) for guests in (own, *loads.values())]
        return PlacedHost(
            name=of_host.name,
            guests=tuple(self._names[guest] for guest in sorted(own)),
            standbys=tuple(
                self._names[guest]
                for guest, standby in enumerate(placement.standbys)
                if standby == number
            ),
            cpu_share=share,
            cpu_share_most=max([share, *(self._share(number, g) for g in loads.values())]),
            failures=len(loads),
            guaranteed=guaranteed,
            minimum_bit_s=max(promised),
            link_bit_s=of_host.link_bit_s,
            host=text,
        )

    def _share(self, host: int, guests: frozenset[int]) -> float:
        held = self._holding.held(host, guests) if guests else None
        return held.cpu_share if held else 0.0

    def _written(self, host: int, guests: frozenset[int]) -> tuple[str, int]:
        """The host file with its values, and the deadlines that `laxity check` guarantees there."""
        held = self._holding.held(host, guests)
        assert held is not None  # noqa: S101, for the types: only what holds is placed.
        name = f"{self._file.hosts[host].name}.toml"
        with core_errors():
            text = self._core.host(host, sorted(guests))
            text = _core.HostFile(text.encode(), name).with_values(list(held.values))
            check = json.loads(_core.HostFile(text.encode(), name).check([]))
        tasks = [task for domain in check["domains"] for task in domain["tasks"]]
        late = [task["name"] for task in tasks if not task["guaranteed"]]
        if late:
            raise InputError(
                f"the values that were found do not hold once written: {late[0]} of {name} is not "
                "guaranteed",
                "give guests with several VCPUs an affinity, and priorities to all or to none",
            )
        judge = self._holding.judge
        callers = judge.callers(guests)
        if callers:
            text = judge.text(host, guests, callers[0], held.values)
        return text, len(tasks)

    def _reasons(self, problem: Problem, found: FleetDesign) -> Iterator[str]:
        fullest = max(found.hosts, key=lambda host: host.cpu_share_most)
        yield (
            f"{fullest.name} has least room: budgets reserve {percent(fullest.cpu_share_most)} of "
            f"its CPU time{' after the worst failure' if fullest.failures else ''}."
        )
        if found.moved:
            known = found.moves_least == found.moved
            with_calls = any(guest.streams for guest in self._file.guests)
            yield (
                f"{'No' if known else 'It is not proved that no'} placement has fewer moves"
                + (" as far as simulation tells what calls need" if known and with_calls else "")
                + ("." if known else f"; {found.moves_least} are needed at least.")
            )
        if any(map(problem.protected, problem.guests)):
            yield (
                "After a failure a host has the guests whose standbys it has, with budgets and "
                "CPUs of all its guests found anew."
            )
        if any(guest.streams for guest in self._file.guests):
            yield (
                "The calls of each guest are accepted in simulation, and no deadline is missed "
                "beside them, while all other guests with calls use all of their budgets. A host "
                "file has the calls of the guest with most streams."
            )

    def _unknown(self, problem: Problem, left_out: Sequence[str]) -> Iterator[str]:
        need = sum(
            min((self._holding.share(host, guest) or 0.0) for host in problem.allowed(guest))
            for guest in problem.guests
        )
        have = sum(host.cpus for host in self._file.hosts)
        named = [*left_out[:NAMED_MAX]]
        if len(left_out) > len(named):
            named.append(f"{len(left_out) - len(named):,} more")
        if named:
            yield f"The first placement had no room for {listed(named, 'and')}."
        yield (
            "No placement was found, and it is not proved that there is none. The guests need at "
            f"least {need:.1f} CPUs by themselves, and the hosts have {have}. A little more room "
            "would help: one more host, or guests that need less, are protected by none, or may be "
            "on more hosts."
        )

    def _impossible(self, problem: Problem) -> FleetDesign:
        left, is_known = conflict.minimal(problem, self._is_impossible)
        others = "Without any one of them the others hold." if len(left.asked) > 1 else ""
        if not is_known:
            others = "Whether fewer of them hold is not known: the search for them came to its end."
        return self._conflict(left, others, is_minimal=is_known)

    def _is_impossible(self, fewer: Problem) -> bool | None:
        """Whether the solver proves that there is no placement; None if it finds none either."""
        if not fewer.missing(greedy.place(fewer, self._holding, self._cuts, silent)):
            return False
        self._looking(f"{len(fewer.asked)} demands that may be in conflict")
        outcome = exact.place(fewer, self._holding, self._cuts, silent, fewest=False)
        return None if outcome is Outcome.UNKNOWN else outcome is Outcome.IMPOSSIBLE

    def _conflict(self, left: Problem, said: str, *, is_minimal: bool = False) -> FleetDesign:
        """Demands that cannot hold together, and what is to be said of them."""
        demands = sorted(left.asked)
        together = "cannot hold" if len(demands) == 1 else "cannot hold together"
        return FleetDesign(
            verdict="impossible",
            reasons=(f"{number(len(demands), 'demand')} {together}. {said}".rstrip(),),
            conflict=tuple(
                Conflict(
                    demand.what,
                    tuple(self._names[guest] for guest in demand.guests),
                    conflict.said(demand, self._names),
                )
                for demand in demands
            ),
            is_minimal=is_minimal,
        )


def _moved(problem: Problem, placement: Placement) -> list[object]:
    return [move for move in moves_of(problem, placement) if move.here is not None]
