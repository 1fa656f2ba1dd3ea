"""Findings: suspicions that runs confirm, with what they cost."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laxity._core import TIME_NS_MAX
from laxity.doctor.rules import RULES
from laxity.errors import HostError, InputError
from laxity.results.records import encoded
from laxity.substrates.sim import Sim
from laxity.substrates.sim.estimate import Resources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity.host import Host
    from laxity.progress import Progress
    from laxity.resolved import Resolved
    from laxity.resolved_schema import ResolvedHost
    from laxity.results.run import Run

SAVED = 0.5
"""A remedy saves at least this part of what it is for; less may be chance, or another cause."""


@dataclass(frozen=True)
class Cost:
    """What a run of the simulator has without the remedy and with it."""

    measure: str
    """`missed deadlines`, `lost packets`, or `delay of voice, ns` (of 99.9 % of the packets)."""
    now: int
    with_remedy: int


@dataclass(frozen=True)
class Finding:
    """Something that goes wrong on a host."""

    rule: str
    """The rule's name in `rules.RULES`."""
    where: str
    """The key of the host file that it is about."""
    what: str
    """A sentence."""
    cost: Cost
    remedy: tuple[str, ...]
    """Changes of the host file, each as `--set` takes it; made together."""
    reference: str


@dataclass(frozen=True)
class Diagnosis:
    """What goes wrong on a host."""

    findings: tuple[Finding, ...]
    suspected: int
    """Suspicions that were run; those that no run confirmed are no findings."""
    rules: int
    """Rules that looked at the host."""

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity doctor --json` prints."""
        return encoded(self)


def diagnose(
    host: Host, overrides: Iterable[str] = (), progress: Progress | None = None
) -> Diagnosis:
    """Looks at a host by every rule, and runs it with and without each remedy.

    Raises InputError before anything runs if that is estimated to take more than an hour.
    """
    settings = list(overrides)
    resolved = host.resolved(settings)
    # Helpers have no keys of domains that a remedy could change.
    domains = [domain for domain in resolved["domains"] if domain["helper_of"] is None]
    looked_at: ResolvedHost = {**resolved, "domains": domains}
    suspected = [(name, each) for name, rule in RULES.items() for each in rule(looked_at)]
    findings: list[Finding] = []
    if suspected:
        # With a remedy, the host has about as many events as without.
        _refuse_beyond_an_hour(host.resolve(settings), len(suspected) + 1)
    base = host.run(set=settings) if suspected else None
    for done, (name, suspicion) in enumerate(suspected):
        if progress is not None:
            progress(done, len(suspected))
        try:
            changed = host.run(set=[*settings, *suspicion.remedy])
        except (HostError, InputError):
            # The host file does not allow the remedy, as it has values that contradict it.
            continue
        cost = None if base is None else _cost(base, changed)
        if cost is not None:
            findings.append(
                Finding(
                    name,
                    suspicion.where,
                    suspicion.what,
                    cost,
                    suspicion.remedy,
                    suspicion.reference,
                )
            )
    return Diagnosis(tuple(findings), len(suspected), len(RULES))


def _refuse_beyond_an_hour(host: Resolved, runs: int) -> None:
    estimate, resources = Sim().estimate([host]), Resources.free()
    takes = replace(estimate, runs=1, cpu_ns=estimate.cpu_ns * runs)
    if takes.time_ns(resources) > TIME_NS_MAX:
        raise InputError(
            f"{runs} runs, with and without each remedy, take {takes.say(resources)}",
            "take a shorter --duration",
        )


def _cost(base: Run, changed: Run) -> Cost | None:
    """What the remedy saves; None if it saves too little, or costs something else.

    The first measure counts by which the host is not perfect without the remedy. A remedy with
    which it misses more deadlines, or loses more packets, is none.
    """
    costs = [Cost("missed deadlines", base.missed, changed.missed)]
    if base.telephony is not None and changed.telephony is not None:
        before, after = base.telephony.voice, changed.telephony.voice
        costs.append(Cost("lost packets", before.lost, after.lost))
        if any(cost.with_remedy > cost.now for cost in costs):
            return None
        costs.append(
            Cost("delay of voice, ns", before.delay_ns.p999 or 0, after.delay_ns.p999 or 0)
        )
    return next((cost for cost in costs if cost.now and _saves(cost)), None)


def _saves(cost: Cost) -> bool:
    return cost.with_remedy <= (1 - SAVED) * cost.now
