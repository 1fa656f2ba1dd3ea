"""Every figure, of ordinary data and of what breaks figures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from laxity.plots import miss_ratios, responses, style
from laxity.plots.timeline import CPU_LANES_MAX, VCPU_LANES_MAX, vcpus_that_matter, who_ran_when
from laxity.policies import POLICIES
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MS = 1_000_000
NAMES = ("plain", "n" * 400, "<b>&amp;</b>", "$\\frac$", "déjà vu")


def drawn(figure: Figure) -> bytes:
    """The figure as SVG, which is an XML document; the PNG is one too."""
    assert style.png(figure).startswith(b"\x89PNG")
    svg = style.svg(figure)
    ET.fromstring(svg)  # noqa: S314 - it is our own
    return svg


def texts(figure: Figure) -> list[str]:
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    for axes in figure.axes:
        found += [label.get_text() for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]]
        found += [axes.get_title(loc="left")]
    for legend in figure.legends:
        found += [text.get_text() for text in legend.get_texts()]
    return found


def sweep(seeds: int = 3, policies: tuple[str, ...] = POLICIES) -> pd.DataFrame:
    rows = [
        {
            "pattern": pattern,
            "load": load,
            "policy": policy,
            "seed": seed,
            "domain": domain,
            "jobs": 100,
            "missed": max(0, load - 80 + 3 * seed + place),
        }
        for pattern in ("decreasing", "even", "increasing")
        for load in range(30, 101, 10)
        for place, policy in enumerate(policies)
        for seed in range(seeds)
        for domain in ("one", "two")
    ]
    return pd.DataFrame(rows)


def test_miss_ratios_are_of_all_domains_with_students_interval() -> None:
    frame = pd.DataFrame(
        {"load": 1, "seed": [1, 1, 2, 3], "jobs": [10, 30, 40, 40], "missed": [4, 0, 8, 12]}
    )
    (point,) = miss_ratios.miss_ratios(frame, ["load"]).to_dict("records")
    # Ratios 0.1, 0.2 and 0.3: deviation 0.1, and 4.303 for two degrees of freedom.
    half = 4.303 * 0.1 / 3**0.5
    assert point["seeds"] == 3
    assert point["mean"] == pytest.approx(0.2)
    assert point["low"] == pytest.approx(max(0.0, 0.2 - half))
    assert point["high"] == pytest.approx(0.2 + half)


def test_without_jobs_there_is_no_ratio() -> None:
    frame = pd.DataFrame({"load": [1, 2], "jobs": [0, 5], "missed": [0, 0]})
    assert list(miss_ratios.miss_ratios(frame, ["load"])["load"]) == [2]


def test_curves_have_a_panel_a_pattern_and_a_line_a_policy() -> None:
    figure = miss_ratios.miss_ratio_curves(sweep(), "load", "Load (%)", panel="pattern", limit=0.05)
    drawn(figure)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "decreasing",
        "even",
        "increasing",
    ]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == [*POLICIES, "5 % missed"]
    for axes in figure.axes:
        assert len(axes.lines) == len(POLICIES) + 1
        assert len(axes.collections) == len(POLICIES)  # the bands


def test_one_seed_has_no_band() -> None:
    figure = miss_ratios.miss_ratio_curves(sweep(seeds=1), "load", "Load (%)")
    assert not figure.axes[0].collections


def test_a_policy_looks_the_same_whatever_else_is_shown() -> None:
    alone = (
        miss_ratios.miss_ratio_curves(sweep(policies=("sedf",)), "load", "Load (%)")
        .axes[0]
        .lines[0]
    )
    every = miss_ratios.miss_ratio_curves(sweep(), "load", "Load (%)").axes[0].lines
    last = every[POLICIES.index("sedf")]
    assert alone.get_color() == last.get_color() == style.POLICY_LOOKS["sedf"].colour
    looks = style.POLICY_LOOKS.values()
    assert (
        len({look.colour for look in looks})
        == len({look.marker for look in looks})
        == len(POLICIES)
    )
    solid = [policy for policy, look in style.POLICY_LOOKS.items() if look.dashes == style.SOLID]
    assert solid == ["deferrable", "periodic", "polling", "sporadic", "lending"]


@style.styled
def marked(look: style.Look) -> int:
    """Pixels of a look's marker that are not of the ground's colour."""
    figure = style.new_figure(1)
    handle = style.line_handle(look, "")
    handle.set(linestyle="", xdata=[0.5], ydata=[0.5])
    figure.add_artist(handle)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3].astype(int)
    return int((np.abs(pixels - pixels[0, 0]).sum(axis=2) > 90).sum())


def test_every_policy_has_a_marker_that_is_seen() -> None:
    faint = {name: marked(look) for name, look in style.POLICY_LOOKS.items() if marked(look) < 4}
    assert not faint


@pytest.mark.parametrize("names", [NAMES, ("only",)])
def test_text_across(names: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"key": names, "policy": "credit", "jobs": 10, "missed": 1})
    figure = miss_ratios.miss_ratio_curves(frame, "key", "key")
    drawn(figure)
    assert len(figure.axes[0].get_xticklabels()) == len(names)


def test_curves_of_nothing_and_of_much() -> None:
    nothing = miss_ratios.miss_ratio_curves(
        sweep().assign(jobs=0, missed=0), "load", "Load (%)", panel="pattern"
    )
    drawn(nothing)
    assert "no jobs" in texts(nothing)
    many = pd.DataFrame(
        [
            {"x": x, "policy": f"p{line}", "panel": panel, "jobs": 5, "missed": 5}
            for x in (1, 2)
            for line in range(40)
            for panel in range(40)
        ]
    )
    assert (
        len(miss_ratios.miss_ratio_curves(many, "x", "x", panel="panel").axes)
        == miss_ratios.PANELS_MAX
    )


def compared(domains: int, missed: int = 3, name: str = "domain-{}") -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "policy": policy,
                "domain": name.format(domain),
                "jobs": 10 * (domain != 1),
                "missed": missed * (domain % 2),
                "miss_ratio": missed / 10 * (domain % 2) * (domain != 1),
            }
            for policy in POLICIES
            for domain in range(domains)
        ]
    )


@pytest.mark.parametrize(
    "frame",
    [compared(1), compared(5), compared(5, missed=0), compared(4, name="<i>" + "x" * 300 + "{}")],
)
def test_dots(frame: pd.DataFrame) -> None:
    figure = miss_ratios.miss_ratio_dots(frame)
    drawn(figure)
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert rows[0] == "all domains"
    assert len(rows) == 1 + frame["domain"].nunique()
    assert max(map(len, rows)) <= style.NAME_LENGTH_MAX


def test_dots_of_seeds_are_means_with_intervals() -> None:
    frames = [compared(4, missed=missed).assign(seed=missed) for missed in (1, 2, 3)]
    figure = miss_ratios.miss_ratio_dots(pd.concat(frames))
    drawn(figure)
    one = miss_ratios.miss_ratio_dots(frames[1])
    axes, without = figure.axes[0], one.axes[0]
    # The means are those of the seed in the middle. Errors add a line and two caps to each policy.
    points = [line.get_xdata() for line in axes.lines if line.get_marker() not in ("|", "None")]
    middle = [line.get_xdata() for line in without.lines]
    assert len(points) == len(middle) == len(POLICIES)
    for found, wanted in zip(points, middle, strict=True):
        np.testing.assert_allclose(found, wanted)
    assert len(axes.collections) == len(without.collections) + len(POLICIES)


@pytest.mark.slow
def test_of_many_domains_the_worst_are_shown() -> None:
    frame = compared(50)
    chosen = miss_ratios.worst_domains(frame)
    assert len(chosen) == miss_ratios.DOMAIN_ROWS_MAX
    assert all(int(name.split("-")[1]) % 2 for name in chosen)
    drawn(miss_ratios.miss_ratio_dots(frame))


def task(domain: str, name: str, times_ms: list[float], missed: int = 0) -> responses.TaskTimes:
    times = (np.array(times_ms) * MS).astype(np.int64)
    return responses.TaskTimes(domain, name, 10 * MS, max(len(times), missed), missed, times)


@pytest.mark.parametrize(
    "tasks",
    [
        [],
        [task("d", "one", [4])],
        [task("d", "none", []), task("d", "some", [1, 2, 3])],
        [task("d", "on-the-deadline", [10, 10]), task("d", "late", [11, 500], missed=2)],
        [task(name, name, [1, 5, 20], missed=1) for name in NAMES],
        [task(f"domain-{number}", "task", [number + 1]) for number in range(48)],
    ],
)
def test_response_times(tasks: list[responses.TaskTimes]) -> None:
    figure = responses.response_distributions(tasks)
    drawn(figure)
    headings = [text for text in figure.axes[0].texts if text.get_fontweight() == "bold"]
    assert len(headings) == len({task.domain for task in tasks})
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        style.shorten(task.task) for task in tasks
    ]


def test_a_bound_has_a_line() -> None:
    of_task = responses.TaskTimes("d", "t", 10 * MS, 1, 0, np.array([2 * MS]), None, 7 * MS)
    axes = responses.response_distributions([of_task]).axes[0]
    assert [7 * MS] in [list(line.get_xdata()) for line in axes.lines]


@pytest.mark.parametrize(("time_ns", "is_late"), [(10 * MS, False), (10 * MS + 1, True)])
def test_what_is_late_is_red_and_a_response_at_the_deadline_is_not(
    time_ns: int, is_late: bool
) -> None:
    of_task = responses.TaskTimes("d", "t", 10 * MS, 1, int(is_late), np.array([time_ns]))
    (shape,) = responses.response_distributions([of_task]).axes[0].collections
    red = tuple(shape.get_facecolor()[0][:3]) == pytest.approx((0xC1 / 255, 0x12 / 255, 0x1F / 255))
    assert red == is_late


def test_of_many_tasks_those_at_risk_are_shown_in_order() -> None:
    tasks = [task(f"d{number // 20}", f"t{number}", [1]) for number in range(1000)]
    tasks[700] = task("d35", "late", [11], missed=1)
    tasks[20] = task("d1", "close", [9.9])
    shown = responses.tasks_at_risk(tasks)
    assert len(shown) == responses.TASK_ROWS_MAX
    names = [one.task for one in shown]
    assert names.index("close") < names.index("late")
    drawn(responses.response_distributions(shown))


def moment(
    vcpus: int, cpus: int, policy: str = "deferrable"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Each VCPU is a domain; one after the other runs for 1 ms."""
    run = {
        "policy": policy,
        "cpus": cpus,
        "domains": [
            {
                "name": NAMES[number] if number < len(NAMES) else f"d{number}",
                "vcpus": 1,
                "tasks": [{"vcpu": 0}],
            }
            for number in range(vcpus)
        ],
    }
    least = -5 * MS if policy == "credit" else 0

    def points(*numbers: int) -> list[dict[str, int]]:
        return [{"time_ns": n * MS, "domain": n, "task": 0, "job": 0} for n in numbers if n < vcpus]

    timeline = {
        "from_ns": 0,
        "to_ns": vcpus * MS,
        "occupancy": [
            {"cpu": n % cpus, "domain": n, "vcpu": 0, "start_ns": n * MS, "end_ns": (n + 1) * MS}
            | {"ran_ns": MS}
            for n in range(vcpus)
        ],
        "budgets": [
            {"domain": n, "vcpu": 0, "points": [[0, 2 * MS], [vcpus * MS, least]]}
            for n in range(vcpus)
        ],
        "releases": points(0, 1, 2),
        "completions": points(1),
        "misses": points(2, 40),
    }
    return timeline, run


