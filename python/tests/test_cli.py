"""Each command as people call it: words in, text and an exit code out."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow.parquet as pq
import pytest
from conftest import EXAMPLES, HOST, HOST_FILES, Laxity, commands
from laxity import POLICIES, Host, InputError, _core, cli
from laxity import directory as directories
from laxity.policies import GLOBAL, MODELS, SCHEDULER_S
from typer.testing import CliRunner

WITHOUT_LAXITY = [policy for policy in POLICIES if policy not in (*SCHEDULER_S, *MODELS, *GLOBAL)]
"""What the host file has parameters for."""

COMMAND = [sys.executable, "-c", "from laxity.cli import main; main()"]

COMMANDS = (
    *("check", "design", "run", "compare", "sweep", "trace", "diff", "report", "fidelity"),
    *("why", "observe", "sched", "schema", "calibrate"),
)


def process(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which must end well."""
    done = subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return done


def one_json(text: str) -> Any:
    """The one object that there is, and nothing after it."""
    content, end = json.JSONDecoder().raw_decode(text)
    assert text[end:].strip() == ""
    assert isinstance(content, dict)
    return content


def without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {**result, "engine": {**result["engine"], "wall_ns": None}}


def fits(text: str, width: int = 80) -> bool:
    return all(len(line.rstrip()) <= width for line in text.splitlines())


def test_version_and_help(laxity: Laxity) -> None:
    assert process("--version").stdout == f"laxity {_core.__version__}\n"
    overview = laxity("--help").stdout
    for command in COMMANDS:
        assert f"  {command} " in overview
        text = laxity(command, "--help").stdout
        assert "Examples:\n    laxity " in text
        assert fits(text), command


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("run",),
        ("run", "host.toml", "--nonsense"),
        ("run", "host.toml", "--seed", "many"),
        ("schema", "nonsense"),
        ("sweep", "host.toml", "--seeds", "0"),
    ],
)
def test_wrong_words_are_bad_input(laxity: Laxity, words: tuple[str, ...]) -> None:
    done = laxity(*words, code=2)
    assert done.stdout == ""
    assert done.stderr


COMMON = {
    "apply": "policy set json",
    "check": "policy set seed json",
    "design": "policy set workers cluster json",
    "doctor": "policy set seed duration json",
    "run": "policy set seed duration on output strict json",
    "compare": "policy set seed seeds duration on output workers cluster strict json",
    "sweep": "policy set seed seeds duration on output workers cluster strict json",
    "capacity": "policy set seed seeds duration on output strict json",
    "fidelity": "policy set seed duration on output json",
}
"""Every command that takes a host file and simulates or analyses it, and what it takes beside."""


def test_the_same_options_everywhere() -> None:
    of_hosts = {
        words[0]: {
            option.removeprefix("--"): parameter
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        }
        for words, command in commands()
        if words[1:] == () and any(each.metavar == "HOST" for each in command.params)
    }
    assert of_hosts.keys() == COMMON.keys()
    for name, options in of_hosts.items():
        assert options.keys() >= set(COMMON[name].split()), name
        for option in ("seed", "seeds", "duration", "output", "strict", "json"):
            if option in options:
                # Defined once, and so with the same words in every command.
                assert options[option].help == of_hosts["compare"][option].help, (name, option)


def test_strict_says_what_was_missed_by_its_exit_code(laxity: Laxity, host: Path) -> None:
    good = ("--set", "domain.late.tasks.hungry.cost=1 ms", "--set", "draw.load=0.1")
    swept = ("--set", "domain.control.budget=2..3:1 ms", "--duration", "500 ms", "--seed", 4)
    for words in (("run",), ("compare", "--policy", "deferrable"), ("sweep", *swept)):
        command, *others = words
        laxity(command, host, *others)
        laxity(command, host, *others, "--strict", code=1)
        laxity(command, host, *others, *good, "--strict")


