"""The timeline of a report, in a browser: what it decodes, and what it does."""

from __future__ import annotations

import json
import re
import shutil
from bisect import bisect
from collections import Counter
from typing import TYPE_CHECKING, Any

import browser
import laxity
import numpy as np
import pytest
from conftest import EXAMPLES
from html_report import read
from laxity.report import live
from laxity.report.window import cause, chosen_window
from laxity.why import why

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

needs_browser = pytest.mark.skipif(
    not browser.is_there(), reason="needs the Debian packages chromium and chromium-driver"
)

HOST = """\
duration = "2 s"
seed = 3
[host]
cpus = 2
policy = "deferrable"
costs = "emsoft-2011"
[draw]
load = 1.4
[[domain]]
name = "one"
vcpus = 2
budget = "3 ms"
period = "10 ms"
tasks = "drawn"
[[domain]]
name = "other"
budget = "4 ms"
period = "10 ms"
tasks = "drawn"
[[domain]]
name = "batch"
budget = "1 ms"
period = "10 ms"
workload = { kind = "cpu-bound" }
"""


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> laxity.Run:
    """A run with late jobs, and its report in many stretches, of which all are kept."""
    directory = tmp_path_factory.mktemp("timeline") / "run"
    laxity.Host.parse(HOST).run(trace=directory.parent / "traced").save(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "STRETCH_RECORDS", 400)
        read(directory)
    run = laxity.Run.load(directory)
    assert run.missed
    return run


@pytest.fixture(scope="module")
def window(late: laxity.Run) -> Iterator[browser.Browser]:
    """The report in a browser."""
    assert late.trace
    with browser.browser() as opened:
        opened.size(1100, 900)
        opened.open(late.trace.parent / "report.html")
        opened.wait(f"{ROOT}.dataset.level === 'exact'")
        yield opened


ROOT = "document.querySelector('.timeline')"


def state(window: browser.Browser) -> dict[str, Any]:
    """What the timeline shows, once everything is drawn."""
    window.run(f"{ROOT}.frameWanted = Number({ROOT}.dataset.frames) + 1; {ROOT}.redraw()")
    window.wait(
        f"Number({ROOT}.dataset.frames) >= {ROOT}.frameWanted && {ROOT}.dataset.level !== 'loading'"
    )
    seen: dict[str, Any] = window.run(f"return {{...{ROOT}.dataset}}")
    return seen | {key: int(seen[key]) for key in ("fromNs", "toNs", "chosen")}


def test_it_has_the_whole_run(late: laxity.Run) -> None:
    assert late.trace
    stretches, _ = laxity._core.timeline_levels(str(late.trace), 400)
    assert len(stretches) > 12
    kept = list(live.packed(stretches, 0))
    assert [each[:2] for each in kept] == [each[:2] for each in stretches]
    assert all(content for _, _, content in kept)


def test_of_too_long_a_run_it_has_what_is_nearest(late: laxity.Run) -> None:
    assert late.trace
    stretches, _ = laxity._core.timeline_levels(str(late.trace), 400)
    middle = len(stretches) // 2
    middle_ns = (stretches[middle][0] + stretches[middle][1]) // 2
    kept = [bool(content) for _, _, content in live.packed(stretches, middle_ns, (), 6_000)]
    first, last = kept.index(True), len(kept) - kept[::-1].index(True)
    assert 1 < last - first < len(kept) - 2
    assert all(kept[first:last])
    assert first <= middle < last
    end_ns = stretches[-1][1] - 1
    kept = [bool(content) for _, _, content in live.packed(stretches, middle_ns, [end_ns], 6_000)]
    assert kept[-1]
    assert kept[middle]
    assert not all(kept)


