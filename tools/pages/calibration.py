"""Writes docs/results/calibration.md: real packets beside the simulator with measured costs.

tools/pages/calibration.py [--runs N] [--duration TIME]

Costs are measured once, as `laxity calibrate` does, with as many streams as it takes by default.
Each host then runs with real packets on this machine, several times, and in the simulator. No host
is one with which the costs were measured. It takes some minutes, and root.
"""

from __future__ import annotations

import argparse
import statistics
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.calibration import STREAMS, Calibration, calibrate
from laxity.host import Host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from laxity.results.run import Run

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results" / "calibration.md"

LOADS = (20, 40, 300, 600)
QUOTA, QUOTA_PERIOD = "1 ms", "10 ms"
RUNS = 3
COLUMNS = 100
DURATION = "5 s"
MEDIAN_FACTOR, TAIL_FACTOR = 1.5, 2.0
"""How far p50 and p99.9 of the simulator may be off."""

HOST = """\
host = { cpus = 2, policy = "eevdf" }
calls = { streams = 100, media-server = "media" }
nic = [{ name = "eth0", rate = "100 Gbit/s" }]

[[domain]]
name = "kernel"
workload = { kind = "driver" }

[[domain]]
name = "media"
vcpus = 2
weight = 512
workload = { kind = "media-server" }
"""
NEIGHBOUR = """
[[domain]]
name = "neighbour"
vcpus = 2
workload = { kind = "cpu-bound" }
"""

HEAD = """\
# Calibrated costs: real packets and the simulator

Written by `make results-calibration`. `laxity calibrate` measures what a packet costs on a
machine, here with {streams} streams. With these costs, and as a `native` host, the simulator
predicts what the same machine does with real packets (`--on linux`) with other numbers of streams:
alone, with a quota of {quota} in {period} (`quota`), and beside a neighbour that computes on both
CPUs. Each host runs {runs} times for {duration} with real packets. Delays are the medians of these
runs; the range is that of their p99.9. A delay of the simulator stands as its ratio to the real
one. The aim is a factor of at most {median:g} at p50 and {tail:g} at p99.9, and the same verdict.
*2009* is the simulator with the profile `iptcomm-2009`, and virtual machines.

```text
{host}```

The costs that were measured, at a load average of {load:.1f}:

| step | median, us | p90 | p99 | p99.9 | max | measured by |
|---|--:|--:|--:|--:|--:|---|
"""
TABLE = """
| host | streams | p50, us | p99.9, us | range | lost, % | accepted | p50 | p99.9 | accepted | \
2009: p50 | p99.9 | accepted |
|---|--:|--:|--:|--:|--:|---|--:|--:|---|--:|--:|---|
"""
VERDICT = """\
{medians} of {cases} hosts are within a factor of {median:g} at p50, {tails} within {tail:g} at \
p99.9, and {verdicts} have the same verdict; with the profile of 2009 these are {old_medians}, \
{old_tails} and {old_verdicts}. Real runs of one host differ by a factor of up to {spread:.0f} in \
p99.9 among themselves; in {unsteady} hosts, by more than {tail:g}."""
TAIL = """
What the model does not have:

- **Other programs.** The load average was up to {load:.1f} when a measurement began, of which the
  phones and the server are a part. A program that has its turn keeps a thread of the media server
  waiting for up to a tick of the kernel, and no two runs meet the same. `laxity run … --on linux -o
  DIR` and `laxity why DIR` name the programs that had the CPU.
- **Phones.** The load and the sink run on the same CPUs before everything else. The load sends
  what is due within 100 us in one go, and with many streams packets wait for each other; the
  simulator's phones speak at random phases.
- **An idle CPU.** A CPU that never idles, since a neighbour computes, wakes a thread sooner than
  the model has it: see p50 with few streams.
- **Hosts that are too slow.** With real packets, those that are still on their way at the end are
  waited for, and count; in the simulator they do not. A thread that is behind also takes less for a
  packet than one that has to be woken for each, so that a domain near its quota may hold where the
  simulator has it fail. The quota is therefore one that is clearly enough, or clearly not.
"""


@dataclass(frozen=True)
class Found:
    """What a run found."""

    p50_ns: float
    p999_ns: float
    loss_ratio: float
    accepted: bool

    @staticmethod
    def of(run: Run) -> Found:
        """The delays of a run and its verdict."""
        telephony = run.telephony
        assert telephony is not None  # noqa: S101 - the hosts have calls
        delay = telephony.voice.delay_ns
        return Found(delay.p50 or 0, delay.p999 or 0, telephony.voice.loss_ratio, run.passed)


