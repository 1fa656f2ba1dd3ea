"""Observing a trace: the host file, and the run of that host as the trace tells it."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from laxity import _core, tracefile
from laxity import directory as directories
from laxity.errors import InputError, core_errors
from laxity.host import Host
from laxity.observe import here, threads
from laxity.observe.host_file import host_file
from laxity.observe.known import FROM_TRACE, Known, of_host, of_trace, with_phases
from laxity.policies import TABLE, default_of
from laxity.substrates import of_words
from laxity.text import number
from laxity.tracefs import MAGIC, PACKETS, SOCKETS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from laxity.observation_schema import Observation, Survey
    from laxity.observe.known import Configuration
    from laxity.observe.threads import Machine
    from laxity.resolved import Resolved
    from laxity.results.run import Run
    from laxity.substrates.kernel import Kernel
    from laxity.trace_schema import Measured, Metadata, TaskMetadata


NOT_SEEN = (
    "packets that nobody took before the recording ended, or that were dropped",
    "what a packet did before this kernel had it, and after its domain had it",
    "which VCPU of a virtual machine was to handle a packet; the first to run is taken to have it",
    "packets that reach a virtual machine without a tap or a macvtap (XDP, devices handed to it)",
    "how long packets waited in a socket until it was empty once; it may be longer than is told",
)
"""What a recording of Linux does not tell of packets, as sentences without their full stops."""
NO_SOCKETS = "packets of UDP sockets, since the recording has no events of them"
NO_WORKERS = (
    "packets for {}, since no thread that ran is known to take packets for it (--domain "
    "NAME=THREAD,...+THREAD,...)"
)


@dataclass(frozen=True)
class Observed:
    """A host that was observed."""

    found: Observation
    host: Host
    """The host file that was made of it."""
    run: Run
    """What the host did, by the tasks that were found; its trace has their jobs."""
    packets: Mapping[str, int] | None = None
    """How many packets each domain had by its name; None if they were not recorded."""

    def to_json(self) -> dict[str, object]:
        """Returns the object that `laxity observe --json` prints."""
        packets = {} if self.packets is None else {"packets": self.packets}
        return {**self.found, **packets, "run": self.run.to_json()}


def observe(source: Path, trace: Path) -> Observed:
    """Finds out what the host of a trace, or of a run's directory, did.

    Nothing is taken from the source but who ran when, and how the host was configured. Writes the
    trace with the jobs of the tasks that were found to `trace`. Raises InputError for a damaged
    trace.
    """
    raw = tracefile.find(source)
    metadata = tracefile.metadata(raw)
    return observe_trace(raw, trace, configuration(source, metadata), str(source))


def configuration(source: Path, metadata: Metadata) -> Configuration:
    """How the host was configured: by the host file of a run's directory, or by the trace.

    What is known of the machine on which it ran is known of the host, too.
    """
    if source.is_dir():
        manifest = directories.Manifest.load(source)
        if manifest.host is not None:
            path = source / directories.HOST
            host = Host.load(path).resolve(manifest.overrides)
            on = of_words(manifest.options)
            machine, told = on.machine(host), str(path)
            if machine:
                told += f", and what is known of the lab of {on.label}"
            known = replace(of_host(host.changed(machine).host, told), kernel=on.kernel(host))
            names = (domain["name"] for domain in host.host["domains"])
            return with_phases(known, names, on.period_ends_ns(source / on.name))
    return of_trace(metadata)


def observe_trace(
    raw: Path,
    trace: Path,
    known: Configuration,
    source: str,
    packets: Sequence[int] | None = None,
) -> Observed:
    """Finds out what the host of a trace did whose configuration is known.

    `source` is what messages and the host file call it, and `packets` how many packets each domain
    of the trace had, if that is known. All else as in `observe`.
    """
    with core_errors():
        found: Observation = json.loads(_core.observe(str(raw), _told_of(known.kernel)))
    known = _with_accounting(known, raw, found)
    # Programs beside the domains stand behind them.
    names = [domain["name"] for domain in found["domains"]]
    counts = None if packets is None else dict(zip(names, packets, strict=False))
    text = host_file(found, tracefile.metadata(raw), known, source, counts or {})
    host = Host.parse(text, directories.HOST)
    return Observed(found, host, run_of(host.resolve(), raw, trace), counts)


def _told_of(kernel: Kernel) -> str:
    """A kernel as `_core.observe` takes it."""
    names = ("arrival_ns", "interrupt_ns", "wake_ns", "stolen")
    tick_ns = kernel.tick and kernel.tick["period"]
    return json.dumps({**{name: getattr(kernel, name) for name in names}, "tick_ns": tick_ns})


def _with_accounting(known: Configuration, trace: Path, found: Observation) -> Configuration:
    """Adds when credits are distributed, which nobody configures, as a trace tells it.

    A timer of the policy is known to be late. Credits that come at most twice that after a job's
    arrival, or before one, are taken to come at its instant: that of the nearest arrival before
    them, if there is one, since other VCPUs wake later for the same instant.
    """
    name = "accounting-phase"
    if not TABLE[known.policy_name].uses(name) or name in known.settings:
        return known
    given = known.settings.get("accounting")
    accounting_ns = default_of("accounting") if given is None else given.value
    phase_ns = tracefile.accounting_phase_ns(trace, accounting_ns)
    if phase_ns is None:
        return known
    near_ns = 2 * known.kernel.timer_latency_ns
    late_ns = [ns for ns in _apart_ns(phase_ns, accounting_ns, found) if abs(ns) <= near_ns]
    phase_ns -= min(late_ns, key=lambda ns: (ns < 0, abs(ns)), default=0)
    phase_ns %= accounting_ns
    told = Known(phase_ns, f"{FROM_TRACE}: credits came then")
    return replace(known, settings={**known.settings, name: told} if phase_ns else known.settings)


def _apart_ns(phase_ns: int, accounting_ns: int, found: Observation) -> Iterator[int]:
    """How long after the nearest arrival of each task credits are distributed, or before it."""
    for domain in found["domains"]:
        for vcpu in domain["vcpus"]:
            for task in vcpu["load"]["tasks"] if vcpu["load"]["kind"] == "tasks" else ():
                step_ns = math.gcd(accounting_ns, task["period_ns"])
                half_ns = step_ns // 2
                yield (phase_ns - task["offset_ns"] + half_ns) % step_ns - half_ns


class Whole(TypedDict):
    """What a trace says as a whole; see `observed_jobs` of crates/laxity-py."""

    cpu_ns: list[int]
    decisions: int
    switches: int
    records: int


def run_of(host: Resolved, raw: Path, trace: Path) -> Run:
    """The run of a host as a trace of it tells, with the jobs of the host's own tasks.

    If the trace has these jobs, they are taken as they are. Writes a trace with the jobs to
    `trace`. Raises InputError if the trace is of another host.
    """
    metadata = tracefile.metadata(raw)
    substrate = metadata["substrate"]
    expected = host.trace_metadata(substrate)
    own = len(expected["domains"])
    # The host file has neither programs beside its domains nor packets without calls.
    expected["domains"] += [each for each in metadata["domains"][own:] if tracefile.is_beside(each)]
    if "calls" not in expected and "calls" in metadata:
        expected["calls"] = metadata["calls"]
    if "programs_in" in metadata:
        expected["programs_in"] = metadata["programs_in"]
    with core_errors():
        completions, told = _core.observed_jobs(str(raw), str(trace), json.dumps(expected))
    whole: Whole = json.loads(told)
    if _tasks(expected) == _tasks(metadata):
        shutil.copyfile(raw, trace)
        completions = _completions(raw, completions)
    measured: Measured = {
        "cpu_ns": whole["cpu_ns"][:own],
        "schedule_calls": whole["decisions"],
        "context_switches": whole["switches"],
        "schedule_ns": None,
        "context_switch_ns": None,
        "events": whole["records"],
        "wall_ns": host.host["duration_ns"],
    }
    return host.measured(substrate, completions[:own], measured, trace=trace)


def _tasks(metadata: Metadata) -> list[list[TaskMetadata]]:
    return [domain["tasks"] for domain in metadata["domains"]]


def _completions(trace: Path, shape: list[list[bytes]]) -> list[list[bytes]]:
    """When the jobs of a trace were complete, by domain and task; `shape` has as many of each."""
    records = tracefile.records(trace)
    complete = records[records["kind"] == tracefile.number_of("complete")]
    tasks = complete["argument"] >> tracefile.JOB_NUMBER_BITS
    numbers = complete["argument"] & ((1 << tracefile.JOB_NUMBER_BITS) - 1)
    completions: list[list[bytes]] = []
    for domain, of_domain in enumerate(shape):
        completions.append([])
        for task, times in enumerate(of_domain):
            found = np.full(len(times) // 8, np.iinfo("<i8").max, "<i8")
            own = (complete["domain"] == domain) & (tasks == task) & (numbers < len(found))
            found[numbers[own]] = complete["time_ns"][own]
            completions[-1].append(found.tobytes())
    return completions


def is_recording(source: Path) -> bool:
    """Returns whether a file is one of trace-cmd."""
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def observe_recording(
    recording: Path,
    domains: Sequence[str],
    trace: Path,
    *,
    is_here: bool = False,
    packet_delay_ns: int | None = None,
) -> Observed:
    """Finds out what a Linux host did, from a file of trace-cmd.

    `domains` name threads as domains ("media=4711,4712"); without them they are the virtual
    machines of QEMU. If it `is_here`, this machine was recorded just now, and says how its virtual
    machines are configured. With `packet_delay_ns` the trace also has the packets that waited for
    longer until their domain had them, and the programs beside the domains. All else as in
    `observe`. Raises InputError if it has no packets then.
    """
    with core_errors():
        survey: Survey = json.loads(_core.recorded_threads(str(recording)))
    machines = threads.named(domains)
    if not machines:
        machines = here.machines() if is_here else threads.of_qemu(survey["threads"])
        running = {thread["thread"] for thread in survey["threads"]}
        machines = [machine for machine in machines if running.issuperset(machine.threads)]
    threads.refuse_unknown(machines, survey["threads"])
    known = threads.configuration(machines, survey["threads"])
    if is_here:
        known = here.with_settings(known, machines, survey["cpus"])
    metadata: Metadata = {
        "substrate": "linux" if domains else "kvm",
        "policy": known.policy_name,
        "seed": 1,
        "duration_ns": survey["to_ns"] - survey["from_ns"],
        "cpus": survey["cpus"],
        "domains": [
            tracefile.bare_domain(machine.name, len(machine.threads)) for machine in machines
        ],
    }
    threads_of = [list(machine.threads) for machine in machines]
    workers: list[tuple[int, int]] = []
    if packet_delay_ns is not None:
        named = [(machine.name, machine.threads) for machine in machines]
        metadata["domains"], threads_of = tracefile.domains_of_threads(named, survey["threads"], {})
        workers = _workers(machines, survey)
        metadata["calls"] = {
            "delay_ns": packet_delay_ns,
            "not_seen": _not_seen(recording, survey, [] if domains else machines, workers),
        }
    raw = trace.with_suffix(".raw")
    try:
        with core_errors():
            guessed, packets = _core.import_recorded(
                str(recording),
                str(raw),
                json.dumps(metadata),
                threads_of,
                delay_ns=packet_delay_ns,
                workers=workers,
            )
        source = "this machine" if is_here else str(recording)
        if guessed:
            source += f"; the kernel did not trace {number(guessed, 'switch', 'switches')}"
        return observe_trace(raw, trace, known, source, packets)
    finally:
        raw.unlink(missing_ok=True)


def _workers(machines: Sequence[Machine], survey: Survey) -> list[tuple[int, int]]:
    """The threads that ran and take packets for others, each with the place of its domain."""
    ran = {thread["thread"] for thread in survey["threads"]}
    return [
        (worker, place)
        for place, machine in enumerate(machines)
        for worker in machine.workers
        if worker in ran
    ]


def _not_seen(
    recording: Path,
    survey: Survey,
    virtual: Sequence[Machine],
    workers: Sequence[tuple[int, int]],
) -> list[str]:
    """What of packets the trace does not tell; `virtual` are all virtual machines, or none.

    Raises InputError if that is all of them.
    """
    if survey["packets"] == "none":
        events = {**PACKETS, **SOCKETS}
        words = (f"-e {system}:{event}" for system, names in events.items() for event in names)
        raise InputError(
            f"{recording} has no packets",
            f"record them, too: trace-cmd record {' '.join(words)}; or leave --packet-delay out",
        )
    served = {place for _, place in workers}
    return [
        *NOT_SEEN,
        *([NO_SOCKETS] if survey["packets"] == "cards" else []),
        *(
            NO_WORKERS.format(machine.name)
            for place, machine in enumerate(virtual)
            if place not in served
        ),
    ]
