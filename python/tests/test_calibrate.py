"""What packets cost on this machine: steps of packets, the host file that has them, the command."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from dataclasses import replace
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from conftest import needs_spandsp
from laxity import calibration
from laxity.calibration import STEPS, Calibration, Size, processing, services
from laxity.calibration.processing import Extent, Missing, Processing
from laxity.calibration.services import Frames, Service
from laxity.calibration.step import Step
from laxity.cli import calibrate as command
from laxity.errors import HostError, InputError
from laxity.host import Host
from laxity.results.measured import PACKET, PASSAGE
from test_cli import fits
from test_linux import able, traces_of, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Laxity

__all__ = ["able"]

HOST = """\
duration = "1 s"
host = { cpus = 1, policy = "eevdf", network = "vee-2010" }  # one of Xen's
calls = { streams = 4, media-server = "media" }

[[domain]]
name = "dom0"
workload = { kind = "driver" }

[[domain]]
name = "media"
workload = { kind = "media-server", transcode = true }
"""
SIGNALLING = """
[[domain]]
name = "proxy"
workload = { kind = "signalling-server" }
"""
QUANTILES = ("median_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")


def step(name: str, ns: int) -> Step:
    return Step(name, ns, 2 * ns, 3 * ns, 40 * ns, 500 * ns, 1_000, STEPS[name])


WORKS = {
    "decode G.711": 500,
    "encode G.711": 500,
    "decode Opus": 10_000,
    "encode Opus": 100_000,
    "unprotect SRTP": 2_000,
    "protect SRTP": 3_000,
    "mix": 1_000,
    "record": 1_500,
}
PROCESSING = Processing(
    times_ns={name: [np.array([ns, ns]), np.array([ns])] for name, ns in WORKS.items()},
    libraries=dict.fromkeys(WORKS, "library"),
    missing=(Missing("G.729", "G.729 needs libbcg729.so.0", "install it"),),
    participants=8,
)
PASSAGES = np.array([8_000, 10_000])
FOUND = Calibration(
    streams=4,
    steps=tuple(step(name, 1_000 * number) for number, name in enumerate(STEPS, 1)),
    relay=Size("relay", 12_500.0, PASSAGES),
    transcode=Size("transcode", 14_300.5, PASSAGES),
    processing=PROCESSING,
    load_average=0.5,
    real_time=True,
)


def report(sent: list[tuple[int, ...]], passages: list[dict[str, int]]) -> Any:
    seen = np.zeros(len(passages), PASSAGE)
    for row, values in zip(seen, passages, strict=True):
        for name, value in values.items():
            row[name] = value
    return {"packets": np.array(sent, PACKET), "passages": seen}


def test_steps_are_those_of_the_packets_that_the_server_saw() -> None:
    """One packet wakes a thread, the next one finds it at work, and one is not known to phones."""
    sent = [(1, 0, 5_000, 9_000), (0, 0, 1_000, 1_900)]
    woke = {"stream": 0, "packet": 0, "waited_ns": 900, "arrived_ns": 1_100, "woken_ns": 1_400}
    woke |= {"receive_cpu_ns": 20, "process_cpu_ns": 30, "end_cpu_ns": 4, "sent_ns": 1_600}
    found = {"stream": 1, "packet": 0, "waited_ns": 7_000, "arrived_ns": 5_300, "woken_ns": 7_100}
    found |= {"receive_cpu_ns": 22, "process_cpu_ns": 32, "end_cpu_ns": 2, "sent_ns": 8_000}
    woke |= {"send_cpu_ns": 500}
    found |= {"send_cpu_ns": 800}
    unknown = found | {"stream": 7}
    transcoded = report([], [{"process_cpu_ns": 532}, {"process_cpu_ns": 31}])
    steps = calibration.steps_of([report(sent, [found, unknown, woke])], [transcoded])
    got = {each.name: (each.median_ns, each.max_ns, each.packets) for each in steps}
    assert got == {
        "receive": (200, 300, 2),
        "socket-receive": (22, 22, 3),
        "wake-up-latency": (300, 300, 1),
        "relay": (32, 32, 3),
        "transcode": (250, 500, 2),
        "socket-send": (550, 800, 2),
        "after-send": (103, 204, 2),
    }


def test_a_step_that_no_packet_shows_is_refused() -> None:
    with pytest.raises(InputError, match="no packet shows what relay takes"):
        Step.of("relay", [np.array([1]), np.array([], np.int64)])
    assert Step.of("relay", [np.array([-3, -2])]).max_ns == 0


def test_a_round_that_was_disturbed_does_not_count() -> None:
    calm, disturbed = np.array([10, 20, 30]), np.array([10, 20, 9_000])
    assert Step.of("relay", [calm, disturbed, calm]) == Step("relay", 20, 28, 29, 29, 30, 9)


def test_the_host_file_has_the_costs_and_is_otherwise_what_it_was() -> None:
    host = Host.parse(HOST)
    written = FOUND.calibrated(host)
    assert b"# one of Xen's" in written.text
    before, after = host.resolved(), written.resolved()
    assert before["network"] is not None
    assert after["network"] is not None
    costs: Any = after["network"]["costs"]
    for key, each in FOUND.costs.items():
        cost = costs.pop(key.replace("-", "_"))
        assert cost == {quantile: getattr(each, quantile) for quantile in QUANTILES}
    assert set(map(str, costs.values())) == {"{'ns': 0}"}
    assert after["network"]["native"]
    assert after["profiles"] == []
    assert {**before, "network": 0, "profiles": 0, "domains": 0} == {
        **after,
        "network": 0,
        "profiles": 0,
        "domains": 0,
    }
    run = written.run()
    assert run.telephony is not None
    assert run.telephony.voice.received > 0


def test_what_is_not_on_the_way_of_voice_costs_what_it_did() -> None:
    calls = 'calls = { rate = "4 /s", hold = "1 s", signalling-server = "proxy", '
    host = Host.parse(HOST.replace("calls = { streams = 4, ", calls) + SIGNALLING)
    network = FOUND.calibrated(host).resolved()["network"]
    assert network is not None
    assert network["costs"]["signalling"] == {"ns": 150_000}
    assert network["costs"]["disk_latency"] == {"ns": 6_000_000}
    assert network["costs"]["netback_receive"] == {"ns": 0}


def test_the_table_can_be_pasted() -> None:
    pasted = HOST.replace(', network = "vee-2010" }  # one of Xen\'s', " }")
    head, _, rest = pasted.partition("host = { ")
    inline, _, rest = rest.partition(" }\n")
    lines = "\n".join(inline.split(", "))
    calls, domains = rest.split("\n\n", 1)
    text = f"{head}{calls}\n[host]\n{lines}\n{FOUND.toml}\n{domains}"
    network = Host.parse(text).resolved()["network"]
    assert network is not None
    assert network["costs"]["relay"]["p999_ns"] == FOUND.steps[3].p999_ns
    assert set(tomllib.loads(FOUND.toml)["host"]["network"]) == set(FOUND.costs)


def test_what_the_media_server_does_costs_what_was_measured() -> None:
    does = 'transcode-to = "Opus", srtp = true, record = true'
    host = Host.parse(HOST.replace("transcode = true", does))
    with pytest.raises(HostError, match=r"`srtp` takes CPU time, and .* lacks `srtp`"):
        host.resolved()
    calibration.check_fits(host)
    workload: Any = FOUND.calibrated(host).resolved()["domains"][1]["workload"]
    assert workload["processing"] == ["transcode-to", "srtp", "record"]
    # Relaying 4 us; the codecs one way and the other way; SRTP both ways; recording.
    assert workload["work"]["median_ns"] == 4_000 + 500 + 100_000 + 5_000 + 1_500
    assert workload["work_back"]["median_ns"] == 4_000 + 10_000 + 500 + 5_000 + 1_500


def test_work_that_was_not_measured_is_not_written() -> None:
    host = Host.parse(HOST.replace("transcode = true", 'transcode-to = "G.729"'))
    with pytest.raises(HostError, match="lacks `decode-g729` and `encode-g729`"):
        FOUND.calibrated(host)


def test_signalling_costs_what_it_did_beside_work_that_had_no_cost() -> None:
    calls = 'calls = { rate = "4 /s", hold = "1 s", signalling-server = "proxy", '
    text = HOST.replace("calls = { streams = 4, ", calls).replace("transcode =", "srtp =")
    network = FOUND.calibrated(Host.parse(text + SIGNALLING)).resolved()["network"]
    assert network is not None
    assert network["costs"]["signalling"] == {"ns": 150_000}
    assert network["costs"]["srtp"]["median_ns"] == 5_000


def test_packets_of_each_way_cost_what_they_do() -> None:
    """Encoding Opus takes ten times what decoding takes, and half of the streams go each way."""

    steady = replace(
        FOUND, steps=tuple(Step(name, *[1_000] * 6, way) for name, way in STEPS.items())
    )

    def used_ns(does: str) -> float:
        text = HOST.replace("streams = 4", "streams = 40").replace("transcode = true", does)
        run = steady.calibrated(Host.parse(text)).run()
        assert run.telephony is not None
        return sum(domain.cpu_ns for domain in run.domains) / run.telephony.voice.received

    relayed_ns = used_ns("transcode = false")
    resolved = Host.parse(HOST).resolved()
    assert not {"processing", "work_back"} & set(resolved["domains"][1]["workload"] or ())
    assert "srtp" not in (resolved["network"] or {})["costs"]
    # A distribution begins at half of its median, up to which it rises.
    mean = (0.75 + 1) / 2
    recorded_ns = used_ns("record = true") - relayed_ns
    assert recorded_ns == pytest.approx(mean * 1_500, rel=0.05)
    transcoded_ns = used_ns('transcode-to = "Opus"') - relayed_ns
    assert transcoded_ns == pytest.approx(mean * (500 + 100_000 + 10_000 + 500) / 2, rel=0.05)


def test_services_are_what_was_measured_together() -> None:
    found = {
        service.name: (service.packet_cpu_ns, service.streams(0.5)) for service in FOUND.services
    }
    assert found == {
        "relay": (12_500, 800),
        "transcode mu-law, A-law": (14_300.5, 699),
        "relay, SRTP both ways": (17_500, 571),
        "relay and record": (14_000, 714),
        # 10 us and 500 ns one way, 500 ns and 100 us the other way.
        "transcode G.711, Opus": (68_000, 147),
        # In whole conferences.
        "conference of 8, G.711": (14_500, 688),
    }


def test_a_frame_takes_what_its_packets_do() -> None:
    """Packets of 1.25 ms at half of a CPU: 8 streams; 5 or more in a frame are too many."""
    frames = Service("relay", (np.array([1_250_000]),)).frames(0.5)
    assert frames.drawn == 4_000
    assert (frames.p50, frames.p99) == (0.5, 1.25)
    by_chance = sum(comb(8, many) * 3 ** (8 - many) for many in range(5, 9)) / 4**8
    assert frames.over == pytest.approx(by_chance, rel=0.2)


def test_packets_of_a_conference_come_together() -> None:
    alone = Service("alone", (np.array([100_000]),)).frames(0.5)
    together = Service("together", (np.array([100_000]),), together=20).frames(0.5)
    assert alone.over < 0.001
    assert together.over == pytest.approx(
        # A conference takes 2 ms: of the five, three or more in one frame are too many.
        sum(comb(5, many) * 3 ** (5 - many) for many in range(3, 6)) / 4**5,
        rel=0.2,
    )


def test_every_second_packet_goes_the_other_way() -> None:
    service = Service("pair", (np.array([1]),), (np.array([1_001]),))
    drawn_ns = service.drawn_ns(40)
    assert drawn_ns.reshape(-1, 4).sum(axis=1).tolist() == [20 * 1 + 20 * 1_001] * 1_000


def test_many_streams_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "DRAWN_TOGETHER_MAX", 100)
    drawn_ns = Service("relay", (np.array([1, 3]),)).drawn_ns(300)
    assert drawn_ns.size == 4_000
    periods_ns = drawn_ns.reshape(-1, 4).sum(axis=1)
    assert periods_ns.mean() == pytest.approx(600, rel=0.01)
    assert Frames.of(np.array([0, 6_000_000])).over == 0.5


SMALL = Extent(streams=3, packets=4, participants=5)


@needs_spandsp
def test_every_work_is_measured_whose_library_is_there() -> None:
    told: list[tuple[int, int]] = []
    found = processing.measure(2, SMALL, lambda *how_far: told.append(how_far))
    assert told == [(done, 14) for done in range(14)]
    assert {step.name for step in found.steps} >= {
        "decode G.711",
        "encode G.722",
        "protect SRTP",
        "unprotect SRTP",
        "mix",
        "record",
    }
    for name, rounds_ns in found.times_ns.items():
        assert [times_ns.size for times_ns in rounds_ns] == [12, 12], name
        assert all((times_ns >= 0).all() for times_ns in rounds_ns)
    assert found.participants == 5
    names = {each.name for each in services.services_of(PASSAGES, found)}
    assert {"transcode G.711, G.722", "conference of 5, G.711", "relay and record"} <= names


def test_what_cannot_be_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(extent: Extent) -> processing.Times:
        del extent
        raise InputError("it needs a library", "install it")

    parts = (("SRTP", "libsrtp", missing), ("conferences", "own", processing.mixing_times_ns))
    monkeypatch.setattr(processing, "PARTS", parts)
    found = processing.measure(2, SMALL)
    assert found.missing == (Missing("SRTP", "it needs a library", "install it"),)
    assert list(found.times_ns) == ["mix"]
    assert [each.name for each in services.services_of(PASSAGES, found)] == ["relay"]


def test_the_time_of_calling_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that goes on by 50 ns when it is read, and by what the work takes."""
    now_ns = 0

    def clock() -> int:
        nonlocal now_ns
        now_ns += 50
        return now_ns

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
    def work(took_ns: int) -> int:
        nonlocal now_ns
        now_ns += took_ns
        return -took_ns

    monkeypatch.setattr(processing, "thread_time_ns", clock)
    taken_ns, results = processing.calls_ns([[(work, (1_000,)), (work, (3,))], [(work, (7,))]])
    assert (taken_ns.tolist(), results) == ([1_003, 7], [-3, -7])


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "calibrate", lambda **_: FOUND)


