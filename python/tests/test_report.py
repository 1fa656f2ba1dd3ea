"""Reports: of every kind of output directory, and of hosts that are hard to show."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import laxity
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from html_report import Document, read
from laxity import additions, report
from laxity.directory import Manifest
from laxity.errors import InputError
from laxity.plots import style
from laxity.report import comparison, live
from laxity.report.page import interval
from laxity.report.window import cause, chosen_window, first_missed_ns
from laxity.results.origin import read_table
from laxity.results.streams import LOST, PACKET_NS
from laxity.statistics import mean
from laxity.tables.sweep import best_point
from laxity.text import percent, time
from laxity.voice.scoring import scored

MS = 1_000_000

HEAD = """\
# <script>alert("host")</script>
duration = "{duration}"
seed = 1
[host]
cpus = {cpus}
policy = "deferrable"
costs = "emsoft-2011"
"""
DRAW = "[draw]\nload = {load}\n"
DOMAIN = """\
[[domain]]
name = "{name}"
budget = "2 ms"
period = "10 ms"
tasks = {tasks}
"""
EXAMPLES = Path(__file__).parents[2] / "examples"
CALLS = """\
duration = "{duration}"
seed = 1
[host]
cpus = {cpus}
policy = "credit"
network = "iptcomm-2009"
[[domain]]
name = "dom0"
workload = {{ kind = "driver" }}
[[domain]]
name = "media"
workload = {{ kind = "media-server" }}
[calls]
streams = {streams}
media-server = "media"
"""


def host(
    *tasks: str, cpus: int = 1, load: float = 0.7, duration: str = "1 s", name: str = "dom-{}"
) -> laxity.Host:
    domains = [DOMAIN.format(name=name.format(place), tasks=of) for place, of in enumerate(tasks)]
    head = HEAD.format(duration=duration, cpus=cpus)
    if '"drawn"' in tasks:
        head += DRAW.format(load=load)
    return laxity.Host.parse(head + "".join(domains))


def traced(host: laxity.Host, directory: Path, **options: str) -> laxity.Run:
    run = host.run(trace=directory.parent / "traced", **options)
    run.save(directory)
    return laxity.Run.load(directory)


def test_the_ground_of_figures_is_that_of_their_card() -> None:
    page = files("laxity.report").joinpath("page.css").read_text("utf-8")
    assert re.findall(r"--card: (#\w+)", page) == [
        style.GROUND,
        style.IN_THE_DARK[style.GROUND],
        "#fff",
    ]
    assert re.findall(r"\.card \{ background: ([^;]+);", page) == ["var(--card)"]
    # Every other ground is one that changes with light and dark, too.
    grounds = set(re.findall(r"background: ([^;]+);", page))
    assert grounds == {"var(--ground)", "var(--card)", "var(--shade)"}


def digest(directory: Path) -> dict[str, str]:
    files = [directory / "report.html", *(directory / "figures").iterdir()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def heading(document: Document) -> str:
    match = re.search(r"\n([^\n]+\.)\n", document.text)
    assert match
    return match[1]


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with missed deadlines."""
    directory = tmp_path_factory.mktemp("late") / "run"
    run = traced(host('"drawn"', '"drawn"', '"drawn"', load=1.2, duration="4 s"), directory)
    assert run.missed
    return directory


def test_run(late: Path) -> None:
    document = read(late)
    run = laxity.Run.load(late)
    assert f"{run.missed:,} of {run.jobs:,} jobs missed their deadline." in document.text
    worst = max(run.domains, key=lambda domain: domain.miss_ratio)
    assert f"The worst domain is {worst.name}" in document.text
    assert document.count("img") == 2
    assert (late / "host.toml").read_text("utf-8") in document.text
    assert "laxity run host.toml -o again" in document.text
    for domain in run.domains:
        for task in domain.tasks:
            assert task.name in document.text


@pytest.mark.slow
def test_the_same_bytes_twice(late: Path) -> None:
    report.write(late)
    before = digest(late)
    assert len(before) == 5
    report.write(late)
    assert digest(late) == before


