"""Figure 6: the deadline miss ratio against the load, under three patterns of shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from laxity_reproduce import statistics
from laxity_reproduce.published import percentages
from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.rt_xen.figure_5 import own_work
from laxity_reproduce.rt_xen.setup import (
    EVENT_DRIVEN,
    FACTS,
    PATTERNS,
    POLICIES,
    SERVERS,
    central,
    interval_text,
    largest_load,
    under,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from laxity_reproduce.lab import Lab

    Ratios = NDArray[np.float64]
    """Miss ratios in percent of all domains together: a row a task set, a column a load."""

LIKELY = 0.05
"""What the paper saw must have had at least this probability."""

DIAGNOSTIC_SEEDS = 20
"""Task sets of runs that only explain a difference."""

# Replenishments of the domains fall together again and again in the host files. With periods that
# differ by fractions of a percent they drift past each other many times in a run.
DRIFTING = [
    EVENT_DRIVEN,
    "domain.dom2.period=40.02 ms",
    "domain.dom3.period=40.06 ms",
    "domain.dom4.period=40.1 ms",
]

FREE = ["host.costs={}"]

METHOD = (
    "Host files decreasing.toml, even.toml and increasing.toml run for 5 minutes each, with the"
    " costs of Table 1's profile. The servers tick every 1 ms, credit has a time slice of 1 ms,"
    " and SEDF is event-driven. Each policy gets the same task sets, scaled to each load. The"
    " miss ratio is that of all domains' jobs. The capacity is the largest load at which the"
    " mean over task sets is below 5 %, with its 95 % bootstrap interval over task sets; it is"
    " reproduced if the published one is within one step of the loads (`one set a load` is the"
    " central 95 % if one task set is drawn for each load, as in the paper). A claim that one"
    " policy is worse than another is reproduced if the mean difference on the same task sets,"
    " with its whole 95 % bootstrap interval, has that sign at a load of 100 %. A claim of no"
    " misses is reproduced if the paper's runs, one task set for each load and policy, would all"
    " be without a miss with a probability of 5 % or more. Runs that only explain a difference"
    f" (other settings, more work, no costs, drifting phases) have {DIAGNOSTIC_SEEDS} task sets"
    " and last 2 minutes at most."
)


@dataclass(frozen=True)
class Curves:
    """What was run."""

    loads: list[int]
    """Percent, ascending."""
    ratios: dict[tuple[str, str], Ratios]
    """By pattern and policy."""

    def overload(self, pattern: str, policy: str) -> NDArray[np.float64]:
        """For each task set, the ratio at the largest load."""
        return self.ratios[pattern, policy][:, -1]

    @property
    def step(self) -> int:
        """Between loads."""
        return self.loads[1] - self.loads[0]


def significant_percent() -> float:
    """The miss ratio that ends a scheduler's capacity, from the paper's definition."""
    return percentages(FACTS["figure_6"]["capacity_definition"])[0]


def capacity(loads: list[int], means: NDArray[np.float64]) -> float:
    """The largest load with a mean miss ratio below the significant one; 0 if there is none."""
    below = [load for load, mean in zip(loads, means, strict=True) if mean < significant_percent()]
    return float(max(below, default=0))


def capacity_interval(loads: list[int], ratios: Ratios) -> statistics.Interval:
    """The interval of the capacity over task sets: percentile bootstrap."""
    random = np.random.default_rng(statistics.RESAMPLING_SEED)
    count = len(ratios)
    found = [
        capacity(loads, ratios[random.integers(0, count, count)].mean(axis=0))
        for _ in range(statistics.RESAMPLES)
    ]
    low, high = np.quantile(found, (0.025, 0.975), method="nearest")
    return statistics.Interval(float(low), float(high))


def worse(first: NDArray[np.float64], second: NDArray[np.float64]) -> int:
    """1 if the first policy is worse on the same task sets, -1 if better, 0 if not certain."""
    interval = statistics.of_mean(first - second)
    return int(interval.low > 0) - int(interval.high < 0)


def probability_of_none(ratios: Ratios) -> float:
    """That one task set for each load (column), drawn independently, would show no miss."""
    return float(np.prod((ratios == 0).mean(axis=0)))


def run(lab: Lab) -> Experiment:
    """Runs every pattern, policy, load and task set; checks each claim."""
    range_ = FACTS["table_3"]["load_percent"]
    step = 2 * range_["step"] if lab.quick else range_["step"]
    loads = list(range(range_["from"], range_["to"] + 1, step))
    duration = "30 s" if lab.quick else f"{FACTS['table_3']['run_minutes']} min"
    curves, data = _run_all(lab, loads, duration)
    explanations, measurements = _explain(lab, curves, data)
    rows = [*_none_missed(curves, explanations)]
    for claim in FACTS["figure_6"]["claims"]:
        rows += CLAIMS[claim.split()[0].removesuffix("'s")](claim, curves, explanations)
    return Experiment(
        "figure-6",
        "deadline miss ratio against load",
        METHOD,
        rows,
        [*_capacities(curves), *_overloads(curves), *measurements],
        data,
        draw,
    )


def draw(data: pd.DataFrame) -> Figure:
    """The figure as the paper has it."""
    from laxity.plots import miss_ratios, published  # noqa: PLC0415 - Matplotlib, to draw

    facts = FACTS["figure_6"]
    return miss_ratios.miss_ratio_curves(
        data,
        "load_percent",
        "System load (%)",
        panel="pattern",
        limit=significant_percent() / 100,
        published=[
            *(published.Published(None, load, 0) for load in facts["zero_misses_at_load_percent"]),
            *(
                published.Published(policy, percentages(claim)[0], significant_percent())
                for policy in POLICIES
                for claim in facts["claims"]
                if claim.startswith(policy) and percentages(claim)
            ),
        ],
    )


def _run_all(lab: Lab, loads: list[int], duration: str) -> tuple[Curves, pd.DataFrame]:
    points = [(load, seed) for load in loads for seed in lab.seeds]
    combinations = [(pattern, policy) for pattern in PATTERNS for policy in POLICIES]
    ratios: dict[tuple[str, str], Ratios] = {}
    frames = []
    for number, (pattern, policy) in enumerate(combinations):
        host = lab.host(pattern)
        overrides = [
            [*under(policy), f"draw.load={load} %", f"seed={seed}", f"duration={duration}"]
            for load, seed in points
        ]
        # Equal parts of nine tenths; the rest is for explanations.
        outcomes = lab.runs(host, overrides, share=0.9 / (len(combinations) - 0.9 * number))
        percent = np.array([outcome.miss_percent for outcome in outcomes])
        ratios[pattern, policy] = percent.reshape(len(loads), -1).T
        frames.append(
            pd.DataFrame(
                {
                    "pattern": pattern,
                    "policy": policy,
                    "load_percent": load,
                    "seed": seed,
                    "domain": domain,
                    "jobs": jobs,
                    "missed": missed,
                }
                for (load, seed), outcome in zip(points, outcomes, strict=True)
                for domain, (jobs, missed) in enumerate(
                    zip(outcome.jobs, outcome.missed, strict=True), start=1
                )
            )
        )
    return Curves(loads, ratios), pd.concat(frames, ignore_index=True)


def _none_missed(curves: Curves, explanations: dict[str, str]) -> list[Row]:
    """The paper's first statement: no misses at all at low loads."""
    low, high = FACTS["figure_6"]["zero_misses_at_load_percent"]
    columns = [number for number, load in enumerate(curves.loads) if low <= load <= high]
    rows = []
    for pattern in PATTERNS:
        missed = {policy: curves.ratios[pattern, policy][:, columns] for policy in POLICIES}
        together = np.hstack(list(missed.values()))
        probability = probability_of_none(together)
        holds = probability >= LIKELY
        worst = max(missed, key=lambda policy: float(missed[policy].mean()))
        why = (
            f"some task sets miss; most under {worst}: {missed[worst].mean():.2g} % of jobs, in"
            f" {100 * (missed[worst] > 0).mean():.0f} % of its runs"
            + explanations.get(f"none missed {pattern}", "")
        )
        rows.append(
            Row(
                f"{pattern}: miss ratio at loads of {low} to {high} %",
                0.0,
                float(together.mean()),
                verdict(holds=holds),
                "" if holds else why,
                f"{100 * (together == 0).mean():.1f} % of runs without a miss; all of the paper's:"
                f" probability {probability:.2g}",
            )
        )
    return rows


