"""What runs and checks found: objects around the JSON that the command line prints."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from laxity import directory as directories
from laxity import files
from laxity.errors import InputError
from laxity.telephony import (
    KeptStream,
    Telephony,
    streams_of_table,
    summary_of_streams,
    table_of_streams,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pandas as pd

RESULT = "result.json"
RESULTS = "results.json"
RESPONSES = "responses.parquet"
COUNTS = "response-counts.parquet"
STREAMS = "streams.parquet"

Times = np.ndarray[tuple[int], np.dtype[np.int64]]

Responses = dict[tuple[str, str], Times]
"""Response times, ns, of the completed jobs whose deadline fell within the run, in the order of
their arrival; by domain and task."""


@dataclass(frozen=True, eq=False)
class Counts:
    """How many of a task's response times are of each length."""

    response_ns: Times
    """Ascending; each is the longest of those that count as one, which a thousandth separates."""
    jobs: Times


Counted = dict[tuple[str, str], Counts]
"""The same jobs of tasks that have so many of them that not each one's response time was kept."""

T = TypeVar("T")


@dataclass(frozen=True)
class Distribution:
    """Quantiles, ns, by nearest rank; None where there are no values."""

    p50: int | None
    p99: int | None
    max: int | None


@dataclass(frozen=True)
class TaskResult:
    """A task's jobs."""

    name: str
    jobs: int
    """Those whose deadline fell within the run."""
    missed: int
    """Those of them that were not complete at their deadline."""
    miss_ratio: float
    unfinished: int
    """Those of `missed` that were not even complete when the run ended; in the distributions they
    stand with the time that they had by then."""
    response_ns: Distribution
    """From arrival to completion, of all jobs."""
    lateness_ns: Distribution
    """From deadline to completion, of the missed jobs."""
    relative_error: float | None = None
    """The medians and 99 % quantiles may be longer than they were by this part of the response
    time; None if they are exact. They are not for tasks of `Run.counted`."""


@dataclass(frozen=True)
class Waits:
    """Times from when a VCPU could run to when it did: its scheduling latency."""

    count: int
    total_ns: int
    max_ns: int

    @property
    def mean_ns(self) -> float:
        """The mean."""
        return self.total_ns / self.count


@dataclass(frozen=True)
class DomainResult:
    """A domain's jobs and CPU time."""

    name: str
    jobs: int
    missed: int
    miss_ratio: float
    cpu_ns: int
    """CPU time of its VCPUs, the scheduler's own costs not counted."""
    reserved: float | None
    """CPUs that the budgets of its VCPUs reserve; None under a policy that knows no budgets."""
    stalled_ns: int
    """What of it went into fetching what was not in a cache."""
    cache_misses: int
    """Lines that were fetched."""
    waits: Waits | None
    """How long its VCPUs waited for a CPU; None where that was not measured."""
    tasks: tuple[TaskResult, ...]


@dataclass(frozen=True)
class Overhead:
    """What the scheduler itself cost; None where that was not measured."""

    schedule_calls: int | None
    context_switches: int | None
    schedule_ns: int | None
    context_switch_ns: int | None
    loss_ratio: float | None
    """Both times, of the time of all CPUs."""


@dataclass(frozen=True)
class Profile:
    """A profile of costs, whose numbers are of one machine."""

    of: str
    """`scheduling` or `packets`."""
    name: str
    source: str
    """Where its numbers come from: measured, fitted or estimated, and on which machine."""


def profiles_of(content: Iterable[Mapping[str, str]]) -> tuple[Profile, ...]:
    """From the list in a result."""
    return tuple(Profile(**profile) for profile in content)


@dataclass(frozen=True)
class Engine:
    """What the run cost whoever ran it."""

    events: int
    wall_ns: int
    """The only part of a result that two runs do not share."""


@dataclass(frozen=True)
class Machine:
    """What the bytes of a run on the emulated machine depend on, beside the host file.

    Each part is a digest: see `laxity schema result`.
    """

    fingerprint: str
    """Of all the others."""
    qemu: str
    firmware: str
    xen: str
    kernel: str
    dom0: str
    programs: str


