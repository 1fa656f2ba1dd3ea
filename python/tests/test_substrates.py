"""What is the same on every substrate, whichever it is."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import pytest
from conftest import EXAMPLES, HOST
from laxity import Host, InputError, substrates
from laxity.progress import silent
from laxity.substrates.linux import Linux
from laxity.substrates.sim import Sim
from laxity.substrates.substrate import Substrate
from laxity.substrates.xen import Xen, boot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from conftest import Laxity
    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run

RANGES = ("draw.load=0.3|0.9", "domain.control.budget=1..2:1 ms")


class OneByOne(Sim):
    """The simulator, by what a substrate has that knows no more than to run one host."""

    run_many = Substrate.run_many
    rows = Substrate.rows


@dataclass(frozen=True)
class Small(Sim):
    """A simulator that refuses hosts with more than 40 streams."""

    def refusals(self, host: Resolved) -> list[InputError]:
        """See Substrate."""
        is_too_much = host.host["calls"]["streams"] > 40
        return [InputError("too many streams", "have fewer")] if is_too_much else []


@dataclass(frozen=True)
class Poor(Sim):
    """A simulator for which hosts with more than 30 streams take too much memory."""

    def excess(self, hosts: Sequence[Resolved]) -> InputError | None:
        """See Substrate."""
        is_too_much = any(host.host["calls"]["streams"] > 30 for host in hosts)
        return InputError("this needs 9 GB") if is_too_much else None

    def _begin(self, hosts: Sequence[Resolved], say: Say, *_: object, **__: object) -> None:
        del say
        if excess := self.excess(hosts):
            raise excess


def test_a_sweep_finds_the_same_run_by_run() -> None:
    host = Host.parse(HOST)
    ours, native = (
        host.sweep(RANGES, on=on, duration="200 ms", seeds=2, policies=["deferrable", "credit"])
        for on in (OneByOne(), "sim")
    )
    assert ours.table.equals(native.table, check_metadata=True)
    assert ours.to_json() == native.to_json()


def test_a_comparison_finds_the_same_run_by_run() -> None:
    host = Host.parse(HOST)
    told = [
        [{**run.to_json(), "engine": None} for run in host.compare(on=on, seeds=2).runs]
        for on in (OneByOne(), "sim")
    ]
    assert told[0] == told[1]


def test_capacity_tries_no_load_that_is_refused() -> None:
    host = Host.load(EXAMPLES / "telephony.toml")
    quick = ("duration=1 s", "calls.streams=10", "calls.sample=10")
    found = host.capacity(on=Small(), seeds=1, set=quick)
    assert max(each.load for each in found.tried) == 40
    with pytest.raises(InputError, match="too many streams"):
        host.capacity(on=Small(), seeds=1, set=(*quick, "calls.streams=41"))


def test_capacity_keeps_what_it_found_below_a_load_that_takes_too_much() -> None:
    host = Host.load(EXAMPLES / "telephony.toml")
    quick = ("duration=1 s", "calls.streams=10", "calls.sample=10")
    found = host.capacity(on=Poor(), seeds=1, set=quick)
    assert found.carried is not None
    assert found.carried.load == found.most == 30
    with pytest.raises(InputError, match="needs 9 GB"):
        host.capacity(on=Poor(), seeds=1, set=(*quick, "calls.streams=31"))


def test_what_is_refused_is_refused_by_each_way_to_run() -> None:
    host = Host.parse(HOST)
    for run in (
        lambda: host.run(on="linux"),
        lambda: host.compare(on="linux"),
        lambda: host.sweep("draw.load=0.3|0.4", on="linux"),
    ):
        with pytest.raises(InputError, match="no calls"):
            run()
    with pytest.raises(InputError, match="leaves no trace"):
        host.fidelity("sim", "linux", keep="nowhere")
    with pytest.raises(InputError, match="given twice"):
        host.fidelity("sim", "sim", keep="nowhere")
    with pytest.raises(InputError, match="there is no substrate 'vmware'"):
        host.run(on="vmware")


NOWHERE = """
from dataclasses import dataclass

from laxity.errors import InputError
from laxity.substrates.substrate import Substrate


@dataclass(frozen=True)
class Nowhere(Substrate):
    name = "nowhere"
    label = "nothing"
    summary = "nothing at all"
    setting = "nowhere"
    is_model = False
    traces = True
    repeatable = True
    repeats = "nothing is the same each time"

    def refusals(self, host):
        return [InputError("not here", "run it on another substrate")]

    def run(self, host, **_):
        raise AssertionError


SUBSTRATE = Nowhere
"""
"""The package of a substrate that runs nothing."""

REGISTERED = """
import sys
from laxity import substrates
from laxity.substrates import names

