"""Sweeps: the values that `--set` may go through, and what the runs over them found."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field
from decimal import Decimal, localcontext
from functools import cached_property
from itertools import chain, pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from laxity import directory as directories
from laxity.errors import InputError
from laxity.results.acceptance import failed_ratio, judged
from laxity.results.origin import Origin, frame_of, load_origin, read_table, save_origin
from laxity.results.records import decoded
from laxity.results.schema import Profile, Telephony
from laxity.statistics import Mean, mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from laxity.results.run import Run

    Numbers = np.ndarray[Any, np.dtype[Any]]


SWEEP = "sweep.parquet"
PROFILES = "profiles"
"""In the metadata of the table: the profiles of costs, as JSON."""

LOADS = ("draw.load", "calls.streams", "calls.rate")
"""Keys of which more that passes is better."""

RUNS_MAX = 1_000_000
"""The points of more would not fit into memory."""

GROUP_RUNS = 4096
"""Runs of a row group in `sweep.parquet`, less what is no whole point: so many are in memory."""

DIGITS_MAX = 20
"""The most digits of a number in a range; arithmetic with it is exact."""

_QUANTITY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-zµμ%]*)")
_EXAMPLE = (
    "write KEY=FROM..TO:STEP, such as draw.load=0.3..1.0:0.05 or domain.control.budget=1..5:0.5 ms"
)


@dataclass(frozen=True)
class Axis:
    """A key of the host file and the values that a sweep gives it."""

    key: str
    values: tuple[str, ...]
    """The values as `--set` takes them, with their unit."""
    unit: str = ""
    """The unit of all numbers; empty if they have none."""
    numbers: tuple[float, ...] | None = None
    """The values without their unit; None if they are not all numbers."""

    def array(self, places: Numbers) -> pa.Array:
        """The values at these places: numbers, whole ones if all are, or else text."""
        if self.numbers is None:
            return _texts(self.values).take(_column(places))
        is_whole = all(number.is_integer() for number in self.numbers)
        chosen = np.array(self.numbers)[places]
        return _column(chosen.astype(np.int64) if is_whole else chosen)

    def text(self, value: Any) -> str:  # noqa: ANN401 - a number or text
        """A value as `--set` takes it, of one in the table of a sweep."""
        return str(value) if self.numbers is None else self._text_of_number[float(value)]

    @cached_property
    def _text_of_number(self) -> dict[float, str]:
        return dict(zip(self.numbers or (), self.values, strict=True))


def parse_setting(text: str) -> Axis | None:
    """What `--set` goes through: a range `A..B:STEP`, both ends included, or a list `A|B|C`.

    None if it gives one value only. Steps are exact decimals. Raises InputError if the text looks
    like a range and is none, or if its steps do not reach its end.
    """
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    # These begin a value of TOML, which may hold anything.
    if not equals or value.startswith(("[", "{", '"', "'")):
        return None
    if ".." in value:
        return _range(text, key, value)
    if "|" in value:
        return _list(text, key, value)
    return None


def _range(text: str, key: str, value: str) -> Axis:
    ends, colon, step_text = value.partition(":")
    low_text, _, high_text = ends.partition("..")
    if not colon:
        raise InputError(f"the range `{text}` has no step", _EXAMPLE)
    (low, low_unit), (high, high_unit), (step, step_unit) = (
        _quantity(text, part.strip()) for part in (low_text, high_text, step_text)
    )
    units = {unit for unit in (low_unit, high_unit, step_unit) if unit}
    if len(units) > 1:
        message = f"the range `{text}` has more than one unit: {', '.join(sorted(units))}"
        raise InputError(message, "write all numbers in one unit, and the unit once, at the end")
    if step == 0:
        raise InputError(f"the step of the range `{text}` is zero", _EXAMPLE)
    if low > high:
        raise InputError(
            f"the range `{text}` ends below its beginning",
            f"write {key}={high_text}..{low_text}:{step_text}",
        )
    with localcontext() as context:
        context.prec = 3 * DIGITS_MAX
        steps = int((high - low) / step)
        last = low + steps * step
        if steps >= RUNS_MAX:
            raise InputError(
                f"the range `{text}` has more than {RUNS_MAX:,} values", "take larger steps"
            )
        if last != high:
            raise InputError(
                f"the steps of the range `{text}` do not reach its end: the last is {_plain(last)}",
                f"write {key}={low_text}..{_plain(last)}:{step_text}, or another step",
            )
        numbers = [low + index * step for index in range(steps + 1)]
    unit = next(iter(units), "")
    return _axis(key, numbers, unit)


def _list(text: str, key: str, value: str) -> Axis:
    values = [part.strip() for part in value.split("|")]
    if not all(values):
        raise InputError(f"the list `{text}` has an empty value", "write KEY=A|B|C")
    matches = [match for value in values if (match := _QUANTITY.fullmatch(value))]
    are_numbers = len(matches) == len(values)
    units = [match["unit"] for match in matches]
    # The unit of all numbers may stand once, at the end, as in a range.
    if are_numbers and units[-1] and not any(units[:-1]):
        values = [f"{match['number']} {units[-1]}" for match in matches]
        units = units[-1:]
    elif are_numbers and any(units) and not all(units):
        raise InputError(
            f"in the list `{text}` some numbers have a unit and others have none",
            "write the unit once, at the end, or with each number",
        )
    repeated = next((value for value in values if values.count(value) > 1), None)
    if repeated is not None:
        raise InputError(
            f"the list `{text}` has {repeated} more than once", "write each value once"
        )
    if are_numbers and len(set(units)) == 1:
        numbers = tuple(float(match["number"]) for match in matches)
        return Axis(key, tuple(values), units[0], numbers)
    return Axis(key, tuple(values))


def _axis(key: str, numbers: list[Decimal], unit: str) -> Axis:
    suffix = f" {unit}" if unit else ""
    values = tuple(f"{_plain(number)}{suffix}" for number in numbers)
    return Axis(key, values, unit, tuple(float(number) for number in numbers))


def _quantity(text: str, part: str) -> tuple[Decimal, str]:
    match = _QUANTITY.fullmatch(part)
    if match is None:
        raise InputError(
            f"in the range `{text}`, `{part}` is not a number with or without a unit", _EXAMPLE
        )
    if len(match["number"]) > DIGITS_MAX:
        raise InputError(
            f"in the range `{text}`, `{part}` has more than {DIGITS_MAX} digits", _EXAMPLE
        )
    return Decimal(match["number"]), match["unit"]


def _plain(number: Decimal) -> str:
    """Without an exponent and without zeros at the end."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True)