@pytest.mark.parametrize("policy", ["deferrable", "credit"])
@pytest.mark.parametrize(("vcpus", "cpus"), [(1, 1), (5, 2), (60, 50)])
def test_timelines(vcpus: int, cpus: int, policy: str) -> None:
    timeline, run = moment(vcpus, cpus, policy)
    figure = who_ran_when(timeline, run)
    drawn(figure)
    lanes = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(lanes) == min(cpus, CPU_LANES_MAX) + min(vcpus, VCPU_LANES_MAX)


def test_who_misses_deadlines_has_a_lane() -> None:
    timeline, run = moment(60, 4)
    chosen = vcpus_that_matter(timeline, run)
    assert (40, 0) in chosen
    assert (0, 0) in chosen
    assert chosen == sorted(chosen)


def test_an_idle_window_without_budgets() -> None:
    timeline, run = moment(2, 1)
    for kind in ("occupancy", "releases", "completions", "misses"):
        timeline[kind] = []
    for budget in timeline["budgets"]:
        budget["points"] = [[0, 0], [2 * MS, 0]]
    drawn(who_ran_when(timeline, run))


@pytest.mark.parametrize(
    ("name", "length", "short"),
    [
        ("short", 24, "short"),
        ("abcdefghij", 5, "ab…ij"),
        ("", 3, ""),
        ("abcd", 3, "a…d"),
    ],
)
def test_shorten(name: str, length: int, short: str) -> None:
    assert style.shorten(name, length) == short