def _capacity_row(
    claim: str, policy: str, pattern: str, curves: Curves, explanations: dict[str, str]
) -> Row:
    published = percentages(claim)[0]
    ratios = curves.ratios[pattern, policy]
    ours = capacity(curves.loads, ratios.mean(axis=0))
    interval = capacity_interval(curves.loads, ratios)
    holds = interval.holds(published, curves.step)
    return Row(
        f"{policy}, {pattern}: capacity, %",
        published,
        ours,
        verdict(holds=holds),
        "" if holds else explanations[f"capacity {pattern}"],
        f"mean {interval_text(*interval)},"
        f" one set a load {interval_text(*_single(curves, ratios))}",
    )


def _single(curves: Curves, ratios: Ratios) -> statistics.Interval:
    """Where the capacity lies if, as in the paper, one task set is drawn for each load."""
    passing = (ratios < significant_percent()).mean(axis=0)
    return central(largest_load(dict(zip(curves.loads, passing.tolist(), strict=True))))


def _credit(claim: str, curves: Curves, explanations: dict[str, str]) -> list[Row]:
    """Poor capacity: below that of every other policy."""
    rows = []
    for pattern in PATTERNS:
        capacities = {
            policy: capacity(curves.loads, curves.ratios[pattern, policy].mean(axis=0))
            for policy in POLICIES
        }
        others = {policy: value for policy, value in capacities.items() if policy != "credit"}
        holds = capacities["credit"] < min(others.values())
        rows.append(
            Row(
                f"credit, {pattern}: capacity below all others",
                claim,
                f"{capacities['credit']:.0f} %; the others"
                f" {min(others.values()):.0f} to {max(others.values()):.0f} %",
                verdict(holds=holds),
                "" if holds else explanations["credit"],
            )
        )
    return rows


