"""Figures 11 and 12: how often the media server enters the queue, and how long it runs then."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from laxity import Host, tracefile

from laxity_reproduce import published
from laxity_reproduce.reproduction import Experiment, Measurement, Row, verdict
from laxity_reproduce.soft_real_time.setup import HOST, Configuration, cpuload, standard

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab

STREAMS = ("calls.streams=240", "calls.through-media-server=0")
"""All streams from the beginning, so that a short trace has the load; calls are only signalled."""

CLASSES = ("boost", "under", "over")

WAKE, RUN, STOP, CLASS = (tracefile.number_of(kind) for kind in ("wake", "run", "stop", "class"))

ALIKE = 0.25
"""Products of UC and UT that differ by no more are "roughly the same"."""

ALMOST_90 = (80, 100)
"""Percent."""

METHOD = (
    "Host file telephony.toml runs with 240 streams from the beginning, one seed and a trace of"
    " 10 s. UC is how often a VCPU enters the queue as under, and UT is how long it then runs."
    " Figures 11 and 12 compare base and A."
)


class Runs(NamedTuple):
    """The runs of a VCPU: a row for each time that it waited for a CPU and got it."""

    queued_ns: npt.NDArray[np.int64]
    """When it entered the queue."""
    started_ns: npt.NDArray[np.int64]
    stopped_ns: npt.NDArray[np.int64]
    queued_class: npt.NDArray[np.int64]
    """Its class when it entered, as `CLASSES` has them."""
    run_class: npt.NDArray[np.int64]
    """Its class when it began to run."""
    cpu: npt.NDArray[np.int64]
    """Where it ran."""


def runs(records: npt.NDArray[np.void], domain: int, vcpu: int) -> Runs:
    """The runs of one VCPU in a trace. It is under until the trace says otherwise."""
    mine = records[(records["domain"] == domain) & (records["vcpu"] == vcpu)]
    changes = mine[mine["kind"] == CLASS]
    enters = (mine["kind"] == WAKE) | ((mine["kind"] == STOP) & (mine["argument"] == 1))
    steps = mine[enters | (mine["kind"] == RUN) | (mine["kind"] == STOP)]
    rows = []
    queued = started = None
    columns = (steps[name].tolist() for name in ("kind", "argument", "time_ns", "cpu"))
    for kind, argument, time_ns, cpu in zip(*columns, strict=True):
        if kind == RUN:
            started = time_ns
            continue
        if kind == STOP and started is not None and queued is not None:
            rows.append((queued, started, time_ns, cpu))
            started = queued = None
        if kind == WAKE or argument == 1:
            queued = time_ns
    queued_ns, started_ns, stopped_ns, cpus = np.array(rows, np.int64).reshape(-1, 4).T

    def class_at(time_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        # What happens at that very instant belongs to it: a wake makes boost.
        place = np.searchsorted(changes["time_ns"], time_ns, side="right")
        return np.concatenate([[CLASSES.index("under")], changes["argument"]])[place]

    classes = class_at(queued_ns), class_at(started_ns)
    return Runs(queued_ns, started_ns, stopped_ns, *classes, cpus)


def figure_11(lab: Lab) -> Experiment:
    """Base against A, and where media and Dom0 run under credit (section 2.4)."""
    duration = "3 s" if lab.quick else "10 s"
    seed = lab.seeds[0]
    found = {
        name: traced(configuration, duration, seed)
        for name, configuration in {
            "credit-std": standard("credit", *STREAMS),
            "base-cpuload": cpuload("base", *STREAMS),
            "A-cpuload": cpuload("A", *STREAMS),
            "AL-cpuload": cpuload("AL", *STREAMS),
        }.items()
    }
    lab.teller(1)(1)
    under = {name: _under(of["media"]) for name, of in found.items()}
    (base_uc, base_ut), (a_uc, a_ut) = under["base-cpuload"], under["A-cpuload"]
    ratio = a_uc * a_ut / (base_uc * base_ut)
    low, high = ALMOST_90
    media = _share(found["credit-std"]["media"], "under")
    dom0 = _share(found["credit-std"]["dom0"], "boost")
    why = (
        f"the rest begins with a wake, as boost: the media server used {_cores(found):.2f} of a"
        " CPU and blocks whenever it has no packet left. The CPU use of the paper's server is"
        " not published"
    )
    rows = [
        Row(
            "credit, standard: the media server's CPU time that begins as under, %",
            "almost 90",
            media,
            verdict(holds=low <= media <= high),
            "" if low <= media <= high else why,
        ),
        Row(
            "credit, standard: Dom0's CPU time that begins as boost, %",
            "almost all",
            dom0,
            verdict(holds=dom0 >= low),
            "" if dom0 >= low else why,
        ),
        Row(
            "media enters the queue as under (UC), a second: A against base",
            "less often",
            f"{a_uc:.0f} against {base_uc:.0f}",
            verdict(holds=a_uc < base_uc),
            "" if a_uc < base_uc else why,
        ),
        Row(
            "media then runs for (UT), us: A against base",
            "longer",
            f"{a_ut:.0f} against {base_ut:.0f}",
            verdict(holds=a_ut > base_ut),
            "" if a_ut > base_ut else f"with A it enters as under {a_uc:.0f} times a second",
        ),
        Row(
            "UC times UT: A, of base",
            "roughly the same",
            ratio,
            verdict(holds=abs(ratio - 1) <= ALIKE),
            ""
            if abs(ratio - 1) <= ALIKE
            else "with A it is hardly ever preempted, so that most of its time belongs to runs that"
            " begin with a wake, as boost",
        ),
    ]
    waited = Measurement(
        (
            "AL, cpuload: waiting time of the media server by the class in which a wait begins"
            " (boost, under, over), %"
        ),
        _waited(found["AL-cpuload"]["media"]),
        "as boost it waits for boosted VCPUs that already run: Dom0's, and Sip-S's for a message",
    )
    title = "queue metrics (figures 11 and 12)"
    return Experiment("figure-11", title, METHOD, rows, [waited], _frame(found), draw)


def draw(data: pd.DataFrame) -> Figure:
    """Figures 11 and 12."""
    from laxity_reproduce.soft_real_time import plots  # noqa: PLC0415 - Matplotlib, for those who draw

    return plots.queues(data)


def _cores(found: dict[str, dict[str, list[Runs]]]) -> float:
    """CPU time of the media server under credit, in CPUs, from its first run to its last."""
    media = found["credit-std"]["media"]
    ran_ns = sum(int((vcpu.stopped_ns - vcpu.started_ns).sum()) for vcpu in media)
    starts = min(int(vcpu.started_ns.min()) for vcpu in media)
    return ran_ns / (max(int(vcpu.stopped_ns.max()) for vcpu in media) - starts)


def _waited(vcpus: Sequence[Runs]) -> list[float]:
    """How a domain's waiting time is divided among the classes in which waits begin, %."""
    lengths = np.concatenate([vcpu.started_ns - vcpu.queued_ns for vcpu in vcpus])
    classes = np.concatenate([vcpu.queued_class for vcpu in vcpus])
    total = max(1, int(lengths.sum()))
    return [float(100 * lengths[classes == each].sum() / total) for each in range(len(CLASSES))]