def test_a_window(late: Path) -> None:
    assert "From 100 ms to 300 ms" in read(late, window=(100 * MS, 300 * MS)).text


@pytest.mark.parametrize("window", [(0, 5_000 * MS), (-1, 5), (5, 5)])
def test_a_window_outside_the_run_is_refused(late: Path, window: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="window"):
        report.write(late, window=window)


def test_the_window_is_around_the_first_missed_deadline(late: Path) -> None:
    run = laxity.Run.load(late)
    assert run.trace
    first = first_missed_ns(run.trace)
    whole = json.loads(laxity._core.timeline(str(run.trace), 0, run.duration_ns))
    assert first == min(point["time_ns"] for point in whole["misses"])
    about = cause(run, run.trace, laxity.Host(run.origin.host, "host.toml").resolved())
    assert about
    assert about.marks == ((first, "the first deadline is missed"),)
    from_ns, to_ns = chosen_window(run, run.trace, about)
    assert 0 <= from_ns <= first <= to_ns <= run.duration_ns
    inside = json.loads(laxity._core.timeline(str(run.trace), from_ns, to_ns))
    assert 40 <= len(inside["occupancy"]) <= 120


def test_a_job_that_never_completes_is_found(tmp_path: Path) -> None:
    tasks = '[{ name = "starved", cost = "90 ms", period = "100 ms" }]'
    run = traced(host(tasks, duration="300 ms"), tmp_path / "run")
    assert run.trace
    assert first_missed_ns(run.trace) == 100 * MS


