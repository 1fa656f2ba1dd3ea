"""Writes Python's types of results, hosts and traces, from the JSON Schemas of the extension.

    .venv/bin/python tools/build/python_types.py [--check]

A result becomes frozen dataclasses (`laxity/results/schema.py`). A resolved host stays the
dictionary that JSON gives, since a sweep reads very many of them, and has typed dictionaries
(`laxity/resolved_schema.py`), as have what traces say (`laxity/trace_schema.py`), what is observed
of a host (`laxity/observation_schema.py`) and the reports of `laxity-media`
(`laxity/media_schema.py`). With `--check` nothing is written, and the exit code is 1 if a
file differs from what would be written.
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
from typing import TypedDict

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


DICTIONARIES = '''\
"""{}

Written by tools/build/python_types.py. Do not edit.
"""

# ruff: noqa: D209

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict
'''

HOST = "A resolved host, as its JSON Schema has it: complete, in base units."
TRACE = "What traces say, and what is made of them and measured beside them, as JSON."
OBSERVATION = "What is observed of a host, as JSON."
MEDIA = "The reports of `laxity-media --json`."

TUPLE = re.compile(r"tuple\[((?!tuple)[\w\[\] |]+)(?:, (?:\1|\.\.\.))*\]")
"""An innermost tuple whose parts are of one type."""

Schema = TypedDict(
    "Schema",
    {
        "$defs": dict[str, "Schema"],
        "$ref": str,
        "title": str,
        "description": str,
        "type": str | list[str],
        "const": str,
        "enum": list[str],
        "oneOf": list["Schema"],
        "anyOf": list["Schema"],
        "properties": dict[str, "Schema"],
        "required": list[str],
        "items": "Schema",
        "prefixItems": list["Schema"],
    },
    total=False,
)
"""A JSON Schema, as far as the types are made of it."""


def main() -> None:
    """Writes the files, or compares them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = {
        PACKAGE / "results/schema.py": RESULT
        + "".join(_dataclass(*each) for each in _definitions(_core.result_schema())),
        PACKAGE / "resolved_schema.py": _dictionaries(
            HOST, _core.resolved_host_schema(), "ResolvedHost"
        ),
        PACKAGE / "trace_schema.py": _dictionaries(TRACE, _core.trace_schema()),
        PACKAGE / "observation_schema.py": _dictionaries(OBSERVATION, _core.observation_schema()),
        PACKAGE / "media_schema.py": _dictionaries(MEDIA, _core.media_schema()),
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


def _dictionaries(about: str, schema: str, whole: str | None = None) -> str:
    """A module of typed dictionaries."""
    types = (_typed_dict(*each) for each in _definitions(schema, whole))
    return "".join([DICTIONARIES.format(about), *types])


def _definitions(text: str, whole: str | None = None) -> list[tuple[str, Schema]]:
    """The schema's types by name, each after those it is made of; `whole` is named by its title."""
    schema: Schema = json.loads(text)
    named = schema.pop("$defs", {})
    if "type" in schema:
        named[whole or schema["title"]] = schema
    ordered: list[tuple[str, Schema]] = []

    def add(name: str) -> None:
        if any(name == there for there, _ in ordered):
            return
        for part in _references(named[name]):
            add(part)
        ordered.append((name, named[name]))

    for name in named:
        add(name)
    return ordered


def _references(schema: object) -> list[str]:
    if isinstance(schema, list):
        return [name for each in schema for name in _references(each)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].rpartition("/")[2]] if "$ref" in schema else []
    return own + [name for each in schema.values() for name in _references(each)]


def _dataclass(name: str, schema: Schema) -> str:
    if "properties" not in schema:
        return _alias(name, schema)
    required = schema.get("required", [])
    lines = ["", "", "@dataclass(frozen=True, kw_only=True)", f"class {name}:"]
    lines += [_comment(schema), ""]
    for key, value in schema["properties"].items():
        default = "" if key in required else " = None"
        lines += [f"    {key}: {_type(value)}{default}", _comment(value)]
    return "\n".join(lines) + "\n"


def _typed_dict(name: str, schema: Schema) -> str:
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
    required = schema.get("required", [])
    for key, value in schema["properties"].items():
        kind = _of_json(value)
        if key not in required:
            # Rust leaves such a key out, and never says null.
            kind = f"NotRequired[{kind.removesuffix(' | None')}]"
        lines += [f"    {key}: {kind}", _comment(value)]
    return "\n".join(lines) + "\n"


def _of_json(schema: Schema) -> str:
    """The type as JSON gives it, with lists."""
    name, parts = _type(schema), 1
    while parts:
        name, parts = TUPLE.subn(r"list[\1]", name)
    return name


def _pascal(word: str) -> str:
    return "".join(part.capitalize() for part in word.split("-"))


def _variants(schema: Schema) -> list[Schema]:
    found: list[Schema] = schema.get("oneOf") or schema.get("anyOf") or []
    return found


def _alias(name: str, schema: Schema) -> str:
    return f"\n\n{name} = {_type(schema)}\n{_comment(schema).strip()}\n"


def _type(schema: Schema) -> str:
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


def _items(schema: Schema) -> str:
    if "prefixItems" in schema:
        return ", ".join(map(_type, schema["prefixItems"]))
    return f"{_type(schema['items'])}, ..."


def _comment(schema: Schema) -> str:
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
        ["check", "--fix", "--quiet", "--select", "D209,F401,I,RUF100,UP"],
        ["format", "--quiet"],
    ):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", "types.py", "-"]
        done = subprocess.run(command, input=text, text=True, capture_output=True, check=True)
        text = done.stdout
    return text


if __name__ == "__main__":
    main()
