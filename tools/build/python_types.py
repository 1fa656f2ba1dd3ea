"""Writes Python's types of results and resolved hosts, from the JSON Schemas of the extension.

    .venv/bin/python tools/build/python_types.py [--check]

A result becomes frozen dataclasses (`laxity/results/schema.py`). A resolved host stays the
dictionary that JSON gives, since a sweep reads very many of them, and has typed dictionaries
(`laxity/resolved_schema.py`). With `--check` nothing is
written, and the exit code is 1 if a file differs from what would be written.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import textwrap
from keyword import iskeyword
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


HOST = '''\
"""A resolved host, as its JSON Schema has it: complete, in base units.

Written by tools/build/python_types.py. Do not edit.
"""

# ruff: noqa: D209

from __future__ import annotations

from typing import Literal, TypedDict
'''


def main() -> None:
    """Writes the files, or compares them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = {
        PACKAGE / "results/schema.py": RESULT
        + "".join(_dataclass(*each) for each in _definitions(_core.result_schema())),
        PACKAGE / "resolved_schema.py": HOST
        + "".join(
            _typed_dict(*each)
            for each in _definitions(_core.resolved_host_schema(), "ResolvedHost")
        ),
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


def _definitions(text: str, whole: str | None = None) -> list[tuple[str, dict[str, Any]]]:
    """The schema's types by name, each after those it is made of; `whole` is named by its title."""
    schema = json.loads(text)
    whole = whole or schema["title"]
    named: dict[str, dict[str, Any]] = {**schema.pop("$defs", {}), whole: schema}
    ordered: list[tuple[str, dict[str, Any]]] = []

    def add(name: str) -> None:
        if any(name == there for there, _ in ordered):
            return
        for part in _references(named[name]):
            add(part)
        ordered.append((name, named[name]))

    add(whole)
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


def _typed_dict(name: str, schema: dict[str, Any]) -> str:
    """A dictionary with these keys, or one of several, each of which says its `kind`."""
    kinds = [each for each in _variants(schema) if "kind" in each.get("properties", {})]
    if kinds:
        names = [_pascal(each["properties"]["kind"]["const"]) + name for each in kinds]
        parts = [_typed_dict(*each) for each in zip(names, kinds, strict=True)]
        return "".join([*parts, f"\n\n{name} = {' | '.join(names)}\n{_comment(schema).strip()}\n"])
    if "properties" not in schema:
        return _alias(name, schema)
    if any(map(iskeyword, schema["properties"])):
        keys = "".join(f"{key!r}: {_of_json(of)!r}, " for key, of in schema["properties"].items())
        return f"\n\n{name} = TypedDict({name!r}, {{{keys}}})\n{_comment(schema).strip()}\n"
    base = _type(schema) if "$ref" in schema else "TypedDict"
    lines = ["", "", f"class {name}({base}):", _comment(schema), ""]
    for key, value in schema["properties"].items():
        lines += [f"    {key}: {_of_json(value)}", _comment(value)]
    return "\n".join(lines) + "\n"


def _of_json(schema: dict[str, Any]) -> str:
    """The type as JSON gives it, with lists."""
    return re.sub(r"tuple\[(\w+), \.\.\.\]", r"list[\1]", _type(schema))


def _pascal(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("-"))


def _variants(schema: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = schema.get("oneOf") or schema.get("anyOf") or []
    return found


def _alias(name: str, schema: dict[str, Any]) -> str:
    return f"\n\n{name} = {_type(schema)}\n{_comment(schema).strip()}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema or "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema.get('enum') or [schema['const']]))}]"
    if _variants(schema):
        words = [each["const"] for each in _variants(schema) if "const" in each]
        if len(words) == len(_variants(schema)):
            return f"Literal[{', '.join(map(repr, words))}]"
        return " | ".join(dict.fromkeys(map(_type, _variants(schema))))
    if "properties" in schema:
        keys = {_type(each) for each in schema["properties"].values()}
        return f"dict[str, {' | '.join(sorted(keys))}]"
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
    """The text as `make format` leaves it, unused imports removed."""
    for arguments in (
        ["check", "--fix", "--quiet", "--select", "F401,I,UP"],
        ["format", "--quiet"],
    ):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", "types.py", "-"]
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=True)
        text = done.stdout
    return text


if __name__ == "__main__":
    main()
