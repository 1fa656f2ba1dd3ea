"""Writes the man pages and the shell completion of `laxity`, both made from its command line.

tools/build/manual.py DIRECTORY DATE

`man/` gets a page for `laxity` and for each command, dated DATE (YYYY-MM-DD), but for commands that
are another program, which has its own; `completion/` gets a script for each shell, which asks
`laxity` itself for completions.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from laxity import __version__, cli
from typer.completion import get_completion_script  # type: ignore[attr-defined]
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typer._click.core import Command, Context

COMPLETION = {"bash": "laxity.bash", "zsh": "_laxity", "fish": "laxity.fish"}
"""The file of each shell, named as the shell looks for it."""


def main(words: list[str]) -> None:
    """Writes everything."""
    directory, date = Path(words[0]), words[1]
    pages, scripts = directory / "man", directory / "completion"
    for each in (pages, scripts):
        each.mkdir(parents=True, exist_ok=True)
    for name, command, context in commands(typer.main.get_command(cli.app), "laxity"):
        if not (context.allow_extra_args and context.ignore_unknown_options):
            (pages / f"{name.replace(' ', '-')}.1").write_text(
                page(name, command, context, date), "utf-8"
            )
    for shell, file in COMPLETION.items():
        script = get_completion_script(
            prog_name="laxity", complete_var="_LAXITY_COMPLETE", shell=shell
        )
        (scripts / file).write_text(f"{script}\n", "utf-8")


def commands(
    command: Command, name: str, parent: Context | None = None
) -> Iterator[tuple[str, Command, Context]]:
    """Gives a command and all below it, each with its full name."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield name, command, context
    if not isinstance(command, TyperGroup):
        return
    for child in command.list_commands(context):
        found = command.get_command(context, child)
        if found is not None and not found.hidden:
            yield from commands(found, f"{name} {child}", context)


def page(name: str, command: Command, context: Context, date: str) -> str:
    """Returns the man page of a command, in the macros of man(7)."""
    summary, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    # The usage without the name that comes first.
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{name.replace(" ", "-").upper()}" 1 "{date}" "Laxity {__version__}" "Laxity"',
        *(".SH NAME", text(f"{name.replace(' ', '-')} - {joined(summary).rstrip('.')}")),
        *(".SH SYNOPSIS", f".B {text(name)}", text(usage)),
        *(".SH DESCRIPTION", text(joined(summary))),
    ]
    for paragraph in rest.split("\n\n") if rest else ():
        lines += [".PP", text(joined(paragraph))]
    records = [
        record for each in command.get_params(context) if (record := each.get_help_record(context))
    ]
    if records:
        lines += [".SH OPTIONS"]
        for term, meaning in records:
            lines += [".TP", f"\\fB{text(term)}\\fR", text(joined(meaning))]
    if isinstance(command, TyperGroup):
        lines += [".SH COMMANDS"]
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                meaning = found.get_short_help_str(limit=200)
                lines += [".TP", f"\\fB{text(f'{name} {child}'.replace(' ', '-'))}\\fR(1)"]
                lines += [text(meaning)]
    if command.epilog:
        lines += epilog(command.epilog)
    return "\n".join(lines) + "\n"


def epilog(written: str) -> list[str]:
    """Returns the end of a page: examples, whose lines are kept, or a paragraph."""
    if not written.startswith("\b"):
        return [".SH NOTES", text(joined(written))]
    _, head, *examples = written.splitlines()
    title = head.rstrip(":").upper()
    return [f".SH {title}", ".nf", *(text(each.strip()) for each in examples), ".fi"]


def joined(paragraph: str) -> str:
    """Returns a paragraph in one line."""
    return " ".join(paragraph.split())


def text(words: str) -> str:
    """Returns words as roff takes them."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith((".", "'", "\\(aq")) else escaped


if __name__ == "__main__":
    main(sys.argv[1:])
