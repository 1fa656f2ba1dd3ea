"""Uses between the files of a Rust crate, read from its sources.

A file uses another if it names, in a `use` or in any path, something that is defined there. What
is re-exported on the way is followed to where it is defined, so that a file that only collects
others (`lib.rs`) is not in the way. Tests inside of files (`#[cfg(test)]`) do not count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TOKEN = re.compile(
    r"""
    (?P<skip> \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<text> b?r(?P<hashes>\#*)".*?"(?P=hashes) | [bc]?"(?:\\.|[^"\\])*"
        | b?'(?:\\[^']+|[^'\\])' )
    | (?P<lifetime> '[A-Za-z_]\w* )
    | (?P<word> (?:r\#)?[A-Za-z_]\w* )
    | (?P<number> [0-9][\w.]* )
    | (?P<sign> :: | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_DEFINES = frozenset({"struct", "enum", "fn", "trait", "type", "const", "static", "union"})
_HEADS = frozenset({"crate", "self", "super"})
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


@dataclass
class Module:
    """A module: a file, or a part of one."""

    path: tuple[str, ...]
    """From the crate's root on."""
    file: Path
    children: dict[str, Module] = field(default_factory=dict)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What `use` brings into scope: the path it was written with."""
    globs: list[tuple[str, ...]] = field(default_factory=list)
    defined: set[str] = field(default_factory=set)
    paths: set[tuple[str, ...]] = field(default_factory=set)
    """Every path that the module names."""


def tokens(text: str) -> list[str]:
    """Words, signs and literals, without comments."""
    return [
        match[0].removeprefix("r#") if match["word"] else match[0]
        for match in _TOKEN.finditer(text)
        if match["skip"] is None and match["lifetime"] is None
    ]


def crate(root: Path) -> Module:
    """Reads a crate from its root file on."""
    module = Module((), root)
    _read_file(module, root, root.parent)
    return module


def uses(root: Module) -> dict[Path, set[Path]]:
    """For each file of the crate, the others that it uses."""
    found: dict[Path, set[Path]] = {}
    for module in _all(root):
        of_file = found.setdefault(module.file, set())
        for path in module.paths:
            target = _resolve(root, module, path, frozenset())
            if target is not None and target != module.file:
                of_file.add(target)
    return found


def _all(module: Module) -> Iterator[Module]:
    yield module
    for child in module.children.values():
        yield from _all(child)


# Reading


def _read_file(module: Module, file: Path, directory: Path) -> None:
    """Reads a module from its file; its children's files are in `directory`."""
    words = _without_tests(tokens(file.read_text("utf-8")))
    end = _read(module, words, 0, directory)
    if end < len(words):
        message = f"{file}: a bracket too many"
        raise ValueError(message)


def _without_tests(words: list[str]) -> list[str]:
    """Leaves out what is only there when tests are built."""
    marker = ["#", "[", "cfg", "(", "test", ")", "]"]
    found: list[str] = []
    at = 0
    while at < len(words):
        if words[at : at + len(marker)] != marker:
            found.append(words[at])
            at += 1
            continue
        at += len(marker)
        while words[at] == "#":  # more attributes
            at = _closed(words, at + 1)
        while words[at] not in {"{", ";"}:
            at = _closed(words, at) if words[at] in _OPEN else at + 1
        at = _closed(words, at) if words[at] == "{" else at + 1
    return found


def _closed(words: list[str], at: int) -> int:
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    while True:
        depth += (words[at] in _OPEN) - (words[at] in _CLOSE)
        at += 1
        if depth == 0:
            return at


def _read(module: Module, words: list[str], at: int, directory: Path) -> int:
    """Reads up to the end of the module; returns where that is."""
    depth = 0
    while at < len(words):
        word = words[at]
        if word == "}" and depth == 0:
            return at
        depth += (word == "{") - (word == "}")
        after = words[at + 1] if at + 1 < len(words) else ""
        if word == "use" and (after in {"{", "::"} or after.isidentifier()):
            at = _use(module, words, at + 1, ())
            continue
        if word == "mod" and after.isidentifier() and words[at + 2] in {";", "{"}:
            at = _mod(module, words, at, directory)
            continue
        if word in _DEFINES and after.isidentifier() and depth == 0:
            module.defined.add(after)
        if word.isidentifier() and after == "::" and words[at - 1 : at] != ["::"]:
            at = _path(module, words, at)
            continue
        at += 1
    return at


def _path(module: Module, words: list[str], at: int) -> int:
    segments = [words[at]]
    while at + 2 < len(words) and words[at + 1] == "::" and words[at + 2].isidentifier():
        segments.append(words[at + 2])
        at += 2
    module.paths.add(tuple(segments))
    return at + 1


def _mod(module: Module, words: list[str], at: int, directory: Path) -> int:
    name = words[at + 1]
    if words[at + 2] == "{":
        child = Module((*module.path, name), module.file)
        module.children[name] = child
        return _read(child, words, at + 3, directory / name) + 1
    places = [(directory / f"{name}.rs", directory / name)]
    places.append((directory / name / "mod.rs", directory / name))
    if words[at - 6 : at - 2] == ["#", "[", "path", "="]:
        file = module.file.parent / words[at - 2].strip('"')
        places = [(file, file.parent)]
    for file, below in places:
        if file.exists():
            child = Module((*module.path, name), file)
            module.children[name] = child
            _read_file(child, file, below)
            break
    return at + 3


def _use(module: Module, words: list[str], at: int, before: tuple[str, ...]) -> int:
    """Reads one tree of a `use`; returns where the sign behind it is."""
    segments = list(before)
    while True:
        word = words[at]
        if word == "{":
            at += 1
            while words[at] != "}":
                at = _use(module, words, at, tuple(segments))
                at += words[at] == ","
            return at + 1
        if word == "*":
            module.globs.append(tuple(segments))
            module.paths.add((*segments, "*"))
            return at + 1
        if word == "::":
            at += 1
            continue
        if word in {"}", ",", ";"}:
            break
        if word == "as":
            _bring(module, tuple(segments), words[at + 1])
            return at + 2
        segments.append(word)
        at += 1
    _bring(module, tuple(segments), segments[-1])
    return at


def _bring(module: Module, path: tuple[str, ...], name: str) -> None:
    if path[-1] == "self":
        path = path[:-1]
        name = path[-1] if name == "self" else name
    module.names[name] = path
    module.paths.add(path)


# Resolving


def _resolve(
    root: Module, module: Module, path: tuple[str, ...], seen: frozenset[tuple[object, ...]]
) -> Path | None:
    """The file that defines what a path of `module` names; None if that is another crate's."""
    if (module.path, path) in seen:
        return None
    seen |= {(module.path, path)}
    head, rest = path[0], path[1:]
    parent = _at(root, module.path[:-1])
    start = {**module.children, "crate": root, "self": module, "super": parent}.get(head)
    if start is not None:
        return _within(root, start, rest, seen)
    if head in module.names and module.names[head] != path:
        return _resolve(root, module, (*module.names[head], *rest), seen)
    return None


def _within(
    root: Module, module: Module, path: tuple[str, ...], seen: frozenset[tuple[object, ...]]
) -> Path | None:
    """The same for a path that goes on from a module."""
    if not path or path[0] == "*":
        return module.file
    head, rest = path[0], path[1:]
    if head == "super":
        return _within(root, _at(root, module.path[:-1]), rest, seen)
    if head in module.children:
        return _within(root, module.children[head], rest, seen)
    if head in module.names and head not in module.defined:
        return _resolve(root, module, (*module.names[head], *rest), seen)
    brought = (_through(root, module, (*glob, head), seen) for glob in module.globs)
    found = None if head in module.defined else next(filter(None, brought), None)
    return found or module.file


def _through(
    root: Module, module: Module, path: tuple[str, ...], seen: frozenset[tuple[object, ...]]
) -> Path | None:
    """The file that defines a name which a glob may bring; None if it does not."""
    target = _module_of(root, module, path[:-1])
    if target is None or (target.path, path) in seen:
        return None
    name = path[-1]
    if name in target.children or name in target.defined or name in target.names:
        return _within(root, target, (name,), seen)
    return None


def _module_of(root: Module, module: Module, path: tuple[str, ...]) -> Module | None:
    found = root if path[0] == "crate" else module
    for segment in path:
        if segment in {"crate", "self"}:
            continue
        if segment == "super":
            found = _at(root, found.path[:-1])
        elif segment in found.children:
            found = found.children[segment]
        else:
            return None
    return found


def _at(root: Module, path: tuple[str, ...]) -> Module:
    for name in path:
        root = root.children[name]
    return root
