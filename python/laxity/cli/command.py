"""What every command's module is made of: the `Typer` that holds it, its examples, exit codes."""

from __future__ import annotations

import typer

FAILED_VERDICT = 1
"""The exit code of a command whose verdict is no."""


def typer_app(name: str | None = None, help: str | None = None) -> typer.Typer:
    """Makes a `Typer` without decoration: for one command, or with a name for a group of them."""
    return typer.Typer(
        name=name,
        help=help,
        add_completion=False,
        no_args_is_help=name is not None,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )


def examples(*commands: str) -> str:
    """Returns the end of a help text, whose lines are kept as they are."""
    return "\n".join(["\b", "Examples:", *(f"  laxity {command}" for command in commands)])


def judge(passed: bool, strict: bool) -> None:
    """Ends the command with exit code 1 if the verdict is no and `--strict` was given."""
    if strict and not passed:
        raise typer.Exit(FAILED_VERDICT)
