"""What the experiments share: how they are run, and the rules of their verdicts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import pandas as pd
from laxity.resolved import network_of
from laxity.results.records import decoded
from laxity.results.schema import Telephony

from laxity_reproduce import published
from laxity_reproduce.reproduction import Experiment, Row, digits, verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab
    from laxity_reproduce.reproduction import Measurement

FACTS = published.facts("telephony")

DURATION_S, DURATION_QUICK_S = 20, 1
"""The length of a run; at 800 streams 40,000 packets a second."""

NO_LOSS_PERCENT = 0.05
"""Less is 0 % to one digit."""

VISIBLE_LOSS_PERCENT = 1.0
"""The paper calls 1 to 2 % unacceptable."""

VISIBLE_DELAY_MS = 1.0

TOLERANCE_PERCENT = 5.0
"""The tolerance of a published loss: about what the seeds differ by where losses are that high."""

RULES = (
    "Losses and median delays are means over the seeds, with the range over the seeds. No loss"
    f" means below {NO_LOSS_PERCENT} % with every seed. A published loss is reproduced within"
    f" {TOLERANCE_PERCENT:g} points of the mean. Worse means more loss and a higher median delay,"
    f" with every seed. A difference is visible if it is at least {VISIBLE_LOSS_PERCENT:g} point"
    f" of loss or {VISIBLE_DELAY_MS:g} ms of median delay. A bad loss is 10 % or more."
)

BAD_LOSS_PERCENT = 10.0


@dataclass(frozen=True)
class Point:
    """An experiment of the paper: a box in a figure. Lists are by seed."""

    name: str
    runs: list[Telephony]
    cpus: list[dict[str, float]]
    """The number of physical CPUs that each domain used."""

    @cached_property
    def losses(self) -> list[float]:
        """Percent."""
        return [100 * run.voice.loss_ratio for run in self.runs]

    @cached_property
    def medians(self) -> list[float]:
        """Medians of delays, ms; endless where nothing arrived."""
        medians = [run.voice.delay_ns.p50 for run in self.runs]
        return [float("inf") if median is None else median / 1e6 for median in medians]

    @property
    def loss(self) -> float:
        """Percent, the mean."""
        return sum(self.losses) / len(self.losses)

    @property
    def median(self) -> float:
        """The mean of the medians of delays, ms."""
        return sum(self.medians) / len(self.medians)

    @property
    def is_lossless(self) -> bool:
        """Whether it is with every seed."""
        return max(self.losses) < NO_LOSS_PERCENT

    def __str__(self) -> str:
        """Such as "2.1: 3.1 %, 4.2 ms"."""
        return f"{self.name}: {percent(self.loss)}, {digits(self.median, 2)} ms"

    @property
    def spread(self) -> str:
        """The ranges of the seeds."""
        return (
            f"{self.name}: {percent(min(self.losses))} to {percent(max(self.losses))},"
            f" {digits(min(self.medians), 2)} to {digits(max(self.medians), 2)} ms"
        )

    @property
    def where(self) -> str:
        """Where the packets went and what the CPUs did."""
        lost = {
            "card's ring": sum(run.drops.wire + run.drops.nic_receive for run in self.runs),
            "netback (the guest's ring was full)": sum(run.drops.netback for run in self.runs),
            "socket": sum(run.drops.socket for run in self.runs),
            "netfront": sum(run.drops.netfront for run in self.runs),
            "card's queue": sum(run.drops.nic_transmit for run in self.runs),
            "held output (its limit was reached)": sum(run.drops.held for run in self.runs),
            "host that failed": sum(run.drops.failure for run in self.runs),
        }
        total = sum(lost.values())
        parts = [f"{100 * count / total:.0f} % at the {at}" for at, count in lost.items() if count]
        used = [
            f"{domain} {sum(each[domain] for each in self.cpus) / len(self.cpus):.2f}"
            for domain in self.cpus[0]
        ]
        drops = f"packets are dropped: {', '.join(parts)}" if total else "no packet is dropped"
        return f"in {self.name}, {drops}; CPUs used: {', '.join(used)}"


def percent(value: float) -> str:
    """For people."""
    return f"{value:.1f} %" if value >= NO_LOSS_PERCENT else ("0 %" if value == 0 else "<0.05 %")


def measure(
    lab: Lab,
    host: str,
    points: Mapping[str, Sequence[str]],
    share: float = 1.0,
    seconds: int = DURATION_S,
) -> dict[str, Point]:
    """Runs the host with each point's overrides and each seed, for so long if not in a hurry."""
    seconds = DURATION_QUICK_S if lab.quick else seconds
    lists = [
        [f"duration={seconds} s", f"seed={seed}", *overrides]
        for overrides in points.values()
        for seed in lab.seeds
    ]
    results = [json.loads(text) for text in lab.results(lab.host(host), lists, share)]
    found = {}
    for number, name in enumerate(points):
        of_point = results[number * len(lab.seeds) : (number + 1) * len(lab.seeds)]
        found[name] = Point(
            name,
            [decoded(result["telephony"], Telephony) for result in of_point],
            [
                {each["name"]: each["cpu_ns"] / (1e9 * seconds) for each in result["domains"]}
                for result in of_point
            ],
        )
    return found