class Grid:
    """The runs of a sweep: each point of all axes, under each policy, with each seed."""

    axes: tuple[Axis, ...]
    policies: tuple[str, ...]
    """Empty: the host's own."""
    seeds: range
    fixed: tuple[str, ...]
    """Overrides that are the same for all."""

    @classmethod
    def parse(cls, settings: Sequence[str], policies: Sequence[str], seeds: int) -> Grid:
        """Takes the values of `--set`, ranges and others; seeds count from 0.

        Raises InputError for what cannot be swept.
        """
        axes, fixed = [], []
        for setting in settings:
            axis = parse_setting(setting)
            if axis is None:
                fixed.append(setting)
            else:
                axes.append(axis)
        keys = [axis.key for axis in axes]
        if not axes:
            raise InputError("there is nothing to sweep", f"give --set a range: {_EXAMPLE}")
        if "seed" in keys:
            raise InputError("the seed is not swept with --set", "write --seeds N")
        if len(set(keys)) < len(keys):
            raise InputError("a key is swept twice", "give each key one range")
        if policies and "host.policy" in keys:
            raise InputError("policies are given by --set and by --policy", "keep one of them")
        if len(set(policies)) < len(policies):
            raise InputError("a policy is given twice", "write each policy once")
        runs = math.prod(len(axis.values) for axis in axes) * max(len(policies), 1) * seeds
        if runs > RUNS_MAX:
            raise InputError(
                f"this sweep has {runs:,} runs; the most is {RUNS_MAX:,}",
                "take larger steps, or fewer seeds",
            )
        return cls(tuple(axes), tuple(policies), range(seeds), tuple(fixed))

    def points(self) -> Iterator[tuple[tuple[int, ...], str | None, int]]:
        """Yields for each run the place of its value on each axis, the policy and the seed."""
        places = product(*(range(len(axis.values)) for axis in self.axes))
        yield from product(places, self.policies or (None,), self.seeds)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each axis has, and how many policies and seeds there are."""
        values = (len(axis.values) for axis in self.axes)
        return (*values, max(len(self.policies), 1), len(self.seeds))

    def overrides(self) -> Iterator[list[str]]:
        """The overrides of each run, in the order of `points`; the last is the seed."""
        for places, policy, seed in self.points():
            yield [
                *self.fixed,
                *(
                    f"{axis.key}={axis.values[place]}"
                    for axis, place in zip(self.axes, places, strict=True)
                ),
                *([] if policy is None else [f"host.policy={policy}"]),
                f"seed={seed}",
            ]


@dataclass(frozen=True)
class Point:
    """One point of a sweep under one policy, over all seeds."""

    values: dict[str, str]
    """The value of each key, as `--set` takes it."""
    policy: str
    seeds: int
    miss_ratio: Mean
    """The miss ratio of all jobs of the host."""
    packet_loss_ratio: Mean | None
    """The loss ratio of all packets of voice; None without calls."""
    delay_ns_p999: Mean | None
    """The delay that 99.9 % of the packets do not exceed; None without calls, or if none came."""
    failed_ratio: Mean | None
    """The part given up of the calls or the registrations; None where nobody calls or registers."""
    passed: int
    """With so many seeds no deadline was missed, calls were accepted, and agreements held. Voice is
    not scored in a sweep."""
    denied: int | None
    """With so many seeds a domain got less than its minimum; None without agreements."""
    reserved: float | None
    """CPUs that all budgets reserve; None under a policy that knows no budgets."""

    @property
    def holds(self) -> bool:
        """Whether it passed with every seed."""
        return self.passed == self.seeds


@dataclass(frozen=True)
class Best:
    """The point of a sweep to look at first."""

    point: Point
    points: list[Point]
    """All of them."""
    holding: int
    """The number of points that pass with every seed."""
    why: Literal["cheapest", "most load", "first", "nearest"]
    """Why it is this point: of those that pass it is the one whose budgets reserve least, the one
    with most load if a load is swept, or the first if there is no such order; if none passes, it is
    the nearest to passing."""


def _distance(point: Point) -> tuple[float, ...]:
    """How far a point is from passing."""
    lost = point.packet_loss_ratio.mean if point.packet_loss_ratio else 0.0
    failed = point.failed_ratio.mean if point.failed_ratio else 0.0
    return (-point.passed, point.miss_ratio.mean, lost, failed, point.denied or 0)


@dataclass(frozen=True)
class Rows:
    """What the runs of a sweep found: a row for each run and domain, in the order of the runs."""

    run_of_row: Numbers
    """The number of each row's run."""
    columns: list[tuple[str, pa.Array]]
    """Those of `_COLUMNS`, by name."""
    telephony: list[Telephony] | None
    """Calls and voice of each run; None without calls."""
    profiles: tuple[Profile, ...]
    """The profiles of costs that the runs used."""
    denied: pa.Array | None
    """Whether the domain got less than its agreement's minimum; None without agreements."""

    @classmethod
    def of_columns(
        cls,
        first_run: int,
        texts: Sequence[str],
        content: Mapping[str, bytes],
        telephony: Sequence[str | None],
        profiles: tuple[Profile, ...],
    ) -> Rows:
        """Takes what `HostFile.sweep` of crates/laxity-py found of runs from `first_run` on."""
        columns = [
            (
                name,
                _texts(texts).take(_column(np.frombuffer(content[name], "<i8")))
                if kind == pa.string()
                else _column(np.frombuffer(content[name], kind.to_pandas_dtype())),
            )
            for name, kind in _COLUMNS
        ]
        calls = None
        if telephony and telephony[0] is not None:
            calls = [judged(decoded(json.loads(each), Telephony)) for each in telephony if each]
        run_of_row = first_run + np.frombuffer(content["run"], "<i8")
        denied = np.frombuffer(content["denied"], "<i8")
        has_agreements = bool((denied >= 0).any())
        return cls(
            run_of_row, columns, calls, profiles, pa.array(denied > 0) if has_agreements else None
        )

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> Rows:
        """Takes runs with all their results."""
        rows = [
            {
                "policy": run.policy,
                "seed": run.seed,
                "domain": domain.name,
                "jobs": domain.jobs,
                "missed": domain.missed,
                "miss_ratio": domain.miss_ratio,
                "cpu_ns": domain.cpu_ns,
                "schedule_calls": run.overhead.schedule_calls,
                "context_switches": run.overhead.context_switches,
                "loss_ratio": run.overhead.loss_ratio,
                "reserved": domain.reserved,
            }
            for run in runs
            for domain in run.domains
        ]
        columns = [(name, pa.array([row[name] for row in rows], kind)) for name, kind in _COLUMNS]
        calls = [run.telephony for run in runs if run.telephony is not None]
        return cls(
            np.repeat(np.arange(len(runs)), [len(run.domains) for run in runs]),
            columns,
            calls or None,
            tuple(dict.fromkeys(profile for run in runs for profile in run.profiles)),
            pa.array([domain.name in run.denied for run in runs for domain in run.domains])
            if any(run.network is not None and run.network.agreements for run in runs)
            else None,
        )