def test_more_seeds_than_memory_holds_are_refused(laxity: Laxity, host: Path) -> None:
    many = ("--seeds", 10**12)
    assert "seeds, or use laxity sweep" in laxity("compare", host, *many, code=2).stderr
    calls = EXAMPLES / "telephony.toml"
    assert "at most 10,000 seeds" in laxity("capacity", calls, *many, code=2).stderr
    laxity("sweep", host, "--set", "duration=1|2 ms", *many, code=2)


def test_a_comparison_with_seeds_shows_their_spread(laxity: Laxity, host: Path) -> None:
    done = laxity("compare", host, "--seeds", 3, "--policy", "deferrable,credit")
    assert "seeds 3 to 5" in done.stdout.splitlines()[0]
    row = next(line for line in done.stdout.splitlines() if line.startswith("random"))
    assert "±" in row
    assert fits(done.stdout)
    content = one_json(laxity("compare", host, "--seeds", 3, "--policy", "credit", "--json").stdout)
    assert [result["seed"] for result in content["results"]] == [3, 4, 5]


# check


def test_check_says_what_is_guaranteed(laxity: Laxity) -> None:
    done = laxity("check", EXAMPLES / "integrator.toml", "--budgets")
    assert "Schedulable: every deadline of all 4 tasks holds" in done.stdout
    assert "smallest" in done.stdout
    assert fits(done.stdout)


def test_check_fails_the_verdict_and_says_why(laxity: Laxity, host: Path) -> None:
    done = laxity("check", host, code=1)
    assert "Not guaranteed: " in done.stdout
    assert "late, hungry: " in done.stdout
    assert fits(done.stdout)
    result = one_json(laxity("check", host, "--json", "--budgets", code=1).stdout)
    assert result["verdict"] == "not-guaranteed"
    control = result["domains"][0]["tasks"][0]
    assert control["guaranteed"]
    assert control["bound_ns"] <= control["deadline_ns"] == 40_000_000
    assert control["test"].startswith("davis-burns-2005")
    hungry = result["domains"][1]["tasks"][0]
    assert (hungry["guaranteed"], hungry["bound_ns"]) == (False, None)
    assert [budget["name"] for budget in result["budgets"]] == [
        "control",
        "late",
        "random",
        "batch",
    ]
    assert result["budgets"][0]["given_ns"] == 2_000_000


def test_check_takes_policy_and_set(laxity: Laxity, host: Path) -> None:
    done = laxity("check", host, "--policy", "credit", "--json", code=1)
    assert one_json(done.stdout)["policy"] == "credit"
    laxity("check", EXAMPLES / "integrator.toml", "--set", "domain.vision.budget=3 ms", code=1)


# run


# Shorter than its file says: 800 streams for a minute take two minutes of CPU time.
SHORTENED = {"telephony": "5 s"}


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SHORTENED else [])
        for path in HOST_FILES
    ],
)
def test_examples_run(laxity: Laxity, example: Path) -> None:
    shortened = SHORTENED.get(example.stem)
    run = ("run", example, *(("--duration", shortened) if shortened else ()))
    done = laxity(*run)
    assert fits(done.stdout)
    for words in ("seed 1", "Scheduling: ", "Simulation: ", "times real time"):
        assert words in done.stdout
    result = one_json(laxity(*run, "--json").stdout)
    jsonschema.validate(result, json.loads(_core.result_schema()))


def test_the_run_table(laxity: Laxity, host: Path) -> None:
    lines = laxity("run", host).stdout.splitlines()
    assert lines[0] == "deferrable on sim, 1 s, seed 3"
    assert lines[2].split() == "task jobs missed miss % CPU % p50 p99 max late by".split()
    control = next(line for line in lines if line.startswith("control"))
    assert control.split() == ["control", "25", "0", "0", "10.0"]
    hungry = next(line for line in lines if line.startswith("  hungry"))
    assert hungry.split()[:4] == ["hungry", "10", "10", "100"]
    assert any("not complete at the end" in line for line in lines)
    batch = next(line for line in lines if line.startswith("batch"))
    assert batch.split() == ["batch", "0", "0", "-", "2.00"]


