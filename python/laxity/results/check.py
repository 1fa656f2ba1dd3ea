"""The result of analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity.results.origin import frame_of
from laxity.results.records import decoded, encoded
from laxity.results.schema import Profile  # noqa: TC001 - read by `decoded`

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    import pyarrow as pa


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
    """The domains that have it; none if it is a part of the whole host."""


@dataclass(frozen=True, repr=False)
class Check:
    """What analysis says of a host. `to_json()` is the object that `laxity check --json` prints."""

    policy: str
    verdict: str
    """`schedulable`; `not-guaranteed`; or `not-analysed`: no task is without a guarantee, but the
    host has calls or agreements about a link, of which analysis says nothing."""
    domains: tuple[DomainCheck, ...]
    not_analysed: tuple[NotAnalysed, ...]
    profiles: tuple[Profile, ...]
    """The profiles whose costs are in the bounds."""
    run_instead: str | None
    """The command that shows what was not analysed; None if all was."""

    @classmethod
    def from_json(cls, content: Mapping[str, object], command: str) -> Check:
        """Makes a check of the object of the extension module; `command` runs the same host."""
        run_instead = command if content["not_analysed"] else None
        return decoded({**content, "run_instead": run_instead}, cls)

    @property
    def is_schedulable(self) -> bool:
        """Whether every deadline is guaranteed."""
        return self.verdict == "schedulable"

    def to_json(self) -> dict[str, object]:
        """Returns the object as the command line prints it."""
        return encoded(self)

    def arrow(self) -> pa.Table:
        """One row for each task, times in ns."""
        import pyarrow as pa

        rows = [
            {
                "domain": domain.name,
                "task": task.name,
                **{key: getattr(task, key) for key in _CHECK_KEYS},
            }
            for domain in self.domains
            for task in domain.tasks
        ]
        schema = pa.schema(
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
        return pa.Table.from_pylist(rows, schema=schema)

    def frame(self) -> pd.DataFrame:
        """`arrow()` as a pandas data frame; missing values are `<NA>`."""
        return frame_of(self.arrow())

    def __repr__(self) -> str:
        """One line: the policy, the verdict."""
        tasks = [task for domain in self.domains for task in domain.tasks]
        sure = sum(task.guaranteed for task in tasks)
        said = f"{self.verdict}, {sure} of {len(tasks)} tasks guaranteed"
        return f"<laxity.Check {self.policy}: {said}>"

    def _repr_html_(self) -> str:
        """For notebooks."""
        from laxity import notebook

        return notebook.table(f"{self.policy}: {self.verdict}", self.frame())


_CHECK_KEYS = ("guaranteed", "bound_ns", "deadline_ns", "test", "why")
