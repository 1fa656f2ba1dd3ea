"""Figures 9 and 10: caches shared with Dom0, and interrupt coalescing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity_reproduce.reproduction import Experiment, Measurement
from laxity_reproduce.telephony.mixed import METHOD
from laxity_reproduce.telephony.setup import (
    FACTS,
    VISIBLE_LOSS_PERCENT,
    Point,
    claim,
    experiment,
    is_visibly_better,
    measure,
    pinned,
)

if TYPE_CHECKING:
    from laxity_reproduce.lab import Lab

CACHES = 'host.caches=[{ cpus = [0, 1], size = "4 MiB" }, { cpus = [2, 3], size = "4 MiB" }]'
WORKING_SETS = {"dom0": "512 KiB", "media": "512 KiB", "signalling": "256 KiB"}
"""Not published: rings of packets and what handles them."""
WORKING_SET_CPU_BOUND = "2 MiB"


def figure_9(lab: Lab) -> Experiment:
    """Does a cache that Dom0 and the media server share help?"""
    facts = FACTS["figure_9"]
    caches = [
        CACHES,
        *(f'domain.{name}.working-set="{size}"' for name, size in WORKING_SETS.items()),
    ]
    thrash = [f'domain.{name}.working-set="{WORKING_SET_CPU_BOUND}"' for name in ("cpu-1", "cpu-2")]
    alone = {
        "1": pinned(dom0=[0, 1], media=[0, 1], signalling=[2, 3]),
        "2": pinned(media=[0, 1], signalling=[2, 3]),
        "3": pinned(media=[2, 3], signalling=[0, 1]),
    }
    others = {"1": pinned(cpu=[2, 3]), "2": pinned(cpu=[2, 3]), "3": pinned(cpu=[0, 1])}
    beside: dict[str, list[str]] = {
        "D": [],
        **{f"1.{place}": [*pins, *others[place]] for place, pins in alone.items()},
    }
    found = measure(
        lab,
        "mixed",
        {name: [*caches, *thrash, *pins] for name, pins in beside.items()},
        share=0.4,
    )
    found |= measure(
        lab,
        "turnkey",
        {
            f"2.{place}": [
                "host.cpus=4",
                "calls.streams=800",
                'calls.rate="66.7 /s"',
                *caches,
                *pins,
            ]
            for place, pins in alone.items()
        },
        share=0.5,
    )
    without = measure(lab, "mixed", {name: beside[name] for name in ("D", "1.1", "1.2")}, share=0.5)
    rows = [
        *(
            claim(
                f"{shared} (on one pair of cores) against {apart}: not visibly better",
                facts["sharing"],
                [found[shared], found[apart]],
                holds=not is_visibly_better(found[shared], found[apart]),
            )
            for shared, apart in (("1.1", "1.2"), ("1.1", "1.3"), ("2.1", "2.2"), ("2.1", "2.3"))
        ),
        *(
            claim(
                f"{floats} (Dom0 floats) against 1.1: less loss",
                facts["resources"],
                [found[floats], found["1.1"]],
                holds=max(found[floats].losses) < min(found["1.1"].losses),
            )
            for floats in ("1.2", "1.3")
        ),
        *(
            claim(
                f"{name} against 2.1, without CPU-bound VMs: not visibly different",
                facts["alone"],
                [found[name], found["2.1"]],
                holds=not is_visibly_better(found[name], found["2.1"])
                and not is_visibly_better(found["2.1"], found[name]),
                why=(
                    "Dom0 and the Media VM need more than the two cores that 2.1 leaves them,"
                    " as the paper's own figure 12 shows with 720 streams"
                ),
            )
            for name in ("2.2", "2.3")
        ),
    ]
    return experiment(
        "figure-9",
        "cache affinity",
        f"{METHOD} One cache of 4 MiB serves cores 0 and 1, and another one cores 2 and 3."
        " Working sets are not published; ours are 512 KiB for each VCPU of Dom0 and the media"
        f" server, 256 KiB for signalling and {WORKING_SET_CPU_BOUND} for each CPU-bound one. The"
        " model has the cost of refilling a VCPU's part of a cache, and not the gain from"
        " packets that are in the cache already.",
        rows,
        found.values(),
        [Measurement(f"{name} without caches", str(point)) for name, point in without.items()],
    )


def figure_10(lab: Lab) -> Experiment:
    """Interrupt coalescing."""
    facts = FACTS["figure_10"]
    points: dict[str, list[str]] = {"D": []}
    for time_us, packets in ((40, 3), (80, 6)):
        table = f'{{ time = "{time_us} us", packets = {packets} }}'
        points[f"{time_us} us, {packets}"] = [
            f"nic.{nic}.coalesce={table}" for nic in ("eth0", "eth1")
        ]
    found = measure(lab, "mixed", points)
    default = found["D"]
    settings = [point for point in found.values() if point is not default]
    rows = [
        *(
            claim(
                f"{point.name} packets against D: more delay",
                facts["delay"],
                [point, default],
                holds=point.median > default.median,
            )
            for point in settings
        ),
        *(
            claim(
                f"{point.name} packets against D: less loss, but not visibly",
                facts["loss"],
                [point, default],
                holds=0 <= default.loss - point.loss < VISIBLE_LOSS_PERCENT,
            )
            for point in settings
        ),
    ]
    interrupts = "; ".join(f"{point.name}: {_interrupts(point):.2g}" for point in found.values())
    return experiment(
        "figure-10",
        "interrupt coalescing",
        METHOD,
        rows,
        found.values(),
        [
            Measurement(
                "interrupts for each packet that a card receives",
                interrupts,
                "a driver that is behind takes packets without interrupts (NAPI)",
            )
        ],
    )


def _interrupts(point: Point) -> float:
    nics = [nic for run in point.runs for nic in run.nics]
    return sum(nic.interrupts for nic in nics) / sum(nic.received for nic in nics)