@needs_browser
def test_it_opens_where_the_figure_is(late: laxity.Run, window: browser.Browser) -> None:
    assert late.trace
    host = laxity.Host(late.origin.host, "host.toml").resolved()
    chosen = chosen_window(late, late.trace, cause(late, late.trace, host))
    window.click("[data-do=cause]")
    seen = state(window)
    assert (seen["fromNs"], seen["toNs"], seen["level"]) == (*chosen, "exact")
    assert window.run("return document.querySelector('figure.drawn > .card').offsetHeight") == 0
    assert "batch" in window.run(f"return {ROOT}.querySelector('.labels').innerText")


@needs_browser
def test_all_columns_are_on_a_page_and_all_titles_on_a_phone(
    window: browser.Browser, late: laxity.Run, tmp_path: Path
) -> None:
    assert late.trace
    laxity.Host.load(EXAMPLES / "integrator.toml").run(duration="2 s").save(tmp_path / "run")
    read(tmp_path / "run")
    of_tables = (
        "return [...document.querySelectorAll('.scroll')].filter({test}).map(at => at.innerText)"
    )
    is_wide = "at => at.scrollWidth > at.clientWidth"
    is_cut = "at => at.querySelector('caption span').getBoundingClientRect().right > innerWidth"
    titles = "document.querySelectorAll('caption span')"
    try:
        window.open(tmp_path / "run" / "report.html")
        window.size(1280, 900)
        assert window.run(of_tables.replace("{test}", is_wide)) == []
        window.size(390, 900)
        assert window.run("return document.documentElement.scrollWidth") == 390
        assert window.run(of_tables.replace("{test}", is_wide))
        window.run(f"{titles}.forEach(at => at.append(' and more'.repeat(9)))")
        assert window.run(of_tables.replace("{test}", is_cut)) == []
    finally:
        window.size(1100, 900)
        window.open(late.trace.parent / "report.html")
        window.wait(f"{ROOT}.dataset.level === 'exact'")


@needs_browser
def test_it_decodes_what_the_trace_says(late: laxity.Run, window: browser.Browser) -> None:
    assert late.trace
    whole = json.loads(laxity._core.timeline(str(late.trace), 0, late.duration_ns))
    first_vcpu, first_task, vcpus, tasks = [], [], 0, 0
    for domain in laxity.tracefile.metadata(late.trace)["domains"]:
        first_vcpu.append(vcpus)
        first_task.append(tasks)
        vcpus, tasks = vcpus + domain["vcpus"], tasks + len(domain["tasks"])
    decoded = window.run_async(f"{ROOT}.everything()")
    ran: dict[tuple[int, int], list[list[int]]] = {}
    for cpu, vcpu, start_ns, end_ns in sorted(decoded["spans"], key=lambda span: span[2]):
        spans = ran.setdefault((cpu, vcpu), [])
        if spans and spans[-1][1] == start_ns:
            spans[-1][1] = end_ns
        else:
            spans.append([start_ns, end_ns])
    wanted: dict[tuple[int, int], list[list[int]]] = {}
    for each in sorted(whole["occupancy"], key=lambda each: each["start_ns"]):
        spans = wanted.setdefault((each["cpu"], first_vcpu[each["domain"]] + each["vcpu"]), [])
        if spans and spans[-1][1] == each["start_ns"]:
            spans[-1][1] = each["end_ns"]
        else:
            spans.append([each["start_ns"], each["end_ns"]])
    assert ran == wanted
    points = [
        [what, first_task[each["domain"]] + each["task"], each["time_ns"], each["job"]]
        for what, kind in enumerate(("releases", "completions", "misses"))
        for each in whole[kind]
    ]
    assert sorted(decoded["points"]) == sorted(points)
    for budget, of_page in zip(whole["budgets"], decoded["budgets"], strict=True):
        assert of_page == budget["points"]
    exact = Counter[int]()
    for each in whole["occupancy"]:
        exact[each["domain"]] += each["ran_ns"]
    assert len(decoded["levels"]) > 3
    for level in decoded["levels"]:
        shares = Counter[int]()
        for vcpu, ran_ns in level:
            shares[bisect(first_vcpu, vcpu) - 1] += ran_ns
        assert shares == exact


