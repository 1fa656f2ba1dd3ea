"""From what dom0 left to results: the jobs that guests report, what Xen traced, as a `Run`.

dom0 leaves a directory for each window:

    start         CLOCK_REALTIME at time 0 of the run, in ns
    domids        a line `NAME DOMID` for each domain
    NAME.jobs     the report of each guest, as its console had it
    NAME.output   what the media server's program said there, between the guest's marks
    calls.json    of a host with calls: what `laxity-media` said of them
    packets       when each packet of the sampled calls was sent and came
    trace.bin     Xen's trace buffers, as laxity-trace wrote them

Results, response times and the trace are made of these by the code that makes them of simulated
jobs, in the Rust crates.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import numpy as np

from laxity import _core, tracefile
from laxity.lab import jobs
from laxity.lab.errors import LabError
from laxity.policies import TABLE
from laxity.resolved import calls_of
from laxity.results.measured import CALL_STREAMS, PACKET, kept_streams, telephony_of_report
from laxity.substrates.xen import packets
from laxity.substrates.xen.plan import PREFIX
from laxity.trace_schema import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from laxity.media_schema import Report as MediaReport
    from laxity.resolved import Resolved
    from laxity.resolved_schema import Domain, ResolvedHost
    from laxity.results.measured import Report
    from laxity.results.run import Run
    from laxity.results.streams import KeptStream
    from laxity.substrates.xen.plan import Window
    from laxity.trace_schema import Measured

START = "start"
DOMIDS = "domids"
BUFFERS = "trace.bin"
CALLS = "calls.json"
PACKETS = "packets"

SUMMARY = ".summary.json"

SUBSTRATE = "xen"


class RunSummary(Summary):
    """What Xen's buffers say as a whole, and what guests do."""

    ticks: list[dict[str, int] | None]
    """The tick of each guest's kernel; None for dom0."""
    accounting_phase_ns: int | None
    """When credits are distributed, below the time between two distributions; None where the
    scheduler told of none."""


