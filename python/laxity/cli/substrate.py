"""Options of the command line that say where a host runs, made from the substrates themselves."""

from __future__ import annotations

import inspect
from dataclasses import fields
from functools import cache, update_wrapper
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from laxity import substrates
from laxity.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from laxity.substrates.substrate import Substrate

ON = "--on"


def with_substrate(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `--on` and every substrate's options in place of its parameter `on`.

    The command gets the `Substrate` that they name. An option of another one is refused.
    """
    return with_substrates(on=(ON, substrates.NAMES[0], ""))(command)


def with_substrates(
    **chosen: tuple[str, str, str],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command an option for each named parameter: its flag, default, and help before."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def call(**values: Any) -> None:  # noqa: ANN401 - of each option's type
            classes = {name: substrates.of_name(values.pop(name)) for name in chosen}
            options = {name: values.pop(name) for name in names}
            _refuse_others(options, list(classes.values()))
            made = {
                name: each(**{field.name: options[field.name] for field in fields(each)})
                for name, each in classes.items()
            }
            command(**values, **made)

        more = _options()
        names = [each.name for each in more]
        return _presented(call, command, chosen, more)

    return decorate


def with_substrate_name(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command `--on` in place of its parameter `on`, which gets the substrate's name."""

    def call(**values: Any) -> None:  # noqa: ANN401 - of each option's type
        command(**values)

    return _presented(call, command, {"on": (ON, substrates.NAMES[0], "")}, ())


def _presented(
    call: Callable[..., None],
    command: Callable[..., None],
    chosen: Mapping[str, tuple[str, str, str]],
    more: tuple[inspect.Parameter, ...],
) -> Callable[..., None]:
    """Makes `call` look like `command` to Typer, with `more` options behind those `chosen`."""
    hints = get_type_hints(command, None, {"Substrate": object}, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for name, each in inspect.signature(command).parameters.items():
        if name in chosen:
            parameters.append(_choice(name, *chosen[name]))
        else:
            parameters.append(each.replace(annotation=hints[name]))
    last = max(place for place, each in enumerate(parameters) if each.name in chosen)
    parameters[last + 1 : last + 1] = more
    update_wrapper(call, command)
    del call.__wrapped__  # type: ignore[attr-defined]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _choice(name: str, flag: str, default: str, help: str) -> inspect.Parameter:
    """Where a command runs a host."""
    summaries = [substrates.of_name(each).summary for each in substrates.NAMES]
    which = f"{', '.join(summaries[:-1])}, or {summaries[-1]}."
    option = typer.Option(
        flag,
        metavar="|".join(substrates.NAMES),
        help=f"{help}: {which}" if help else which[0].upper() + which[1:],
    )
    annotation = Annotated[Literal[substrates.NAMES], option]  # type: ignore[valid-type]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _owners() -> dict[str, list[str]]:
    """The names of the substrates that have each option, in order."""
    owners: dict[str, list[str]] = {}
    for name in substrates.NAMES:
        for field in fields(substrates.of_name(name)):
            owners.setdefault(field.name, []).append(name)
    return owners


@cache
def _options() -> tuple[inspect.Parameter, ...]:
    """All substrates' options; one that several of them have is one option for all of these."""
    found = []
    for key, names in _owners().items():
        each = substrates.of_name(names[0])
        (of_it,) = (field.metadata for field in fields(each) if field.name == key)
        option = typer.Option(
            of_it["flag"],
            metavar=of_it["metavar"],
            help=f"With {ON} {' or '.join(names)}: {of_it['help']}",
        )
        found.append(
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                default=of_it["command_line"],
                annotation=Annotated[get_type_hints(each)[key], option],
            )
        )
    return tuple(found)


def _refuse_others(options: Mapping[str, object], used: list[type[Substrate]]) -> None:
    """Raises InputError if an option is given that is of a substrate that is not used."""
    for key, names in _owners().items():
        owners = [substrates.of_name(name) for name in names]
        (of_it,) = (field.metadata for field in fields(owners[0]) if field.name == key)
        if options[key] != of_it["command_line"] and not set(owners) & set(used):
            raise InputError(
                f"{of_it['flag']} is for {' and '.join(each.label for each in owners)}",
                f"add {ON} {' or '.join(names)}, or leave {of_it['flag']} out",
            )
