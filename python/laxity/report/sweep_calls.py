"""The part of a report on a sweep that is about calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laxity.host import Host
from laxity.plots.voice import Measure, measures_against
from laxity.report.axes import across
from laxity.report.page import Cell, Picture, Section, Table, interval, plain
from laxity.resolved import calls_of
from laxity.results.origin import load_origin
from laxity.results.streams import PACKET_NS
from laxity.statistics import mean
from laxity.sweep import parse_setting
from laxity.text import NOTHING, number, percent, time
from laxity.voice import e_model
from laxity.voice.playout import BUFFER_NS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pandas as pd

    from laxity.resolved_schema import Acceptance
    from laxity.results.origin import Origin
    from laxity.sweep import Axis


@dataclass(frozen=True)
class Voice:
    """What became of voice at each point of a sweep."""

    runs: pd.DataFrame
    """A row for each run: the swept keys, `policy`, `seed`, `loss`, `delay_ms`, `mos`, `failed`,
    `accepted` and the limits that it was held against."""
    axes: Mapping[str, Axis]
    """The swept keys."""

    @classmethod
    def of(cls, directory: Path, frame: pd.DataFrame, axes: Mapping[str, Axis]) -> Voice:
        """From the table of a sweep, and the limits of the host file beside it."""
        of_run = [*axes, "policy", "seed"]
        columns = [*of_run, "packet_loss_ratio", "delay_ns_p50", "delay_ns_p999"]
        columns += ["failed_ratio", "accepted"]
        runs = frame.drop_duplicates(of_run)[columns].reset_index(drop=True)
        limits = _limits(load_origin(directory, "sweep"), runs, axes)
        runs["loss"] = runs["packet_loss_ratio"]
        runs["delay_ms"] = runs["delay_ns_p999"] / 1e6
        runs["mos"] = [
            _opinion(delay_ns, loss)
            for delay_ns, loss in zip(runs["delay_ns_p50"], runs["loss"], strict=True)
        ]
        runs["loss_limit"] = [limit["loss"] for limit in limits]
        runs["delay_limit_ms"] = [limit["delay_ns"] / 1e6 for limit in limits]
        runs["failed"] = runs["failed_ratio"]
        runs["failed_limit"] = [limit["failed"] for limit in limits]
        return cls(runs, axes)

    def verdict(self) -> tuple[str, str]:
        """Where the limits held, and the tone of it."""
        points = self.runs.groupby([*self.axes, "policy"], sort=False)
        held = points["accepted"].all()
        most = self._place(held.index[-1])
        if held.all():
            if len(held) == 1:
                return "All limits held.", "good"
            return f"All limits held at every point, up to {most}.", "good"
        # What was lost says nothing of points where no packet arrived by the end of the run.
        delay_ms = points["delay_ms"].mean()
        loss = points["loss"].mean()[delay_ms.notna()]
        if loss.empty:
            return "All limits held at no point: no packet arrived.", "bad"
        if not held.any():
            least = loss.idxmin()
            failed = float(points["failed"].mean()[least])
            given_up = f", and {percent(failed)} of the calls were given up" if failed > 0 else ""
            text = (
                f"All limits held at no point; least was lost at {self._place(least)}: "
                f"{percent(float(loss[least]))}{given_up}."
            )
            return text, "bad"
        first_bad = int((~held).to_numpy().argmax())
        is_one_line = len(self.axes) == 1 and len(self.runs["policy"].unique()) == 1
        if is_one_line and held.iloc[:first_bad].all() and not held.iloc[first_bad:].any():
            up_to, bad = self._place(held.index[first_bad - 1]), held.index[first_bad]
            what = (
                _found(loss[bad], delay_ms[bad], points["failed"].mean()[bad])
                if bad in loss.index
                else "no packet arrived"
            )
            return f"All limits held up to {up_to}; at {self._place(bad)}, {what}.", ""
        where = f"{held.sum()} of {number(len(held), 'point')}"
        last = self._place(held[held].index[-1])
        return f"All limits held at {where}. The last of these is {last}.", ""

    def sections(self) -> list[Section]:
        """Curves and a table."""
        pictures = (self._picture(),) if self.axes else ()
        return [Section("Voice", pictures=pictures, tables=(self._table(),))]

    def _place(self, place: Any) -> str:  # noqa: ANN401 - what pandas has as a key
        *values, policy = place if isinstance(place, tuple) else (place,)
        words = [
            f"{key} = {axis.text(value)}"
            for (key, axis), value in zip(self.axes.items(), values, strict=True)
        ]
        if len(self.runs["policy"].unique()) > 1 or not words:
            words.append(f"under {policy}")
        return ", ".join(words)

    def _picture(self) -> Picture:
        laid = across(self.runs, self.axes)
        data = laid.data.rename(columns={laid.x: "x"})
        names = data["policy"].astype(str)
        data["line"] = names if laid.panel is None else names + ", " + data[laid.panel].astype(str)
        one_limit = {
            column: float(data[column].iloc[0]) if len(data[column].unique()) == 1 else None
            for column in ("loss_limit", "delay_limit_ms")
        }
        loss_limit = one_limit["loss_limit"]
        data["loss_percent"] = 100 * data["loss"]
        measures = (
            Measure(
                "loss_percent",
                "Packets lost (%)",
                None if loss_limit is None else 100 * loss_limit,
            ),
            Measure("delay_ms", "Delay of 99.9 % (ms)", one_limit["delay_limit_ms"]),
            Measure("mos", "Opinion score (E-model)", None, (1.0, 4.6)),
        )
        bands = " Bands go from the least to the greatest of the seeds."
        some = bands if len(self.runs["seed"].unique()) > 1 else ""
        return Picture(
            "voice",
            f"Voice against {laid.name}",
            "What part of all packets was lost, how long 99.9 % of them took at most, and the "
            "opinion score that the E-model (ITU-T G.107) expects from loss and delay. Dotted lines"
            f" are the host file's limits.{some}",
            f"Curves of packet loss, delay and opinion score against {laid.name}. The table has "
            "the numbers.",
            lambda: measures_against(data, laid.label, measures),
        )

    def _table(self) -> Table:
        rows = []
        is_failed_shown = bool(self.runs["failed"].notna().any())
        is_policy_shown = len(self.runs["policy"].unique()) > 1 or not self.axes
        for place, of_point in self.runs.groupby([*self.axes, "policy"], sort=False):
            *values, policy = place
            texts = [
                axis.text(value) for axis, value in zip(self.axes.values(), values, strict=True)
            ]
            held = int(of_point["accepted"].sum())
            yes = "yes" if held == len(of_point) else "no" if not held else f"{held} of "
            if yes.endswith(" of "):
                yes += number(len(of_point), "seed")
            over = of_point["loss"].mean() >= of_point["loss_limit"].iloc[0]
            late = not of_point["delay_ms"].mean() < of_point["delay_limit_ms"].iloc[0]
            is_given_up = of_point["failed"].mean() >= of_point["failed_limit"].iloc[0]
            rows.append(
                [
                    *plain(*texts, *([str(policy)] if is_policy_shown else [])),
                    _mean(of_point["loss"], percent, "bad" if over else ""),
                    _mean(of_point["delay_ms"], _milliseconds, "bad" if late else ""),
                    _mean(of_point["mos"], lambda score: f"{score:.2f}"),
                    *(
                        [_mean(of_point["failed"], percent, "bad" if is_given_up else "")]
                        if is_failed_shown
                        else []
                    ),
                    Cell(yes, "good" if held == len(of_point) else "bad"),
                ]
            )
        words = len(self.axes) + is_policy_shown
        columns = (
            *self.axes,
            *(["policy"] if is_policy_shown else []),
            *("packets lost", "delay, 99.9 %", "opinion score, E-model"),
            *(["calls given up"] if is_failed_shown else []),
            "limits held",
        )
        several = len(self.runs["seed"].unique()) > 1
        note = (
            f"{'Means over the seeds, with 95 % confidence intervals. ' if several else ''}"
            "The limits are those of [calls.acceptance], but `mos`. The opinion score is "
            "what the E-model (ITU-T G.107) expects of loss, median delay and a fixed playout "
            "buffer; a sweep keeps no packets to listen to. `laxity run` scores a single point "
            "with PESQ, which the limit `mos` is about."
        )
        return Table("Voice at each point", columns, rows, words, note)


def _limits(origin: Origin, runs: pd.DataFrame, axes: Mapping[str, Axis]) -> list[Acceptance]:
    """`[calls.acceptance]` at each run; it may be swept itself."""
    host = Host(origin.host, origin.name)
    fixed = [text for text in origin.overrides if parse_setting(text) is None]
    known: dict[tuple[Any, ...], Acceptance] = {}
    found = []
    for values in runs[list(axes)].itertuples(index=False, name=None) if axes else [()] * len(runs):
        if values not in known:
            changes = [
                f"{key}={axis.text(value)}"
                for (key, axis), value in zip(axes.items(), values, strict=True)
            ]
            known[values] = calls_of(host.resolved([*fixed, *changes]))["acceptance"]
        found.append(known[values])
    return found


def _opinion(delay_ns: float, loss: float) -> float:
    """The E-model's score of speech that is put into packets, sent, and waits to be played."""
    if math.isnan(delay_ns):
        return math.nan
    delay_ms = (PACKET_NS + delay_ns + BUFFER_NS) / 1e6
    return e_model.mos(min(100.0, max(0.0, e_model.r_factor(delay_ms, loss))))


def _found(loss: float, delay_ms: float, failed: float) -> str:
    """What became of voice and of calls, in words; `failed` is NaN where nobody calls."""
    found = (
        f"{percent(loss)} of the packets were lost, and the delay at 99.9 % was "
        f"{_milliseconds(delay_ms)}"
    )
    return f"{found}; {percent(failed)} of the calls were given up" if failed > 0 else found


def _milliseconds(value: float) -> str:
    return time(round(1e6 * value))


def _mean(values: pd.Series[float], text: Any, tone: str = "") -> Cell:  # noqa: ANN401 - a function
    found = mean([float(value) for value in values.dropna()] or [math.nan])
    if math.isnan(found.mean):
        return Cell(NOTHING, tone)
    spread = ""
    if found.half_width_95:
        low = max(0.0, found.mean - found.half_width_95)
        spread = interval(text(low), text(found.mean + found.half_width_95))
    return Cell(text(found.mean), tone, spread)