@pytest.mark.usefixtures("found")
def test_the_command_prints_and_writes(laxity: Laxity, tmp_path: Path) -> None:
    host, written = tmp_path / "host.toml", tmp_path / "calibrated.toml"
    host.write_text(HOST)
    shown = laxity("calibrate", host, "--write", written).stdout
    assert fits(shown)
    assert all(name in shown for name in [*STEPS, *WORKS])
    assert "Not measured: G.729. G.729 needs libbcg729.so.0; install it" in shown
    assert written.read_bytes() == FOUND.calibrated(Host.load(host)).text
    laxity("run", written)
    assert laxity("calibrate", "--toml").stdout == FOUND.toml + "\n"
    assert json.loads(laxity("calibrate", "--json").stdout) == FOUND.to_json()


@pytest.mark.usefixtures("found")
def test_what_makes_no_sense_is_refused_before_anything_is_measured(
    laxity: Laxity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "calibrate", None)
    host = tmp_path / "host.toml"
    host.write_text(HOST)
    mute = tmp_path / "mute.toml"
    mute.write_text(
        'duration = "1 s"\nhost = { cpus = 1, policy = "eevdf" }\ndomain = [{ name = "a" }]\n'
    )

    def refusal(*words: object) -> str:
        return laxity("calibrate", *words, code=2).stderr

    assert "give both HOST and --write FILE" in refusal(host)
    assert "give both HOST and --write FILE" in refusal("--write", tmp_path / "out.toml")
    assert "is a directory" in refusal(host, "--write", tmp_path)
    assert "there is no directory" in refusal(host, "--write", tmp_path / "no" / "out.toml")
    assert "leave one of them out" in refusal("--toml", "--json")
    assert "write --duration '15 s'" in refusal("--duration", "long")
    assert "has no packets" in refusal(mute, "--write", tmp_path / "out.toml")
    guest = tmp_path / "guest.toml"
    guest.write_text(HOST + '[[nic]]\nname = "eth0"\ndomain = "media"\n')
    assert "a native host has no guests" in refusal(guest, "--write", tmp_path / "out.toml")
    assert not (tmp_path / "out.toml").exists()


