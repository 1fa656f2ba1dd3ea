"""The change to a host with calls that lets it carry most streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.design import halving
from laxity.design.answered import answered
from laxity.design.changes import changes_of
from laxity.design.halving import Change
from laxity.design.ladders import OpenValues, open_values
from laxity.errors import InputError, core_errors
from laxity.resolved import calls_of, task_paths
from laxity.results.design import Design, Remedy
from laxity.telephony.capacity import STREAMS_MAX
from laxity.text import percent

if TYPE_CHECKING:
    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.workers.workers import Workers

NAMED_MAX = 20
"""Other changes that are named, those that carry most first."""


def has_calls(host: Resolved) -> bool:
    """Whether the host file, which may leave values open, has calls."""
    return host.gives("calls")


def checked(host: Resolved) -> tuple[OpenValues, Resolved]:
    """Returns what the file of a host with calls leaves open, and the host with first values.

    Raises InputError and HostError as `find_remedy` does.
    """
    opened = open_values(host)
    first = host.changed(opened.first)
    calls = first.host["calls"]
    if calls is None or not calls["streams"]:
        raise InputError(
            "changes to a host are told apart by the streams that they carry, and it has none that "
            "are always there",
            "write calls.streams, or ask `laxity capacity` without --remedies",
        )
    if any(task_paths(first.host)):
        # It refuses tasks that are drawn.
        with core_errors():
            first.file.placeholders(first.overrides)
    return opened, first


def find_remedy(
    host: Resolved,
    looking: Say,
    workers: Workers | None = None,
    *,
    missed_max: float | None = None,
    any_phase: bool = False,
) -> Design:
    """Finds which change to the host lets it carry most streams, and checks it with other seeds.

    No task misses more than the part `missed_max` of its deadlines; any, if that is None. Tasks
    begin at any time with `any_phase`, and else stay in step with their domain's budget. Where the
    file leaves values open, the changes are other values for these, and nothing else is changed.
    Raises InputError if the host has no streams that are always there, if nothing is known that
    could be tried for an open value, or if a limit of misses is for no task.
    """
    opened, first = checked(host)
    of_host = first.host
    own = calls_of(of_host)["streams"]
    has_tasks = any(task_paths(of_host))
    if missed_max is not None and not has_tasks:
        raise InputError(
            "a limit of missed deadlines is for tasks, and the host has none",
            "leave --missed out; calls have their limits in [calls.acceptance]",
        )
    if any_phase and not has_tasks:
        raise InputError(
            "any phase is for tasks, and the host has none: calls begin when they begin",
            "leave --any-phase out",
        )
    if opened.ladders:
        changes = list(opened.changes)
    else:
        all_changes = changes_of(of_host, has_cards=host.file.gives("nic"))
        changes = [Change("as it is", ()), *all_changes]
    load = halving.Load(
        own,
        STREAMS_MAX,
        overrides=lambda streams: [f"calls.streams={streams}"],
        said=lambda streams: f"{streams:,} streams",
    )
    trials = halving.Trials(first, load, missed_max or 0.0, any_phase, looking, workers)
    found = halving.search(trials, changes)
    overrides = opened.with_change(found.winner)
    holds = found.most > 0
    too_few = (
        [f"The file has {own:,} streams, and no change that was tried carries so many."]
        if 0 < found.most < own
        else []
    )
    others = [
        f"{change.what}: {streams:,} streams in a short run." for change, streams in found.others
    ]
    return Design(
        verdict="holds" if holds else "unknown",
        policy=host.changed(overrides).host["policy"],
        host=answered(host, [*overrides, f"calls.streams={found.most}"]).text.decode()
        if holds
        else None,
        cpu_share=None,
        load=0.0,
        guaranteed=0,
        reasons=(_chosen(trials, found, has_tasks=has_tasks), *too_few, *others[:NAMED_MAX]),
        missed_max=trials.missed_max if has_tasks else None,
        remedies=(
            Remedy(found.winner.what, found.most),
            *(Remedy(change.what, streams) for change, streams in found.others),
        ),
    )


def _chosen(trials: halving.Trials, found: halving.Found, *, has_tasks: bool) -> str:
    """What carries most, in whole sentences."""
    said = (
        f"{found.winner.what}: carries {found.most:,} streams, with {halving.SEEDS} seeds that it "
        "was not chosen by."
        if found.most
        else "No change that was tried carries a single stream."
    )
    if not found.most:
        broken = trials.broken_by(found.winner, 1)
        if broken:
            said += f" With one, {found.winner.what}: {' and '.join(broken)}."
    elif has_tasks:
        limit = f"more than {percent(trials.missed_max)} of its" if trials.missed_max else "any"
        said += f" No task missed {limit} deadlines."
    if not halving.can_be_heard():
        said += " What voice sounds like was not judged, which needs the extra `voice`."
    return said