def _sedf(claim: str, curves: Curves, explanations: dict[str, str]) -> list[Row]:
    """A capacity, and worse in overload than most servers in most patterns."""
    rows = [_capacity_row(claim, "sedf", pattern, curves, explanations) for pattern in PATTERNS]
    signs = [
        worse(curves.overload(pattern, "sedf"), curves.overload(pattern, server))
        for pattern in PATTERNS
        for server in SERVERS
    ]
    holds = signs.count(1) > len(signs) / 2
    rows.append(
        Row(
            "sedf: worse in overload than the servers, in most cases",
            claim,
            f"worse in {signs.count(1)}, better in {signs.count(-1)} of {len(signs)} cases",
            verdict(holds=holds),
            "" if holds else explanations["sedf"],
        )
    )
    return rows


def _deferrable(claim: str, curves: Curves, explanations: dict[str, str]) -> list[Row]:
    """A capacity as good as the other servers', and the best of them in overload."""
    rows = [
        _capacity_row(claim, "deferrable", pattern, curves, explanations) for pattern in PATTERNS
    ]
    for pattern in PATTERNS:
        ours = capacity(curves.loads, curves.ratios[pattern, "deferrable"].mean(axis=0))
        others = {
            server: capacity(curves.loads, curves.ratios[pattern, server].mean(axis=0))
            for server in SERVERS
            if server != "deferrable"
        }
        best = max(others, key=lambda server: others[server])
        holds = ours >= others[best] - curves.step
        rows.append(
            Row(
                f"deferrable, {pattern}: capacity as good as the other servers'",
                claim,
                f"{ours:.0f} %; the best other, {best}, {others[best]:.0f} %",
                verdict(holds=holds),
                "" if holds else explanations[f"capacity {pattern}"],
            )
        )
    rows += [
        _extreme(claim, "deferrable", pattern, curves, explanations, best=True)
        for pattern in PATTERNS
    ]
    return rows