@dataclass(frozen=True)
class Origin:
    """What a result was made from."""

    host: bytes
    """The text of the host file."""
    name: str
    """How messages call the file."""
    overrides: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Where it was run, as on the command line: empty for the simulator."""


@dataclass(frozen=True, repr=False)
class Run:
    """One run of a host. `to_json()` is the object that `laxity run --json` prints."""

    policy: str
    seed: int
    substrate: str
    machine: Machine | None
    """The emulated machine that Xen ran on; None elsewhere."""
    duration_ns: int
    measured_duration_ns: int | None
    """How long real packets were sent, by the clock of who sent them; None where none were."""
    domains: tuple[DomainResult, ...]
    telephony: Telephony | None
    """Calls and voice; None without calls."""
    overhead: Overhead
    profiles: tuple[Profile, ...]
    """Whose costs a simulated run used; none of a run that was measured."""
    engine: Engine
    origin: Origin = field(repr=False)
    responses: Responses = field(repr=False, compare=False, default_factory=dict)
    counted: Counted = field(repr=False, compare=False, default_factory=dict)
    streams: tuple[KeptStream, ...] = field(repr=False, compare=False, default=())
    """The packets of the sampled streams."""
    trace: Path | None = field(repr=False, compare=False, default=None)
    """Where the trace of the run is, if it was traced."""

    @classmethod
    def from_json(
        cls,
        content: Mapping[str, Any],
        origin: Origin,
        responses: Responses | None = None,
        trace: Path | None = None,
        streams: tuple[KeptStream, ...] = (),
        counted: Counted | None = None,
    ) -> Run:
        """Makes a run of the result object of the extension module."""
        return cls(
            **{
                **content,
                "machine": (machine := content.get("machine")) and Machine(**machine),
                "domains": tuple(_domain(domain) for domain in content["domains"]),
                "telephony": content["telephony"] and Telephony.from_json(content["telephony"]),
                "overhead": Overhead(**content["overhead"]),
                # Older results do not have them.
                "profiles": profiles_of(content.get("profiles", ())),
                "engine": Engine(**content["engine"]),
            },
            origin=origin,
            responses=responses or {},
            counted=counted or {},
            streams=streams,
            trace=trace,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns the result object, as its JSON Schema (`laxity schema result`) has it."""
        return {
            "policy": self.policy,
            "seed": self.seed,
            "substrate": self.substrate,
            "machine": self.machine and asdict(self.machine),
            "duration_ns": self.duration_ns,
            "measured_duration_ns": self.measured_duration_ns,
            "domains": [_domain_json(domain) for domain in self.domains],
            "telephony": self.telephony and self.telephony.to_json(),
            "overhead": asdict(self.overhead),
            "profiles": [asdict(profile) for profile in self.profiles],
            "engine": asdict(self.engine),
        }

    @property
    def jobs(self) -> int:
        """Jobs of all domains whose deadline fell within the run."""
        return sum(domain.jobs for domain in self.domains)

    @property
    def missed(self) -> int:
        """Those of them that were not complete at their deadline."""
        return sum(domain.missed for domain in self.domains)

    @property
    def miss_ratio(self) -> float:
        """`missed` / `jobs`; 0 where there are none."""
        return self.missed / self.jobs if self.jobs else 0.0

    @property
    def passed(self) -> bool:
        """No deadline was missed, and the calls were accepted, if there are any."""
        accepted = self.telephony is None or self.telephony.accepted is not False
        return not self.missed and accepted

    def domain(self, name: str) -> DomainResult:
        """Returns the domain of that name; KeyError if there is none."""
        return _named(self.domains, name)

    def arrow(self) -> pa.Table:
        """One row for each task, times in ns."""
        rows = [
            {
                "domain": domain.name,
                "task": task.name,
                "jobs": task.jobs,
                "missed": task.missed,
                "miss_ratio": task.miss_ratio,
                "unfinished": task.unfinished,
                "response_ns_p50": task.response_ns.p50,
                "response_ns_p99": task.response_ns.p99,
                "response_ns_max": task.response_ns.max,
                "lateness_ns_p50": task.lateness_ns.p50,
                "lateness_ns_p99": task.lateness_ns.p99,
                "lateness_ns_max": task.lateness_ns.max,
            }
            for domain in self.domains
            for task in domain.tasks
        ]
        return pa.Table.from_pylist(rows, schema=_TASK_SCHEMA)

    def frame(self) -> pd.DataFrame:
        """A row for each task, times in ns; of a run with calls, one for each sampled stream.

        What there is no value for is `<NA>`: whole numbers stay whole.
        """
        if self.telephony is None:
            return frame_of(self.arrow())
        return frame_of(summary_of_streams(self.streams))

    def __repr__(self) -> str:
        """One line: the policy, the seed, the verdict."""
        return f"<laxity.Run {self.heading()}: {self.verdict()}>"

    def heading(self) -> str:
        """What ran, in a few words."""
        seconds = f"{self.duration_ns / 1e9:g} s"
        return f"{self.origin.name}, {self.policy} on {self.substrate}, {seconds}, seed {self.seed}"

    def verdict(self) -> str:
        """What came of it, in a few words."""
        missed = f"{self.missed:,} of {self.jobs:,} jobs missed their deadlines"
        if self.telephony is None:
            return missed if self.jobs else "no deadline fell within the run"
        said = {True: "accepted", False: "not accepted", None: "not judged"}
        lost = f"{self.telephony.voice.loss_ratio:.3%} of the packets lost"
        return f"calls {said[self.telephony.accepted]}, {lost}"

    def save(self, directory: str | Path) -> Path:
        """Writes the result, the response times, the host file and the trace, if there is one.

        `directory` must be new, empty or an earlier output of Laxity, which is replaced; InputError
        if not.
        """
        with directories.output(Path(directory)) as staging:
            if self.trace is not None:
                shutil.copyfile(self.trace, staging / directories.TRACE)
            self.write(staging)
        return Path(directory)

    def write(self, directory: Path) -> None:
        """Writes all but the trace into a directory that is there."""
        save_origin(directory, "run", self.origin)
        directories.write_json(directory / RESULT, self.to_json())
        pq.write_table(_responses_table(self.responses), directory / RESPONSES)
        if self.counted:
            pq.write_table(_counts_table(self.counted), directory / COUNTS)
        if self.telephony is not None:
            pq.write_table(table_of_streams(self.streams), directory / STREAMS)

    @classmethod
    def load(cls, directory: str | Path) -> Run:
        """Reads what `save` or `laxity run -o` wrote; InputError if it is something else."""
        path = Path(directory)
        origin = load_origin(path, "run")
        trace, streams, counts = path / directories.TRACE, path / STREAMS, path / COUNTS
        return cls.from_json(
            read_json(path / RESULT),
            origin,
            _responses(read_table(path / RESPONSES)),
            trace if trace.exists() else None,
            streams_of_table(read_table(streams)) if streams.exists() else (),
            _counted(read_table(counts)) if counts.exists() else {},
        )

    def report(self, directory: str | Path) -> Path:
        """Saves the run, and writes a report on it beside it; returns the HTML file."""
        from laxity import report  # noqa: PLC0415 - Matplotlib takes a second to load

        return report.write(self.save(directory))

    def _repr_html_(self) -> str:
        """For notebooks."""
        from laxity import notebook  # noqa: PLC0415 - only notebooks need it

        return notebook.table(f"{self.heading()}: {self.verdict()}", self.frame())