def traced(configuration: Configuration, duration: str, seed: int) -> dict[str, list[Runs]]:
    """The runs of every VCPU, by domain."""
    host = Host(published.host_file("soft_real_time", HOST), f"{HOST}.toml")
    with tempfile.TemporaryDirectory(prefix="laxity-queues.") as directory:
        trace = Path(directory) / "trace"
        run = host.run(seed=seed, duration=duration, set=configuration.overrides(), trace=trace)
        records = tracefile.records(trace)
        vcpus = {domain.name: number for number, domain in enumerate(run.domains)}
        resolved = host.resolved(configuration.overrides())["domains"]
        return {
            name: [runs(records, number, vcpu) for vcpu in range(len(resolved[number]["vcpus"]))]
            for name, number in vcpus.items()
        }


def _under(vcpus: Sequence[Runs]) -> tuple[float, float]:
    """UC, a second, and UT, us, of a domain's VCPUs together."""
    mine = [vcpu.queued_class == CLASSES.index("under") for vcpu in vcpus]
    entered = sum(int(of.sum()) for of in mine)
    ran_ns = sum(
        int((vcpu.stopped_ns - vcpu.started_ns)[of].sum())
        for vcpu, of in zip(vcpus, mine, strict=True)
    )
    span_ns = max(int(vcpu.stopped_ns.max(initial=0)) for vcpu in vcpus)
    return entered / span_ns * 1e9, ran_ns / max(1, entered) / 1000


def _share(vcpus: Sequence[Runs], wanted: str) -> float:
    """The part of a domain's CPU time that belongs to runs that began in a class, %."""
    lengths = np.concatenate([vcpu.stopped_ns - vcpu.started_ns for vcpu in vcpus])
    classes = np.concatenate([vcpu.run_class for vcpu in vcpus])
    return float(100 * lengths[classes == CLASSES.index(wanted)].sum() / lengths.sum())


def _frame(found: dict[str, dict[str, list[Runs]]]) -> pd.DataFrame:
    """UC and UT of every VCPU in every second."""
    rows = []
    for name, domains in found.items():
        for domain, vcpus in domains.items():
            for number, vcpu in enumerate(vcpus):
                is_under = vcpu.queued_class == CLASSES.index("under")
                seconds = vcpu.queued_ns // 1_000_000_000
                lengths = vcpu.stopped_ns - vcpu.started_ns
                for second in np.unique(seconds):
                    mine = is_under & (seconds == second)
                    row = {"configuration": name, "domain": domain, "vcpu": number}
                    row |= {"second": int(second), "uc": int(mine.sum())}
                    rows.append(row | {"ut_us": lengths[mine].mean() / 1000 if mine.any() else 0.0})
    return pd.DataFrame(rows)
