"""From what the host left to results: the jobs that guests report, what Linux traced, as a `Run`.

The host leaves in the directory of a run:

    start         ns of the TSC's clock at time 0 of the run
    threads       a line `NAME TID...` for each domain: the threads of its VCPUs
    NAME.jobs     the report of each guest
    trace.bin     the kernel's trace buffers, as laxity-ftrace wrote them
    policy.bin    what a policy of Laxity did to VCPUs, if one scheduled and nothing was profiled

Results, response times and the trace are made of these by the code that makes them of simulated
jobs, in the Rust crates.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from laxity import _core, tracefile
from laxity.lab import jobs
from laxity.lab.errors import LabError
from laxity.substrates.kvm.plan import RUN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from laxity.resolved import Resolved
    from laxity.resolved_schema import Domain, ResolvedHost
    from laxity.results.run import Run
    from laxity.trace_schema import Measured, Summary

SUBSTRATE = "kvm"
SUMMARY = ".summary.json"


def run(
    host: Resolved,
    results: Path,
    trace: Path,
    *,
    wall_ns: int,
    machine: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Run:
    """The run, from the directory that the host left of it.

    Writes its trace to a file, and beside it, as JSON, what the buffers say as a whole (`Summary`
    of crates/laxity-replay). `wall_ns` is what the run took; `machine` is the fingerprint of an
    emulated one; `options` name the substrate on the command line.

    Raises LabError if something is missing, damaged, or not of this run.
    """
    reports = [_report(domain, host.host, results) for domain in host.host["domains"]]
    completions = [
        [task.completions_ns.astype("<i8").tobytes() for task in report.tasks] for report in reports
    ]
    policy = results / "policy.bin"
    try:
        told = _core.import_kvm(
            str(results / "trace.bin"),
            str(trace),
            json.dumps(host.trace_metadata(SUBSTRATE)),
            json.dumps(_threads(results)),
            completions,
            int(_read(results / "start")),
            str(policy) if policy.exists() else None,
        )
        summary: Summary = json.loads(told)
        measured: Measured = {
            "cpu_ns": [sum(vcpus) for vcpus in summary["cpu_ns"]],
            "schedule_calls": summary["decisions"],
            "context_switches": summary["switches"],
            "schedule_ns": None,
            "context_switch_ns": None,
            "events": len(tracefile.records(trace)),
            "wall_ns": wall_ns,
        }
        result = host.measured(
            SUBSTRATE,
            completions,
            measured,
            trace=trace,
            beside={"machine": machine},
            options=options,
        )
    except (ValueError, OSError) as error:
        raise LabError(f"the run on KVM: {error}", f"see {results}") from None
    trace.with_suffix(SUMMARY).write_text(told, "utf-8")
    return result


def _report(domain: Domain, host: ResolvedHost, results: Path) -> jobs.GuestReport:
    path = results / f"{domain['name']}.jobs"
    report = jobs.parse(_read(path), RUN)
    said = (report.duration_ns, len(report.tasks))
    asked = (host["duration_ns"], len(domain["tasks"]))
    if said != asked:
        raise LabError(
            f"{path} is of another run: it has {said[0]} ns and {said[1]} tasks, and this one "
            f"{asked[0]} ns and {asked[1]} tasks"
        )
    return report


def _threads(results: Path) -> dict[str, list[int]]:
    lines = [line.split() for line in _read(results / "threads").splitlines()]
    return {name: [int(word) for word in words] for name, *words in lines}


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise LabError(
            f"the host left no {path.name}: {error.strerror}",
            f"look at what it left in {path.parent}",
        ) from None
