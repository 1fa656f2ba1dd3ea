"""The paper's scenario (section V-B), and runs of the model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, TypedDict

import pandas as pd
from laxity import _core

from laxity_reproduce import published
from laxity_reproduce.bandwidth.papers_allocator import adjust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from laxity_reproduce.lab import Lab

FACTS = published.facts("bandwidth")

MBIT = 1_000_000
LINK_MBIT_S: int = FACTS["link_mbit_s"]
PERIOD_MS = 10
"""Between two looks, where nothing else is said: the daemon's default."""
SEED = 1

Regime = Literal["native", "paper", "tree", "single"]
"""What divides the link: nothing, the paper's algorithm, or ours by the kernel's tree (Linux) or by
limits that know nothing of each other (Xen)."""

REGIMES: dict[Regime, str] = {
    "native": "without an allocator",
    "paper": "the paper's algorithm",
    "tree": "Laxity, kernel's tree",
    "single": "Laxity, single limits",
}
_IN_RUST: dict[Regime, str | dict[str, str]] = {
    "native": "native",
    "paper": "given",
    "tree": {"held": "tree"},
    "single": {"held": "single"},
}


class Bursty(TypedDict):
    """Bursts and pauses of random lengths."""

    bit_s: int
    mean_ms: int


class Tcp(TypedDict):
    """TCP with all to send."""

    round_trip_ms: int


class Liar(TypedDict):
    """A sender that is silent whenever its counters are read."""

    bit_s: int


class Sender(TypedDict, total=False):
    """How a machine sends, in bit/s and ms: one of these."""

    constant: int
    steps: list[list[int]]
    bursty: Bursty
    tcp: Tcp
    liar: Liar


Agreement = TypedDict(
    "Agreement", {"class": int, "minimum_bit_s": int, "maximum_bit_s": int, "weight": int}
)
"""What a machine was promised."""


class Machine(TypedDict):
    """A virtual machine of the model."""

    agreement: Agreement
    sender: Sender
    present_ms: list[int] | None
    """From when until when it is there; None: always."""


Sharing = Literal["weighted", "by-class"]


class Scenario(TypedDict):
    """One run of the model."""

    link_bit_s: int
    sharing: Sharing
    regime: str | dict[str, str]
    period_ms: int
    seed: int
    machines: list[Machine]


def machine(
    minimum: float,
    maximum: float,
    sender: Sender,
    *,
    number: int = 1,
    present_s: tuple[float, float] | None = None,
) -> Machine:
    """A virtual machine of class `number` for the model; rates in Mbit/s."""
    present = None if present_s is None else [round(1000 * at) for at in present_s]
    agreement: Agreement = {
        "class": number,
        "minimum_bit_s": round(minimum * MBIT),
        "maximum_bit_s": round(maximum * MBIT),
        "weight": 1,
    }
    return {"agreement": agreement, "sender": sender, "present_ms": present}


def constant(mbit_s: float) -> Sender:
    """A sender that never changes its rate."""
    return {"constant": round(mbit_s * MBIT)}


def phases() -> list[tuple[int, int]]:
    """What VM 1 offers: seconds, and Mbit/s."""
    return [(phase["s"], phase["mbit_s"]) for phase in FACTS["vm1_offered"]]


def the_papers(maxima: Sequence[int] | None = None) -> list[Machine]:
    """The three machines; with other maxima, if given."""
    steps: Sender = {"steps": [[1000 * s, mbit_s * MBIT] for s, mbit_s in phases()]}
    senders = [
        steps,
        constant(FACTS["vm2_offered_mbit_s"]),
        constant(FACTS["vm3_offered_mbit_s"]),
    ]
    bounds = zip(FACTS["min_mbit_s"], maxima or FACTS["max_mbit_s"], senders, strict=True)
    return [
        machine(minimum, maximum, sender, number=number)
        for number, (minimum, maximum, sender) in enumerate(bounds, start=1)
    ]


def scenario(
    machines: Sequence[Machine],
    regime: Regime,
    *,
    sharing: Sharing = "weighted",
    period_ms: int = PERIOD_MS,
    seed: int = SEED,
) -> Scenario:
    """One run of the model."""
    return {
        "link_bit_s": LINK_MBIT_S * MBIT,
        "sharing": sharing,
        "regime": _IN_RUST[regime],
        "period_ms": period_ms,
        "seed": seed,
        "machines": list(machines),
    }


def run(
    lab: Lab, scenarios: Sequence[Scenario], duration_s: int, every_s: float = 1
) -> list[pd.DataFrame]:
    """For each scenario a frame with a row for each machine and `every_s`.

    `vm` is its number from 1, `at_s` the row's begin; what was offered, delivered and dropped is
    in Mbit/s (`dropped_at_link`: after it had been copied to the driver domain), `changes` counts
    changed limits, `denied` seconds in which it asked all the time and got less than 99 % of its
    minimum.
    """
    tell = lab.teller(len(scenarios))
    texts = [json.dumps(each) for each in scenarios]
    found = _core.simulate_bandwidth(texts, 1000 * duration_s, round(1000 * every_s), adjust)
    tell(len(scenarios))
    return [_frame(json.loads(text), every_s) for text in found]


def _frame(recorded: list[list[dict[str, int]]], every_s: float) -> pd.DataFrame:
    rows = [
        {"at_s": number * every_s, "vm": vm, **outcome}
        for number, machines in enumerate(recorded)
        for vm, outcome in enumerate(machines, start=1)
    ]
    data = pd.DataFrame(rows)
    for column in ("offered", "delivered", "dropped", "dropped_at_link"):
        data[f"{column}_mbit_s"] = data.pop(f"{column}_bytes") * 8 / every_s / MBIT
    for column in ("demand", "granted"):
        data[f"{column}_mbit_s"] = data.pop(f"{column}_bit_s") / MBIT
    return data


def loss_percent(data: pd.DataFrame, vm: int = 1) -> float:
    """The dropped part of what a machine offered in the whole run."""
    own = data[data.vm == vm]
    dropped = own.dropped_mbit_s.sum() + own.dropped_at_link_mbit_s.sum()
    return float(100 * dropped / own.offered_mbit_s.sum())


def mean_mbit_s(data: pd.DataFrame, from_s: float = 0, upto_s: float = float("inf")) -> list[float]:
    """What each machine delivered on average in a part of the run."""
    part = data[(data.at_s >= from_s) & (data.at_s < upto_s)]
    return [float(mean) for mean in part.groupby("vm").delivered_mbit_s.mean()]


def settled(mbit_s: int, settle_s: int = 1) -> list[tuple[int, int]]:
    """When VM 1 offers that much, without the first seconds of each such time."""
    spans, at_s = [], 0
    for s, offered in phases():
        if offered == mbit_s:
            spans.append((at_s + settle_s, at_s + s))
        at_s += s
    return spans


def settled_mbit_s(data: pd.DataFrame, mbit_s: int) -> list[float]:
    """What each machine delivered on average while VM 1 offered that much."""
    parts = [data[(data.at_s >= start) & (data.at_s < end)] for start, end in settled(mbit_s)]
    return mean_mbit_s(pd.concat(parts))
