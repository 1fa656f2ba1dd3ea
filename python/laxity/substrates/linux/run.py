"""A host on this machine: the scene that it is, and the result that its run has."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.resolved import calls_of, network_of
from laxity.results.measured import kept_streams, telephony_of_report
from laxity.substrates.linux import media
from laxity.substrates.linux import trace as linux_trace
from laxity.substrates.linux.scene import scene

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.resolved_schema import ResolvedHost
    from laxity.results.run import Run
    from laxity.servers import MediaProgram
    from laxity.substrates.linux.media import SceneReport
    from laxity.trace_schema import Measured

SUBSTRATE = "linux"
DURATION_PARTS = 100
"""A run may differ from its duration by one part in this many."""
POLICY = "linux"
"""In a result: who shared the CPUs."""


def run(
    host: Resolved,
    program: MediaProgram,
    say: Say,
    options: Sequence[str] = (),
    trace: Path | None = None,
) -> Run:
    """Runs the calls of a host; `options` name the substrate on the command line.

    The trace goes to the file `trace`, where one is wanted and the kernel lets itself be traced.
    """
    resolved = host.host
    on_stage = scene(resolved, program, os.cpu_count() or 1)
    for note in notes(resolved):
        say(note)
    say(f"{program} on Linux: {on_stage.calls.duration_ns / 1e9:g} s")
    began_ns = time.monotonic_ns()
    recording = None if trace is None else trace.with_suffix(".dat")
    report = media.run(on_stage, recording)
    wall_ns = time.monotonic_ns() - began_ns
    check_duration(on_stage.calls.duration_ns, report["load"]["measured_duration_ns"])
    for warning in warnings(report):
        say(warning)
    names = [domain["name"] for domain in resolved["domains"]]
    if trace is not None and recording is not None:
        untraced = _trace(trace, recording, resolved, report, names)
        if untraced:
            trace = None
            say(f"no trace, and no causes of late packets: {untraced}")
    there = on_stage.calls.there
    measured: Measured = {
        "cpu_ns": [report["cpu_ns"].get(name, 0) for name in names],
        # Decisions that change nothing are not traced.
        "schedule_calls": None,
        "context_switches": None,
        "schedule_ns": None,
        "context_switch_ns": None,
        "events": report["load"]["sent"],
        "wall_ns": wall_ns,
    }
    return host.measured(
        SUBSTRATE,
        [[] for _ in names],
        measured,
        beside={
            "policy": POLICY,
            "measured_duration_ns": report["load"]["measured_duration_ns"],
            "telephony": telephony_of_report(report, there),
        },
        trace=trace,
        streams=tuple(kept_streams(report, there, on_stage.calls.sample)),
        options=options,
    )


def _trace(
    trace: Path,
    recording: Path,
    host: ResolvedHost,
    report: SceneReport,
    domains: Sequence[str],
) -> str:
    """Writes the trace of a recording, which is removed; returns why there is none, if so."""
    untraced: str = report["seen"].untraced
    if untraced:
        return untraced
    try:
        linux_trace.write(trace, recording, host, report, domains)
    except InputError as error:
        trace.unlink(missing_ok=True)
        return str(error)
    finally:
        recording.unlink(missing_ok=True)
    return ""


def check_duration(asked_ns: int, measured_ns: int) -> None:
    """Raises InputError for a run that lasted more than 1 % longer or shorter than it was to."""
    if abs(measured_ns - asked_ns) * DURATION_PARTS > asked_ns:
        raise InputError(
            f"the calls lasted {measured_ns / 1e9:.3f} s, and were to last {asked_ns / 1e9:g} s; "
            "this machine could not keep the time, and what was measured is not of that run",
            "let nothing else run on it, let its user have real-time priority, or have fewer "
            "streams and neighbours",
        )


def notes(host: ResolvedHost) -> list[str]:
    """What of a resolved host Linux does in its own way."""
    found = [
        f"{domain['name']}: the kernel drives the network itself; weight, cap and affinity of a "
        "driver domain have no effect"
        for domain in host["domains"]
        if domain["workload"] is not None and domain["workload"]["kind"] == "driver"
    ]
    calls = calls_of(host)
    if calls["signalling_server"] is not None and calls["rate"]:
        name = host["domains"][calls["signalling_server"]]["name"]
        found.append(
            f"{name}: authentication is off, as in the papers; the network is this run's own"
        )
    if host["caches"]:
        found.append("caches: those of this machine")
    found += [
        f"nic {nic['name']}: a cable between namespaces; its rate and ring have no effect"
        for nic in network_of(host)["nics"]
    ]
    return found


def warnings(report: SceneReport) -> list[str]:
    """What a reader of the result has to know of how it was measured."""
    load, sink, calls = report["load"], report["sink"], report["calls"]
    late = load["wake_up_late"]
    found = []
    if late is not None:
        found.append(
            f"the load woke up late by p99 {late['p99_ns'] / 1e6:.2f} ms, at most "
            f"{late['max_ns'] / 1e6:.2f} ms; load average {report['load_average']:.1f}"
        )
    if not (load["real_time"] and sink["real_time"]):
        found.append("load and sink had no real-time priority: delays may be theirs")
    if sink["dropped"]:
        found.append(f"{sink['dropped']} packets were lost by the sink, not by the server")
    if sink["mistimed"]:
        found.append(
            f"{sink['mistimed']} packets have a time of arrival before they were sent or after "
            "they were fetched, as the clock was set meanwhile; they count as arrived when fetched"
        )
    if load["failed"]:
        found.append(f"{load['failed']} packets could not be sent: {load['error']}")
    if calls["refused"]:
        found.append(f"{calls['refused']} parties had no port: {calls['error']}")
    if (sip := report["signalling"]) and (users := sip["registrations"]):
        found.append(
            f"registrations: {users['succeeded']} of {users['sent']}, "
            f"{users['retransmissions']} retransmissions"
        )
    return found
