"""Writes Python's types of results, from the JSON Schema of the extension.

    .venv/bin/python tools/build/python_types.py [--check]

A result becomes frozen dataclasses (`laxity/results/schema.py`). With `--check` nothing is
written, and the exit code is 1 if a file differs from what would be written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from laxity import _core

PACKAGE = Path(__file__).parents[2] / "python/laxity"
COLUMNS = 100
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

RESULT = '''\
"""The result of a run, as its JSON Schema has it (`laxity schema result`).

Written by tools/build/python_types.py. Do not edit.
"""

# ruff: noqa: D209

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
'''


def main() -> None:
    """Writes the files, or compares them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = {
        PACKAGE / "results/schema.py": RESULT
        + "".join(_dataclass(*each) for each in _definitions(_core.result_schema())),
    }
    stale = []
    for path, text in files.items():
        formatted = _formatted(text)
        if not check:
            path.write_text(formatted, "utf-8")
        elif not path.exists() or path.read_text("utf-8") != formatted:
            stale.append(path)
    for path in stale:
        print(f"{path} is not what tools/build/python_types.py writes", file=sys.stderr)
    sys.exit(bool(stale))


def _definitions(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The schema's types by name, each after those that it is made of."""
    schema = json.loads(text)
    named: dict[str, dict[str, Any]] = {**schema.pop("$defs", {}), schema["title"]: schema}
    ordered: list[tuple[str, dict[str, Any]]] = []

    def add(name: str) -> None:
        if any(name == there for there, _ in ordered):
            return
        for part in _references(named[name]):
            add(part)
        ordered.append((name, named[name]))

    add(schema["title"])
    return ordered


def _references(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [name for each in schema for name in _references(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].rpartition("/")[2]] if "$ref" in schema else []
    return own + [name for each in schema.values() for name in _references(each)]


def _dataclass(name: str, schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return _alias(name, schema)
    required = schema.get("required", [])
    lines = ["", "", "@dataclass(frozen=True, kw_only=True)", f"class {name}:"]
    lines += [_comment(schema), ""]
    for key, value in schema["properties"].items():
        default = "" if key in required else " = None"
        lines += [f"    {key}: {_type(value)}{default}", _comment(value)]
    return "\n".join(lines) + "\n"


def _variants(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = schema.get("oneOf") or schema.get("anyOf") or []
    return found


def _alias(name: str, schema: dict[str, Any]) -> str:
    return f"\n\n{name} = {_type(schema)}\n{_comment(schema).strip()}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    if _variants(schema):
        words = [each["const"] for each in _variants(schema) if "const" in each]
        if len(words) == len(_variants(schema)):
            return f"Literal[{', '.join(map(repr, words))}]"
        return " | ".join(dict.fromkeys(map(_type, _variants(schema))))
    kinds = schema.get("type", [])
    names = [kinds] if isinstance(kinds, str) else kinds
    return " | ".join(
        f"tuple[{_items(schema)}]" if kind == "array" else SIMPLE[kind] for kind in names
    )


def _items(schema: dict[str, Any]) -> str:
    if "prefixItems" in schema:
        return ", ".join(map(_type, schema["prefixItems"]))
    return f"{_type(schema['items'])}, ..."


def _comment(schema: dict[str, Any]) -> str:
    """The description as a docstring, whose lines are as long as those of other files."""
    text = " ".join(schema.get("description", "").split()).replace("\\", "\\\\")
    if not text:
        return ""
    if len(text) + len('    """"""') <= COLUMNS:
        return f'    """{text}"""'
    lines = textwrap.wrap(f'"""{text}', COLUMNS - 4)
    if len(lines[-1]) + 7 > COLUMNS:
        lines.append("")
    return textwrap.indent("\n".join(lines) + '"""', "    ")


def _formatted(text: str) -> str:
    """As `make format` leaves it, unused imports removed."""
    for arguments in (["check", "--fix", "--quiet", "--select", "F401,UP"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", "types.py", "-"]
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=True)
        text = done.stdout
    return text


if __name__ == "__main__":
    main()