def test_without_a_trace_there_is_no_timeline(late: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    shutil.copytree(late, directory, ignore=shutil.ignore_patterns("trace*", "figures", "*.html"))
    assert read(directory).count("img") == 1
    with pytest.raises(InputError, match="no trace"):
        report.write(directory, window=(0, 5))


def test_no_tasks(tmp_path: Path) -> None:
    traced(host("[]"), tmp_path / "run")
    document = read(tmp_path / "run")
    assert heading(document) == "No deadline fell within this run."
    assert document.count("img") == 1


def test_one_job(tmp_path: Path) -> None:
    tasks = '[{ name = "single", cost = "1 ms", period = "900 ms" }]'
    traced(host(tasks), tmp_path / "run")
    assert "Its one job met its deadline." in read(tmp_path / "run").text


def test_no_misses(tmp_path: Path) -> None:
    tasks = '[{ name = "calm", cost = "1 ms", period = "100 ms" }]'
    traced(host(tasks, tasks), tmp_path / "run")
    assert "All 20 jobs met their deadlines." in read(tmp_path / "run").text


def test_a_very_short_run(tmp_path: Path) -> None:
    traced(host('"drawn"', duration="1 ns"), tmp_path / "run")
    read(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["credit", "sedf", "polling"])
def test_other_policies(tmp_path: Path, policy: str) -> None:
    traced(host('"drawn"', '"drawn"'), tmp_path / "run", policy=policy)
    document = read(tmp_path / "run")
    assert ("weight" in document.text) == (policy == "credit")
    assert f"--set host.policy={policy}" in document.text


@pytest.mark.slow
def test_many_domains_and_tasks(tmp_path: Path) -> None:
    tasks = [f'{{ name = "task-{n}", cost = "1 ms", period = "800 ms" }}' for n in range(20)]
    crowd = host(*[f"[{', '.join(tasks)}]"] * 50, cpus=50)
    traced(crowd, tmp_path / "run")
    document = read(tmp_path / "run")
    assert "The 48 of 1,000 tasks" in document.text
    assert "12 of 50 VCPUs have lanes" in document.text
    assert document.count("details") == 2


def test_names_that_are_long_or_look_like_html(late: Path, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    shutil.copytree(late, directory, ignore=shutil.ignore_patterns("figures", "*.html"))
    result = json.loads((directory / "result.json").read_text("utf-8"))
    names = ['"><script>alert(1)</script>', "x" * 5000, "</td></table>&lt;"]
    for domain, name in zip(result["domains"], names, strict=True):
        domain["name"] = domain["tasks"][0]["name"] = name
    (directory / "result.json").write_text(json.dumps(result), "utf-8")
    document = read(directory)
    assert all(name in document.text for name in names)


@pytest.mark.slow
def test_the_whole_run_in_one_window_is_no_larger_for_a_longer_run(tmp_path: Path) -> None:
    sizes = []
    for duration_s in (4, 40):
        directory = tmp_path / f"{duration_s}"
        traced(host('"drawn"', '"drawn"', load=1.2, duration=f"{duration_s} s"), directory)
        document = read(directory, window=(0, duration_s * 1000 * MS))
        assert "a bar is as high as the part of the time" in document.text
        drawing = (directory / "figures/timeline.svg").read_bytes()
        sizes.append(len(drawing))
    assert sizes[1] < 1.5 * sizes[0]
    assert sizes[1] < 600_000


def of_calls(directory: Path, duration: str = "2 s", *, cpus: int, streams: int) -> laxity.Run:
    text = CALLS.format(duration=duration, cpus=cpus, streams=streams)
    return traced(laxity.Host.parse(text), directory)


@pytest.mark.slow
def test_the_timeline_of_calls_is_around_the_first_packet_that_was_lost(tmp_path: Path) -> None:
    run = of_calls(tmp_path / "run", cpus=1, streams=1000)
    assert run.trace
    sent_ns = [
        stream.start_ns + int(np.flatnonzero(stream.arrived_ns == LOST)[0]) * PACKET_NS
        for stream in run.streams
        if (stream.arrived_ns == LOST).any()
    ]
    about = cause(run, run.trace, laxity.Host(run.origin.host, "host.toml").resolved())
    assert about
    assert about.marks == ((min(sent_ns), "a packet is sent that is lost"),)
    from_ns, to_ns = chosen_window(run, run.trace, about)
    assert from_ns <= min(sent_ns) <= to_ns
    assert "around the first sampled packet that was lost" in read(tmp_path / "run").text


def test_the_timeline_of_good_calls_is_around_the_slowest_packet(tmp_path: Path) -> None:
    run = of_calls(tmp_path / "run", cpus=4, streams=10)
    assert run.trace
    assert max(int(stream.delays_ns().max()) for stream in run.streams) < 10 * MS
    text = read(tmp_path / "run").text
    assert "around the slowest sampled packet; none was lost or late" in text


@pytest.mark.slow
def test_protection_and_its_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LATE_MAX", 3)
    protected = laxity.Host.load(EXAMPLES / "protect.toml")
    run = protected.run(trace=tmp_path / "traced")
    scored(run).save(tmp_path / "run")
    assert run.telephony
    assert run.trace
    outage_ns = run.telephony.protection[0].outage_ns
    assert outage_ns
    about = cause(run, run.trace, protected.resolved())
    assert about
    assert about.marks[0] == (5000 * MS, "the host fails")
    assert about.marks[1] == (5000 * MS + outage_ns, "all its domains run on")
    from_ns, to_ns = chosen_window(run, run.trace, about)
    assert from_ns < about.marks[0][0] < about.marks[1][0] < to_ns
    document = read(tmp_path / "run")
    for said in (
        *("around the host's failure", "Checkpoints of the protected domains"),
        *("Users who registered", time(outage_ns), "registrations forgotten"),
        *("the protected domains ran on in", "The longest outages"),
        "The causes of an outage, a packet or a message sum to its lateness.",
        "The red line is where the host fails, and the dotted one where all its domains run on.",
    ):
        assert said in document.text
    assert "A triangle is an arrival" not in document.text
    (data,) = re.findall(
        r'id="timeline-data">(.*)</script>', (tmp_path / "run/report.html").read_text("utf-8")
    )
    late = Counter(re.sub(r"\d+", "N", each["what"]) for each in json.loads(data)["late"])
    assert late == {
        "stream N, packet N": 3,
        "registration N, message N": 3,
        "outage of signalling": 1,
        "outage of media": 1,
    }
    first = document.text.index("Mean opinion score (MOS-LQO)")
    assert first < document.text.index("Raw PESQ (ITU-T P.862), ")
    assert first < document.text.index("E-model (ITU-T G.107)")
    assert "the limit applies to it" in document.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("streams", "said"),
    [
        ("10|20", "held at every point, up to calls.streams = 20."),
        ("20|1500", "held up to calls.streams = 20; at calls.streams = 1500, "),
        ("1500|1600", "held at no point; least was lost at calls.streams = 1500: "),
    ],
)
def test_sweep_of_calls(tmp_path: Path, streams: str, said: str) -> None:
    text = CALLS.format(duration="1 s", cpus=1, streams=1)
    swept = laxity.Host.parse(text).sweep([f"calls.streams={streams}"], seeds=2)
    swept.save(tmp_path / "sweep")
    document = read(tmp_path / "sweep")
    assert said in heading(document)
    assert document.count("img") == 1
    assert "No job" not in document.text
    drawing = (tmp_path / "sweep/figures/voice.svg").read_text("utf-8")
    assert len(set(re.findall(r'id="axes_(\d+)"', drawing))) == 3
    for column in ("packets lost", "delay, 99.9 %", "opinion score, E-model", "limits held"):
        assert column in document.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("durations", "said"),
    [
        ("1 s|50 us", "held up to duration = 1 s; at duration = 50 us, no packet arrived."),
        ("40 us|50 us", "held at no point: no packet arrived."),
        # Numbers are those of the sweep, however long they are.
        ("1000000000|10000000000 ns", "held at every point, up to duration = 10000000000 ns."),
    ],
)
def test_sweep_of_durations(tmp_path: Path, durations: str, said: str) -> None:
    text = CALLS.format(duration="1 s", cpus=1, streams=10)
    laxity.Host.parse(text).sweep([f"duration={durations}"]).save(tmp_path / "sweep")
    assert said in heading(read(tmp_path / "sweep"))


