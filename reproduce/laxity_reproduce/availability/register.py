"""Figures 2 and 3: users who register, without and with protection, and through a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from laxity_reproduce.availability.setup import (
    FACTS,
    RULES,
    UNPROTECTED,
    cpu_percent,
    cpu_row,
    failure,
    ms,
    row,
    run,
)
from laxity_reproduce.reproduction import Experiment, Measurement

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from laxity_reproduce.lab import Lab
    from laxity_reproduce.telephony.setup import Point

TRANSPORTS = {"udp": "UDP", "tcp": "TCP_1", "tcp-each": "TCP_n"}
"""As in host files, and as in the figures."""
RATES_PER_S = (1000, 1200, 1400, 1600, 1800)
SIMILAR = 1.5
"""Up to this ratio two values are similar; the paper calls a third "almost 5 times"."""
EACH = (4.0, 5.0)
"""Almost 5 times: between these."""
PROPORTIONAL = 0.1
"""Dom0's time for a registration differs by no more than this part between loads."""


def _rates(lab: Lab) -> tuple[int, ...]:
    return RATES_PER_S[:: len(RATES_PER_S) - 1] if lab.quick else RATES_PER_S


def _load(per_s: int, transport: str) -> list[str]:
    return [f'calls.registrations="{per_s} /s"', f'calls.registration-transport="{transport}"']


def _swept(lab: Lab, more: list[str]) -> dict[tuple[str, int], Point]:
    loads = [(transport, per_s) for transport in TRANSPORTS for per_s in _rates(lab)]
    points = {f"{way} {per_s}": [*_load(per_s, way), *more] for way, per_s in loads}
    return dict(zip(loads, run(lab, "signalling", points).values(), strict=True))


def _frame(found: dict[tuple[str, int], Point]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "line": f"{name}, {TRANSPORTS[transport]}",
                "per_s": per_s,
                "cpu_percent": cpu_percent(point, domain),
            }
            for domain, name in (("dom0", "Dom0"), ("guest", "guest"))
            for (transport, per_s), point in found.items()
        ]
    )


def draw(data: pd.DataFrame) -> Figure:
    """CPU use against registrations a second."""
    from laxity_reproduce.availability import plots  # noqa: PLC0415 - Matplotlib, for who draws

    return plots.cpu(data)


def draw_protected(data: pd.DataFrame) -> Figure:
    """Figure 3, with the values that the paper states."""
    from laxity_reproduce.availability import plots  # noqa: PLC0415 - Matplotlib, for who draws

    facts = FACTS["figure_3"]
    stated = {
        f"{name}, UDP": dict(zip(facts["per_s"], facts[key], strict=True))
        for name, key in (("Dom0", "dom0_percent"), ("guest", "guest_percent"))
    }
    return plots.cpu(data, stated)


def figure_2(lab: Lab) -> Experiment:
    """Without protection."""
    facts = FACTS["figure_2"]
    found = _swept(lab, UNPROTECTED)
    rates = _rates(lab)

    def ratios(transport: str, domain: str) -> list[float]:
        return [
            cpu_percent(found[transport, rate], domain) / cpu_percent(found["udp", rate], domain)
            for rate in rates
        ]

    dom0, guest, each = ratios("tcp", "dom0"), ratios("tcp", "guest"), ratios("tcp-each", "dom0")
    costs_us = [1e4 * cpu_percent(found["udp", rate], "dom0") / rate for rate in rates]
    rows = [
        row(
            "Dom0, TCP_1 against UDP, times",
            facts["similar"],
            _range(dom0),
            holds=max(dom0) <= SIMILAR,
            why="each answer is acknowledged by a separate segment",
        ),
        row(
            "guest, TCP_1 against UDP, times",
            facts["more"],
            _range(guest),
            holds=min(guest) > 1,
            why="the model's TCP costs the guest no more than its segments",
        ),
        row(
            "Dom0, TCP_n against UDP, times",
            facts["each"],
            _range(each),
            holds=EACH[0] <= min(each) and max(each) <= EACH[1],
            why="nine segments against two packets, which share interrupts if they come together",
        ),
        row(
            "Dom0's time for a registration over UDP, us",
            facts["proportional"],
            _range(costs_us),
            holds=max(costs_us) / min(costs_us) - 1 <= PROPORTIONAL,
            why="packets that come close together share an interrupt",
        ),
    ]
    method = (
        f"{RULES} Without protection, {rates[0]:,} to {rates[-1]:,} users register a second. The"
        " model of TCP has segments and their costs, but no window, order or timers. A"
        " registration takes two packets over UDP, two segments and an acknowledgement over one"
        " connection (TCP_1), and nine segments over a connection of its own (TCP_n). The model"
        " leaves out what the SIP server itself does more for TCP than for UDP. In the rows,"
        f" similar means at most {SIMILAR:g} times, almost 5 times {EACH[0]:g} to {EACH[1]:g}"
        f" times, proportional within {100 * PROPORTIONAL:g} %, and more at every load."
    )
    title = "registrations without protection"
    return Experiment("figure-2", title, method, rows, [], _frame(found), draw)