substrates.__path__.append(sys.argv.pop(1))
names.NAMES = substrates.NAMES = (*names.NAMES, "nowhere")

from laxity.cli import main

main()
"""
"""The command line, with one more directory of substrates and one more name."""


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["compare"],
        ["sweep", "--set", "domain.control.budget=1..2:1 ms"],
        ["fidelity"],
        ["capacity"],
    ],
    ids=lambda words: words[0],
)
def test_a_substrate_is_one_directory_and_one_name(tmp_path: Path, words: list[str]) -> None:
    package = tmp_path / "substrates" / "nowhere"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(NOWHERE, "utf-8")
    host = tmp_path / "host.toml"
    host.write_text(HOST, "utf-8")
    if words == ["capacity"]:
        host = EXAMPLES / "telephony.toml"
    command, *rest = words
    program = [sys.executable, "-c", REGISTERED, str(package.parent), command]
    found = subprocess.run(
        [*program, str(host), "--on", "nowhere", *rest],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, ""), found
    assert "not here" in found.stderr
    assert "run it on another substrate" in found.stderr


def test_policies_are_not_compared_under_another_scheduler() -> None:
    host = Host.parse(HOST)
    with pytest.raises(InputError, match="runs in place of each of deferrable, sedf"):
        host.compare(["deferrable", "sedf"], on=Xen(scheduler="credit"))


@pytest.mark.parametrize("name", substrates.NAMES)
def test_every_substrate_is_an_option_of_the_command_line(laxity: Laxity, name: str) -> None:
    each = substrates.of_name(name)
    assert each.name == name
    for command in ("run", "compare", "sweep", "capacity", "fidelity"):
        text = laxity(command, "--help").stdout
        assert name in text.partition("--on ")[2].split()[0].split("|")
        for field in fields(each):
            assert f"  {field.metadata['flag']}" in text


@pytest.mark.parametrize(
    "on",
    [
        Sim(),
        Linux(),
        Linux(media_server="rtpengine"),
        Xen(mode="live", at="local"),
        Xen(scheduler="rtds"),
    ],
)
def test_a_substrate_is_found_again_by_its_words(on: Substrate) -> None:
    assert substrates.of_words(on.words) == on


def booted(
    hosts: dict[str, Resolved],
    executor: object,
    directory: Path,
    say: Say,
    *,
    scheduler: str | None,
    options: tuple[str, ...],
) -> dict[str, Run]:
    """What `boot.boot` does, but simulated."""
    del executor, say, scheduler
    directory.mkdir(parents=True)
    (directory / "console.log").touch()
    runs = {}
    for name, host in hosts.items():
        run = Sim().run(host, trace=directory / f"{name}.laxtrace", say=silent)
        ticks = [None for _ in host.host["domains"]]
        (directory / f"{name}.summary.json").write_text(json.dumps({"ticks": ticks}))
        runs[name] = replace(run, substrate="xen", origin=host.origin(options))
    return runs


def test_a_run_on_xen_leaves_its_trace_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boot, "boot", booted)
    host, trace, keep = Host.parse(HOST), tmp_path / "trace", tmp_path / "keep"
    assert host.run(on="xen", duration="100 ms").trace is None
    kept = host.run(on="xen", duration="100 ms", keep=keep)
    assert kept.trace == keep / "run.laxtrace"
    assert kept.origin.options == ("--on", "xen")
    live = Xen(mode="live", scheduler="rtds")
    moved = host.run(on=live, duration="100 ms", keep=tmp_path / "again", trace=trace)
    assert moved.trace == trace
    assert moved.origin.options == live.words
    assert [path.name for path in (tmp_path / "again").glob("*.laxtrace")] == []
    assert trace.read_bytes() == (keep / "run.laxtrace").read_bytes()


def test_fidelity_keeps_the_runs_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "boot", booted)
    # The same on both: a file that does not say gets what is known of the lab.
    given = 'cpus = 1\ncosts = { schedule = "1 us" }\ntimer-latency = "2 us"\n'
    text = HOST.replace("cpus = 1\n", given)
    found = Host.parse(text).fidelity(duration="100 ms", keep=tmp_path / "runs")
    assert [run.substrate for run in found.runs] == ["sim", "xen"]
    assert found.agreement["same_ratio"] == 1.0
    told = found.to_json()
    assert told["sim"]["domains"] == told["xen"]["domains"]
    found.write(tmp_path)
    assert (tmp_path / "sim/trace.laxtrace").read_bytes() == (
        tmp_path / "xen/trace.laxtrace"
    ).read_bytes()
