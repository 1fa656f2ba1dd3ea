"""The commands of README and tutorials do what is shown, and the site builds without warnings.

A block `console` has commands after `$`, and below each the output that is shown; `…` stands for
any output. A block with a `title` is a file; a block `python` is a program. Each page runs in a
directory of its own, in one shell. A comment before a block states its needs (root, Xen, or the
Makefile of a checkout), or the exit code of its last command.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from laxity.plots.style import GROUND, IN_THE_DARK

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
    ROOT / "docs" / "how-to" / "fleet.md",
]
MAKE = shutil.which("make") or "make"
HANGS_AFTER_S = 1800
COLUMNS_MAX = 100

FENCE = re.compile(
    r"(?P<comments>(?:^<!-- [^\n]* -->\n)*)"
    r"^(?P<indent> *)```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
ASKED_OF_THE_NETWORK = re.compile(
    r"""<(?:img|script|iframe|source|audio|video|embed)\b[^>]*
          \b(?:src|srcset)=["']?(?:https?:)?//[^>]*>
      | <link\b(?=[^>]*\brel=["']?(?:stylesheet|icon|preload|preconnect))[^>]*
          \bhref=["']?(?:https?:)?//[^>]*>
    """,
    re.VERBOSE,
)
"""Tags of a page with an address on another host that a browser would load by itself."""
COMMENT = re.compile(r"<!-- (needs|exit code): (.+?) -->")


@dataclass(frozen=True)
class Command:
    """A line for the shell, with what the page shows of its output."""

    text: str
    shown: str
    exit_code: int = 0


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str | None
    text: str
    needs: str = ""
    exit_code: int = 0

    @property
    def commands(self) -> list[Command]:
        """Those of a console, in order; the exit code is the last one's."""
        found: list[tuple[list[str], list[str]]] = []
        continues = False
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append(([line[2:]], []))
            elif continues or line.startswith("> "):
                found[-1][0].append(line.removeprefix("> "))
            else:
                found[-1][1].append(line)
            continues = line.endswith("\\") and not found[-1][1]
        return [
            Command(
                "\n".join(typed),
                "".join(f"{line}\n" for line in shown),
                self.exit_code if number == len(found) else 0,
            )
            for number, (typed, shown) in enumerate(found, 1)
        ]


def blocks(page: str) -> Iterator[Block]:
    """All fenced blocks."""
    for fence in FENCE.finditer(page):
        said = dict(COMMENT.findall(fence["comments"]))
        indent = fence["indent"]
        text = "".join(
            line.removeprefix(indent) for line in fence["text"].splitlines(keepends=True)
        )
        yield Block(
            fence["language"],
            fence["title"],
            text,
            said.get("needs", ""),
            int(said.get("exit code", 0)),
        )


def expected(shown: str) -> re.Pattern[str]:
    """Matches the output that a page shows: `…` is any text, on a line of its own any lines."""
    parts = []
    for line in shown.splitlines():
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(r"[^\n]*?".join(map(re.escape, line.split("…"))) + r"\n")
    return re.compile("".join(parts))


def plain(output: str) -> str:
    """Output as a page shows it: no trailing blanks, no empty lines at either end."""
    text = "".join(f"{line.rstrip()}\n" for line in output.splitlines())
    return text.strip("\n") + "\n" if text.strip() else ""


@dataclass
class Session:
    """A shell in a directory of its own, like that of a reader."""

    directory: Path
    prefix: list[str] = field(default_factory=list)

    def run(self, commands: list[Command]) -> list[tuple[int, str]]:
        """The exit code and the output of each command."""
        told = self.directory / ".told"
        told.mkdir(exist_ok=True)
        script = "".join(
            f"{{ {command.text}\n}} >{told}/{number} 2>&1 </dev/null\n"
            f"echo $? >{told}/{number}.code\n"
            for number, command in enumerate(commands)
        )
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "COLUMNS": str(COLUMNS_MAX)}
        with subprocess.Popen(
            [*self.prefix, "bash", "-c", script],
            cwd=self.directory,
            env=environment,
            start_new_session=True,
        ) as shell:
            try:
                shell.wait(HANGS_AFTER_S)
            finally:
                # Processes that a page leaves in the background end with it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGTERM)
        return [
            (int((told / f"{number}.code").read_text()), plain((told / f"{number}").read_text()))
            for number in range(len(commands))
        ]


def run_page(page: Path, directory: Path, needs: str, prefix: list[str] | None = None) -> None:
    """Runs the blocks of a page that need just this, and compares what they print."""
    (directory / "examples").symlink_to(ROOT / "examples")
    commands = []
    for number, block in enumerate(blocks(page.read_text())):
        if block.title is not None:
            commands.append(Command(_written(block), ""))
        elif block.needs != needs:
            continue
        elif block.language == "console":
            commands += block.commands
        elif block.language == "python":
            (directory / f"{number}.py").write_text(block.text)
            commands.append(Command(f"python {number}.py", "…\n"))
    done = Session(directory, prefix or []).run(commands)
    for command, (exit_code, output) in zip(commands, done, strict=True):
        assert exit_code == command.exit_code, f"{page.name}: {command.text}\n{output}"
        if command.shown and not expected(plain(command.shown)).fullmatch(output):
            pytest.fail(
                f"{page.name}: {command.text}\n--- shown\n{command.shown}--- printed\n{output}"
            )


def _written(block: Block) -> str:
    """A command that writes a file, at its place among the others."""
    return f"cat >{block.title} <<'END-OF-FILE'\n{block.text}END-OF-FILE"


def make_targets() -> list[str]:
    """All targets that pages make."""
    commands = [
        command.text
        for page in PAGES
        for of in blocks(page.read_text())
        if of.needs == "make"
        for command in of.commands
    ]
    return [text.removeprefix("make ") for text in commands if text.startswith("make ")]


def needing(needs: str) -> list[Path]:
    """The pages that have blocks which need this."""
    return [page for page in PAGES if any(of.needs == needs for of in blocks(page.read_text()))]


def name_of(page: Path) -> str:
    """What a test of a page is called."""
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_is_run_by_some_test(page: Path) -> None:
    for block in blocks(page.read_text()):
        assert block.language in {"console", "python", "text", "toml"}, block
        assert block.needs in {"", "make", "root", "xen"}, block


def test_the_hypercall_has_the_number_that_guests_are_told() -> None:
    listened = (ROOT / "kvm/bpf/shared.h").read_text("utf-8")
    told = (ROOT / "docs/how-to/kvm.md").read_text("utf-8")
    (number,) = re.findall(r"#define SCX_HYPERCALL (0x\w+)", listened)
    assert f"| `rax` | `{number}` |" in told


def test_targets_are_parts_of_make_test() -> None:
    # `make demo` is run below, command by command, where nothing is made anew.
    parts = subprocess.run(
        [MAKE, "--dry-run", "test"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    made = {word.split(":")[0] for word in parts.split()} | {"test", "demo"}
    assert set(make_targets()) <= made
    assert "demo" in make_targets()


def test_the_demo_runs(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    dry = [
        MAKE,
        "--dry-run",
        "--silent",
        "--no-print-directory",
        "--old-file=.venv/.packages",
        "--old-file=.venv/.built",
    ]
    recipe = subprocess.run(
        [*dry, "demo", "LAXITY=laxity"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    commands = [Command(line, "") for line in recipe.splitlines()]
    done = Session(tmp_path).run(commands)
    for command, (exit_code, output) in zip(commands, done, strict=True):
        assert exit_code == 0, f"{command.text}\n{output}"
    reports = {"integrator", "telephony", "overload", "telephony-overload"}
    assert {page.parent.name for page in tmp_path.glob("out/*/report.html")} == reports


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_do_what_is_shown(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, "")


@pytest.mark.parametrize("page", needing("root"), ids=name_of)
def test_commands_for_root_do_what_is_shown(page: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    # The page says so, too: interfaces of its own, so that nothing of the machine is touched.
    run_page(page, tmp_path, "root", ["unshare", "--net", "--mount"])


@pytest.mark.xen
@pytest.mark.parametrize("page", needing("xen"), ids=name_of)
def test_commands_on_xen_do_what_is_shown(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path, "xen")


@pytest.mark.parametrize("drawing", sorted(ROOT.glob("docs/results/**/*.svg")), ids=str)
def test_plots_are_dark_for_readers_who_chose_dark(drawing: Path) -> None:
    _, sheet, drawn = re.split(r"(@media screen.*?</style>)", drawing.read_text(), maxsplit=1)
    colours = set(re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", drawn))
    assert f"fill: {GROUND}" in colours
    for colour in colours:
        assert f'[style*="{colour}"]' in sheet
    assert f"fill:{IN_THE_DARK[GROUND]}" in sheet
    words = re.findall(r'<g id="text_\d+">\s*(?:<!--.*?-->\s*)?<g ([^>]*)>', drawn, re.DOTALL)
    assert words
    assert all("fill: " in each for each in words), "text without a colour stays black in the dark"


def test_the_site_builds_without_warnings_and_asks_nothing_of_the_network(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="MkDocs is not installed (pip install --group docs)")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(PAGES)
    for page in pages:
        asked = ASKED_OF_THE_NETWORK.findall(page.read_text())
        assert not asked, f"{page.relative_to(tmp_path)}: {asked}"
    for style in tmp_path.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//", style.read_text()), style
