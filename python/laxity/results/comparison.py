"""The results of one workload under several policies."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from laxity import directory as directories
from laxity.results.origin import Origin, frame_of, load_origin, save_origin
from laxity.results.run import Run

if TYPE_CHECKING:
    import pandas as pd


RESULTS = "results.json"


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

    def to_json(self) -> dict[str, object]:
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
        """`arrow()` as a pandas data frame; missing values are `<NA>`."""
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
        content = directories.read_json(path / RESULTS)
        runs = tuple(Run.from_json(each, origin) for each in content["results"])
        return cls(runs, origin, tuple(content["notes"]))

    def _repr_html_(self) -> str:
        """For notebooks."""
        from laxity import notebook  # noqa: PLC0415 - only notebooks need it

        return notebook.table(repr(self).strip("<>"), self.frame())


def _calls_row(run: Run) -> dict[str, object]:
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
        "mouth_to_ear_ns_p50": quality and quality.delay_ns,
    }