def test_a_swept_limit_is_the_limit_of_its_points(tmp_path: Path) -> None:
    text = CALLS.format(duration="1 s", cpus=1, streams=10)
    settings = ["calls.acceptance.delay=1 ns|1 s"]
    laxity.Host.parse(text).sweep(settings).save(tmp_path / "sweep")
    assert "held at 1 of 2 points" in heading(read(tmp_path / "sweep"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "repeats"),
    [
        ((), "on every machine"),
        (("--on", "xen", "--scheduler", "credit2"), "kernel and packages"),
        (("--on", "xen", "--at", "ssh://root@server", "--mode", "live"), "does not repeat"),
        (("--on", "linux", "--media-server", "rtpengine"), "does not repeat"),
    ],
)
def test_the_command_says_where_it_was_run(
    late: Path, tmp_path: Path, options: tuple[str, ...], repeats: str
) -> None:
    run = laxity.Run.load(late)
    run = replace(run, origin=replace(run.origin, options=options), trace=None, responses={})
    run.save(tmp_path / "run")
    text = read(tmp_path / "run").text
    assert " ".join(("laxity run host.toml", *options, "-o again")) in text
    assert repeats in text
    compared = laxity.Comparison((run,), run.origin)
    compared.save(tmp_path / "compare")
    assert " ".join(("laxity compare host.toml", *options, "-o again")) in (
        read(tmp_path / "compare").text
    )


def test_an_older_record_at_least_names_the_substrate(late: Path, tmp_path: Path) -> None:
    run = laxity.Run.load(late)
    replace(run, substrate="xen", trace=None, responses={}).save(tmp_path / "run")
    manifest = json.loads((tmp_path / "run/laxity.json").read_text("utf-8"))
    del manifest["options"]
    (tmp_path / "run/laxity.json").write_text(json.dumps(manifest), "utf-8")
    assert "laxity run host.toml --on xen -o again" in read(tmp_path / "run").text


def test_a_range_of_equal_ends_is_one_value() -> None:
    assert interval("28.2 %", "28.2 %") == "28.2 %"
    assert interval("28.1 %", "28.2 %") == "28.1 % to 28.2 %"