def _range(values: list[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def figure_3(lab: Lab) -> Experiment:
    """With protection, and through a failure."""
    facts = FACTS["figure_3"]
    found, without = _swept(lab, []), _swept(lab, UNPROTECTED)
    high_per_s, failure_per_s = facts["per_s"][1], facts["failure_per_s"]
    failures = {
        f"{name}, {mode}": [
            *_load(failure_per_s, transport),
            f'protect.domains.0.mode="{mode}"',
            failure(lab),
        ]
        for transport, name in TRANSPORTS.items()
        for mode in ("net", "no-net")
    }
    failed = run(lab, "signalling", failures)
    growth = [
        cpu_percent(point, "dom0") - cpu_percent(without[load], "dom0")
        for load, point in found.items()
    ]
    per_page = "only registrations change pages in the model; TCP's connections do not"
    rows = [
        cpu_row(
            f"guest at {high_per_s:,} a second, % of a CPU",
            facts["guest_percent"][1],
            cpu_percent(found["udp", high_per_s], "guest"),
            "the cost of a registration does not grow with load here",
        ),
        row(
            "Dom0: CPU use with protection less that without, % of a CPU, all loads",
            facts["higher"],
            _range(growth),
            holds=min(growth) > 0,
            why=per_page,
        ),
        row(
            f"UDP, Net, a failure at {failure_per_s:,} a second: registrations that succeed, %",
            FACTS["register_success_percent"],
            _survived_percent(failed["UDP, net"]),
            holds=_survived_percent(failed["UDP, net"]) == FACTS["register_success_percent"],
            why=f"gave up or forgotten: {_lost(failed['UDP, net'])}",
        ),
    ]
    measurements = [
        *(
            Measurement(
                (
                    f"{name}, a failure: registrations that succeed, %; answered and then"
                    " forgotten; retransmitted"
                ),
                f"{_survived_percent(point):g}; {_forgotten(point):,}; {_again(point):,}",
                f"delay p50, longest: {_delays(point)}",
            )
            for name, point in failed.items()
        ),
        *(
            Measurement(
                f"without a failure, {TRANSPORTS[way]}, {per_s:,} a second: delay p50, longest",
                _delays(point),
                f"without protection: {_delays(without[way, per_s])}; a checkpoint is acknowledged"
                f" after {_acknowledged_ms(point):,.0f} ms at most",
            )
            for (way, per_s), point in found.items()
            if per_s == facts["per_s"][0]
        ),
    ]
    method = (
        f"{RULES} The guest is in Net mode, with a checkpoint every {FACTS['interval_ms']} ms."
        f" The host fails in the middle of the run and of an epoch, at {failure_per_s:,}"
        " registrations a second; detection takes 300 ms, activation 4 ms. A registration"
        " succeeds if the user does not give up and, once told 200 OK, is known to the survivor."
        " A phone retransmits after 0.5 s, as SIPp does over UDP; over TCP the model does the"
        " same, where a kernel would wait at least 0.2 s. Every segment that the guest handles"
        " is assumed to change as many pages as a message does. With TCP_n the link to the"
        " standby cannot carry all of them, so epochs grow."
    )
    title = "registrations with protection, and through a failure"
    return Experiment("figure-3", title, method, rows, measurements, _frame(found), draw_protected)


def _survived_percent(point: Point) -> float:
    runs = [found.registrations for found in point.runs if found.registrations is not None]
    ended = sum(each.succeeded + each.failed for each in runs)
    return round(100 * (1 - _lost(point) / ended), 3)


def _lost(point: Point) -> int:
    gave_up = sum(found.registrations.failed for found in point.runs if found.registrations)
    return gave_up + _forgotten(point)


def _forgotten(point: Point) -> int:
    return sum(each.forgotten for found in point.runs for each in found.protection)


def _again(point: Point) -> int:
    return sum(found.registrations.retransmissions for found in point.runs if found.registrations)


def _acknowledged_ms(point: Point) -> float:
    return max(each.acknowledged_after_ns_max for r in point.runs for each in r.protection) / 1e6


def _delays(point: Point) -> str:
    delays = [found.registrations.delay_ns for found in point.runs if found.registrations]
    median = sum(each.p50 or 0 for each in delays) / len(delays)
    longest = max(each.max or 0 for each in delays)
    return f"{ms(median / 1e6)}, {ms(longest / 1e6)}"
