"""The result of one run of a host."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from laxity import directory as directories
from laxity.results.acceptance import judged
from laxity.results.jobs import (
    Counted,
    Responses,
    counts_of_table,
    counts_table,
    responses_of_table,
    responses_table,
)
from laxity.results.origin import Origin, frame_of, load_origin, read_table, save_origin
from laxity.results.records import decoded, encoded
from laxity.results.schema import DomainResult, RunResult, TaskResult, Waits
from laxity.results.streams import (
    KeptStream,
    streams_of_table,
    summary_of_streams,
    table_of_streams,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


RESULT = "result.json"
RESPONSES = "responses.parquet"
COUNTS = "response-counts.parquet"
STREAMS = "streams.parquet"


@dataclass(frozen=True, repr=False, kw_only=True)
class Run(RunResult):
    """One run of a host. `to_json()` is the object that `laxity run --json` prints."""

    origin: Origin = field(repr=False)
    responses: Responses = field(repr=False, compare=False, default_factory=dict)
    counted: Counted = field(repr=False, compare=False, default_factory=dict)
    streams: tuple[KeptStream, ...] = field(repr=False, compare=False, default=())
    """The packets of the sampled streams."""
    trace: Path | None = field(repr=False, compare=False, default=None)
    """The trace's file, if the run was traced."""

    @classmethod
    def of(
        cls,
        result: RunResult,
        origin: Origin,
        responses: Responses | None = None,
        trace: Path | None = None,
        streams: tuple[KeptStream, ...] = (),
        counted: Counted | None = None,
    ) -> Run:
        """Makes a run of its result and all else that is known of it, and judges its calls."""
        telephony = None if result.telephony is None else judged(result.telephony)
        return cls(
            **{**vars(result), "telephony": telephony},
            origin=origin,
            responses=responses or {},
            counted=counted or {},
            streams=streams,
            trace=trace,
        )

    @classmethod
    def from_json(cls, content: Mapping[str, object], origin: Origin) -> Run:
        """Makes a run of the object that `to_json` returns, of this version or an older one."""
        return cls.of(result_of(content), origin)

    def to_json(self) -> dict[str, object]:
        """Returns the result object, as its JSON Schema (`laxity schema result`) has it."""
        content = encoded({each.name: getattr(self, each.name) for each in fields(RunResult)})
        content["domains"] = [
            {**encoded(domain), "tasks": list(map(_told, domain.tasks))} for domain in self.domains
        ]
        return content

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
        """No deadline was missed, the calls were accepted, and agreements about a link held."""
        accepted = self.telephony is None or self.telephony.accepted is not False
        return not self.missed and accepted and not self.denied

    @property
    def denied(self) -> list[str]:
        """Domains of a host without calls that got less than their agreement's minimum."""
        agreements = () if self.network is None else self.network.agreements
        return [each.domain for each in agreements if not each.is_held]

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

        Missing values are `<NA>`, so that whole numbers stay whole.
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
        if self.telephony is None and self.network is not None and self.network.agreements:
            held = f"{', '.join(self.denied)} denied" if self.denied else "agreements held"
            return f"{missed}, {held}" if self.jobs else held
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
        pq.write_table(responses_table(self.responses), directory / RESPONSES)
        if self.counted:
            pq.write_table(counts_table(self.counted), directory / COUNTS)
        if self.telephony is not None:
            pq.write_table(table_of_streams(self.streams), directory / STREAMS)

    @classmethod
    def load(cls, directory: str | Path) -> Run:
        """Reads what `save` or `laxity run -o` wrote; InputError if it is something else."""
        path = Path(directory)
        origin = load_origin(path, "run")
        trace, streams, counts = path / directories.TRACE, path / STREAMS, path / COUNTS
        return cls.of(
            result_of(directories.read_json(path / RESULT)),
            origin,
            responses_of_table(read_table(path / RESPONSES)),
            trace if trace.exists() else None,
            streams_of_table(read_table(streams)) if streams.exists() else (),
            counts_of_table(read_table(counts)) if counts.exists() else {},
        )

    def _repr_html_(self) -> str:
        """For notebooks."""
        from laxity import notebook  # noqa: PLC0415 - only notebooks need it

        return notebook.table(f"{self.heading()}: {self.verdict()}", self.frame())


def result_of(content: object) -> RunResult:
    """Reads the object that `Run.to_json` returns; older versions do not name the playout buffer.

    Raises InputError if it is something else.
    """
    if isinstance(content, dict) and isinstance(content.get("telephony"), dict):
        content = {**content, "telephony": {"playout": "fixed", **content["telephony"]}}
    return decoded(content, RunResult)


def mean_wait_ns(waits: Waits) -> float:
    """Returns the mean time that a VCPU waited for a CPU: its scheduling latency."""
    return waits.total_ns / waits.count


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


def _told(task: TaskResult) -> dict[str, object]:
    """The JSON object of a task; exact response times have no relative error."""
    content = encoded(task)
    if content.get("relative_error", 0) is None:
        del content["relative_error"]
    return content


def _named(domains: tuple[DomainResult, ...], name: str) -> DomainResult:
    for domain in domains:
        if domain.name == name:
            return domain
    raise KeyError(name)