@needs_browser
def test_it_zooms_and_moves(late: laxity.Run, window: browser.Browser) -> None:
    window.click("[data-do=all]")
    seen = state(window)
    assert (seen["fromNs"], seen["toNs"]) == (0, late.duration_ns)
    assert seen["level"] == "overview"
    window.run(f"{ROOT}.querySelector('.lanes canvas').focus()")
    for _ in range(40):
        window.press("+")
    seen = state(window)
    assert seen["level"] == "exact"
    middle_ns = late.duration_ns // 2
    assert seen["toNs"] - seen["fromNs"] == 20
    assert seen["fromNs"] <= middle_ns <= seen["toNs"]
    window.press("-")
    before = state(window)
    assert before["toNs"] - before["fromNs"] == 40
    window.click("[data-do=right]")
    after = state(window)
    assert after["fromNs"] - before["fromNs"] == 16
    assert after["toNs"] - after["fromNs"] == 40
    window.run(f"{ROOT}.querySelector('.lanes canvas').focus()")
    window.press("\ue011")
    assert state(window)["toNs"] == late.duration_ns


@needs_browser
def test_lanes_fold(window: browser.Browser) -> None:
    def lanes() -> list[str]:
        names: list[str] = window.run(
            f"return [...{ROOT}.querySelectorAll('.labels > *')].map((each) => each.textContent)"
        )
        return names

    every = ["CPUs (2)", "CPU 0", "CPU 1", "one", "VCPU 0", "VCPU 1", "other", "VCPU 0"]
    every += ["batch", "VCPU 0"]
    assert lanes() == every
    window.click('[data-key="domain 0"]')
    assert lanes() == every[:4] + every[6:]
    window.click('[data-key="domain 0"]')
    assert lanes() == every
    window.click("[data-do=fold]")
    assert lanes() == ["CPUs (2)", "one", "other", "batch"]
    window.click("[data-do=fold]")
    assert lanes() == every


@needs_browser
def test_it_goes_to_late_jobs_and_says_why(late: laxity.Run, window: browser.Browser) -> None:
    assert late.trace
    worst = sorted(why(late.trace, worst=live.LATE_MAX).late, key=lambda job: job.arrival_ns)
    texts = window.run(
        f"return [...{ROOT}.querySelectorAll('.late button')].map((each) => each.textContent)"
    )
    assert [text.partition(":")[0] for text in texts] == [job.what for job in worst]
    window.click("[data-do=all]")
    for place, job in enumerate(worst[:3]):
        window.click("[data-do=next]")
        seen = state(window)
        assert seen["chosen"] == place
        assert seen["fromNs"] <= job.arrival_ns < job.deadline_ns <= seen["toNs"]
        said = window.run(f"return {ROOT}.querySelector('.said').textContent")
        assert said.startswith(f"{job.what}: ")
        assert len(said.partition("late. ")[2]) > 20
    window.click("[data-do=previous]")
    assert state(window)["chosen"] == 1


@needs_browser
def test_pointing_says_what_ran_and_for_whom(window: browser.Browser) -> None:
    window.click("[data-do=cause]")
    state(window)
    decoded = window.run_async(f"{ROOT}.everything()")
    seen = state(window)
    inside = [
        span
        for span in decoded["spans"]
        if seen["fromNs"] < span[2] and span[3] < seen["toNs"] and span[0] == 1
    ]
    _, vcpu, start_ns, end_ns = max(inside, key=lambda span: span[3] - span[2])
    said = window.run(f"return {ROOT}.describeAt('cpu 1', {(start_ns + end_ns) / 2})")
    name = ["one/0", "one/1", "other", "batch"][vcpu]
    assert said.startswith(f"{name} ran on CPU 1 from ")
    assert (", for " in said) == (vcpu < 3)


