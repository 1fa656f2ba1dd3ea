"""Figures 3, 11, 12, 17 and 18, as the paper drew them. Matplotlib, for those who draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from laxity.plots.published import published_handle, published_look
from laxity.plots.style import (
    INK,
    MUTED,
    POLICY_LOOKS,
    Look,
    legend,
    line_handle,
    new_figure,
    styled,
)
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = tuple(POLICY_LOOKS.values())
_PUBLISHED = published_look("o", INK)


@styled
def waits(data: pd.DataFrame, published_us: float) -> Figure:
    """Figure 3: how much longer VCPUs waited than expected, a box for each, us.

    `data` has a row for each quantile of a VCPU: `vcpu`, `quantile` from 0 to 1, `difference_us`.
    Boxes are the quartiles, whiskers go from 1 % to 99 %. `published_us` is what the paper's
    differences are within, either way.
    """
    figure = new_figure(3.0)
    axes = figure.subplots()
    axes.grid(visible=False, axis="x")
    boxes = []
    for vcpu, found in data.groupby("vcpu", sort=False):
        at = dict(zip(found["quantile"], found["difference_us"], strict=True))
        box = {"label": str(vcpu), "whislo": at[0.01], "q1": at[0.25], "med": at[0.5]}
        boxes.append({**box, "q3": at[0.75], "whishi": at[0.99]})
    _box(axes, boxes)
    axes.axhline(0, color=MUTED, linewidth=0.7)
    for bound_us in (-published_us, published_us):
        line = axes.axhline(bound_us, color=INK, linewidth=1.0, linestyle=":")
    line.set_label("published: about within these")
    _stretch(axes, 10)
    axes.tick_params(axis="x", rotation=35)
    axes.set_ylabel("Actual less expected wait (us)")
    legend(figure, [line])
    return figure


@styled
def queues(data: pd.DataFrame) -> Figure:
    """Figures 11 and 12: how often VCPUs enter the queue as under, and how long they run then.

    `data` has a row for each configuration, domain, VCPU and second: `uc` and `ut_us`. A column
    for each of base and A in cpuload; a line for each domain, the mean of its VCPUs.
    """
    configurations = ("base-cpuload", "A-cpuload")
    figure = new_figure(4.2)
    panels = figure.subplots(2, len(configurations), sharex=True, squeeze=False)
    domains = list(dict.fromkeys(data["domain"]))
    looks = dict(zip(domains, _LOOKS, strict=False))
    names = {"uc": "Enters as under\n(UC, a second)", "ut_us": "Runs then for\n(UT, us)"}
    for row, (measure, label) in enumerate(names.items()):
        for column, configuration in enumerate(configurations):
            axes = panels[row][column]
            mine = data[data["configuration"] == configuration]
            for domain, look in looks.items():
                found = mine[mine["domain"] == domain].groupby("second")[measure].mean()
                axes.plot(
                    found.index,
                    found.to_numpy(),
                    color=look.colour,
                    linestyle=look.dashes,
                    marker=look.marker,
                    markersize=3,
                )
            _stretch(axes, 10)
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            if column == 0:
                axes.set_ylabel(label)
            if row == 0:
                axes.set_title(configuration)
            else:
                axes.set_xlabel("Second")
    legend(figure, [line_handle(look, domain) for domain, look in looks.items()])
    return figure


@styled
def misses(data: pd.DataFrame, published_percent: Mapping[str, Mapping[str, float]]) -> Figure:
    """Figures 17 and 18: cache misses a second, of all domains and of each.

    `data` has a row for each configuration, run and domain: `load`, `policy`, `run`, `domain` and
    `misses_s`. A row for each load: on the left a box over the runs, on the right the mean of each
    domain, units of 10,000. `published_percent` has the paper's misses by policy, in percent of
    our mean under "base": of the domain that is their name, or of all, whose name is "all".
    """
    loads = list(dict.fromkeys(data["load"]))
    policies = list(dict.fromkeys(data["policy"]))
    domains = list(dict.fromkeys(data["domain"]))
    figure = new_figure(2.2 * len(loads) + 0.3)
    panels = figure.subplots(len(loads), 2, squeeze=False, width_ratios=(1, 1.8))
    looks = dict(zip(policies, _LOOKS, strict=False))
    for (whole, apart), load in zip(panels, loads, strict=True):
        mine = data[data["load"] == load]
        boxes = []
        for policy in policies:
            runs = mine[mine["policy"] == policy].groupby("run")["misses_s"].sum() / 1e4
            low, q1, median, q3, high = np.percentile(runs, [0, 25, 50, 75, 100])
            box = {"label": policy, "whislo": low, "q1": q1, "med": median, "q3": q3}
            boxes.append({**box, "whishi": high})
        _box(whole, boxes)
        base = mine[mine["policy"] == "base"]
        of_all = base.groupby("run")["misses_s"].sum().mean() / 1e6
        for policy, percent in published_percent["all"].items():
            whole.plot(policies.index(policy) + 1, percent * of_all, **_PUBLISHED)
        whole.set_ylabel(f"{load}: misses\n(10,000 a second)")
        whole.set_ylim(bottom=0)
        width = 0.8 / len(policies)
        for place, policy in enumerate(policies):
            of_policy = mine[mine["policy"] == policy]
            means = [of_policy[of_policy["domain"] == each]["misses_s"].mean() for each in domains]
            where = np.arange(len(domains)) + (place - (len(policies) - 1) / 2) * width
            apart.bar(where, np.array(means) / 1e4, width=width, color=looks[policy].colour)
            for domain in domains:
                if policy in (stated := published_percent.get(domain, {})):
                    of_domain = base[base["domain"] == domain]["misses_s"].mean() / 1e6
                    at = where[domains.index(domain)]
                    apart.plot(at, stated[policy] * of_domain, **_PUBLISHED)
        apart.set_xticks(range(len(domains)), domains)
        apart.tick_params(axis="x", length=0)
        for axes in (whole, apart):
            axes.grid(visible=False, axis="x")
    patches = [_patch(look, policy) for policy, look in looks.items()]
    legend(figure, [*patches, published_handle()])
    return figure


def _stretch(axes: Axes, linear: float) -> None:
    """Logarithmic both ways beyond `linear`, with numbers as people write them."""
    axes.set_yscale("symlog", linthresh=linear)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))


def _patch(look: Look, label: str) -> Line2D:
    return Line2D([], [], label=label, color=look.colour, linewidth=6)


def _box(axes: Axes, boxes: list[dict[str, object]]) -> None:
    axes.bxp(
        boxes,
        widths=0.5,
        showfliers=False,
        patch_artist=True,
        medianprops={"color": INK, "linewidth": 1.3},
        whiskerprops={"color": MUTED, "linewidth": 0.9},
        capprops={"color": MUTED, "linewidth": 0.9},
        boxprops={"edgecolor": MUTED, "facecolor": ("#56b4e9", 0.55), "linewidth": 0.8},
    )
    axes.grid(visible=False, axis="x")