def _periodic(claim: str, curves: Curves, explanations: dict[str, str]) -> list[Row]:
    """The worst of the servers in overload."""
    return [
        _extreme(claim, "periodic", pattern, curves, explanations, best=False)
        for pattern in PATTERNS
    ]


def _extreme(
    claim: str,
    policy: str,
    pattern: str,
    curves: Curves,
    explanations: dict[str, str],
    *,
    best: bool,
) -> Row:
    own = curves.overload(pattern, policy)
    signs = {
        server: worse(own, curves.overload(pattern, server))
        for server in SERVERS
        if server != policy
    }
    holds = all(sign == (-1 if best else 1) for sign in signs.values())
    words = {1: "worse", 0: "alike", -1: "better"}
    compared = ", ".join(f"{words[sign]} than {server}" for server, sign in signs.items())
    return Row(
        f"{policy}, {pattern}: {'best' if best else 'worst'} server in overload",
        claim,
        compared.replace("alike than", "as"),
        verdict(holds=holds),
        "" if holds else explanations[f"overload {pattern}"],
        f"{own.mean():.3g} % ({interval_text(*statistics.of_mean(own))})",
    )


CLAIMS: dict[str, Callable[[str, Curves, dict[str, str]], list[Row]]] = {
    "credit": _credit,
    "sedf": _sedf,
    "deferrable": _deferrable,
    "periodic": _periodic,
}
"""What checks a published claim, by the claim's first word."""


def _capacities(curves: Curves) -> list[Measurement]:
    return [
        Measurement(
            f"{pattern}: capacity, %",
            ", ".join(
                f"{policy}"
                f" {capacity(curves.loads, curves.ratios[pattern, policy].mean(axis=0)):.0f}"
                for policy in POLICIES
            ),
        )
        for pattern in PATTERNS
    ]


def _overloads(curves: Curves) -> list[Measurement]:
    found = []
    for pattern in PATTERNS:
        parts = []
        for policy in POLICIES:
            ratios = curves.overload(pattern, policy)
            parts.append(
                f"{policy} {ratios.mean():.3g} ({interval_text(*statistics.of_mean(ratios))})"
            )
        found.append(
            Measurement(f"{pattern}: miss ratio at {curves.loads[-1]} % load, %", ", ".join(parts))
        )
    return found


class _Diagnosis:
    """Runs that say where differences come from, on fewer task sets and for a shorter time."""

    def __init__(self, lab: Lab, curves: Curves) -> None:
        self._lab = lab
        self._curves = curves
        self._seeds = list(lab.seeds)[:DIAGNOSTIC_SEEDS]
        self._duration = "duration=10 s" if lab.quick else "duration=2 min"

    def means(
        self,
        pattern: str,
        policy: str,
        changes: list[str],
        factor: float = 1.0,
        loads: list[int] | None = None,
    ) -> NDArray[np.float64]:
        """The mean ratio at each load, with `changes`, and `factor` times as much work."""
        loads = self._curves.loads if loads is None else loads
        points = [
            [
                *under(policy),
                *changes,
                f"draw.load={factor * load / 100:.4f}",
                f"seed={seed}",
                self._duration,
            ]
            for load in loads
            for seed in self._seeds
        ]
        outcomes = self._lab.runs(self._lab.host(pattern), points, share=0.1)
        percent = np.array([outcome.miss_percent for outcome in outcomes])
        means: NDArray[np.float64] = percent.reshape(len(loads), -1).mean(axis=1)
        return means

    def capacities(
        self, policies: list[str], pattern: str, changes: list[str], factor: float = 1.0
    ) -> str:
        """For people: the policies with their capacities."""
        return ", ".join(
            f"{policy}"
            f" {capacity(self._curves.loads, self.means(pattern, policy, changes, factor)):.0f}"
            for policy in policies
        )