def with_exits(trace: Path) -> int:
    """Adds exits to a trace: each run of a VCPU ends with one, from its middle on.

    Returns their time.
    """
    records = laxity.tracefile.records(trace).copy()
    head = trace.read_bytes()[: -records.nbytes]
    run, stop = map(laxity.tracefile.number_of, ("run", "stop"))
    of_vcpu = ["domain", "vcpu"]
    begun, added, all_ns = {}, [], 0
    for record in records[np.isin(records["kind"], [run, stop])]:
        vcpu = tuple(record[of_vcpu])
        if record["kind"] == run:
            begun[vcpu] = record
            continue
        of_run = begun.pop(vcpu)
        left = record.copy()
        left["time_ns"] = (of_run["time_ns"] + record["time_ns"]) // 2
        left["kind"] = laxity.tracefile.number_of("exit")
        left["argument"] = laxity.tracefile.EXITS.index("halt")
        entered = of_run.copy()
        entered["kind"], entered["argument"] = laxity.tracefile.number_of("enter"), 0
        added += [left, entered]
        all_ns += int(record["time_ns"] - left["time_ns"])
    every = np.concatenate([records, np.array(added, records.dtype)])
    trace.write_bytes(head + every[np.argsort(every["time_ns"], kind="stable")].tobytes())
    return all_ns


@needs_browser
def test_pointing_says_what_the_host_had(
    window: browser.Browser, late: laxity.Run, tmp_path: Path
) -> None:
    """Stretches cut what runs, and their parts have the time of all together."""
    assert late.trace
    shutil.copytree(late.trace.parent, tmp_path / "run")
    all_ns = with_exits(tmp_path / "run" / late.trace.name)
    guests = why(tmp_path / "run" / late.trace.name).guests
    assert sum(guest.exits_ns for guest in guests) == all_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "STRETCH_RECORDS", 400)
        read(tmp_path / "run")
    try:
        window.open(tmp_path / "run/report.html")
        window.wait(f"{ROOT}.dataset.level === 'exact'")
        decoded = window.run_async(f"{ROOT}.everything()")
        halt = laxity.tracefile.EXITS.index("halt")
        assert {exit for exit, _ in decoded["exits"]} == {halt}
        assert sum(ns for _, ns in decoded["exits"]) == all_ns
        seen = state(window)
        cpu, _, start_ns, end_ns = next(
            span for span in decoded["spans"] if seen["fromNs"] < span[2] and span[3] < seen["toNs"]
        )
        said = window.run(f"return {ROOT}.describeAt('cpu {cpu}', {(start_ns + end_ns) / 2})")
        assert re.search(r", of which the host had (.+) after exits: halt \1", said), said
    finally:
        window.open(late.trace.parent / "report.html")
        window.wait(f"{ROOT}.dataset.level === 'exact'")


@needs_browser
def test_tables_are_sorted_by_a_click(window: browser.Browser) -> None:
    table = "[...document.querySelectorAll('table')].find((each) => each.caption.textContent === "
    table += "'Jobs and response times of each task')"
    column = f"[...{table}.tBodies[0].rows].map((row) => row.cells[4].textContent)"
    before = window.run(f"return {column}")
    deadlines = sorted(laxity._core.parse_duration(text) for text in before)
    assert len(set(deadlines)) > 3
    for direction in (-1, 1):
        window.run(f"{table}.tHead.rows[0].cells[4].click()")
        after = [laxity._core.parse_duration(text) for text in window.run(f"return {column}")]
        assert after == deadlines[::direction]