def _of_calls(rows: Rows) -> list[tuple[str, pa.Array]]:
    """The columns of a sweep with calls."""
    if rows.telephony is None:
        return []
    of_row = [rows.telephony[run] for run in rows.run_of_row - rows.run_of_row[0]]
    voices = [telephony.voice for telephony in of_row]
    delays_ns = [voice.delay_ns for voice in voices]
    return [
        ("packets_lost", pa.array([voice.lost for voice in voices], pa.int64())),
        ("packets_received", pa.array([voice.received for voice in voices], pa.int64())),
        ("packet_loss_ratio", pa.array([voice.loss_ratio for voice in voices], pa.float64())),
        ("delay_ns_p50", pa.array([delay.p50 for delay in delays_ns], pa.int64())),
        ("delay_ns_p999", pa.array([delay.p999 for delay in delays_ns], pa.int64())),
        ("failed_ratio", pa.array([failed_ratio(each) for each in of_row], pa.float64())),
        ("accepted", pa.array([telephony.accepted for telephony in of_row], pa.bool_())),
    ]


@dataclass(frozen=True, repr=False)
class Sweep:
    """What a sweep found: one row for each point, seed and domain."""

    axes: tuple[Axis, ...]
    source: pa.Table | Path = field(repr=False)
    """The table, or the Parquet file that has it, each of whose row groups has whole points."""
    origin: Origin = field(repr=False)

    @classmethod
    def collect(
        cls, grid: Grid, rows: Iterable[Rows], origin: Origin, into: Path | None = None
    ) -> Sweep:
        """Makes the table of the runs of a grid, in their order; in the file `into`, if given.

        The file is the same to the byte however the rows come. No more than a row group of them is
        in memory then.
        """
        groups = _in_groups(grid, ((each.run_of_row, _table(grid, each)) for each in rows))
        if into is None:
            return cls(grid.axes, pa.concat_tables(groups), origin)
        _write_groups(groups, into)
        return cls(grid.axes, into, origin)

    @cached_property
    def table(self) -> pa.Table:
        """All rows, in memory."""
        return read_table(self.source) if isinstance(self.source, Path) else self.source

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return pq.read_schema(self.source) if isinstance(self.source, Path) else self.source.schema

    def _groups(self) -> Iterator[pa.Table]:
        """Parts of the table, of whole points each."""
        if not isinstance(self.source, Path):
            yield self.source
            return
        with pq.ParquetFile(self.source) as file:
            for number in range(file.num_row_groups):
                yield file.read_row_group(number)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of costs that the runs used."""
        kept = (self.schema.metadata or {}).get(PROFILES.encode(), b"[]")
        return decoded(json.loads(kept), tuple[Profile, ...])

    def arrow(self) -> pa.Table:
        """One row for each point, seed and domain; fields of swept keys have `unit` as metadata."""
        return self.table

    def frame(self) -> pd.DataFrame:
        """`arrow()` as a pandas data frame; what there is no value for is `<NA>`."""
        return frame_of(self.table)

    def points(self) -> list[Point]:
        """Each point under each policy, in the order of the axes: means over the seeds."""
        return list(chain.from_iterable(map(self._points_of, self._groups())))

    def _points_of(self, table: pa.Table) -> list[Point]:
        keys = [axis.key for axis in self.axes]
        point_of_row, points_rows = _grouped(table, [*keys, "policy"])
        run_of_row, runs_rows = _grouped(table, [*keys, "policy", "seed"])
        jobs, missed = (
            np.bincount(run_of_row, np.from_dlpack(table.column(name).combine_chunks()))
            for name in ("jobs", "missed")
        )
        ratios = missed / np.maximum(jobs, 1)
        passed = missed == 0
        if "accepted" in table.column_names:
            accepted = table.column("accepted").take(_column(runs_rows)).to_pylist()
            passed &= np.array([each is not False for each in accepted])
        denied = None
        if "denied" in table.column_names:
            of_row = table.column("denied").to_numpy()
            denied = np.bincount(run_of_row, of_row) > 0
            passed &= ~denied
        reserved = _reserved(table, run_of_row, len(runs_rows))
        runs_of_point: list[list[int]] = [[] for _ in points_rows]
        for run, point in enumerate(point_of_row[runs_rows].tolist()):
            runs_of_point[point].append(run)

        def mean_of(name: str, runs: list[int]) -> Mean | None:
            if name not in table.column_names:
                return None
            values = table.column(name).take(_column(runs_rows[runs])).drop_null()
            return mean(values.to_pylist()) if len(values) else None

        firsts = table.select([*keys, "policy"]).take(_column(points_rows)).to_pylist()
        return [
            Point(
                {axis.key: axis.text(first[axis.key]) for axis in self.axes},
                first["policy"],
                len(runs),
                mean(ratios[runs].tolist()),
                mean_of("packet_loss_ratio", runs),
                mean_of("delay_ns_p999", runs),
                mean_of("failed_ratio", runs),
                int(passed[runs].sum()),
                None if denied is None else int(denied[runs].sum()),
                None if math.isnan(reserved[runs[0]]) else float(reserved[runs[0]]),
            )
            for first, runs in zip(firsts, runs_of_point, strict=True)
        ]

    def best(self) -> Best:
        """The point to take: the cheapest of those that pass, or the nearest to passing."""
        points = self.points()
        holding = [point for point in points if point.holds]
        if not holding:
            return Best(min(points, key=_distance), points, 0, "nearest")
        load = next((axis for axis in self.axes if axis.key in LOADS and axis.numbers), None)
        if load is not None and load.numbers is not None:
            load_of = dict(zip(load.values, load.numbers, strict=True))
            most = max(load_of[point.values[load.key]] for point in holding)
            holding_most = [point for point in holding if load_of[point.values[load.key]] == most]
            return Best(holding_most[0], points, len(holding), "most load")
        with_budgets = [point for point in holding if point.reserved is not None]
        if len({point.reserved for point in with_budgets}) > 1:
            cheapest = min(with_budgets, key=lambda point: point.reserved or 0.0)
            return Best(cheapest, points, len(holding), "cheapest")
        return Best(holding[0], points, len(holding), "first")

    def to_json(self) -> dict[str, object]:
        """Returns `axes`, `points` (means over seeds), `best`, and `rows` (all of the table)."""
        best = self.best()
        return {
            "axes": [
                {"key": axis.key, "unit": axis.unit or None, "values": list(axis.values)}
                for axis in self.axes
            ],
            "points": [
                {
                    "values": point.values,
                    "policy": point.policy,
                    "seeds": point.seeds,
                    "miss_ratio": {
                        "mean": point.miss_ratio.mean,
                        "half_width_95": point.miss_ratio.half_width_95,
                    },
                    "packet_loss_ratio": point.packet_loss_ratio
                    and asdict(point.packet_loss_ratio),
                    "delay_ns_p999": point.delay_ns_p999 and asdict(point.delay_ns_p999),
                    "failed_ratio": point.failed_ratio and asdict(point.failed_ratio),
                    "passed": point.passed,
                    "denied": point.denied,
                    "reserved": point.reserved,
                }
                for point in best.points
            ],
            "best": {
                "why": best.why,
                "values": best.point.values,
                "policy": best.point.policy,
                "holding": best.holding,
            },
            "profiles": [asdict(profile) for profile in self.profiles],
            "rows": self.table.to_pylist(),
        }

    def save(self, directory: str | Path) -> Path:
        """Writes `sweep.parquet` and the host file; `directory` as for `Run.save`."""
        with directories.output(Path(directory)) as staging:
            self.write(staging)
        return Path(directory)

    def write(self, directory: Path) -> None:
        """Writes the same into a directory that is there, and may have the table."""
        save_origin(directory, "sweep", self.origin)
        if self.source != directory / SWEEP:
            batches = self.table.to_batches()
            _write_groups((pa.Table.from_batches([batch]) for batch in batches), directory / SWEEP)

    @classmethod
    def load(cls, directory: str | Path) -> Sweep:
        """Reads what `save` wrote; InputError if it is something else."""
        path = Path(directory)
        origin = load_origin(path, "sweep")
        table = read_table(path / SWEEP)
        settings = map(parse_setting, origin.overrides)
        # What `--policy` listed has a column of its own.
        axes = tuple(
            axis for axis in settings if axis is not None and axis.key in table.column_names
        )
        return cls(axes, table, origin)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from laxity import notebook  # noqa: PLC0415 - only notebooks need it

        return notebook.table(repr(self).strip("<>"), self.frame())

    def __repr__(self) -> str:
        """One line: what was swept, and how many points pass."""
        best = self.best()
        keys = ", ".join(axis.key for axis in self.axes)
        return (
            f"<laxity.Sweep {self.origin.name} over {keys}: "
            f"{best.holding} of {len(best.points)} points pass>"
        )


_COLUMNS = (
    *(("policy", pa.string()), ("seed", pa.int64()), ("domain", pa.string())),
    *(("jobs", pa.int64()), ("missed", pa.int64()), ("miss_ratio", pa.float64())),
    *(("cpu_ns", pa.int64()), ("schedule_calls", pa.int64()), ("context_switches", pa.int64())),
    *(("loss_ratio", pa.float64()), ("reserved", pa.float64())),
)
"""The columns of every sweep, behind the keys that were swept."""


def _table(grid: Grid, rows: Rows) -> pa.Table:
    """The rows with the values that their runs have on the axes of a grid."""
    places = np.unravel_index(rows.run_of_row, grid.shape)
    fields, columns = [], []
    for axis, at in zip(grid.axes, places, strict=False):
        column = axis.array(at)
        fields.append(_axis_field(axis, column.type))
        columns.append(column)
    denied = [] if rows.denied is None else [("denied", rows.denied)]
    for name, column in (*rows.columns, *_of_calls(rows), *denied):
        fields.append(pa.field(name, column.type))
        columns.append(column)
    metadata = {PROFILES: json.dumps([asdict(profile) for profile in rows.profiles])}
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=metadata))


def _in_groups(grid: Grid, parts: Iterable[tuple[Numbers, pa.Table]]) -> Iterator[pa.Table]:
    """Tables of whole points, cut at the same runs however the rows come in parts."""
    runs = len(grid.seeds) * max(GROUP_RUNS // len(grid.seeds), 1)
    pending: list[pa.Table] = []
    number = 0
    for run_of_row, table in parts:
        group = run_of_row // runs
        cuts = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
        for begin, end in pairwise(cuts):
            if group[begin] != number:
                yield pa.concat_tables(pending).combine_chunks()
                pending, number = [], group[begin]
            pending.append(table.slice(begin, end - begin))
    yield pa.concat_tables(pending).combine_chunks()


def _write_groups(groups: Iterable[pa.Table], path: Path) -> None:
    """Writes each table as one row group of a Parquet file."""
    iterator = iter(groups)
    first = next(iterator)
    with pq.ParquetWriter(path, first.schema) as writer:
        for table in chain([first], iterator):
            writer.write_table(table, row_group_size=table.num_rows)


def _reserved(table: pa.Table, run_of_row: Numbers, runs: int) -> Numbers:
    """Returns the CPUs that each run reserves, NaN where a domain has no budget."""
    if "reserved" not in table.column_names:
        return np.full(runs, math.nan)
    each = table.column("reserved").fill_null(math.nan).combine_chunks()
    return np.bincount(run_of_row, np.from_dlpack(each), runs)


def _grouped(table: pa.Table, keys: list[str]) -> tuple[Numbers, Numbers]:
    """The group of each row by what it has in these columns, and the first row of each."""
    group = np.zeros(table.num_rows, np.int64)
    for key in keys:
        values = table.column(key).combine_chunks().dictionary_encode()
        group = group * len(values.dictionary) + np.from_dlpack(values.indices)
        # Numbered anew, so that they stay below the number of rows however many keys there are.
        _, first_rows, group = np.unique(group, return_index=True, return_inverse=True)
    order = np.argsort(first_rows)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[group], first_rows[order]


# PyArrow imports pandas before it takes a list or an array of NumPy's, or gives one, which takes as
# long as thousands of short runs. Memory it takes as it is, and gives by DLPack.


def _column(values: Numbers) -> pa.Array:
    """NaN becomes null."""
    kind = pa.float64() if values.dtype.kind == "f" else pa.int64()
    is_there = np.packbits(~np.isnan(values), bitorder="little")
    buffers = [pa.py_buffer(is_there.tobytes()), pa.py_buffer(values.tobytes())]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _texts(texts: Sequence[str]) -> pa.Array:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def _axis_field(axis: Axis, kind: pa.DataType) -> pa.Field:
    return pa.field(axis.key, kind, metadata={"unit": axis.unit} if axis.unit else None)
