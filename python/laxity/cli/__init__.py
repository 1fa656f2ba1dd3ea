"""The command line parses words, calls the API and prints. It computes nothing itself.

Each command is a module of this package, with a `Typer` named `app`; other distributions add theirs
as `laxity.additions` says. A command's module is imported when the command is called or when its
help is asked for, and itself imports what it needs only when it runs, so that help appears at once.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.core import TyperGroup

from laxity import _core, additions
from laxity.cli.ended import EndedError, end_tidily
from laxity.errors import HostError, InputError
from laxity.lab.errors import LabError
from laxity.text import visible

if TYPE_CHECKING:
    from typer._click.core import Command, Context
    from typer._click.formatting import HelpFormatter

BAD_INPUT = 2
FAILED_MACHINE = 3
OUR_MISTAKE = 70
INTERRUPTED = 130

TRACEBACK_VARIABLE = "LAXITY_TRACEBACK"

COMMANDS = (
    *("check", "design", "run", "compare", "sweep", "capacity", "calibrate", "fidelity"),
    *("why", "observe", "doctor", "trace", "diff", "report", "voice", "policies"),
    *("apply", "bandwidth", "protect", "sched", "site", "appliance", "lab", "schema"),
    "serve",
)
"""The commands of this package, in the order of the help."""


class Commands(TyperGroup):
    """The commands, each of which is imported when it is needed."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Returns all names: those of this package, then those of others."""
        del ctx
        return [*COMMANDS, *additions.names()]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """Returns the command of that name; None if there is none."""
        del ctx
        if cmd_name not in self.commands:
            app = _app_of(cmd_name)
            if app is None:
                _refuse_command_of_extra(cmd_name)
                return None
            self.commands[cmd_name] = typer.main.get_command(app)
            self.commands[cmd_name].name = cmd_name
        return self.commands[cmd_name]

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Writes a sentence for each command, without making the command with all its options."""
        apps = {name: _app_of(name) for name in self.list_commands(ctx)}
        rows = [(name, _summary(app)) for name, app in apps.items() if app]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _summary(app: typer.Typer) -> str:
    """The first paragraph of a command's help."""
    text = app.info.help
    if not isinstance(text, str):  # Typer's mark that an app of one command has no help itself
        text = app.registered_commands[0].callback.__doc__
    return " ".join((text or "").partition("\n\n")[0].split())


def _refuse_command_of_extra(name: str) -> None:
    """Raises InputError if only an extra that is not installed has the command."""
    from laxity import extras

    missing = extras.missing_command(name)
    if missing is not None:
        raise missing


def _app_of(name: str) -> typer.Typer | None:
    if name in COMMANDS:
        module = import_module(f"laxity.cli.{name}")
    elif name in additions.names():
        module = additions.module(name, "command")
    else:
        return None
    app: typer.Typer = module.app
    return app


def _show_version(value: bool) -> None:
    if value:
        print(f"laxity {_core.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="laxity",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 all well; 1 a verdict failed (check, design, diff, reproduce, "
    "run --check-determinism, and with --strict run, compare, sweep, capacity); 2 bad input; "
    "3 the machine failed (--on xen, --on kvm, apply).",
)


@app.callback()
def laxity(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Know how late your virtual machines can be, and keep them inside it."""
    del version


def main() -> NoReturn:
    """Runs the command line and ends the process; no traceback unless LAXITY_TRACEBACK is set."""
    try:
        end_tidily()
        sys.exit(guarded())
    except EndedError as end:
        end.end_process()


def guarded() -> int:
    """Runs the command line of `sys.argv`; returns the exit code."""
    try:
        code = _called()
        # What cannot be written is to be told while somebody can tell it.
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except EndedError:
        raise
    except LabError as error:
        _explain(error)
        return FAILED_MACHINE
    except (InputError, OSError) as error:
        _explain(error)
        return BAD_INPUT
    except BaseException as error:  # noqa: BLE001 - a panic of the extension module is no Exception
        return _ask_for_extra(error) or _admit(error)
    return code


def _called() -> int:
    try:
        app()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


def _ask_for_extra(error: BaseException) -> int | None:
    """Names the extra that has a missing module and returns the exit code; None if none has it."""
    from laxity import extras

    missing = extras.missing(error) if isinstance(error, ModuleNotFoundError) else None
    if missing is None:
        return None
    _explain(missing)
    return BAD_INPUT


def _explain(error: InputError | OSError) -> None:
    if isinstance(error, HostError):
        print(error.coloured if _takes_colour() else error.plain, file=sys.stderr)
    else:
        text = str(error) if isinstance(error, InputError) else f"error: {error}"
        print(visible(text), file=sys.stderr)


def _takes_colour() -> bool:
    from rich.console import Console

    console = Console(stderr=True)
    return console.is_terminal and not console.no_color


def _admit(error: BaseException) -> int:
    if os.environ.get(TRACEBACK_VARIABLE) == "1":
        import traceback

        traceback.print_exception(error)
        return OUR_MISTAKE
    message = (
        f"error: a mistake in laxity itself: {type(error).__name__}: {error}\n"
        f"  help: please report it, with what {TRACEBACK_VARIABLE}=1 shows"
    )
    print(visible(message), file=sys.stderr)
    return OUR_MISTAKE