def _explain(
    lab: Lab, curves: Curves, data: pd.DataFrame
) -> tuple[dict[str, str], list[Measurement]]:
    """Why something differs, by what; and the measurements behind it."""
    diagnosis = _Diagnosis(lab, curves)
    explanations: dict[str, str] = {}
    measurements: list[Measurement] = []
    top, before = curves.loads[-1], curves.loads[-2]

    credit = "; ".join(
        f"{pattern}, {name}: {diagnosis.capacities(['credit'], pattern, changes)}"
        for pattern in PATTERNS
        for name, changes in (
            ("time slice 30 ms", ["host.time-slice=30 ms"]),
            ("tick 1 ms", ["host.tick=1 ms"]),
        )
    )
    measurements.append(Measurement("credit with other settings: capacity, %", credit))
    explanations["credit"] = (
        "credit without a cap is work-conserving, and has a high capacity with other settings"
        f" too (in %: {credit}); Table 2 shows that under no work-conserving scheduler can such"
        " task sets miss as often as the paper saw in domain 1"
    )
    explanations["sedf"] = (
        "at full load EDF can serve every domain its share, which fixed priorities cannot:"
        f" {_by_domain(data, top)}"
    )

    factor = own_work()
    for pattern in PATTERNS:
        more = diagnosis.capacities(["deferrable", "sedf"], pattern, [], factor)
        what = f"with {100 * (factor - 1):.1f} % more work in every guest, as in Figure 5"
        measurements.append(Measurement(f"{pattern}: capacity {what}, %", more))
        explanations[f"capacity {pattern}"] = f"{what}, the capacities are: {more} %"

        free = ", ".join(
            f"{policy} {diagnosis.means(pattern, policy, FREE, loads=[top])[0]:.3g}"
            for policy in (*SERVERS, "sedf")
        )
        measurements.append(
            Measurement(f"{pattern}: miss ratio at {top} % load without costs, %", free)
        )
        explanations[f"overload {pattern}"] = (
            f"the servers' mean miss ratios at {top} % load are {_servers(curves, pattern, -1)} %,"
            f" and at {before} % load {_servers(curves, pattern, -2)} %; without costs, at {top} %:"
            f" {free} %"
        )

    drifting = {server: diagnosis.means("increasing", server, DRIFTING) for server in SERVERS}
    capacities = ", ".join(
        f"{server} {capacity(curves.loads, means):.0f}" for server, means in drifting.items()
    )
    middle = curves.loads.index(FACTS["figure_6"]["zero_misses_at_load_percent"][1])
    ratios = ", ".join(f"{server} {means[middle]:.2g}" for server, means in drifting.items())
    phases = "periods of 40.02, 40.06 and 40.1 ms in domains 2 to 4, event-driven"
    measurements += [
        Measurement(
            "increasing, replenishments drifting past each other: capacity, %", capacities, phases
        ),
        Measurement(
            f"the same: miss ratio at {curves.loads[middle]} % load, %",
            ratios,
            f"in phase: {_servers(curves, 'increasing', middle)}",
        ),
    ]
    in_phase = (
        "here all domains are replenished in phase, and the domain of the lowest priority,"
        " which has half of the CPU and half the others' period, waits through every other period"
    )
    explanations["capacity increasing"] += (
        f"; {in_phase}: with drifting phases the capacities are: {capacities} %"
    )
    explanations["none missed increasing"] = (
        f"; {in_phase}: at {curves.loads[middle]} % load the servers miss"
        f" {_servers(curves, 'increasing', middle)} %, with drifting phases {ratios} %"
    )
    return explanations, measurements


def _servers(curves: Curves, pattern: str, column: int) -> str:
    """The servers' mean ratios at one load."""
    means = {server: curves.ratios[pattern, server][:, column].mean() for server in SERVERS}
    return ", ".join(f"{server} {mean:.3g}" for server, mean in means.items())


def _by_domain(data: pd.DataFrame, load: int) -> str:
    """Miss ratios of the domains in the even pattern, under deferrable and sedf."""
    chosen = data[(data.load_percent == load) & (data.pattern == "even")]
    sums = chosen.groupby(["policy", "domain"])[["jobs", "missed"]].sum()
    percent = 100 * sums.missed / sums.jobs
    texts = (
        f"{policy} misses {', '.join(f'{value:.0f}' for value in percent[policy])} %"
        for policy in ("deferrable", "sedf")
    )
    return " and ".join(texts) + " in domains 1 to 5 (even)"