@dataclass(frozen=True, repr=False)
class Comparison:
    """One workload under several policies: a run for each policy and seed."""

    runs: tuple[Run, ...]
    """In the order of the policies; those of one policy by seed."""
    origin: Origin = field(repr=False)
    notes: tuple[str, ...] = ()
    """What is to be known of the choice of policies: why some were left out, what others lack."""

    def by_policy(self) -> dict[str, tuple[Run, ...]]:
        """The runs of each policy, one for each seed."""
        policies = dict.fromkeys(run.policy for run in self.runs)
        return {
            policy: tuple(run for run in self.runs if run.policy == policy) for policy in policies
        }

    def alike(self) -> list[list[str]]:
        """Policies whose runs are equal in every number."""
        groups: dict[str, list[str]] = {}
        for policy, runs in self.by_policy().items():
            told = [{**run.to_json(), "policy": None, "engine": None} for run in runs]
            groups.setdefault(json.dumps(told), []).append(policy)
        return [policies for policies in groups.values() if len(policies) > 1]

    @property
    def passed(self) -> bool:
        """Whether every run did."""
        return all(run.passed for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Returns `results`, the result objects, and `notes`."""
        return {"results": [run.to_json() for run in self.runs], "notes": list(self.notes)}

    def arrow(self) -> pa.Table:
        """One row for each policy, seed and task, times in ns; with calls, for each run."""
        if self.runs[0].telephony is not None:
            return pa.Table.from_pylist([_calls_row(run) for run in self.runs])
        tables = [
            run.arrow()
            .add_column(0, "policy", pa.repeat(run.policy, run.arrow().num_rows))
            .add_column(1, "seed", pa.repeat(run.seed, run.arrow().num_rows))
            for run in self.runs
        ]
        return pa.concat_tables(tables)

    def frame(self) -> pd.DataFrame:
        """`arrow()` as a pandas data frame; what there is no value for is `<NA>`."""
        return frame_of(self.arrow())

    def __repr__(self) -> str:
        """One line: the policies, and how many of them passed."""
        by_policy = self.by_policy()
        passed = [policy for policy, runs in by_policy.items() if all(run.passed for run in runs)]
        seeds = len(self.runs) // len(by_policy)
        return (
            f"<laxity.Comparison {self.origin.name}, {len(by_policy)} policies, {seeds} seeds: "
            f"passed under {', '.join(passed) or 'none'}>"
        )

    def save(self, directory: str | Path) -> Path:
        """Writes the results and the host file, as `Run.save` does."""
        with directories.output(Path(directory)) as staging:
            self.write(staging)
        return Path(directory)

    def write(self, directory: Path) -> None:
        """Writes the same into a directory that is there."""
        save_origin(directory, "compare", self.origin)
        directories.write_json(directory / RESULTS, self.to_json())

    @classmethod
    def load(cls, directory: str | Path) -> Comparison:
        """Reads what `save` wrote; InputError if it is something else."""
        path = Path(directory)
        origin = load_origin(path, "compare")
        content = read_json(path / RESULTS)
        runs = tuple(Run.from_json(each, origin) for each in content["results"])
        return cls(runs, origin, tuple(content["notes"]))

    def _repr_html_(self) -> str:
        """For notebooks."""
        from laxity import notebook  # noqa: PLC0415 - only notebooks need it

        return notebook.table(repr(self).strip("<>"), self.frame())


@dataclass(frozen=True)
class TaskCheck:
    """What analysis says of a task."""

    name: str
    guaranteed: bool
    bound_ns: int | None
    """No job takes longer from its arrival to its completion; None where no bound is known."""
    deadline_ns: int
    test: str | None
    """The test that gave the bound."""
    why: str | None
    """Why the task is not guaranteed."""


@dataclass(frozen=True)
class DomainCheck:
    """What analysis says of a domain."""

    name: str
    tasks: tuple[TaskCheck, ...]


@dataclass(frozen=True)
class Budget:
    """A domain's budget, and the smallest that analysis finds enough at its period."""

    name: str
    period_ns: int
    """0 if the host gives none."""
    budget_ns: int | None
    """The smallest; None if not even the whole period is enough, or the policy knows no budgets."""
    given_ns: int
    """The budget that the host gives; 0 if none."""


@dataclass(frozen=True)
class NotAnalysed:
    """A part of a host that analysis says nothing about."""

    what: str
    domains: tuple[str, ...]
    """Which domains it is in; none if it is a part of the whole host."""


@dataclass(frozen=True, repr=False)
class Check:
    """What analysis says of a host. `to_json()` is the object that `laxity check --json` prints."""

    policy: str
    verdict: str
    """`schedulable`; `not-guaranteed`; or `not-analysed`: no task is without a guarantee, but the
    host has calls, of which analysis says nothing."""
    domains: tuple[DomainCheck, ...]
    not_analysed: tuple[NotAnalysed, ...]
    profiles: tuple[Profile, ...]
    """Whose costs are in the bounds."""
    run_instead: str | None
    """The command that shows what was not analysed; None if all was."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any], command: str) -> Check:
        """Makes a check of the object of the extension module; `command` runs the same host."""
        domains = tuple(
            DomainCheck(domain["name"], tuple(TaskCheck(**task) for task in domain["tasks"]))
            for domain in content["domains"]
        )
        not_analysed = tuple(
            NotAnalysed(part["what"], tuple(part["domains"])) for part in content["not_analysed"]
        )
        return cls(
            content["policy"],
            content["verdict"],
            domains,
            not_analysed,
            profiles_of(content["profiles"]),
            command if not_analysed else None,
        )

    @property
    def is_schedulable(self) -> bool:
        """Whether every deadline is guaranteed."""
        return self.verdict == "schedulable"

    def to_json(self) -> dict[str, Any]:
        """Returns the object as the command line prints it."""
        return {
            "policy": self.policy,
            "verdict": self.verdict,
            "domains": [_domain_json(domain) for domain in self.domains],
            "not_analysed": [
                {"what": part.what, "domains": list(part.domains)} for part in self.not_analysed
            ],
            "profiles": [asdict(profile) for profile in self.profiles],
            "run_instead": self.run_instead,
        }

    def arrow(self) -> pa.Table:
        """One row for each task, times in ns."""
        rows = [
            {
                "domain": domain.name,
                "task": task.name,
                **{key: getattr(task, key) for key in _CHECK_KEYS},
            }
            for domain in self.domains
            for task in domain.tasks
        ]
        return pa.Table.from_pylist(rows, schema=_CHECK_SCHEMA)

    def frame(self) -> pd.DataFrame:
        """`arrow()` as a pandas data frame; what there is no value for is `<NA>`."""
        return frame_of(self.arrow())

    def __repr__(self) -> str:
        """One line: the policy, the verdict."""
        tasks = [task for domain in self.domains for task in domain.tasks]
        sure = sum(task.guaranteed for task in tasks)
        said = f"{self.verdict}, {sure} of {len(tasks)} tasks guaranteed"
        return f"<laxity.Check {self.policy}: {said}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from laxity import notebook  # noqa: PLC0415 - only notebooks need it

        return notebook.table(f"{self.policy}: {self.verdict}", self.frame())


def frame_of(table: pa.Table) -> pd.DataFrame:
    """A data frame in which whole numbers stay whole where some are missing."""
    import pandas as pd  # noqa: PLC0415 - it takes longer to load than many runs take

    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def _calls_row(run: Run) -> dict[str, Any]:
    assert run.telephony is not None  # noqa: S101, for the types: all runs of a host have calls.
    voice, quality = run.telephony.voice, run.telephony.quality
    return {
        "policy": run.policy,
        "seed": run.seed,
        "accepted": run.telephony.accepted,
        "packets": voice.sent,
        "loss_ratio": voice.loss_ratio,
        "delay_ns_p50": voice.delay_ns.p50,
        "delay_ns_p999": voice.delay_ns.p999,
        "jitter_ns_mean": voice.jitter_ns_mean,
        "mos_min": quality and quality.mos_lqo.min,
    }


def save_origin(directory: Path, kind: str, origin: Origin) -> None:
    """Writes the manifest and the host file, as it was given."""
    manifest = directories.Manifest(kind, directories.HOST, origin.overrides, origin.options)
    manifest.save(directory)
    (directory / directories.HOST).write_bytes(origin.host)


def load_origin(directory: Path, kind: str) -> Origin:
    """Reads them back; InputError if `directory` is not an output of that kind."""
    manifest = directories.Manifest.load(directory)
    if manifest.kind != kind:
        message = f"{directory} is the output of `laxity {manifest.kind}`, not of `laxity {kind}`"
        raise InputError(message)
    host = files.read(directory / directories.HOST, files.HOST_BYTES_MAX)
    return Origin(host, directories.HOST, manifest.overrides, manifest.options)


def read_json(path: Path) -> Any:  # noqa: ANN401 - JSON is anything
    """Reads a file of an output directory; InputError if it is damaged or not there."""
    content = files.read(path, files.RESULT_BYTES_MAX)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def read_table(path: Path) -> pa.Table:
    """Reads a Parquet file of an output directory."""
    with files.open_regular(path) as file:
        return pq.read_table(file)


_QUANTILES = ("p50", "p99", "max")
_TASK_SCHEMA = pa.schema(
    [
        ("domain", pa.string()),
        ("task", pa.string()),
        ("jobs", pa.int64()),
        ("missed", pa.int64()),
        ("miss_ratio", pa.float64()),
        ("unfinished", pa.int64()),
        *((f"response_ns_{quantile}", pa.int64()) for quantile in _QUANTILES),
        *((f"lateness_ns_{quantile}", pa.int64()) for quantile in _QUANTILES),
    ]
)
_CHECK_KEYS = ("guaranteed", "bound_ns", "deadline_ns", "test", "why")
_CHECK_SCHEMA = pa.schema(
    [
        ("domain", pa.string()),
        ("task", pa.string()),
        ("guaranteed", pa.bool_()),
        ("bound_ns", pa.int64()),
        ("deadline_ns", pa.int64()),
        ("test", pa.string()),
        ("why", pa.string()),
    ]
)
_RESPONSE_SCHEMA = pa.schema(
    [("domain", pa.string()), ("task", pa.string()), ("response_ns", pa.int64())]
)


def _domain(content: Mapping[str, Any]) -> DomainResult:
    tasks = tuple(
        TaskResult(
            **{
                **task,
                "response_ns": Distribution(**task["response_ns"]),
                "lateness_ns": Distribution(**task["lateness_ns"]),
            }
        )
        for task in content["tasks"]
    )
    waits = content["waits"] and Waits(**content["waits"])
    # Older results do not say what is reserved.
    return DomainResult(**{"reserved": None, **content, "waits": waits, "tasks": tasks})


def _domain_json(domain: DomainResult | DomainCheck) -> dict[str, Any]:
    content = asdict(domain)
    tasks = list(content["tasks"])
    for task in tasks:
        if task.get("relative_error", 0) is None:
            del task["relative_error"]
    return {**content, "tasks": tasks}


def _named(domains: tuple[DomainResult, ...], name: str) -> DomainResult:
    for domain in domains:
        if domain.name == name:
            return domain
    raise KeyError(name)


def _responses_table(responses: Responses) -> pa.Table:
    tables = [
        pa.table(
            [pa.repeat(domain, len(times)), pa.repeat(task, len(times)), pa.array(times)],
            schema=_RESPONSE_SCHEMA,
        )
        for (domain, task), times in responses.items()
    ]
    return pa.concat_tables([_RESPONSE_SCHEMA.empty_table(), *tables])


def _counts_table(counted: Counted) -> pa.Table:
    tables = [
        pa.table(
            [
                *(pa.repeat(name, len(counts.jobs)) for name in names),
                pa.array(counts.response_ns),
                pa.array(counts.jobs),
            ],
            schema=_RESPONSE_SCHEMA.append(pa.field("jobs", pa.int64())),
        )
        for names, counts in counted.items()
    ]
    return pa.concat_tables(tables)


def _counted(table: pa.Table) -> Counted:
    frame = table.to_pandas()
    return {
        (str(domain), str(task)): Counts(
            group["response_ns"].to_numpy(np.int64), group["jobs"].to_numpy(np.int64)
        )
        for (domain, task), group in frame.groupby(["domain", "task"], sort=False)
    }


def _responses(table: pa.Table) -> Responses:
    frame = table.to_pandas()
    return {
        (str(domain), str(task)): group.to_numpy(np.int64)
        for (domain, task), group in frame.groupby(["domain", "task"], sort=False)["response_ns"]
    }