@pytest.mark.slow
def test_long_names_and_narrow_terminals_hide_nothing(laxity: Laxity, tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    name = "-".join(["very"] * 12)
    path.write_text(
        HOST.replace("control", name).replace("loop", f"a-{name}").replace('"1 s"', '"9000 s"')
    )
    for columns in ("80", "30"):
        for command in (
            ["run"],
            ["compare"],
            ["sweep", "--set", f"domain.{name}.budget=1..2:1 ms"],
        ):
            done = laxity(command[0], path, *command[1:], COLUMNS=columns)
            assert fits(done.stdout), done.stdout
            assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout
        done = laxity("check", path, "--budgets", code=1, COLUMNS=columns)
        assert fits(done.stdout), done.stdout
        assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout


def test_options_change_the_run(laxity: Laxity, host: Path) -> None:
    words = (
        "--policy",
        "sedf",
        "--seed",
        7,
        "--duration",
        "2 s",
        "--set",
        "draw.load=0.5",
        "--on",
        "sim",
    )
    result = one_json(laxity("run", host, *words, "--json").stdout)
    assert (result["policy"], result["seed"], result["duration_ns"]) == ("sedf", 7, 2 * 10**9)


@pytest.mark.slow
def test_two_processes_find_the_same(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    results = [
        one_json(process("run", host, "-o", tmp_path / name, "--json", PYTHONHASHSEED=name).stdout)
        for name in ("1", "2")
    ]
    assert without_time(results[0]) == without_time(results[1])
    traces = [(tmp_path / name / "trace.laxtrace").read_bytes() for name in ("1", "2")]
    assert traces[0] == traces[1]
    for name in ("host.toml", "laxity.json", "responses.parquet"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    laxity("diff", tmp_path / "1", tmp_path / "2")


def test_check_determinism(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    done = laxity("run", host, "--check-determinism", "--json")
    assert "Deterministic" in done.stderr
    one_json(done.stdout)
    laxity("run", host, "--check-determinism", "-o", tmp_path / "out", "--no-trace")
    assert not (tmp_path / "out" / "trace.laxtrace").exists()


def test_check_determinism_can_fail(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = iter((1, 2))
    run = Host.run

    def other_each_time(self: Host, **options: Any) -> Any:
        return run(self, **{**options, "seed": next(runs)})

    monkeypatch.setattr(Host, "run", other_each_time)
    done = CliRunner().invoke(cli.app, ["run", str(host), "--check-determinism"])
    assert done.exit_code == 1
    assert "Not deterministic" in done.stderr
    assert "seed: 1 / 2" in done.stderr


def test_an_output_directory(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    laxity("run", host, "-o", out, "--seed", 5)
    assert sorted(path.name for path in out.iterdir()) == [
        "host.toml",
        "laxity.json",
        "responses.parquet",
        "result.json",
        "trace.laxtrace",
    ]
    manifest = json.loads((out / "laxity.json").read_text())
    assert manifest == {
        "kind": "run",
        "laxity": _core.__version__,
        "host": "host.toml",
        "overrides": ["seed=5"],
        "options": [],
    }
    assert (out / "host.toml").read_text() == HOST
    assert pq.read_schema(out / "responses.parquet").names == ["domain", "task", "response_ns"]
    # Replaced, trace and all; what others put there stays.
    (out / "notes.txt").write_text("mine")
    laxity("run", host, "-o", out, "--no-trace")
    assert not (out / "trace.laxtrace").exists()
    assert json.loads((out / "laxity.json").read_text())["overrides"] == []
    assert (out / "notes.txt").read_text() == "mine"
    # Nothing is left beside it.
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    # A failed run leaves it as it was.
    laxity("run", host, "-o", out, "--policy", "lottery", code=2)
    assert json.loads((out / "result.json").read_text())["policy"] == "deferrable"


@pytest.mark.parametrize("name", ["o[/b]", "o[run]", "a name", "long" * 50])
def test_the_name_of_an_output_directory_can_be_copied(
    laxity: Laxity, host: Path, tmp_path: Path, name: str
) -> None:
    said = laxity("run", host, "-o", tmp_path / name).stdout.splitlines()[-1]
    assert said.startswith(f"Written to {tmp_path / name}; ")
    words = shlex.split(said.removeprefix(f"Written to {tmp_path / name}; "))
    assert words[:3] == ["laxity", "report", str(tmp_path / name)]
    assert (tmp_path / name / "result.json").is_file()


def test_what_fails_beside_an_output_directory_is_told_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(FileNotFoundError, match="nothing"), directories.output(out):
        (tmp_path / "nothing").read_bytes()
    # What cannot be moved into it is what cannot be written to it.
    (out / "notes.txt/notes.txt").mkdir(parents=True)
    (out / directories.MANIFEST).touch()
    with (
        pytest.raises(InputError, match=f"cannot write to {out}: .*already exists"),
        directories.output(out) as staging,
    ):
        (staging / "notes.txt").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_output_into_the_current_directory_and_through_a_link(host: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    for where, out in ((real, "."), (tmp_path, str(link))):
        subprocess.run(
            [*COMMAND, "run", str(host), "-o", out], cwd=where, check=True, capture_output=True
        )
        assert len(list(real.iterdir())) == 5
    assert link.is_symlink()


def test_output_that_is_not_ours_is_refused(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    for out in (tmp_path / "other", host, host / "below", Path("/proc/nowhere")):
        for command in (("run",), ("compare",), ("sweep", "--set", "draw.load=0.5..0.6:0.1")):
            done = laxity(command[0], host, *command[1:], "-o", out, code=2)
            assert done.stderr.startswith("error: ")
            assert done.stdout == ""
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thesis.tex"]


# What is wrong with the input


def wrong_files(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    files: dict[str, tuple[bytes, str]] = {
        "empty": (b"", "is empty"),
        "binary": (b"\x7fELF\0\0\0", "binary"),
        "latin": ("duration = 'für'".encode("latin-1"), "UTF-8"),
        "syntax": (b"duration = \n", "value is missing"),
        "unknown": (HOST.replace("quantum", "").replace("[draw]", "[drow]").encode(), "draw"),
        "budget": (HOST.replace('"2 ms"', '"20 ms"').encode(), "longer than"),
        "twice": (HOST.replace('"late"', '"control"').encode(), "control"),
        "zero": (HOST.replace('"4 ms"', '"0 ms"').encode(), "zero"),
        "negative": (HOST.replace('"4 ms"', '"-4 ms"').encode(), "negative"),
        "overflow": (HOST.replace('"1 s"', '"99999999999999999999 h"').encode(), "too long"),
        "vcpus": (HOST.replace('name = "late"', 'name = "late"\nvcpus = 100000').encode(), "vcpus"),
    }
    paths = {}
    for name, (content, message) in files.items():
        path = tmp_path / f"{name}.toml"
        path.write_bytes(content)
        paths[name] = (path, message)
    paths["missing"] = (tmp_path / "nothing.toml", "there is no file")
    paths["directory"] = (tmp_path, "is a directory")
    return paths


@pytest.mark.parametrize("command", ["check", "run", "compare", "sweep"])
def test_wrong_host_files_are_refused(laxity: Laxity, tmp_path: Path, command: str) -> None:
    for name, (path, message) in wrong_files(tmp_path).items():
        swept = ("--set", "host.cpus=1..2:1") if command == "sweep" else ()
        done = laxity(command, path, *swept, "--json", code=2)
        assert done.stdout == "", name
        assert message in done.stderr, name
        assert path.name in done.stderr, name


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("nonsense", "has no value"),
        ("=1", "key is missing"),
        ("drow.load=1", "did you mean `draw`"),
        ("domain.contrl.budget=1 ms", "control"),
        ("domain.control.budget=1", "has no unit"),
        ("domain.control.budget=11 ms", "longer than"),
        ("host.policy=lottery", "deferrable"),
        ("duration=1 parsec", "unknown unit"),
    ],
)
def test_wrong_overrides_are_refused(
    laxity: Laxity, host: Path, setting: str, message: str
) -> None:
    for command in ("check", "run", "compare"):
        done = laxity(command, host, "--set", setting, code=2)
        assert message in done.stderr
        assert "--set" in done.stderr
        assert done.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--set", "duration=1 s"),
        ("--set", "draw.load=0.1..0.2"),
        ("--set", "draw.load=0.1..0.2:0.03"),
        ("--set", "draw.load=0.1..9.1:1"),
        ("--set", "draw.lod=0.1..0.2:0.1"),
        ("--set", "host.policy=credit|lottery"),
        ("--set", "draw.load=0.1..0.2:0.1", "--policy", "lottery"),
        ("--set", "draw.load=0.1..0.2:0.1", "--policy", "credit,"),
    ],
)
def test_wrong_sweeps_are_refused(laxity: Laxity, host: Path, words: tuple[str, ...]) -> None:
    done = laxity("sweep", host, *words, code=2)
    assert done.stderr.startswith("error: ")
    assert "help" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--on", "vmware"), "'sim', 'xen', 'kvm', 'linux'"),
        (("--on", "linux"), "this host has no calls"),
        (("--media-server", "rtpengine"), "add --on linux"),
        (("--mode", "live"), "add --on xen"),
        (("--scheduler", "credit2"), "add --on xen"),
        (("--on", "xen", "--at", "nowhere", "--mode", "live"), "ssh://root@HOST"),
        (("--on", "xen", "--at", "local"), "add --mode live"),
        (("--on", "xen", "--mode", "live", "--check-determinism"), "does not repeat"),
        (("--on", "xen", "--set", "host.cpus=2"), "add --mode live, or --set host.cpus=1"),
        (("--on", "xen", "--set", "domain.late.scheduler=edf"), "domain.late.scheduler"),
        (("--on", "xen", "--scheduler", "sedf"), "credit, credit2, rtds, null"),
    ],
)
def test_what_xen_cannot_do_is_refused_before_it_boots(
    laxity: Laxity, host: Path, words: tuple[str, ...], message: str
) -> None:
    done = laxity("run", host, *words, code=2)
    assert message in done.stderr
    assert done.stdout == ""


# compare, sweep


def test_compare_has_a_column_a_policy(laxity: Laxity, host: Path) -> None:
    done = laxity("compare", host)
    assert fits(done.stdout)
    assert done.stdout.splitlines()[2].split() == ["miss", "%", *WITHOUT_LAXITY]
    results = one_json(laxity("compare", host, "--policy", "credit,sedf", "--json").stdout)[
        "results"
    ]
    assert [result["policy"] for result in results] == ["credit", "sedf"]
    for result in results:
        jsonschema.validate(result, json.loads(_core.result_schema()))
    laxity("compare", host, "--policy", "credit,lottery", code=2)
    laxity("compare", host, "--policy", "credit,credit", code=2)


def test_compare_writes_its_results(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    laxity("compare", host, "-o", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "laxity.json").read_text())["kind"] == "compare"
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [result["policy"] for result in content["results"]] == list(WITHOUT_LAXITY)
    assert "laxity" in content["notes"][0]


def test_sweep_has_a_row_a_point(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    policies = WITHOUT_LAXITY[:6]  # as many as fit beside one another
    words = ("--set", "draw.load=0.3..1.0:0.1", "--seeds", 3, "--policy", ",".join(policies))
    done = laxity("sweep", host, *words, "-o", tmp_path / "out")
    lines = done.stdout.splitlines()
    # The name of the directory is in one piece, however long it is.
    assert fits("\n".join(lines[:-1]))
    assert "3 seeds ± 95 % confidence" in lines[0]
    assert lines[2].split() == ["draw.load", *policies]
    assert [line.split()[0] for line in lines[4:12]] == "0.3 0.4 0.5 0.6 0.7 0.8 0.9 1".split()
    table = pq.read_table(tmp_path / "out" / "sweep.parquet")
    assert (
        table.column_names
        == (
            "draw.load policy seed domain jobs missed miss_ratio cpu_ns "
            "schedule_calls context_switches loss_ratio reserved"
        ).split()
    )
    assert table.num_rows == 8 * 3 * 6 * 4
    content = one_json(laxity("sweep", host, *words, "--json").stdout)
    assert len(content["points"]) == 8 * 6
    assert content["rows"] == table.to_pylist()


def test_where_nothing_arrives_there_is_no_delay(laxity: Laxity) -> None:
    words = ("--set", "calls.streams=10|20", "--duration", "1 ms", "--json")
    found = laxity("sweep", EXAMPLES / "telephony.toml", *words).stdout

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    points = json.loads(found, parse_constant=refuse)["points"]
    assert [point["delay_ns_p999"] for point in points] == [None, None]


def test_the_cheapest_is_among_those_with_budgets(laxity: Laxity, tmp_path: Path) -> None:
    host = tmp_path / "host.toml"
    host.write_text(
        """
        duration = "100 ms"
        host = { cpus = 1, policy = "deferrable" }
        domain = [
          { name = "a", budget = "2 ms", period = "10 ms",
            tasks = [{ name = "t", cost = "1 ms", period = "10 ms" }] },
        ]
        """
    )
    words = ("--policy", "deferrable,credit", "--set", "domain.a.budget=4|3|2 ms")
    said = " ".join(laxity("sweep", host, *words).stdout.split())
    assert "Cheapest, with budgets of 20.0 % of a CPU in all: domain.a.budget = 2 ms under" in said


def test_a_wide_sweep_has_a_row_a_policy(laxity: Laxity, host: Path) -> None:
    words = ("--set", "domain.control.budget=1..2:1 ms", "--set", "draw.load=50..100:50 %")
    done = laxity("sweep", host, *words, "--policy", ",".join(WITHOUT_LAXITY))
    assert fits(done.stdout)
    lines = done.stdout.splitlines()
    assert lines[2].split() == "domain.control.budget, ms draw.load, % policy miss %".split()
    assert lines[4].split()[:3] == ["1", "50", "deferrable"]
    assert lines[4 + 2 * 2 * len(WITHOUT_LAXITY)] == ""


# trace, diff, report, schema


@pytest.fixture
def out(laxity: Laxity, host: Path, tmp_path: Path) -> Path:
    laxity("run", host, "-o", tmp_path / "out", "--duration", "50 ms")
    return tmp_path / "out"


TEXT = """\
# substrate sim, policy deferrable, seed 3, duration 50.000000 ms, CPUs 1
# time ms  cpu  vcpu       event
"""


def test_a_trace_as_text(laxity: Laxity, out: Path, tmp_path: Path) -> None:
    text = laxity("trace", out, "--text").stdout
    assert text.startswith(TEXT)
    assert "control/0  complete   loop #0, response " in text
    assert laxity("trace", out / "trace.laxtrace", "--text", "-").stdout == text
    laxity("trace", out, "--text", tmp_path / "text")
    assert (tmp_path / "text").read_text() == text


def test_a_trace_is_appended_to_a_file(out: Path, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    with path.open("a") as log:
        subprocess.run([*COMMAND, "trace", str(out), "--text"], stdout=log, check=True)
    assert path.read_text().startswith("before\n" + TEXT)


def test_other_exports(laxity: Laxity, out: Path, tmp_path: Path) -> None:
    laxity("trace", out, "--parquet", tmp_path / "table.parquet")
    assert pq.read_table(tmp_path / "table.parquet").num_rows > 10
    assert laxity("trace", out, "--perfetto").stdout == f"wrote {out / 'trace.pftrace'}\n"
    assert (out / "trace.pftrace").stat().st_size > 100


def test_wrong_exports_are_refused(laxity: Laxity, out: Path, tmp_path: Path) -> None:
    trace = out / "trace.laxtrace"
    before = trace.read_bytes()
    (tmp_path / "other").write_bytes(b"not a trace at all")
    for words in [
        (out,),
        (out, "--text", "--parquet"),
        (tmp_path, "--text"),
        (tmp_path / "nothing", "--text"),
        (tmp_path / "other", "--text"),
        (tmp_path / "other", "--perfetto", tmp_path / "x"),
        (tmp_path / "other", "--parquet", tmp_path / "y"),
        (out, "--perfetto", "/proc/nowhere"),
        (out, "--parquet", "/proc/nowhere"),
        (out, "--text", trace),
        (out, "--parquet", trace),
    ]:
        done = laxity("trace", *words, code=2)
        assert done.stderr.startswith("error: "), words
    assert trace.read_bytes() == before
    assert not (tmp_path / "y").exists()


def test_diff_says_where(laxity: Laxity, host: Path, out: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    laxity("run", host, "-o", other, "--duration", "50 ms", "--policy", "polling")
    same = one_json(laxity("diff", out, out / "trace.laxtrace", "--json").stdout)
    assert same["equal"]
    assert same["first"] is None
    assert "all records are equal" in laxity("diff", out, out).stdout
    done = laxity("diff", out, other, code=1)
    assert "policy: deferrable / polling" in done.stdout
    assert "the first record that differs" in done.stdout
    content = one_json(laxity("diff", out, other, "--json", code=1).stdout)
    assert not content["equal"]
    laxity("diff", out, tmp_path / "nothing", code=2)
    laxity("diff", out, host, code=2)


def test_report_wants_an_output(laxity: Laxity, tmp_path: Path) -> None:
    assert "not an output directory" in laxity("report", tmp_path, code=2).stderr
    laxity("report", tmp_path / "nothing", code=2)


def test_report_of_a_window(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    laxity("run", host, "-o", out)
    answer = laxity("report", out, "--window", "100 ms..0.2 s", "--json")
    report = Path(json.loads(answer.stdout)["report"])
    assert "From 100 ms to 200 ms" in report.read_text("utf-8")


@pytest.mark.parametrize(
    ("window", "why"),
    [
        ("5..7", "has no unit"),
        ("5 ms", "is not FROM..TO"),
        ("7 ms..5 ms", "is empty"),
        ("5 ms..2 s", "the window 5 ms..2 s is not within the run"),
        ("59 s..70 s", "the window 59 s..70 s is not within the run"),
    ],
)
def test_report_refuses_a_wrong_window(
    laxity: Laxity, host: Path, tmp_path: Path, window: str, why: str
) -> None:
    out = tmp_path / "out"
    laxity("run", host, "-o", out)
    assert why in laxity("report", out, "--window", window, code=2).stderr


def test_trace_says_what_it_wrote(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    laxity("run", host, "-o", out)
    written = Path(json.loads(laxity("trace", out, "--text", "--json").stdout)["written"])
    assert written.stat().st_size > 0


def test_schemas(laxity: Laxity) -> None:
    for name in ("host", "result"):
        schema = one_json(laxity("schema", name).stdout)
        jsonschema.Draft202012Validator.check_schema(schema)
    assert laxity("schema").stdout == laxity("schema", "host").stdout


# Terminals, pipes, interrupts


def test_a_closed_pipe_is_quiet(out: Path) -> None:
    words = " ".join(f"'{word}'" for word in [*COMMAND, "trace", str(out), "--text"])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{words} | head -1"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.startswith("# substrate")


def test_output_without_a_reader_ends_a_command_tidily(host: Path, tmp_path: Path) -> None:
    """What the command has begun to write beside its output is removed, as after Ctrl-C."""
    directory = tmp_path / "work"
    directory.mkdir()
    read_end, write_end = os.pipe()
    os.close(read_end)
    # More than a buffer holds is printed before the output is complete.
    words = ["sweep", str(host), "--set", "duration=1..3:1 ms", "--seeds", "20", "--json"]
    done = subprocess.run(
        [*COMMAND, *words, "-o", str(directory / "out")],
        stdout=write_end,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write_end)
    # It ends by the signal, as other tools in a pipe do.
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")
    assert list(directory.iterdir()) == []


def test_streams_that_are_closed_or_full(host: Path) -> None:
    words = " ".join(f"'{word}'" for word in [*COMMAND, "check"])

    def done(end: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", "-c", f"{words} {end}"], capture_output=True, text=True, check=False
        )

    closed = done(f"'{host}' >&-")
    assert (closed.returncode, closed.stdout, closed.stderr) == (1, "", "")
    full = done(f"'{host}' >/dev/full")
    assert full.returncode == 2
    assert full.stderr == "error: cannot write the output: No space left on device\n"
    without_input = done("- <&-")
    assert without_input.returncode == 2
    assert without_input.stderr.startswith("error: the standard input is closed")


def test_ascii_terminals_get_ascii(host: Path) -> None:
    words = ("sweep", host, "--set", "draw.load=0.3|0.9", "--seeds", 2)
    done = process(*words, PYTHONIOENCODING="ascii")
    assert done.stdout.isascii()


def until_it_runs(process: subprocess.Popen[bytes]) -> None:
    """Waits until it has said how long it will take, and has had a second of the CPU since."""
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"about ")

    def cpu_s() -> float:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    begun_s = cpu_s()
    while process.poll() is None and cpu_s() < begun_s + 1:
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), *((number, -number) for number in (signal.SIGTERM, signal.SIGHUP))],
)
def test_an_interrupt_is_silent_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    command = [*COMMAND, "run", str(EXAMPLES / "rt-xen.toml"), "--duration", "1000 h"]
    # What ignores a signal, as all that nohup starts, has its children ignore it.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            [*command, "-o", str(directory / "out"), "--no-trace"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # What is read of its first line is no more than that.
            bufsize=0,
        )
    finally:
        signal.signal(number, before)
    try:
        until_it_runs(process)
        process.send_signal(number)
        output, error = process.communicate(timeout=600)
    finally:
        process.kill()
    assert (process.returncode, output, error) == (code, b"", b"")
    assert list(directory.iterdir()) == []


def test_an_interrupt_is_heard_while_the_extension_works(
    host: Path, laxity: Laxity, tmp_path: Path
) -> None:
    """It writes a trace into a pipe that nobody empties, and would never return by itself."""
    run, pipe = tmp_path / "run", tmp_path / "pipe"
    laxity("run", host, "--duration", "1 s", "-o", run)
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    # The whole trace may never fit: it would be written before the signal comes.
    page_bytes = fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 1)
    process = subprocess.Popen(
        [*COMMAND, "trace", str(run), str(pipe), "--text"], stderr=subprocess.PIPE
    )
    try:
        assert select.select([end], [], [], 600)[0]
        assert (run / "trace.laxtrace").stat().st_size > 2 * page_bytes
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=600)
    finally:
        process.kill()
        os.close(end)
    assert (process.returncode, error) == (130, b"")


def test_what_takes_long_shows_a_bar_on_a_terminal() -> None:
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "run", str(EXAMPLES / "rt-xen.toml"), "--duration", "1000 h"],
        stdout=subprocess.DEVNULL,
        stderr=end,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(end)
    seen = b""
    start = time.monotonic()
    while b"running" not in seen and time.monotonic() - start < 600:
        if select.select([terminal], [], [], 0.5)[0]:
            seen += os.read(terminal, 4096)
    process.send_signal(signal.SIGINT)
    assert process.wait(600) == 130
    os.close(terminal)
    assert b"running" in seen
    assert b"%" in seen


def test_a_mistake_of_ours_is_one_line_and_a_hint(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr(Host, "load", fail)
    monkeypatch.setattr(sys, "argv", ["laxity", "run", str(host)])
    assert cli.guarded() == 70
    error = capsys.readouterr().err
    assert "ZeroDivisionError: unexpected" in error
    assert "LAXITY_TRACEBACK=1" in error
    assert "Traceback" not in error
    monkeypatch.setenv("LAXITY_TRACEBACK", "1")
    assert cli.guarded() == 70
    assert "Traceback" in capsys.readouterr().err


def test_what_a_message_quotes_moves_no_cursor(laxity: Laxity, tmp_path: Path) -> None:
    trace = tmp_path / "trace.laxtrace"
    metadata = json.dumps({"\x1b]0;title\x07\x9b2J\u202e": 1}).encode()
    trace.write_bytes(b"LAXTRACE" + struct.pack("<II", 1, len(metadata)) + metadata)
    error = laxity("trace", trace, "--text", code=2).stderr
    assert "\\x1b]0;title\\x07\\x9b2J\\u202e" in error
    assert error.replace("\n", "").isprintable()