def test_the_best_of_a_comparison_is_no_alarm(tmp_path: Path) -> None:
    tight = host(*['"drawn"'] * 4, load=1.2, duration="2 s")
    compared = tight.compare(["deferrable", "credit"], seed=3)
    compared.save(tmp_path / "compare")
    assert all(run.missed for run in compared.runs)
    best, worst = sorted(compared.runs, key=lambda run: run.miss_ratio)
    assert best.miss_ratio < worst.miss_ratio
    document = read(tmp_path / "compare")
    text = (tmp_path / "compare/report.html").read_text("utf-8")
    assert '<header class="">' in text
    red = re.findall(
        r'<td class="[^"]*bad">([^<]*)', text.partition("Miss ratio of each domain")[0]
    )
    assert red == [percent(worst.miss_ratio)]
    assert f"Fewest deadlines were missed under {best.policy}" in document.text


def test_compare(tmp_path: Path) -> None:
    tight = host('"drawn"', '"drawn"', load=1.0)
    tight.compare(["deferrable", "credit"], seed=5).save(tmp_path / "compare")
    document = read(tmp_path / "compare")
    assert document.count("img") == 1
    command = "laxity compare host.toml --policy deferrable,credit --set seed=5 -o again"
    assert command in document.text


def test_compare_without_jobs(tmp_path: Path) -> None:
    host("[]").compare(["deferrable"]).save(tmp_path / "compare")
    assert heading(read(tmp_path / "compare")) == "No deadline fell within these runs."


@pytest.mark.parametrize(
    ("settings", "panels"),
    [
        (["draw.load=0.6..1.0:0.2"], 1),
        (["draw.load=0.6..1.0:0.2", "host.quantum=0|1|2 ms"], 3),
        (["domain.dom-0.scheduler=edf|rate-monotonic"], 1),
        (["host.cpus=1|2"], 1),
    ],
)
def test_sweep(tmp_path: Path, settings: list[str], panels: int) -> None:
    settings = [text.replace("0|1|2 ms", "0 ms|1 ms|2 ms") for text in settings]
    sweep = host('"drawn"', '"drawn"').sweep(settings, seeds=2, policies=["deferrable", "sedf"])
    sweep.save(tmp_path / "sweep")
    document = read(tmp_path / "sweep")
    assert document.count("img") == 1
    assert "--seeds 2" in document.text
    assert "--policy deferrable,sedf" in document.text
    drawing = (tmp_path / "sweep/figures/miss-ratio.svg").read_text("utf-8")
    assert len(set(re.findall(r'id="axes_(\d+)"', drawing))) == panels


def test_a_sweep_is_headed_by_the_point_to_take(tmp_path: Path) -> None:
    settings = ["domain.dom-0.budget=1|2|3 ms"]
    sweep = host('"drawn"').sweep(settings, seeds=2)
    sweep.save(tmp_path / "sweep")
    sentence, _ = best_point(sweep.best())
    assert heading(read(tmp_path / "sweep")).endswith(f"{sentence}.")


def test_a_comparison_with_seeds_tells_its_runs_apart(tmp_path: Path) -> None:
    compared = host('"drawn"', '"drawn"', load=1.0).compare(["deferrable", "credit"], seeds=2)
    compared.save(tmp_path / "compare")
    document = read(tmp_path / "compare")
    for run in compared.runs:
        assert f"{run.policy}, seed {run.seed}" in document.text
    assert "2 policies compared" in document.text
    assert "--seeds 2" in document.text


def test_a_comparison_says_how_sure_the_seeds_are(tmp_path: Path) -> None:
    compared = host('"drawn"', '"drawn"', load=1.0).compare(["deferrable", "polling"], seeds=4)
    compared.save(tmp_path / "compare")
    document = read(tmp_path / "compare")
    assert "means over 4 seeds; the ranges are their 95 % confidence intervals (Student's t)" in (
        document.text
    )
    for runs in compared.by_policy().values():
        ratios = [run.miss_ratio for run in runs]
        of_seeds = mean(ratios)
        assert len(set(ratios)) > 1
        assert of_seeds.half_width_95
        low, high = of_seeds.mean - of_seeds.half_width_95, of_seeds.mean + of_seeds.half_width_95
        ends = f"{percent(max(0.0, low))} to {percent(min(1.0, high))}"
        assert f"{percent(of_seeds.mean)}{ends}" in document.text


