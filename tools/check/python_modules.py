"""Imports between modules of a Python package, lazy ones and those for types included."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def modules(package: Path) -> dict[str, Path]:
    """Every module of a package by its full name; a package has its own name.

    A compiled module is its stub.
    """
    found = {}
    for path in sorted([*package.rglob("*.pyi"), *package.rglob("*.py")]):
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def uses(package: Path) -> dict[str, set[str]]:
    """For each module of a package, the others of the package that it imports."""
    known = modules(package)
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        is_package = path.name == "__init__.py"
        tree = ast.parse(path.read_text("utf-8"), str(path))
        imported = {_known(target, known) for target in _imports(tree, name, is_package)}
        found[name] = {target for target in imported if target is not None} - {name}
    return found


def _imports(tree: ast.Module, name: str, is_package: bool) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parts = name.split(".")
                kept = parts[: len(parts) - node.level + is_package]
                source = ".".join([*kept, *([node.module] if node.module else [])])
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _known(target: str, known: dict[str, Path]) -> str | None:
    """The module that a dotted name is, or is in."""
    while target and target not in known:
        target = target.rpartition(".")[0]
    return target or None
