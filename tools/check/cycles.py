"""Refuses cycles: between files of a Rust crate, and between modules of a Python package.

    tools/check/cycles.py            every crate, tests and benchmarks included, and every package
    tools/check/cycles.py CRATE ...  these crates or packages: who is in a cycle, and who uses whom

The exit code is 1 if more files than `ALLOWED` are in a cycle.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))
import python_modules  # modules beside this one
import rust_modules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Graph = Mapping[str, set[str]]
    """For each name, those that it uses."""

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = {"Rust": 68, "Python": 2}
"""Files in cycles that are still there. These numbers only become smaller."""
ROOTS = ("src/lib.rs", "src/main.rs", "tests/*.rs", "tests/*/main.rs", "benches/*.rs")
ROOTS += ("benches/*/main.rs",)
"""The root files of what cargo builds of a package."""
PACKAGES = ("python/laxity", "reproduce/laxity_reproduce")


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of two names or more that use each other, directly or through others of the group."""
    order: list[str] = []
    seen: set[str] = set()
    for name in graph:
        _visit(graph, name, seen, order)
    used_by: dict[str, set[str]] = {name: set() for name in graph}
    for name, used in graph.items():
        for other in used:
            used_by[other].add(name)
    found, seen = [], set()
    for name in reversed(order):
        group: list[str] = []
        _visit(used_by, name, seen, group)
        if len(group) > 1:
            found.append(sorted(group))
    return found


def _visit(graph: Graph, start: str, seen: set[str], order: list[str]) -> None:
    """Appends what can be reached and was not seen, each after all that it uses."""
    if start in seen:
        return
    seen.add(start)
    path = [(start, iter(sorted(graph[start])))]
    while path:
        name, rest = path[-1]
        following = next((other for other in rest if other not in seen), None)
        if following is None:
            order.append(name)
            path.pop()
        else:
            seen.add(following)
            path.append((following, iter(sorted(graph[following]))))


def of_crates(root: Path) -> Iterator[tuple[str, Graph]]:
    """The files of everything that cargo builds, by crate."""
    for crate in sorted((root / "crates").iterdir()):
        for file in sorted(path for pattern in ROOTS for path in crate.glob(pattern)):
            graph = rust_modules.uses(rust_modules.crate(file))
            yield (
                crate.name,
                {
                    _name(root, path): {_name(root, other) for other in used}
                    for path, used in graph.items()
                },
            )


def _name(root: Path, path: Path) -> str:
    return path.resolve().relative_to(root).as_posix()


def of_packages(root: Path) -> Iterator[tuple[str, Graph]]:
    """The modules of every package."""
    for package in PACKAGES:
        yield Path(package).name, python_modules.uses(root / package)


def main(names: list[str]) -> int:
    """0 if no more files are in cycles than allowed."""
    is_bad = False
    for language, graphs in (("Rust", of_crates(ROOT)), ("Python", of_packages(ROOT))):
        count = 0
        for name, graph in graphs:
            groups = cycles(graph)
            count += sum(map(len, groups))
            if name in names:
                for group in groups:
                    _tell(graph, group)
        if not names and count != ALLOWED[language]:
            print(f"{language}: {count} files are in cycles, {ALLOWED[language]} are allowed")
            if count < ALLOWED[language]:
                print(f"  write the smaller number into {Path(__file__).name}")
            else:
                is_bad = True
                print(f"  `{Path(__file__).name} CRATE` shows who uses whom")
    return 1 if is_bad else 0


def _tell(graph: Graph, group: list[str]) -> None:
    print(f"a cycle of {len(group)} files:")
    for name in group:
        for other in sorted(graph[name] & set(group)):
            print(f"  {name} uses {other}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