def test_what_seeds_do_not_tell_apart_is_no_winner() -> None:
    ratios = {"a": [0.10, 0.20, 0.30], "b": [0.11, 0.19, 0.31], "c": [0.20, 0.30, 0.40]}
    assert comparison._is_rival(ratios, "b", "a")
    assert not comparison._is_rival(ratios, "c", "a")
    alone = {"a": [0.1], "b": [0.1]}
    assert not comparison._is_rival(alone, "b", "a")


def test_bounds_stand_beside_response_times(late: Path) -> None:
    text = read(late).text
    run = laxity.Run.load(late)
    checked = laxity.Host(run.origin.host, run.origin.name).check(set=run.origin.overrides)
    bounds = [task.bound_ns for domain in checked.domains for task in domain.tasks]
    assert any(bounds)
    for domain, of_check in zip(run.domains, checked.domains, strict=True):
        for task, bound in zip(domain.tasks, of_check.tasks, strict=True):
            times = task.response_ns
            assert f"{time(times.max)}{time(bound.bound_ns, up=True)}" in text
            if bound.bound_ns is not None and times.max is not None:
                assert times.max <= bound.bound_ns
    assert "A blue line marks the bound of laxity check." in text


def test_sweep_over_policies_only(tmp_path: Path) -> None:
    host('"drawn"').sweep(["host.policy=deferrable|sedf"]).save(tmp_path / "sweep")
    assert "deferrable" in read(tmp_path / "sweep").text


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not an output directory"):
        report.write(tmp_path)


@pytest.mark.parametrize("file", ["result.json", "host.toml", "responses.parquet"])
@pytest.mark.parametrize("damage", ["gone", "empty", "garbage"])
def test_a_damaged_directory_is_refused(late: Path, tmp_path: Path, file: str, damage: str) -> None:
    directory = tmp_path / "run"
    shutil.copytree(late, directory)
    if damage == "gone":
        (directory / file).unlink()
    else:
        (directory / file).write_bytes(b"" if damage == "empty" else b"[]")
    with pytest.raises(InputError):
        report.write(directory)


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"kind": "run"', b"\xff"])
def test_a_damaged_manifest_is_called_damaged(late: Path, tmp_path: Path, damage: bytes) -> None:
    directory = tmp_path / "run"
    shutil.copytree(late, directory)
    (directory / "laxity.json").write_bytes(damage)
    with pytest.raises(InputError, match=r"laxity\.json is damaged") as refused:
        report.write(directory)
    assert refused.value.help == "write the directory again, as it was written"


@pytest.mark.slow
def test_a_small_table_that_would_take_all_memory_is_refused(tmp_path: Path) -> None:
    path, many = tmp_path / "a.parquet", 1 << 20
    numbers = pa.table({"a": pa.array(np.zeros(many, np.int8))})
    with pq.ParquetWriter(path, numbers.schema, compression="zstd") as writer:
        for _ in range(260):
            writer.write_table(numbers)
    assert path.stat().st_size < many
    with pytest.raises(InputError, match="bytes in memory"):
        read_table(path)
    # One text in many rows.
    text = pa.DictionaryArray.from_arrays(np.zeros(30_000, np.int32), ["x" * 100_000])
    pq.write_table(pa.table({"a": text}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < many
    with pytest.raises(InputError, match="3,000,000,000 bytes in memory"):
        read_table(path)
    pq.write_table(pa.table({"a": [["x"]]}), path)
    with pytest.raises(InputError, match="a is of type list"):
        read_table(path)


def test_a_window_is_of_a_run(tmp_path: Path) -> None:
    host('"drawn"').compare(["deferrable"]).save(tmp_path / "compare")
    with pytest.raises(InputError, match="no timeline"):
        report.write(tmp_path / "compare", window=(0, 5))


def test_a_report_on_what_is_not_installed_is_refused(tmp_path: Path) -> None:
    Manifest("reproduce", None, ()).save(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(additions, "names", list)
        with pytest.raises(InputError, match="nothing that is installed"):
            report.write(tmp_path)
