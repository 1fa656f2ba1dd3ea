"""Table 4: at which loads does the analysis of Davis and Burns guarantee every deadline?"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from laxity.errors import core_errors

from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.rt_xen import davis_burns
from laxity_reproduce.rt_xen.setup import EVENT_DRIVEN, FACTS, PATTERNS

if TYPE_CHECKING:
    from laxity import _core

    from laxity_reproduce.lab import Lab

SIMULATED_S, SIMULATED_QUICK_S = 60, 2

LIKELY = 0.05
"""What the paper saw must not have been less likely than this."""

METHOD = (
    "The test is the response-time test of Davis and Burns (RTSS 2005) to the letter, with"
    " unbound tasks and without overhead. The paper drew one task set a load; for each load we"
    " give the share of task sets that are guaranteed. With those shares as probabilities, and"
    " loads independent as in the paper, every combination of guaranteed loads has a"
    " probability. A row is reproduced if the combinations that are no more probable than the"
    " published one have together 5 % or more (an exact test over all loads)."
)


def probability_of(loads: list[int], shares: dict[int, float]) -> float:
    """That of one task set a load exactly those at `loads` are guaranteed."""
    return math.prod(share if load in loads else 1 - share for load, share in shares.items())


def as_improbable(loads: list[int], shares: dict[int, float]) -> float:
    """The probability of a combination that is no more probable than `loads`."""
    combinations = np.ones(1)
    for share in shares.values():
        combinations = np.concatenate([combinations * share, combinations * (1 - share)])
    # The same product in another order may differ in its last digits.
    upto = probability_of(loads, shares) * (1 + 1e-9)
    return float(combinations[combinations <= upto].sum())


def runs_of(loads: list[int], step: int) -> str:
    """Loads that follow one another as ranges: "30 to 45, 60"."""
    ranges: list[list[int]] = []
    for load in loads:
        if ranges and load - ranges[-1][-1] == step:
            ranges[-1].append(load)
        else:
            ranges.append([load])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in ranges)


def _verdict(host: _core.HostFile, overrides: list[str]) -> tuple[bool, bool]:
    """Whether every server gets its budget, and whether every task then meets its deadline."""
    with core_errors():
        servers = davis_burns.servers_of(json.loads(host.complete(overrides).json()))
    return davis_burns.servers_hold(servers), davis_burns.tasks_hold(servers)


def run(lab: Lab) -> Experiment:
    """Analyses every task set; nothing is simulated."""
    table: dict[str, dict[str, list[list[int]]]] = FACTS["table_4"]
    range_ = FACTS["table_3"]["load_percent"]
    step = range_["step"]
    loads = range(range_["from"], range_["to"] + 1, step)
    rows, records, found = [], [], []
    servers_hold = 0
    for kind, patterns in table.items():
        for pattern in PATTERNS:
            host = lab.host(pattern)
            shares = {}
            guaranteed = []
            for load in loads:
                verdicts = [
                    _verdict(host, [f"host.policy={kind}", f"draw.load={load} %", f"seed={seed}"])
                    for seed in lab.seeds
                ]
                servers_hold += sum(servers for servers, _ in verdicts)
                sets = [seed for seed, (_, tasks) in zip(lab.seeds, verdicts, strict=True) if tasks]
                shares[load] = len(sets) / len(verdicts)
                guaranteed += [(load, seed) for seed in sets]
                records.append(
                    {
                        "server": kind,
                        "pattern": pattern,
                        "load_percent": load,
                        "task_sets": len(verdicts),
                        "guaranteed": len(sets),
                    }
                )
            found.append(_simulated(lab, kind, pattern, guaranteed))
            rows.append(_row(kind, pattern, patterns[pattern], shares, step))
    total = len(table) * len(PATTERNS) * len(loads) * len(lab.seeds)
    servers = Measurement(
        "analyses in which the servers themselves are schedulable by the same paper's test",
        f"{servers_hold:,} of {total:,}",
        "the shares add up to 100 %; the published table assumes that the servers are"
        " schedulable, and so do we here",
    )
    return Experiment(
        "table-4",
        "loads at which the analysis guarantees every deadline",
        METHOD,
        rows,
        [servers, *found],
        pd.DataFrame(records),
    )


def _simulated(lab: Lab, kind: str, pattern: str, guaranteed: list[tuple[int, int]]) -> Measurement:
    """Whether those that are guaranteed really miss nothing, as the paper found of its own."""
    seconds = SIMULATED_QUICK_S if lab.quick else SIMULATED_S
    overrides = [
        [
            f"host.policy={kind}",
            EVENT_DRIVEN,
            "host.costs={}",
            f"draw.load={load} %",
            f"seed={seed}",
            f"duration={seconds} s",
        ]
        for load, seed in guaranteed
    ]
    outcomes = lab.runs(lab.host(pattern), overrides, share=0.3)
    missing = sum(any(outcome.missed) for outcome in outcomes)
    return Measurement(
        f"{kind}, {pattern}: guaranteed task sets that miss deadlines in {seconds} s of simulation",
        f"{missing:,} of {len(guaranteed):,}",
        "there are no costs, as in the test, which assumes that the servers are schedulable"
        if missing
        else "",
    )


def _row(
    kind: str, pattern: str, published: list[list[int]], shares: dict[int, float], step: int
) -> Row:
    published_loads = [
        load for load in shares if any(low <= load <= high for low, high in published)
    ]
    exactly, at_most = (
        probability_of(published_loads, shares),
        as_improbable(published_loads, shares),
    )
    same = at_most >= LIKELY
    mostly = [load for load, share in shares.items() if share > 0.5]  # noqa: PLR2004 - most
    percent = ", ".join(
        f"{load}: {100 * share:.0f} %" for load, share in shares.items() if share > 0
    )
    return Row(
        f"{kind}, {pattern}: guaranteed loads, %",
        runs_of(published_loads, step),
        f"{runs_of(mostly, step) or 'none'} for most task sets",
        verdict(holds=same),
        ""
        if same
        else f"combinations no more probable than the published one have together a probability of"
        f" {at_most:.2g}; the task sets of the paper, one a load, are not published",
        f"share guaranteed at {percent or 'no load'}; exactly the published loads: probability"
        f" {exactly:.2g}, those and all that are no more probable: {at_most:.2g}",
    )