def test_too_short_a_time_and_too_few_rights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="too short to measure every step"):
        calibration.calibrate(duration_ns=1_000_000_000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="need root"):
        calibration.calibrate(streams=2)


def test_the_defaults_of_the_command_are_those_of_the_function() -> None:
    assert command.STREAMS == calibration.STREAMS
    assert command.time_ns(command.DURATION, "", "") == calibration.DURATION_NS
    assert command.PARTICIPANTS == processing.PARTICIPANTS
    assert command.CPU_PART == services.CPU_PART


DURATIONS_S = (2, 8, 32, 128)
"""How long is measured until other work on the machine leaves each step its packets."""


def calibrated() -> tuple[Calibration, list[tuple[int, int]]]:
    """Measures, and how far it said that it was. A thread that lacks a CPU is never woken."""
    for duration_s in DURATIONS_S:
        told: list[tuple[int, int]] = []
        with suppress(InputError):
            return calibration.calibrate(
                streams=6,
                duration_ns=duration_s * 1_000_000_000,
                progress=lambda *how_far, told=told: told.append(how_far),
            ), told
    raise AssertionError("some step was not seen however long it was measured")


@pytest.mark.slow
@pytest.mark.usefixtures("able")
def test_every_step_is_measured_with_real_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    # The machine may be too busy to keep the time, which is not what is tested here.
    monkeypatch.setattr(calibration, "check_duration", lambda *_: None)
    monkeypatch.setattr(calibration, "SIZED_STREAMS", 10)
    monkeypatch.setattr(processing, "EXTENT", SMALL)
    found, told = calibrated()
    parts = calibration.ROUNDS * (len(calibration.PARTS) + len(processing.PARTS))
    assert told == [(done, parts) for done in range(parts)]
    assert [each.name for each in found.steps] == list(STEPS)
    for each in found.steps:
        times_ns = [getattr(each, quantile) for quantile in QUANTILES]
        assert times_ns == sorted(times_ns)
        assert times_ns[0] >= 0
        assert each.packets > 0
    assert found.relay.packet_cpu_ns > 0
    assert found.relay.packets_ns.mean() == pytest.approx(found.relay.packet_cpu_ns)
    assert found.transcode.packet_cpu_ns > 0
    run = found.calibrated(Host.parse(HOST)).run()
    assert run.telephony is not None


@pytest.mark.slow
@pytest.mark.usefixtures("able")
def test_an_interrupted_measurement_leaves_nothing() -> None:
    words = ["-c", "from laxity.cli import main; main()", "calibrate", "--duration", "1 h"]
    started = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        wait_until(lambda: traces_of(started.pid) != [] or started.poll() is not None)
        started.send_signal(signal.SIGINT)
        output, _ = started.communicate()
    finally:
        started.kill()
        started.wait()
    assert (started.returncode, output) == (130, b"")
    wait_until(lambda: traces_of(started.pid) == [])