@dataclass(frozen=True)
class Case:
    """A host with real packets and in the simulator."""

    name: str
    streams: int
    real: tuple[Found, ...]
    simulated: Found
    old: Found

    @property
    def p50_ns(self) -> float:
        """The median of the real runs."""
        return statistics.median(each.p50_ns for each in self.real)

    @property
    def p999_ns(self) -> float:
        """The median of the real runs."""
        return statistics.median(each.p999_ns for each in self.real)

    @property
    def accepted(self) -> bool:
        """What most of the real runs say."""
        return statistics.median_low(each.accepted for each in self.real)

    @property
    def spread(self) -> float:
        """The greatest p99.9 of the real runs, by the least."""
        tails_ns = [each.p999_ns for each in self.real]
        return max(tails_ns) / min(tails_ns)

    def row(self) -> str:
        """The row of the table."""
        tails_us = [each.p999_ns / 1000 for each in self.real]
        lost = statistics.median(each.loss_ratio for each in self.real)
        cells = [
            *(self.name, str(self.streams), f"{self.p50_ns / 1000:,.0f}"),
            f"{self.p999_ns / 1000:,.0f}",
            *(f"{min(tails_us):,.0f} to {max(tails_us):,.0f}", f"{100 * lost:.1f}"),
            _verdict(self.accepted),
        ]
        for model in (self.simulated, self.old):
            cells += [_times(model.p50_ns, self.p50_ns), _times(model.p999_ns, self.p999_ns)]
            cells.append(_verdict(model.accepted))
        return f"| {' | '.join(cells)} |\n"


def _verdict(accepted: bool) -> str:
    return "yes" if accepted else "no"


def _times(model_ns: float, real_ns: float) -> str:
    return f"{model_ns / real_ns:,.2f}"


def _within(model_ns: float, real_ns: float, factor: float) -> bool:
    return 1 / factor <= model_ns / real_ns <= factor


def measured(found: Calibration, runs: int, duration: str) -> Iterable[Case]:
    """Every host, run."""
    quota = [f"domain.media.quota={QUOTA}", f"domain.media.quota-period={QUOTA_PERIOD}"]
    kinds: list[tuple[str, str, list[str]]] = [
        ("alone", "", []),
        ("quota", "", quota),
        ("neighbour", NEIGHBOUR, []),
        ("quota, neighbour", NEIGHBOUR, quota),
    ]
    for name, beside, more in kinds:
        host = Host.parse(f'duration = "{duration}"\n{HOST}{beside}')
        calibrated = found.calibrated(host)
        for streams in LOADS:
            settings = [f"calls.streams={streams}", *more]
            real = [Found.of(calibrated.run(on="linux", set=settings)) for _ in range(runs)]
            simulated, old = (Found.of(each.run(set=settings)) for each in (calibrated, host))
            yield Case(name, streams, tuple(real), simulated, old)
            print(Case(name, streams, tuple(real), simulated, old).row(), end="", flush=True)


def page(found: Calibration, cases: list[Case], runs: int, duration: str) -> str:
    """The page as Markdown."""
    head = HEAD.format(
        streams=STREAMS,
        quota=QUOTA,
        period=QUOTA_PERIOD,
        runs=runs,
        duration=duration,
        median=MEDIAN_FACTOR,
        tail=TAIL_FACTOR,
        host=HOST,
        load=found.load_average,
    )
    for step in found.steps:
        times_ns = (step.median_ns, step.p90_ns, step.p99_ns, step.p999_ns, step.max_ns)
        cells = [step.name, *(f"{ns / 1000:,.1f}" for ns in times_ns), step.measured_by]
        head += f"| {' | '.join(cells)} |\n"

    def good(model: str) -> tuple[int, int, int]:
        pairs = [(getattr(case, model), case) for case in cases]
        return (
            sum(_within(each.p50_ns, case.p50_ns, MEDIAN_FACTOR) for each, case in pairs),
            sum(_within(each.p999_ns, case.p999_ns, TAIL_FACTOR) for each, case in pairs),
            sum(each.accepted == case.accepted for each, case in pairs),
        )

    new, old = good("simulated"), good("old")
    verdict = VERDICT.format(
        cases=len(cases),
        **dict(zip(("medians", "tails", "verdicts"), new, strict=True)),
        **dict(zip(("old_medians", "old_tails", "old_verdicts"), old, strict=True)),
        median=MEDIAN_FACTOR,
        tail=TAIL_FACTOR,
        spread=max(case.spread for case in cases),
        unsteady=sum(case.spread > TAIL_FACTOR for case in cases),
    )
    rows = "".join(case.row() for case in cases)
    tail = TAIL.format(load=found.load_average)
    return f"{head}{TABLE}{rows}\n{textwrap.fill(verdict, COLUMNS)}\n{tail}"


def main() -> None:
    """Measures, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--duration", default=DURATION)
    given = parser.parse_args()
    found = calibrate()
    cases = list(measured(found, given.runs, given.duration))
    PAGE.write_text(page(found, cases, given.runs, given.duration), encoding="utf-8")


if __name__ == "__main__":
    main()