def is_worse(one: Point, other: Point) -> bool:
    """More loss and more delay, with every seed."""
    pairs = (
        zip(one.losses, other.losses, strict=True),
        zip(one.medians, other.medians, strict=True),
    )
    return all(mine > its for pair in pairs for mine, its in pair)


def is_visibly_better(one: Point, other: Point) -> bool:
    """Less loss or less delay, as one sees it in a figure."""
    return (
        other.loss - one.loss >= VISIBLE_LOSS_PERCENT
        or other.median - one.median >= VISIBLE_DELAY_MS
    )


def claim(
    what: str, published_claim: str, points: Iterable[Point], *, holds: bool, why: str = ""
) -> Row:
    """A row on what the text says of these points; where ours differs, what they did."""
    listed = list(points)
    reason = "; ".join([*([why] if why else []), *(point.where for point in listed)])
    return Row(
        what,
        published_claim,
        "; ".join(str(point) for point in listed),
        verdict(holds=holds),
        "" if holds else reason,
        "; ".join(point.spread for point in listed),
    )


def loss_row(what: str, text: str, point: Point, why: str = "") -> Row:
    """A row on a loss that the text states in percent."""
    (stated,) = published.percentages(text)
    holds = abs(point.loss - stated) <= TOLERANCE_PERCENT
    return claim(what, text, [point], holds=holds, why=why)


def weights(dom0: int, media: int) -> list[str]:
    """Overrides."""
    return [f"domain.dom0.weight={dom0}", f"domain.media.weight={media}"]


def pinned(**cores: Sequence[int]) -> list[str]:
    """Overrides: domains to cores; `cpu` is both CPU-bound ones."""
    pins = {}
    for domain, numbers in cores.items():
        for name in ("cpu-1", "cpu-2") if domain == "cpu" else (domain,):
            pins[name] = list(numbers)
    return [f"domain.{name}.affinity={numbers}" for name, numbers in pins.items()]


def scaled_costs(lab: Lab, host: str, factor: float) -> str:
    """The override that makes everything that is done for packets take `factor` times as long."""
    costs = network_of(lab.resolved(lab.host(host), []))["costs"]
    entries = (
        f'{key.replace("_", "-")} = "{round(cost["ns"] * factor)} ns"'
        for key, cost in costs.items()
        if isinstance(cost, dict)
    )
    return f"host.network={{ {', '.join(entries)} }}"


def frame(points: Iterable[Point]) -> pd.DataFrame:
    """A row for each experiment and seed."""
    records = []
    for point in points:
        for number, (run, cpus) in enumerate(zip(point.runs, point.cpus, strict=True)):
            delay = run.voice.delay_ns
            quantiles = ("min", "p25", "p50", "p75", "p99", "p999", "max")
            times = {name: getattr(delay, name) for name in quantiles}
            records.append(
                {
                    "experiment": point.name,
                    "run": number,
                    "loss_percent": point.losses[number],
                    **{
                        f"{name}_ms": float("nan") if ns is None else ns / 1e6
                        for name, ns in times.items()
                    },
                    "sent": run.voice.sent,
                    "lost": run.voice.lost,
                    **{f"cpus_{name}": used for name, used in cpus.items()},
                }
            )
    return pd.DataFrame(records)


def experiment(
    name: str,
    title: str,
    method: str,
    rows: list[Row],
    points: Iterable[Point],
    measurements: list[Measurement] | None = None,
    draw: Callable[[pd.DataFrame], Figure] | None = None,
) -> Experiment:
    """With its figure, and with the rules of the verdicts in its method."""
    return Experiment(
        name,
        title,
        f"{method} {RULES}",
        rows,
        measurements or [],
        frame(points),
        draw or DRAWINGS.get(name, drawing({})),
    )


def drawing(stated: Mapping[str, str]) -> Callable[[pd.DataFrame], Figure]:
    """Boxes with the losses that the paper states of some experiments."""

    def draw(data: pd.DataFrame) -> Figure:
        from laxity_reproduce import telephony_plots  # noqa: PLC0415 - Matplotlib

        return telephony_plots.boxes(data, published=stated)

    return draw


_TEXT = published.percentage_text

DRAWINGS: dict[str, Callable[[pd.DataFrame], Figure]] = {
    "figure-6": drawing(
        {
            "N": _TEXT(FACTS["figure_6"]["native_loss"]),
            "D": _TEXT(FACTS["figure_6"]["default"]),
        }
    ),
    "figure-7": drawing(
        {
            **{name: f"up to {_TEXT(FACTS['caps'][name])}" for name in ("2.2", "2.3")},
            **{name: FACTS["figure_7"]["both"].removeprefix("loss ") for name in ("2.1", "2.4")},
        }
    ),
    "figure-8": drawing({"2.1": f"up to {_TEXT(FACTS['pinning']['2.1'])}"}),
    "figure-12": drawing({"D": _TEXT(FACTS["figure_12"]["default"])}),
}
"""Figures of which the paper states losses; of the others it states none."""
