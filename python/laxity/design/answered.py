"""The host file of an answer: the user's own, with values in it."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

from laxity import _core
from laxity.errors import core_errors
from laxity.resolved import Resolved

if TYPE_CHECKING:
    from collections.abc import Iterable


def answered(
    host: Resolved, overrides: Iterable[str], values: Iterable[Iterable[str]] = ()
) -> Resolved:
    """Returns the host of a file in which overrides and values are written.

    `overrides` are as `--set` takes them, and come after those of the host; `values` are paths with
    TOML. Raises HostError if the file has no place for one.
    """
    all_values = [
        *(_as_value(override) for override in [*host.overrides, *overrides]),
        *((path, value) for path, value in values),
    ]
    with core_errors():
        text = host.file.with_values(all_values).encode()
        return Resolved(_core.HostFile(text, host.name), text, host.name, ())


def _as_value(override: str) -> tuple[str, str]:
    """An override as a path and TOML: text is quoted, as `--set` takes it."""
    path, _, value = override.partition("=")
    try:
        tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        value = json.dumps(value.strip())
    return path.strip(), value.strip()
