"""What a telephone engineer asks of a run: quality, limits, capacity."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import jsonschema
import numpy as np
import pytest
from conftest import BESIDE, EXAMPLES, Laxity
from html_report import read
from hypothesis import given
from hypothesis import strategies as st
from laxity import Host, InputError, Run, report, voice
from laxity._core import result_schema
from laxity.cli import app
from laxity.results.acceptance import judged, limits_of
from laxity.results.design import Remedy
from laxity.results.origin import Origin
from laxity.results.run import RESULT
from laxity.results.schema import Engine, Overhead, Telephony
from laxity.results.streams import LOST, PACKET_NS
from laxity.tables.calls import limit_lines
from laxity.tables.capacity import capacity_verdict
from laxity.telephony import capacity
from laxity.telephony.bottleneck import Bottleneck
from laxity.telephony.capacity import Capacity, Tried, search
from laxity.voice.scoring import scored, scored_many
from made_up import LIMITS, telephony
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path

TELEPHONY = EXAMPLES / "telephony.toml"
QUICK = ("duration=5 s", "calls.streams=40", "calls.rate=2 /s")
ALONE = ("domain.batch-1.cap=1", "domain.batch-2.cap=1")


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.load(TELEPHONY)


@pytest.fixture(scope="module")
def good(host: Host) -> Run:
    return scored(host.run(set=[*QUICK, *ALONE]))


def voice_of(run: Run) -> Telephony:
    assert run.telephony is not None
    return run.telephony


def test_a_result_with_calls_is_as_its_schema_says(good: Run) -> None:
    jsonschema.validate(good.to_json(), json.loads(result_schema()))
    assert voice_of(good).quality is not None


def test_streams_are_kept_and_come_back(good: Run, tmp_path: Path) -> None:
    again = Run.load(good.save(tmp_path / "out"))
    assert again.to_json() == good.to_json()
    assert len(good.streams) == 10
    for one, other in zip(good.streams, again.streams, strict=True):
        assert (one.stream, one.call, one.start_ns) == (other.stream, other.call, other.start_ns)
        assert np.array_equal(one.arrived_ns, other.arrived_ns)


def test_streams_that_lose_nothing_have_the_best_quality(good: Run) -> None:
    quality = voice_of(good).quality
    assert quality is not None
    assert quality.scored == quality.toll_quality == 10
    assert quality.pesq.min == quality.pesq.max > 4.2
    assert voice_of(good).accepted
    assert good.passed


def test_streams_are_heard_through_the_playout_buffer_of_the_host(host: Host) -> None:
    """The phones differ, and not what reaches them; each run is judged through its own."""
    runs = [host.run(set=[*QUICK, f"calls.playout={kind}"]) for kind in ("fixed", "adaptive")]
    for one, other in zip(runs[0].streams, runs[1].streams, strict=True):
        assert np.array_equal(one.arrived_ns, other.arrived_ns)
    fixed, adaptive = scored_many(runs)
    for run, is_adaptive in ((fixed, False), (adaptive, True)):
        found = []
        for stream in run.streams:
            numbers = np.arange(stream.arrived_ns.size)
            sent_ns = stream.start_ns + numbers * PACKET_NS
            arrived_ns = np.where(stream.arrived_ns == LOST, voice.LOST, stream.arrived_ns)
            call = voice.Call("stream", numbers, sent_ns, arrived_ns)
            found.append(voice.score(call, adaptive=is_adaptive))
        assert [stream.pesq for stream in run.streams] == [each.pesq for each in found]
        quality = voice_of(run).quality
        assert quality is not None
        delays_ns = sorted(each.delay_ns for each in found if each.delay_ns is not None)
        assert quality.delay_ns == delays_ns[(len(delays_ns) - 1) // 2]
        late = sum(each.late for each in found) / sum(each.packets for each in found)
        assert quality.late_ratio == pytest.approx(late)
    waits = [voice_of(run).quality for run in (fixed, adaptive)]
    assert waits[0] is not None
    assert waits[1] is not None
    assert waits[0].delay_ns != waits[1].delay_ns
    assert voice_of(adaptive).playout == "adaptive"


def test_a_run_of_a_version_that_named_no_playout_buffer_is_loaded(
    host: Host, tmp_path: Path
) -> None:
    run = scored(host.run(set=QUICK))
    run.save(tmp_path / "run")
    result = tmp_path / "run" / RESULT
    saved = json.loads(result.read_text("utf-8"))
    del saved["telephony"]["playout"]
    for key in ("delay_ns", "late_ratio"):
        del saved["telephony"]["quality"][key]
    result.write_text(json.dumps(saved), "utf-8")
    loaded = Run.load(tmp_path / "run")
    assert voice_of(loaded).playout == "fixed"
    assert voice_of(loaded).accepted == voice_of(run).accepted
    page = report.write(tmp_path / "run").read_text("utf-8")
    assert "mouth to ear" not in page


def test_streams_of_which_nothing_arrives_are_dead(host: Host) -> None:
    run = scored(host.run(set=[*QUICK, "domain.dom0.cap=1", "calls.streams=800"]))
    quality = voice_of(run).quality
    assert quality is not None
    assert quality.dead > quality.scored / 2
    assert quality.pesq.min == 0
    assert [limit.held for limit in limits_of(voice_of(run))][::2] == [False, False]
    assert not run.passed


def test_limits_are_held_one_by_one(good: Run) -> None:
    found = voice_of(good)
    p999 = found.voice.delay_ns.p999
    assert p999 is not None

    def held(**limits: float) -> list[bool]:
        limited = replace(found, limits=replace(LIMITS, **limits))  # type: ignore[arg-type]
        return [limit.held for limit in limits_of(limited)]

    assert held() == [True, True, True, True]
    assert held(loss=0.0) == [False, True, True, True]  # below, and nothing is below nothing
    assert held(delay_ns=p999) == [True, False, True, True]
    assert held(delay_ns=p999 + 1) == [True, True, True, True]
    assert held(mos=4.5) == [True, True, False, True]
    assert held(failed=0.0) == [True, True, True, False]
    assert len(limits_of(replace(found, quality=None))) == 3
    assert len(limits_of(replace(found, calls=None))) == 3


@given(st.integers(0, 3_000), st.integers(1, 500))
def test_the_search_finds_where_loads_begin_to_fail(good_up_to: int, start: int) -> None:
    probes = 0

    def probe(load: int) -> Tried:
        nonlocal probes
        probes += 1
        return tried(load, held=load <= good_up_to)

    found, _ = search(start, 2_000, probe)
    loads = [each.load for each in found]
    assert loads == sorted(set(loads))
    assert loads[0] >= 1
    assert loads[-1] <= 2_000
    held = [each.load for each in found if each.held]
    failed = [each.load for each in found if not each.held]
    assert probes <= 60
    if not failed:
        assert good_up_to >= 2_000
        assert held[-1] == 2_000
    elif not held:
        assert failed[0] <= 2
    else:
        assert failed[0] - held[-1] <= max(1, held[-1] // 100)


def test_more_that_does_better_than_less_is_named_and_not_carried(tmp_path: Path) -> None:
    """A host where 985 streams are carried, 992 lost, 1,024 carried, 1,056 lost, 1,088 carried."""
    fails = range(64, 512, 64)

    def probe(load: int) -> Tried:
        return tried(load, held=load < 400 and not any(at <= load < at + 32 for at in fails))

    ramp, most = search(200, 2_000, probe)
    found = Capacity("calls.streams", 200, most, tuple(ramp), Origin(b"", "", ()))
    assert found.carried is not None
    assert found.refused is not None
    assert found.carried.load == 63
    assert found.refused.load == 64
    assert all(each.held for each in ramp if each.load <= 63)
    assert found.isolated
    assert all(each.load > 64 for each in found.isolated)
    assert not found.passed
    said = " ".join(str(line) for line in capacity_verdict(found))
    assert "Carries 63 streams" in said
    assert "Bottleneck at 64" in said
    assert "Not monotone: " in said
    for each in found.isolated:
        assert str(each.load) in said
    page = read(found.save(tmp_path / "out"))
    assert "Carries 63 streams; the host file asks for 200." in page.text
    assert "Found: loss 50.0 % (not below 1.00 %)." in page.text
    assert ".." not in page.text.partition("Carries")[2].partition("Loads")[0]
    assert "MOS" not in page.text


@pytest.mark.parametrize("start", [1, 3, 700, 1_200, 1_999, 2_000])
def test_the_most_that_can_be_asked_is_tried_and_said(start: int) -> None:
    found, _ = search(start, 2_000, lambda load: tried(load, held=True))
    assert max(each.load for each in found) == 2_000
    for most, whose in ((2_000, "can be run there"), (100_000, "a host file may have")):
        ramp, _ = search(start, most, lambda load: tried(load, held=True))
        carries = Capacity("calls.streams", start, most, tuple(ramp), Origin(b"", "", ()))
        said = " ".join(str(line) for line in capacity_verdict(carries))
        assert f"No bottleneck up to {most:,} streams, the most that {whose}" in said
    # It is what gives out, if only the most is too much.
    found, _ = search(start, 2_000, lambda load: tried(load, held=load < 2_000))
    assert [each.load for each in found if not each.held] == [2_000]
    assert max(each.load for each in found if each.held) >= 1_980


@given(st.integers(1, 500), st.integers(1, 3_000), st.integers(0, 3_000))
def test_a_load_that_is_too_much_ends_no_search(start: int, spare: int, good_up_to: int) -> None:
    affordable = start + spare

    def probe(load: int) -> Tried:
        assert load <= min(affordable, 2_000)
        return tried(load, held=load <= good_up_to)

    ramp, most = search(start, 2_000, probe, lambda load: load > affordable)
    held = max(each.load for each in ramp if each.held or each.load == 1)
    failed = [each.load for each in ramp if not each.held]
    if failed:
        assert good_up_to < failed[0] <= max(good_up_to + 1, good_up_to * 101 // 100)
    else:
        assert held == most == min(affordable, 2_000)


def test_remedies_of_calls_that_come_and_go_are_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = TELEPHONY.read_text().replace("streams = 800\n", "")
    monkeypatch.setattr(capacity, "search", lambda *_: pytest.fail("something runs"))
    with pytest.raises(InputError, match="none that are always there"):
        Host.parse(text).capacity(remedies=True)


def test_a_limit_says_on_which_side_of_it_the_value_is() -> None:
    assert limit_lines(limits_of(telephony(loss_ratio=0.002, delay_ns=10**9))) == [
        "  loss 0.20 % (below 1.00 %)",
        "  delay 1 s (not below 150 ms)",
    ]


def tried(load: int, *, held: bool) -> Tried:
    loss = 0.0 if held else 0.5
    found = judged(telephony(loss_ratio=loss))
    run = Run(
        policy="credit",
        seed=1,
        substrate="sim",
        duration_ns=1,
        domains=(),
        telephony=found,
        overhead=Overhead(),
        profiles=(),
        engine=Engine(events=1, wall_ns=1),
        origin=Origin(b"", "", ()),
    )
    return Tried(load, (run,), None if held else Bottleneck("card", "the card"))


@pytest.mark.slow
def test_capacity_names_what_gives_out(host: Host, tmp_path: Path) -> None:
    slow = [*QUICK, *ALONE, "domain.media.workload.work=400 us"]
    found = host.capacity(set=slow, seeds=2)
    assert found.key == "calls.streams"
    assert found.carried is not None
    assert found.refused is not None
    # Two VCPUs, 20 ms between packets, some more than 400 us for each.
    assert 60 < found.carried.load < 100
    assert found.carried.load < found.refused.load
    assert found.refused.gives_out is not None
    assert "media" in found.refused.gives_out.long
    for each in found.tried:
        assert [run.seed for run in each.runs] == [1, 2]
        assert all(voice_of(run).quality is not None for run in each.runs)
    # All that is said of a load agrees with its row.
    assert all(limit.held for limit in found.carried.limits)
    assert len(found.carried.limits) == 4
    assert not all(limit.held for limit in found.refused.limits)
    again = Capacity.load(found.save(tmp_path / "out"))
    assert again.to_json() == found.to_json()
    page = report.write(tmp_path / "out").read_text()
    assert f"Carries {found.carried.load} streams" in page
    assert "iptcomm-2009" in page


def test_the_page_of_a_capacity_has_the_remedies(tmp_path: Path) -> None:
    origin = Origin(TELEPHONY.read_bytes(), "host.toml", ())
    remedies = (Remedy("media has priority", 1234), Remedy("batch-1 has a cap", 999))
    found = Capacity("calls.streams", 1, 9, (tried(1, held=True), tried(2, held=False)), origin)
    for each in (found, replace(found, remedies=remedies)):
        each.save(tmp_path / "out")
        document = read(tmp_path / "out")
        assert ("--remedies" in document.text) == bool(each.remedies)
        for remedy in remedies:
            assert (remedy.what in document.text) == bool(each.remedies)
            assert (f"{remedy.streams:,}" in document.text) == bool(each.remedies)


def test_capacity_of_calls_is_found_by_their_rate() -> None:
    text = (
        TELEPHONY.read_text().replace("streams = 800\n", "").replace("server = 0 ", "server = 1 ")
    )
    rates = Host.parse(text)
    slow = ["domain.media.workload.work=2 ms", "duration=3 s", "calls.hold=1 s", *ALONE]
    found = rates.capacity(set=slow, seeds=1)
    assert found.key == "calls.rate"
    assert found.carried is not None
    assert 3600 < found.carried.load < 15 * 3600


@pytest.mark.slow
def test_nothing_of_an_earlier_output_stays(laxity: Laxity, tmp_path: Path) -> None:
    out, first, fresh = (tmp_path / name for name in ("out", "first", "fresh"))
    sets = [word for each in (*QUICK, *ALONE) for word in ("--set", each)]
    laxity("run", TELEPHONY, *sets, "-o", first)
    slow = ("--set", "domain.media.workload.work=400 us", "--seeds", 1)
    for words in (
        ("fidelity", TELEPHONY, *sets, "--against", first),
        ("run", TELEPHONY, *sets),
        ("compare", TELEPHONY, *sets, "--policy", "credit,s-base"),
        ("sweep", TELEPHONY, *sets, "--set", "calls.streams=10|20"),
        ("capacity", TELEPHONY, *sets, *slow),
    ):
        laxity(*words, "-o", out)
        if words[0] != "fidelity":
            laxity("report", out)
    for at in (out, fresh):
        laxity("run", EXAMPLES / "integrator.toml", "--duration", "100 ms", "--no-trace", "-o", at)
    assert {path.name for path in out.iterdir()} == {path.name for path in fresh.iterdir()}


def test_capacity_needs_calls() -> None:
    with pytest.raises(InputError, match="no calls"):
        Host.load(EXAMPLES / "integrator.toml").capacity()


def on_the_command_line(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})
    return result.exit_code, result.output


@pytest.mark.slow
def test_the_command_line_says_what_people_ask(tmp_path: Path) -> None:
    sets = [word for each in (*QUICK, *ALONE) for word in ("--set", each)]
    code, output = on_the_command_line("run", str(TELEPHONY), *sets, "-o", str(tmp_path / "out"))
    assert code == 0
    assert output.index("MOS-LQO, PESQ by P.862.1") < output.index("Raw PESQ")
    for word in ("streams", "p99.9", "jitter", "work %", "Setup", "toll quality", "Accepted"):
        assert word in output
    # The name of the directory is in one piece, however long it is.
    assert max(map(len, output.splitlines()[:-1])) <= 80
    code, output = on_the_command_line("report", str(tmp_path / "out"))
    assert code == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Voice quality" in page
    assert "Delay" in page


def test_capacity_on_the_command_line() -> None:
    arguments = ["--set", "domain.media.workload.work=400 us", "--duration", "1 s"]
    sets = [word for each in (*QUICK[1:], *ALONE) for word in ("--set", each)]
    words = ("capacity", str(TELEPHONY), *arguments, *sets, "--seeds", "1")
    code, output = on_the_command_line(*words)
    assert code == 0
    for word in ("Carries", "bottleneck", "1 of 1", "0 of 1", "profile iptcomm-2009"):
        assert word in output
    assert max(map(len, output.splitlines())) <= 80
    slower = ("--strict", "--set", "domain.media.workload.work=3 ms")
    assert on_the_command_line(*words, *slower)[0] == 1


def test_policies_are_compared_by_voice(tmp_path: Path) -> None:
    sets = [word for each in (*QUICK, *ALONE) for word in ("--set", each)]
    out = str(tmp_path / "out")
    arguments = ["--policy", "credit,s-all", "--set", "domain.media.laxity=10 us", "-o", out]
    arguments += ["--set", "calls.playout=adaptive"]
    code, output = on_the_command_line("compare", str(TELEPHONY), *arguments, *sets)
    assert code == 0
    for word in (
        "s-all",
        "accepted",
        "MOS",
        "delay p99.9",
        "work % batch-1",
        "wait media",
        "adaptive",
    ):
        assert word in output
    assert "Not compared" not in output
    assert on_the_command_line("report", out)[0] == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "No packet was lost" in page
    assert "mouth to ear, adaptive playout" in page


def test_sweeps_have_loss_and_delay(host: Host, tmp_path: Path) -> None:
    work = "domain.media.workload.work=10 us|1 ms"
    found = host.sweep([*QUICK, *ALONE, work], seeds=2)
    few, many = found.points()
    assert few.packet_loss_ratio is not None
    assert many.packet_loss_ratio is not None
    assert few.packet_loss_ratio.mean == 0
    assert many.delay_ns_p999 is not None
    assert few.delay_ns_p999 is not None
    assert many.delay_ns_p999.mean > few.delay_ns_p999.mean > 0
    found.save(tmp_path / "out")
    frame = found.frame()
    assert set(frame[frame["domain"] == "media"]["packets_lost"]) >= {0}
    code, output = on_the_command_line(
        "sweep", str(TELEPHONY), *[w for each in (*QUICK, *ALONE, work) for w in ("--set", each)]
    )
    assert code == 0
    assert "delay p99.9" in output
    assert "calls accepted" in " ".join(output.split())
    strict = host.sweep([*QUICK, *ALONE, work, "calls.acceptance.delay=1 ms"])
    assert [point.holds for point in strict.points()] == [True, False]


def test_calls_that_are_given_up_are_not_good_calls(laxity: Laxity) -> None:
    """All voice that there is may be good where nobody is connected."""
    silent = "domain.signalling.workload.work=5 s"
    quick = ("duration=60 s", "calls.streams=1", "calls.rate=1 /s", *ALONE)
    sets = [word for each in (silent, *quick) for word in ("--set", each)]
    said = laxity("run", TELEPHONY, *sets, "--strict", code=1).stdout
    assert "Not accepted" in said
    assert "(not below 1.00 %)" in said.partition("  failed ")[2].splitlines()[0]
    lax = ("--set", "calls.acceptance.failed=100 %")
    said = laxity("run", TELEPHONY, *sets, *lax, "--strict").stdout
    assert "(below 100 %)" in said.partition("  failed ")[2].splitlines()[0]


def test_a_sweep_judges_calls_that_are_given_up(laxity: Laxity, host: Host, tmp_path: Path) -> None:
    """Voice is as good at the second point as at the first: nobody else is connected there."""
    work = "domain.signalling.workload.work=50 us|5 s"
    swept = host.sweep(["duration=60 s", "calls.streams=1", "calls.rate=1 /s", *ALONE, work])
    good, bad = swept.points()
    assert good.holds
    assert not bad.holds
    assert good.packet_loss_ratio == bad.packet_loss_ratio
    assert good.failed_ratio is not None
    assert bad.failed_ratio is not None
    assert good.failed_ratio.mean == 0 < bad.failed_ratio.mean
    swept.save(tmp_path / "out")
    laxity("report", tmp_path / "out")
    page = " ".join((tmp_path / "out/report.html").read_text("utf-8").split())
    assert "All limits held up to domain.signalling.workload.work = 50 us; at" in page
    assert "of the calls were given up" in page
    assert "calls given up" in page


@pytest.mark.slow
def test_tasks_beside_calls_are_told(laxity: Laxity, tmp_path: Path) -> None:
    """Where the calls are accepted and every deadline is missed, each view says both."""
    host = tmp_path / "host.toml"
    # Every limit of the calls is kept, and no deadline.
    text = BESIDE.replace("cpus = 2", "cpus = 1").replace('cost = "2 ms"', 'cost = "4900 us"')
    lax = 'acceptance = { loss = "99 %", delay = "10 s", mos = 1.0 }'
    host.write_text(text.replace("streams = 100", f"streams = 5\n{lax}"))
    said = laxity("run", host, "-o", tmp_path / "run", "--strict", code=1).stdout
    assert "Accepted" in said
    assert "missed their deadlines" in said
    laxity("report", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "missed their deadline." in page
    policies = ("--policy", "credit,credit2", "-o", tmp_path / "compare")
    said = laxity("compare", host, *policies).stdout
    assert "missed % control" in said
    laxity("report", tmp_path / "compare")
    assert "Miss ratio of each domain" in (tmp_path / "compare" / "report.html").read_text()
    weights = ("--set", "domain.control.weight=1|2")
    said = " ".join(laxity("sweep", host, *weights).stdout.split())
    assert "miss %" in said
    assert "of the deadlines missed" in said