@needs_browser
def test_a_phone_in_the_dark(window: browser.Browser) -> None:
    window.size(390, 800)
    window.scheme("dark")
    window.wait(f"{ROOT}.classList.contains('narrow')")
    state(window)
    assert window.run("return document.documentElement.scrollWidth") <= 390
    canvas = f"{ROOT}.querySelector('.lanes canvas')"
    assert window.run(f"return {canvas}.clientWidth") > 300
    pixels = f"{canvas}.getContext('2d').getImageData(0, 0, {canvas}.width, {canvas}.height).data"
    assert window.run(f"return new Set(new Uint32Array({pixels}.buffer)).size") > 5
    # Sentences are read without moving their table.
    right = "Math.max(...cells.map((cell) => cell.getBoundingClientRect().right))"
    cells = "[...document.querySelectorAll('table.words tbody *')]"
    assert 200 < window.run(f"const cells = {cells}; return {right}") <= 390
    window.size(1100, 900)
    window.scheme("light")


@needs_browser
def test_what_is_not_kept_is_shown_in_cells(late: laxity.Run, window: browser.Browser) -> None:
    assert late.trace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "STRETCH_RECORDS", 400)
        patch.setattr(live.packed, "__defaults__", ((), 6_000))
        read(late.trace.parent)
    window.open(late.trace.parent / "report.html")
    window.wait(f"{ROOT}.dataset.level === 'exact'")
    stretches = window.run(
        "return JSON.parse(document.querySelector('#timeline-data').textContent).stretches"
    )
    left_out = next(each for each in stretches if each[2] is None)
    window.run(f"{ROOT}.show({left_out[0]}, {left_out[1]})")
    assert state(window)["level"] == "overview"
    said = window.run(f"return {ROOT}.querySelector('.coarse').innerText")
    assert "--window FROM..TO" in said


CALLS = """\
duration = "100 ms"
[host]
cpus = 1
policy = "credit"
[[domain]]
name = "dom0"
workload = { kind = "driver" }
[[domain]]
name = "media"
workload = { kind = "media-server" }
[[domain]]
name = "busy"
workload = { kind = "cpu-bound" }
[[nic]]
name = "eth0"
ring = 16
[calls]
streams = 400
media-server = "media"
acceptance = { delay = "1 ms" }
"""
"""More packets than the CPU can relay."""


@needs_browser
def test_it_goes_to_late_packets_and_their_causes_sum(
    tmp_path: Path, window: browser.Browser
) -> None:
    run = laxity.Host.parse(CALLS).run(trace=tmp_path / "traced")
    run.save(tmp_path / "run")
    read(tmp_path / "run")
    packets = why(tmp_path / "run" / "trace.laxtrace", worst=live.LATE_MAX).late
    packets = tuple(sorted(packets, key=lambda packet: packet.arrival_ns))
    assert {packet.packet for packet in packets} >= {"late", "lost"}
    window.open(tmp_path / "run" / "report.html")
    window.wait(f"{ROOT}.dataset.level === 'exact'")
    listed = f"[...{ROOT}.querySelectorAll('.late li')]"
    bars = window.run(
        f"return {listed}.map((item) => [...item.querySelectorAll('.shares span')]"
        ".map((share) => share.title))"
    )
    assert len(bars) == len(packets)
    for packet, shares in zip(packets, bars, strict=True):
        times = [laxity._core.parse_duration(share.partition(": ")[0]) for share in shares]
        assert sum(times) == packet.late_ns
    place = next(place for place, packet in enumerate(packets) if packet.packet == "late")
    packet = packets[place]
    window.run(f"{listed}[{place}].querySelector('button').click()")
    seen = state(window)
    assert seen["chosen"] == place
    assert seen["fromNs"] <= packet.arrival_ns < packet.deadline_ns <= seen["toNs"]
    said = window.run(f"return {ROOT}.querySelector('.said').textContent")
    name = packet.what.partition("/stream-")[2].replace("#", ", packet ")
    assert said.startswith(f"stream {name}: ")
    assert bars[place][0].partition(": ")[2] in said
    at = next(cause.at for cause in packet.causes if cause.at)
    opened = window.run(
        f"return [...{ROOT}.querySelectorAll('.labels [aria-expanded=true]')]"
        ".map((each) => each.textContent)"
    )
    assert at in opened
