"""Response times of jobs: each of them, or how many there are of each length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from laxity import _core
    from laxity.results.schema import RunResult

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
"""Response times of tasks that have too many jobs to keep each one's, by domain and task."""


def responses_of_core(
    result: RunResult, times: list[list[_core.Times]]
) -> tuple[Responses, Counted]:
    """Names what the extension module gives with a result, for each domain and task of it."""
    responses: Responses = {}
    counted: Counted = {}
    for domain, of_domain in zip(result.domains, times, strict=True):
        for task, (response_ns, jobs) in zip(domain.tasks, of_domain, strict=True):
            key, found = (domain.name, task.name), np.frombuffer(response_ns, np.int64)
            if jobs is None:
                responses[key] = found
            else:
                counted[key] = Counts(found, np.frombuffer(jobs, np.int64))
    return responses, counted


_RESPONSE_SCHEMA = pa.schema(
    [("domain", pa.string()), ("task", pa.string()), ("response_ns", pa.int64())]
)


def responses_table(responses: Responses) -> pa.Table:
    """One row for each job, in the order of the tasks and of arrivals."""
    tables = [
        pa.table(
            [pa.repeat(domain, len(times)), pa.repeat(task, len(times)), pa.array(times)],
            schema=_RESPONSE_SCHEMA,
        )
        for (domain, task), times in responses.items()
    ]
    return pa.concat_tables([_RESPONSE_SCHEMA.empty_table(), *tables])


def counts_table(counted: Counted) -> pa.Table:
    """One row for each length of each task, with the number of jobs."""
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


def counts_of_table(table: pa.Table) -> Counted:
    """Reads `counts_table` back."""
    frame = table.to_pandas()
    return {
        (str(domain), str(task)): Counts(
            group["response_ns"].to_numpy(np.int64), group["jobs"].to_numpy(np.int64)
        )
        for (domain, task), group in frame.groupby(["domain", "task"], sort=False)
    }


def responses_of_table(table: pa.Table) -> Responses:
    """Reads `responses_table` back."""
    frame = table.to_pandas()
    return {
        (str(domain), str(task)): group.to_numpy(np.int64)
        for (domain, task), group in frame.groupby(["domain", "task"], sort=False)["response_ns"]
    }
