"""What a command imports, and what it says where the extra that it needs is not installed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from typing import TYPE_CHECKING

import pytest
import typer
from conftest import EXAMPLES
from laxity import cli

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """\
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
sys.argv = ["laxity", *{words!r}]
from laxity import additions
from laxity.cli import guarded
if "laxity-reproduce" in {missing!r}:
    additions.names = list
code = guarded()
print("modules:", *sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""

EXTRAS = frozenset(
    found[1].lower()
    for found in (re.match(r"([\w.-]+).*extra ==", text) for text in requires("laxity") or ())
    if found
)
"""The distributions that only an extra installs; their modules are called the same."""

SLOW = EXTRAS | {"msgspec", "numpy", "pyarrow", "rich"}
"""Modules that take longer to import than `--help` may take."""


def called(*words: object, missing: frozenset[str] = frozenset()) -> tuple[int, str, set[str]]:
    """Runs a command; returns its exit code, what it complained of, and the imported modules."""
    program = PROGRAM.format(
        missing=set(missing),
        words=[str(word) for word in words],
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    complaint, _, modules = done.stderr.partition("modules:")
    return done.returncode, complaint, set(modules.split())


def test_the_extras_are_known() -> None:
    assert {"matplotlib", "pesq"} <= EXTRAS


@pytest.mark.parametrize("command", ["", "check", "run", "reproduce", "lab"])
def test_help_imports_nothing_slow(command: str) -> None:
    code, _, modules = called(*command.split(), "--help")
    assert code == 0
    assert not modules & SLOW
    assert "laxity.host" not in modules
    assert {name for name in modules if name.startswith("laxity_")} <= {
        "laxity_reproduce",
        "laxity_reproduce.command",
    }


def test_the_overview_reads_no_metadata_of_distributions() -> None:
    assert "importlib.metadata" not in called("--help")[2]


def test_the_overview_makes_no_command_with_all_its_options() -> None:
    group = typer.main.get_command(cli.app)
    assert isinstance(group, cli.Commands)
    overview = group.get_help(group.context_class(group))
    assert all(f"\n  {name} " in overview for name in cli.COMMANDS)
    assert not group.commands


def test_a_check_imports_nothing_that_runs_a_host() -> None:
    code, complaint, modules = called("check", EXAMPLES / "integrator.toml")
    assert code == 0, complaint
    assert not modules & (EXTRAS | {"numpy", "pyarrow"})
    assert not modules & {"laxity.results.run", "laxity.substrates.sim", "laxity.sweep"}


def test_a_run_imports_nothing_of_other_commands_and_substrates() -> None:
    code, complaint, modules = called("run", EXAMPLES / "integrator.toml", "--json")
    assert code == 0, complaint
    assert not modules & (EXTRAS | {"rich"})
    assert not modules & {"laxity.fidelity", "laxity.plots", "laxity.sweep", "laxity.voice"}
    assert not modules & {"laxity.substrates.linux.scene", "laxity.substrates.xen.plan"}


@pytest.mark.parametrize(
    "words",
    [
        ("check", EXAMPLES / "integrator.toml"),
        ("run", EXAMPLES / "integrator.toml"),
        ("compare", EXAMPLES / "overload.toml", "--duration", "1 s"),
        ("sweep", EXAMPLES / "rt-xen.toml", "--set", "draw.load=0.3|0.4", "--duration", "1 s"),
    ],
)
def test_hosts_without_calls_need_no_extra(words: tuple[object, ...]) -> None:
    code, complaint, modules = called(*words, missing=EXTRAS)
    assert code in (0, 1), complaint
    assert not modules & EXTRAS


@pytest.mark.slow
def test_a_command_names_the_extra_that_it_needs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, complaint, _ = called("run", EXAMPLES / "integrator.toml", "-o", out, missing=EXTRAS)
    assert code == 0, complaint
    for words, extra in (
        (("report", out), "plots"),
        (("voice", tmp_path / "calls.pcap"), "voice"),
        (("run", EXAMPLES / "telephony.toml", "--duration", "5 s"), "voice"),
        (("reproduce", "rt-xen"), "reproduce"),
    ):
        code, complaint, _ = called(*words, missing=EXTRAS)
        assert code == 2, complaint
        assert complaint.splitlines()[-1] == f"  help: pip install 'laxity[{extra}]'"


@pytest.mark.parametrize("command", ["run", "compare", "capacity"])
def test_calls_are_refused_before_they_run_where_they_could_not_be_scored(command: str) -> None:
    code, complaint, modules = called(
        command, EXAMPLES / "telephony.toml", "--duration", "5 s", missing=EXTRAS
    )
    assert code == 2
    assert complaint.splitlines()[-1] == "  help: pip install 'laxity[voice]'"
    assert "laxity.substrates.sim.estimate" not in modules, "which every run begins with"
