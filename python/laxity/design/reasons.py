"""Why a design is as it is, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.text import down, listed, number, percent, time

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laxity.results.design import Binding, Design

NAMED_MAX = 12
"""Domains and tasks that are named one by one; those with the greatest budgets come first."""


def of_design(design: Design, *, any_phase: bool) -> Iterator[str]:
    """What the budgets pay for, what limits them, what other choices cost, what may grow."""
    share = design.cpu_share or 0
    yield (
        f"Budgets reserve {percent(share)} of CPU time, of which the tasks need "
        f"{percent(design.load)}. The rest pays for scheduling and waiting, or was given."
    )
    if design.room_factor is not None:
        yield f"Every cost may be {down(design.room_factor)} times what it is."
    if len(design.front) > 1:
        points = [
            f"{percent(point.cpu_share)} for {down(point.room_factor)} times"
            for point in design.front
        ]
        yield f"Room for every cost to grow reserves more: {', '.join(points)}."
    by_share = {domain.name: domain.share for domain in design.domains}
    bindings = sorted(design.bindings, key=lambda binding: -by_share[binding.domain])
    for binding in bindings[:NAMED_MAX]:
        yield _binding(binding)
    rooms = [room for room in design.rooms if room.most_ns > room.cost_ns]
    for room in sorted(rooms, key=lambda room: room.cost_ns / room.most_ns)[:NAMED_MAX]:
        yield (
            f"{room.task} of {room.domain} may take {_exact(room.most_ns)} in place of "
            f"{_exact(room.cost_ns)} with the budgets as they are."
        )
    for other in design.alternatives:
        found = (
            "nothing was found that holds"
            if other.cpu_share is None
            else _beside(other.cpu_share, share)
        )
        if other.choice == "any-phase":
            yield f"Without regard to offsets (--any-phase), {found}."
        else:
            yield f"Under {other.choice}, {found}."
    if not any_phase:
        yield (
            "The offsets of the file count: a task that is released when its budget is replenished "
            "does not wait for it."
        )


def _binding(binding: Binding) -> str:
    limits = " and ".join(f"its {limit}" for limit in binding.limits)
    what = f"; {limits} {'binds' if len(binding.limits) == 1 else 'bind'}" if limits else ""
    return (
        f"{binding.domain}: with {_exact(binding.too_little_ns)} the deadline of {binding.task}, "
        f"{_exact(binding.deadline_ns)}, is not guaranteed{what}."
    )


def _exact(ns: int) -> str:
    return time(ns, digits=6)


def _beside(share: float, chosen: float) -> str:
    return f"budgets reserve {percent(share)}, {100 * (share - chosen):+.1f} points"


def of_misses(
    design: Design,
    tighter: Iterable[tuple[str, int, str, float]],
    guaranteed_share: float | None,
    seeds: int,
) -> Iterator[str]:
    """What the budgets are, beside those of a guarantee, and what limits them.

    `tighter` has lower budgets that break the limit: domain, budget in ns, task, and the part of
    its jobs that missed. `guaranteed_share` is the part of CPU time that budgets reserve where all
    deadlines are guaranteed; None if analysis guarantees nothing. `seeds` made the choice.
    """
    share = design.cpu_share or 0
    yield (
        f"Budgets reserve {percent(share)} of CPU time, of which the tasks need "
        f"{percent(design.load)}."
    )
    if guaranteed_share is None:
        yield "No values were found with which analysis guarantees every deadline."
    else:
        yield f"For a guarantee of every deadline {_beside(guaranteed_share, share)}."
    for domain, budget_ns, task, miss_ratio in tighter:
        yield (
            f"{domain}: with {_exact(budget_ns)} {task} misses {percent(miss_ratio)} of its "
            f"deadlines in one of {seeds} runs."
        )


def of_choices(design: Design, seeds: int) -> Iterator[str]:
    """What was chosen for a policy that goes by weights, and what other choices carry."""
    chosen, *others = design.choices
    if chosen.room_factor:
        yield (
            f"{chosen.what}: every cost may be {down(chosen.room_factor)} times what it is, with "
            f"{seeds} seeds and phases that it was not chosen by."
        )
    for other in others[:NAMED_MAX]:
        yield f"{other.what}: {down(other.room_factor)} times, in short runs."


def of_broken(broken: Iterable[str]) -> Iterator[str]:
    """The limits that the best choice does not keep to."""
    for limit in broken:
        yield f"With the costs of the file and the best of these, {limit}."


def of_too_many_misses(design: Design, cpus: int) -> Iterator[str]:
    """Why no values keep to the limit of misses."""
    limit = percent(design.missed_max or 0)
    if design.conflict:
        there = f"there {'is' if cpus == 1 else 'are'} {cpus}"
        if design.missed_max:
            least = percent(design.load * (1 - design.missed_max))
            there += f": {least} even if {limit} of the deadlines is missed"
        yield (
            f"{', '.join(f'{demand.domain}/{demand.task}' for demand in design.conflict)} need "
            f"{percent(design.load)} of one CPU, and {there}."
        )
        if len(design.conflict) > 1:
            yield "Without any one of them there is enough."
    else:
        yield (
            f"No values were found with which at most {limit} of each task's deadlines is missed, "
            "and it is not proved that there are none."
        )


def of_nothing(last: Design | None, tried: int, failed_on: Sequence[int]) -> Iterator[str]:
    """What is known where no placement was found: `last` has the conflict of the last that failed.

    `tried` placements were analysed, and the last of them failed on some CPUs.
    """
    were = "was" if tried == 1 else "were"
    yield (
        "No CPUs for the domains were found with which every deadline is guaranteed, and it is not "
        f"proved that there are none: {number(tried, 'placement')} {were} tried."
    )
    if last is not None:
        cpus = f"CPU{'s' if len(failed_on) > 1 else ''} {listed([*map(str, failed_on)], 'and')}"
        yield f"{_cannot_hold(last)} on {cpus} of the last."


def of_conflict(design: Design, cpus: int, *, is_placed: bool = False) -> Iterator[str]:
    """The demands in conflict, and the smallest relief; `cpus` is how many the host has.

    With `is_placed`, the conflict is one on all CPUs that the domains may have.
    """
    anywhere = ", whichever CPUs their domains have" if is_placed else ""
    there_are = f", and there are {cpus}" if is_placed else ""
    yield (
        f"{_cannot_hold(design)}{anywhere}: they need {percent(design.load)} of one CPU before any "
        f"cost of scheduling{there_are}."
    )
    if len(design.conflict) + len(design.given) > 1:
        yield (
            "Without any one of them the others hold."
            if design.is_minimal
            else "Whether fewer of them hold is not known: the search for them came to its end."
        )
    if not design.conflict:
        return
    # Domains of other CPUs may be in conflict, too.
    whole = "Everything holds" if cpus == 1 or is_placed else "What is on their CPUs holds"
    for relief in design.reliefs:
        under = f" under {relief.policy}" if len(design.policies) > 1 else ""
        yield (
            f"{whole}{under} if {relief.task} of {relief.domain} costs {_exact(relief.cost_ns)}, "
            f"{percent(relief.part)} less."
        )
    if not design.reliefs:
        yield (
            "No lower cost of one of these tasks alone was found that is enough for "
            f"{'the whole host' if cpus == 1 or is_placed else 'all that is on their CPUs'}."
        )


def _cannot_hold(design: Design) -> str:
    """The demands in conflict, and that they are."""
    tasks, given = len(design.conflict), len(design.given)
    named = ", ".join(f"{demand.domain}/{demand.task}" for demand in design.conflict)
    if given:
        named = f"{named} beside the" if tasks else "The"
        named += f" budget{'s' if given > 1 else ''} of {listed(design.given, 'and')}"
    said = "cannot hold" if tasks + given == 1 else f"cannot hold together ({_count(design)})"
    if len(design.policies) > 1:
        said += f" under any of {listed(design.policies, 'and')}"
    if design.room_factor is not None:
        said += f" if every cost is {design.room_factor:.3g} times what it is"
    return f"{named} {said}"


def _count(design: Design) -> str:
    counts = ((len(design.conflict), "task"), (len(design.given), "given budget"))
    return listed([number(count, word) for count, word in counts if count], "and")
