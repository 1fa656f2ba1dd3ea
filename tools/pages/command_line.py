"""The reference of the command line, made from the commands themselves.

    python tools/pages/command_line.py

prints the page. `laxity` is asked for its commands and options; the programs in Rust for their
help texts, so that they must have been built.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import typer.main
from laxity import programs
from laxity.cli import app
from typer.core import TyperArgument, TyperGroup, TyperOption

if TYPE_CHECKING:
    from typer._click.core import Command

RUST_PROGRAMS = ("laxity-bandwidth", "laxity-protect", "laxity-media")

BEFORE = """\
# The command line

Generated from the commands themselves when this site is built. `laxity COMMAND --help` prints the
same. Exit code 0 means that all is well, 1 that a verdict failed, 2 that the input was refused,
3 that the machine failed (`--on xen`).
"""


def page() -> str:
    """The whole page."""
    parts = [BEFORE, *_of_command(typer.main.get_command(app), "laxity")]
    for program in RUST_PROGRAMS:
        parts.append(f"\n## {program}\n")
        parts += _of_program(program, [])
    return "".join(parts)


def _of_command(command: Command, name: str) -> list[str]:
    """A section for a command, or one for each of its own commands."""
    if isinstance(command, TyperGroup):
        context = command.make_context(name, ["--help"], resilient_parsing=True)
        own = [
            (each, command.get_command(context, each)) for each in command.list_commands(context)
        ]
        return [text for each, of in own if of for text in _of_command(of, f"{name} {each}")]
    arguments = [of for of in command.params if isinstance(of, TyperArgument)]
    options = [of for of in command.params if isinstance(of, TyperOption) and not of.hidden]
    usage = " ".join([name, *(_argument(of) for of in arguments), *(["[OPTIONS]"] * bool(options))])
    parts = [f"\n## {name}\n\n```text\n{usage}\n```\n\n{_plain(command.help)}\n"]
    rows = [(_argument(of), _help(of)) for of in arguments]
    rows += [(_option(of), _help(of)) for of in options]
    if rows:
        parts.append("\n| argument or option | meaning |\n|---|---|\n")
        parts += [f"| `{left.replace('|', chr(92) + '|')}` | {right} |\n" for left, right in rows]
    examples = _examples(command.epilog)
    if examples:
        parts.append(f"\n```sh\n{examples}\n```\n")
    return parts


def _argument(of: TyperArgument) -> str:
    text = of.metavar or of.name.upper()
    return text if of.required else f"[{text.strip('[]')}]"


def _option(of: TyperOption) -> str:
    """The names of an option, and what it takes."""
    names = ", ".join([*of.opts, *of.secondary_opts])
    return names if of.is_flag else f"{names} {of.metavar or of.name.upper()}"


def _help(of: TyperArgument | TyperOption) -> str:
    """What a table's cell says of an argument or option."""
    text = _plain(of.help).replace("\n", " ")
    default = of.default
    if default not in (None, False, ()) and not callable(default) and "default" not in text:
        text += f" Default: `{getattr(default, 'value', default)}`."
    return text.replace("|", "\\|")


def _plain(text: str | None) -> str:
    return (text or "").replace("\b", "").strip()


def _examples(epilog: str | None) -> str:
    """The commands at the end of a help text."""
    lines = (epilog or "").replace("\b", "").splitlines()
    return "\n".join(line.strip() for line in lines if line.startswith("  "))


def _of_program(program: str, words: list[str]) -> list[str]:
    """The help text of a program in Rust, and those of its commands."""
    path = programs.find(program)
    asked = subprocess.run(
        [path, *words, "--help"], check=True, capture_output=True, text=True, timeout=60
    )
    text = asked.stdout.rstrip()
    title = " ".join([program, *words])
    parts = [f"\n### {title}\n\n" if words else "\n", f"```text\n{text}\n```\n"]
    commands = re.search(r"^Commands:\n((?: .*\n)+)", asked.stdout, re.MULTILINE)
    for line in commands[1].splitlines() if commands else []:
        # A command stands two columns in; what wraps is further in.
        name = re.match(r"  (\S+)", line)
        if name and name[1] != "help":
            parts += _of_program(program, [*words, name[1]])
    return parts


if __name__ == "__main__":
    sys.stdout.write(page())