@pytest.mark.slow
def test_the_same_data_give_the_same_bytes() -> None:
    def both() -> tuple[bytes, bytes]:
        figure = miss_ratios.miss_ratio_curves(sweep(), "load", "Load (%)", panel="pattern")
        return style.svg(figure), style.png(figure)

    assert both() == both()


def test_what_people_set_for_matplotlib_changes_nothing() -> None:
    frame = sweep()
    before = style.svg(miss_ratios.miss_ratio_curves(frame, "load", "Load (%)"))
    with mpl.rc_context({"font.size": 30, "axes.grid": False, "savefig.bbox": "tight"}):
        assert style.svg(miss_ratios.miss_ratio_curves(frame, "load", "Load (%)")) == before


def test_a_figure_is_as_wide_as_its_page_and_its_panels_stand_below_each_other() -> None:
    with style.page_width(style.NARROW_INCHES):
        figure = miss_ratios.miss_ratio_curves(sweep(), "load", "Load (%)", panel="pattern")
    drawn(figure)
    assert figure.get_figwidth() == style.NARROW_INCHES
    left = {round(axes.get_position().x0, 3) for axes in figure.axes}
    assert len(left) == 1
    assert min(text.get_fontsize() for text in figure.legends[0].get_texts()) >= 8


@pytest.mark.parametrize("longest_ms", [2.0, 20.0, 300.0, 30_000.0])
@pytest.mark.parametrize("inches", [style.NARROW_INCHES, style.WIDTH_INCHES])
def test_times_below_an_axis_do_not_overlap(longest_ms: float, inches: float) -> None:
    times = np.array([0.4 * MS, longest_ms * MS]).astype(np.int64)
    of_task = responses.TaskTimes("d", "task", 20 * MS, 2, 0, times)
    with style.page_width(inches):
        figure = responses.response_distributions([of_task])
        style.png(figure)
    labels = [label for label in figure.axes[0].get_xticklabels() if label.get_text()]
    low, high = figure.axes[0].get_xlim()
    boxes = [
        label.get_window_extent() for label in labels if low <= label.get_position()[0] <= high
    ]
    assert len(boxes) > 1
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_long_title_is_whole() -> None:
    name = "calls.streams = 1000, domain.media.scheduler = rate-monotonic, host.cpus = 4"
    frame = sweep(seeds=1).assign(pattern=name)
    figure = miss_ratios.miss_ratio_curves(frame, "load", "Load (%)", panel="pattern")
    assert figure.axes[0].get_title(loc="left").replace("\n", " ") == name


@pytest.mark.parametrize("colour", [look.colour for look in style.POLICY_LOOKS.values()])
def test_every_policy_stands_out_in_the_dark(colour: str) -> None:
    ground = style._luminance(to_rgb(style.IN_THE_DARK[style.GROUND]))
    shown = style._luminance(to_rgb(style._in_the_dark(colour)))
    assert (shown + 0.05) / (ground + 0.05) >= style.CONTRAST_MIN
