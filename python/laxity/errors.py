"""What is wrong with what was given: errors that the command line shows as they are."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity import _core

if TYPE_CHECKING:
    from collections.abc import Iterator


class InputError(ValueError):
    """Bad input. The message names what is wrong; `help` says what would be right."""

    def __init__(self, message: str, help: str | None = None) -> None:
        """Takes both as whole phrases, without a full stop."""
        super().__init__(message)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        """Returns the error as the command line shows it."""
        return f"error: {self.message}" + (f"\n  help: {self.help}" if self.help else "")


class RefusedError(InputError):
    """Bad input that another program of Laxity's has refused: `str()` is what that has said."""

    def __init__(self, said: str) -> None:
        """Takes all of it."""
        super().__init__(said)

    def __str__(self) -> str:
        """Returns what the program said."""
        return self.message


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a host file or an override."""

    file: str
    """The name of the file as given, or `--set` for an override."""
    line: int
    """From 1."""
    column: int
    """In characters, from 1."""
    message: str
    help: str | None


class HostError(InputError):
    """A host file, or an override of it, is wrong: `str()` shows all of it, with the lines."""

    def __init__(self, plain: str, problems: tuple[Problem, ...], coloured: str) -> None:
        """Takes the same as text, as data and as text for a terminal."""
        super().__init__(problems[0].message, problems[0].help)
        self.plain = plain
        self.problems = problems
        self.coloured = coloured

    def __str__(self) -> str:
        """Every problem with its line, the place marked, and what would be right."""
        return self.plain


@contextmanager
def core_errors() -> Iterator[None]:
    """Turns what the extension module raises into these errors."""
    try:
        yield
    except InputError:
        raise
    except _core.HostError as error:
        plain, problems, coloured = error.args
        listed = tuple(Problem(**problem) for problem in json.loads(problems))
        raise HostError(plain, listed, coloured) from None
    except (ValueError, OSError) as error:
        raise InputError(str(error)) from None
