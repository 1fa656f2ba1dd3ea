"""The paper's machine and its configurations (sections 2.3, 4 and 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from laxity_reproduce import published
from laxity_reproduce.quality import Outcome, measure_all, toll_percent
from laxity_reproduce.reproduction import Row, verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from laxity_reproduce.lab import Lab

FACTS = published.facts("soft_real_time")

HOST = "telephony"
REAL_TIME = ("media", "call")
OTHERS = ("dom0", "sip", "c-dom")

POLICIES = {
    "credit": "credit",
    "base": "s-base",
    "A": "s-a",
    "AB": "s-ab",
    "AL": "s-al",
    "ALL": "s-all",
    "AILL": "s-aill",
    "ALLC": "s-allc",
}
"""By the paper's names. Its section 2 measures Xen's own credit; what it calls base from section 3
on charges exactly. ALLC is ours."""

IDLE = 'domain.c-dom.workload={ kind = "cpu-bound", run = "1 us", idle = "1 h" }'
"""The standard configuration: nothing runs in C-Dom."""

SHARED = 'host.caches=[{ cpus = [0, 2], size = "4 MiB" }, { cpus = [1, 3], size = "4 MiB" }]'
"""Section 6."""

PINNED = (
    "domain.media.affinity=[0, 1]",
    "domain.call.affinity=[2]",
    "domain.sip.affinity=[2]",
    "domain.c-dom.affinity=[3]",
)
"""Media and signalling have CPUs of their own, which only Dom0 may use beside them (section 2.3).
The paper does not say how many each. Here it is two for the media server, so that it gets out of
Dom0's way, and one for signalling, which leaves one for C-Dom."""


class Configuration(NamedTuple):
    """What is run: a load under a policy, and what else is changed."""

    policy: str
    """Ours."""
    is_loaded: bool = False
    """The cpuload configuration, not the standard one."""
    changes: tuple[str, ...] = ()

    def overrides(self) -> list[str]:
        """Overrides of the host file."""
        load = () if self.is_loaded else (IDLE,)
        return [f"host.policy={self.policy}", *load, *self.changes]


def standard(policy: str, *changes: str) -> Configuration:
    """The paper's "std"."""
    return Configuration(POLICIES.get(policy, policy), is_loaded=False, changes=changes)


def cpuload(policy: str, *changes: str) -> Configuration:
    """The paper's "cpuload"."""
    return Configuration(POLICIES.get(policy, policy), is_loaded=True, changes=changes)


class Several(NamedTuple):
    """The runs of one configuration, with several seeds, together."""

    runs: tuple[Outcome, ...]

    @property
    def pesq(self) -> list[float]:
        """PESQ of the sampled calls of all runs."""
        return [score for run in self.runs for score in run.pesq]

    @property
    def toll_percent(self) -> float:
        """The part of all sampled calls that is of toll quality."""
        return toll_percent(self.pesq)

    @property
    def pesq_mean(self) -> float:
        """The mean PESQ of all sampled calls."""
        return sum(self.pesq) / len(self.pesq)

    @property
    def poor_percent(self) -> float:
        """The others."""
        return 100 - self.toll_percent

    def spread(self) -> str:
        """The least and the most calls of toll quality in a run."""
        each = [run.toll_percent for run in self.runs]
        return f"{min(each):.0f} to {max(each):.0f} % in a run"

    def cores(self, domain: str) -> float:
        """CPU time of a domain, in CPUs."""
        return sum(run.domains[domain].cpu_ns for run in self.runs) / self._ns

    def work(self, domain: str) -> float:
        """CPU time of a domain without what went into fetching, in CPUs: the work that it did."""
        uses = [run.domains[domain] for run in self.runs]
        return sum(use.cpu_ns - use.stalled_ns for use in uses) / self._ns

    def misses(self, *domains: str) -> float:
        """Cache misses of some domains, by default of all, a second."""
        chosen = domains or tuple(self.runs[0].domains)
        total = sum(run.domains[domain].cache_misses for run in self.runs for domain in chosen)
        return total / self._ns * 1e9

    def wait_mean_us(self, *domains: str) -> float:
        """Scheduling latency of some domains' VCPUs: the mean of all waits."""
        uses = [run.domains[domain] for run in self.runs for domain in domains]
        return sum(use.wait_total_ns for use in uses) / sum(use.waits for use in uses) / 1000

    def wait_worst_ms(self, *domains: str) -> float:
        """The longest."""
        return max(run.domains[domain].wait_max_ns for run in self.runs for domain in domains) / 1e6

    @property
    def _ns(self) -> int:
        return sum(run.duration_ns for run in self.runs)


GOOD_PERCENT = 95
"""The part of the calls at toll quality from which on the voice of a configuration is good."""