def run(
    host: Resolved,
    window: Window,
    results: Path,
    trace: Path,
    *,
    scheduler: str | None,
    wall_ns: int,
    machine: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Run:
    """The run of a window, from the directory that dom0 left of it.

    Writes its trace to a file, and beside it, as JSON, its `RunSummary`. `scheduler` is
    Xen's own, if it was one of these; `wall_ns` is what the run took whoever ran it; `machine` is
    the fingerprint of an emulated one; `options` name the substrate on the command line.

    Raises LabError if something is missing, damaged, or not of this window.
    """
    domains = window.host["domains"]
    dom0 = packets.driver(window.host)
    reports = [None if domain is dom0 else _report(domain, window, results) for domain in domains]
    completions = [
        [task.completions_ns.astype("<i8").tobytes() for task in report.tasks] if report else []
        for report in reports
    ]
    metadata = host.trace_metadata(SUBSTRATE)
    if scheduler is not None and TABLE[host.host["policy"]].own_of != "xen":
        metadata["policy"] = f"xen:{scheduler}"
    try:
        told = _core.import_xen(
            str(results / BUFFERS),
            str(trace),
            json.dumps(metadata),
            json.dumps(_domids(window.host, results)),
            completions,
            _number(results / START),
        )
        ticks = [asdict(report.tick) if report and report.tick else None for report in reports]
        of_buffers: Summary = json.loads(told)
        summary: RunSummary = {
            **of_buffers,
            "ticks": ticks,
            "accounting_phase_ns": _accounting_phase_ns(host.host, trace),
        }
        # Xen's trace has them if the events that it records are those that carry them.
        is_cost_measured = bool(summary["decision_ns"])
        measured: Measured = {
            "cpu_ns": [sum(vcpus) for vcpus in summary["cpu_ns"]],
            "schedule_calls": summary["decisions"],
            "context_switches": summary["switches"],
            "schedule_ns": sum(summary["decision_ns"]) if is_cost_measured else None,
            "context_switch_ns": sum(summary["switch_ns"]) if is_cost_measured else None,
            "events": len(tracefile.records(trace)),
            "wall_ns": wall_ns,
        }
        telephony, streams = _calls(window, results)
        result = host.measured(
            SUBSTRATE,
            completions,
            measured,
            trace=trace,
            beside={**telephony, "machine": machine},
            streams=streams,
            options=options,
        )
    except (ValueError, OSError) as error:
        raise LabError(f"run {window.run!r}: {error}", f"see {results}") from None
    trace.with_suffix(SUMMARY).write_text(json.dumps(summary), "utf-8")
    return replace(result, policy=metadata["policy"])


def ticks(summary: Path) -> list[dict[str, int] | None]:
    """Returns the tick of each guest's kernel from the summary of a run; None for dom0."""
    told: RunSummary = json.loads(summary.read_text("utf-8"))
    return told["ticks"]


def deadlines_ns(summary: Path) -> list[list[int | None]]:
    """Returns the end of a period by domain and VCPU from the summary of a run; None for those of
    which the scheduler told nothing.
    """
    told: RunSummary = json.loads(summary.read_text("utf-8"))
    return told["deadlines_ns"]


def _accounting_phase_ns(host: ResolvedHost, trace: Path) -> int | None:
    if not TABLE[host["policy"]].uses("accounting-phase"):
        return None
    return tracefile.accounting_phase_ns(trace, host["settings"]["accounting_ns"])


def begun(host: ResolvedHost, summary: Path) -> list[str]:
    """Overrides of a resolved host: how its VCPUs stood when the run began, from its summary.

    That is the phase of accounting, and the phase of periods or the credits, where the policy has
    them. Each of the latter is that of the domain's first VCPU. A domain of which the scheduler
    told nothing gets none.
    """
    told: RunSummary = json.loads(summary.read_text("utf-8"))
    policy, found = TABLE[host["policy"]], []
    if policy.uses("accounting-phase") and (phase_ns := told["accounting_phase_ns"]) is not None:
        found.append(f"host.accounting-phase={phase_ns} ns")
    for number, domain in enumerate(host["domains"]):
        if policy.uses("phase") and (deadline_ns := told["deadlines_ns"][number][0]) is not None:
            phase_ns = deadline_ns % domain["parameters"]["period_ns"]
            found.append(f"domain.{domain['name']}.phase={phase_ns} ns")
        if policy.uses("credit") and (credit_ns := told["credits_ns"][number][0]) is not None:
            found.append(f"domain.{domain['name']}.credit={max(0, credit_ns)} ns")
    return found


def settled(
    host: ResolvedHost, summary: Path, unless_given: Mapping[str, int] | None = None
) -> list[str]:
    """Overrides of a resolved host: what a run settled by itself, from its summary.

    Ticks that the host does not have get the keys of `unless_given`, ns; None leaves them out.
    """
    return [*phases(host, ticks(summary), unless_given), *begun(host, summary)]


def phases(
    host: ResolvedHost,
    ticks: Sequence[Mapping[str, int] | None],
    unless_given: Mapping[str, int] | None = None,
) -> list[str]:
    """Overrides of a resolved host: its guests' ticks come when these, reported ones, did.

    Ticks that the host does not have get the keys of `unless_given`, ns; None leaves them out.
    """
    found = []
    for domain, tick in zip(host["domains"], ticks, strict=True):
        if tick is None or (domain["tick"] is None and unless_given is None):
            continue
        of_tick = {key: tick[f"{key}_ns"] for key in ("period", "offset")}
        if domain["tick"] is None and unless_given is not None:
            of_tick |= unless_given
        found += [f"domain.{domain['name']}.tick.{key}={ns} ns" for key, ns in of_tick.items()]
    return found


def _report(domain: Domain, window: Window, results: Path) -> jobs.GuestReport:
    path = results / f"{PREFIX}{domain['name']}.jobs"
    report = jobs.parse(_read(path), window.run)
    said = (report.duration_ns, len(report.tasks))
    asked = (window.host["duration_ns"], len(domain["tasks"]))
    if said != asked:
        raise LabError(
            f"{path} is of another run: it has {said[0]} ns and {said[1]} tasks, and this one "
            f"{asked[0]} ns and {asked[1]} tasks"
        )
    if report.notes:
        raise LabError(f"the guest of {domain['name']}: {'; '.join(report.notes)}", f"see {path}")
    return report


def _calls(window: Window, results: Path) -> tuple[dict[str, object], tuple[KeptStream, ...]]:
    """What became of the calls, for a result: its telephony, and packets of voice."""
    server = packets.media_server(window.host)
    if server is None:
        return {}, ()
    calls, output = results / CALLS, results / f"{PREFIX}{server['name']}.output"
    parties = _json(calls, _read(calls))
    report: Report = {
        "calls": parties["calls"],
        "load": parties["load"],
        "sink": parties["sink"],
        # Between the guest's marks.
        "relay": _json(output, "".join(_read(output).splitlines()[1:-1]))["relay"],
        "signalling": None,
        "packets": np.fromfile(results / PACKETS, PACKET),
    }
    # All calls are there from the start.
    there = -(-calls_of(window.host)["streams"] // CALL_STREAMS)
    return {"telephony": telephony_of_report(report, there)}, tuple(kept_streams(report, there))


def _json(path: Path, text: str) -> MediaReport:
    try:
        found: MediaReport = json.loads(text)
    except ValueError as error:
        raise LabError(f"{path} is damaged: {error}", "look at what dom0 left beside it") from None
    return found


def _domids(host: ResolvedHost, results: Path) -> dict[str, int]:
    """The numbers that Xen gave the domains, by their names in the host file."""
    text = _read(results / DOMIDS)
    dom0 = packets.driver(host)
    try:
        numbers = dict(line.split() for line in text.splitlines() if line.strip())
        return {
            domain["name"]: 0 if domain is dom0 else int(numbers[PREFIX + domain["name"]])
            for domain in host["domains"]
        }
    except (KeyError, ValueError):
        raise LabError(f"{results / DOMIDS} does not name all domains: {text!r}") from None


def _number(path: Path) -> int:
    text = _read(path).strip()
    if not text.isdigit():
        raise LabError(f"{path} is damaged: it is {text!r} and not a number")
    return int(text)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise LabError(
            f"dom0 left no {path.name}: {error.strerror}", f"look at what it left in {path.parent}"
        ) from None