VISIBLE_PERCENT = 10
"""The part of the calls that a reader of the paper's distributions could see."""

METHOD = (
    "Host file telephony.toml, with 4 calls a second of 30 s, runs for 5 minutes in each"
    " configuration with each seed. PESQ scores one direction of one call in four. A"
    " configuration is good if at least 95 % of its calls are at PESQ 4 or better. A difference"
    " of less than 10 % of the calls does not count."
)


def measured(lab: Lab, wanted: Mapping[str, Configuration]) -> dict[str, Several]:
    """Runs each configuration with each seed, but for those that an experiment ran before."""
    new = [each for each in dict.fromkeys(wanted.values()) if each not in lab.known]
    if new:
        hurry = ["duration=40 s"] if lab.quick else []
        overrides = [
            [*each.overrides(), *hurry, f"seed={seed}"] for each in new for seed in lab.seeds
        ]
        host = published.host_file("soft_real_time", HOST)
        runs = measure_all(host, f"{HOST}.toml", overrides, lab.teller(len(overrides)))
        seeds = len(lab.seeds)
        for place, each in enumerate(new):
            lab.known[each] = Several(tuple(runs[place * seeds : (place + 1) * seeds]))
    return {name: lab.known[each] for name, each in wanted.items()}


def good(name: str, found: Several) -> Row:
    """The row of a configuration that the paper found good."""
    holds = found.toll_percent >= GOOD_PERCENT
    what = f"{name}: calls at PESQ 4 or better, %"
    why = "" if holds else state(name, found)
    return Row(what, "good", found.toll_percent, verdict(holds=holds), why, found.spread())


def better(name: str, other: str, found: Mapping[str, Several]) -> Row:
    """The row of one that the paper found visibly better than another."""
    gain = found[name].toll_percent - found[other].toll_percent
    holds = gain >= VISIBLE_PERCENT
    if holds:
        why = ""
    elif found[other].toll_percent > 100 - VISIBLE_PERCENT:
        why = f"{other} is good here already, so that nothing is left to improve"
    else:
        why = state(name, found[name])
    return _against(name, other, found, "better", why, holds=holds)


def alike(name: str, other: str, found: Mapping[str, Several], claim: str) -> Row:
    """The row of two that the paper found alike."""
    gain = found[name].toll_percent - found[other].toll_percent
    holds = abs(gain) < VISIBLE_PERCENT
    if not holds:
        why = f"{state(name, found[name])}; {state(other, found[other])}"
    elif min(found[name].toll_percent, found[other].toll_percent) >= GOOD_PERCENT:
        why = "both are good here, so that this says little"
    else:
        why = ""
    return _against(name, other, found, claim, why, holds=holds)


def _against(
    name: str, other: str, found: Mapping[str, Several], claim: str, why: str, *, holds: bool
) -> Row:
    what = f"{name} against {other}: calls at PESQ 4 or better, %"
    ours = f"{found[name].toll_percent:.0f} against {found[other].toll_percent:.0f}"
    return Row(what, claim, ours, verdict(holds=holds), why)


def state(name: str, found: Several) -> str:
    """What was measured of the calls of a configuration beside their quality."""
    lost = 100 * sum(run.loss_ratio for run in found.runs) / len(found.runs)
    return (
        f"{name} loses {lost:.2g} % of the packets; VCPUs of the media server wait up to"
        f" {found.wait_worst_ms('media'):.0f} ms for a CPU, Dom0's up to"
        f" {found.wait_worst_ms('dom0'):.0f} ms"
    )


def frame(found: Mapping[str, Several]) -> pd.DataFrame:
    """The PESQ of every sampled call, by configuration."""
    rows = [(name, score) for name, several in found.items() for score in several.pesq]
    return pd.DataFrame(rows, columns=["configuration", "pesq"])


def draw(data: pd.DataFrame) -> Figure:
    """Distributions of PESQ, as the paper drew them."""
    from laxity.plots import voice as plots  # noqa: PLC0415 - Matplotlib, for those who draw

    return plots.pesq_distributions(_series(data))


def draw_default(data: pd.DataFrame) -> Figure:
    """Figure 1, with what the paper states of the default: almost half of the streams below 4."""
    from laxity.plots import voice as plots  # noqa: PLC0415 - as above
    from laxity.voice import TOLL_QUALITY  # noqa: PLC0415 - as above

    (percent,) = published.percentages(FACTS["claims"][0])
    return plots.pesq_distributions(_series(data), {"base-std": (TOLL_QUALITY, percent)})


def _series(data: pd.DataFrame) -> dict[str, NDArray[np.float64]]:
    groups = data.groupby("configuration", sort=False)["pesq"]
    return {str(name): scores.to_numpy() for name, scores in groups}
