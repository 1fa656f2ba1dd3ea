"""Refuses cycles between files of a crate or a package, and arrows that run up.

It looks at every crate, tests and benchmarks included, and at every package, and shows who uses
whom in each cycle. The exit code is 1 if there is one, or if something uses what stands above it in
`LAYERS`, or does not stand there.
"""

from __future__ import annotations

import sys
import tomllib
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
ROOTS = (
    *("src/lib.rs", "src/main.rs", "tests/*.rs", "tests/*/main.rs"),
    *("benches/*.rs", "benches/*/main.rs"),
)
"""The root files of what cargo builds of a package."""
PACKAGES = ("python/laxity", "reproduce/laxity_reproduce")
LAYERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "crates": (
        ("laxity-py", "laxity-manual"),
        ("laxity-design",),
        ("laxity-sim", "laxity-analysis", "laxity-reference", "laxity-why", "laxity-observe"),
        ("laxity-xentrace", "laxity-kvmtrace"),
        ("laxity-replay",),
        ("laxity-run", "laxity-policy", "laxity-protect", "laxity-media"),
        ("laxity-host", "laxity-trace"),
        ("laxity-bandwidth", "laxity-daemon"),
        ("laxity-config", "laxity-policies", "laxity-trials"),
    ),
    "laxity": (
        ("cli",),
        ("site", "report", "serve"),
        ("appliances", "plots", "tables"),
        ("apply", "calibration", "doctor", "why", "observe"),
        ("host",),
        ("design", "fleet"),
        ("fidelity", "substrates", "servers"),
        ("telephony",),
        ("substrates.substrate",),
        ("resolved", "sweep", "voice"),
        ("results", "tracefile", "workers"),
        (
            "bound",
            "directory",
            "extras",
            "lab",
            "namespaces",
            "notebook",
            "programs",
            "shell",
            "tracefs",
        ),
        ("substrates.kernel", "substrates.names"),
        (
            "_core",
            "additions",
            "errors",
            "files",
            "media_schema",
            "observation_schema",
            "places",
            "policies",
            "progress",
            "resolved_schema",
            "statistics",
            "text",
            "trace_schema",
            "uninterrupted",
        ),
    ),
    "laxity_reproduce": (
        ("command", "report"),
        ("papers",),
        ("availability", "bandwidth", "page", "rt_xen", "soft_real_time", "telephony"),
        ("lab", "reproduction"),
        ("published", "quality", "statistics", "telephony_plots"),
    ),
}
"""What stands above what. Each uses others of its own layer and of those below."""


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


def between_crates(root: Path) -> Graph:
    """The crates that each crate is built with, tests aside."""
    found: dict[str, set[str]] = {}
    for manifest in sorted((root / "crates").glob("*/Cargo.toml")):
        content = tomllib.loads(manifest.read_text("utf-8"))
        used = {*content.get("dependencies", {}), *content.get("build-dependencies", {})}
        found[manifest.parent.name] = {name for name in used if name.startswith("laxity-")}
    return found


def against(graph: Graph, layers: tuple[tuple[str, ...], ...]) -> list[str]:
    """What runs up, and what has no layer."""
    place = {name: number for number, layer in enumerate(layers) for name in layer}
    found = [f"{name} stands in no layer" for name in sorted(graph) if name not in place]
    found += [f"{name} is not there, but stands in a layer" for name in place if name not in graph]
    return found + [
        f"{name} uses {other}, which stands above it"
        for name in sorted(graph)
        for other in sorted(graph[name])
        if place.get(other, len(layers)) < place.get(name, 0)
    ]


def in_parts(graph: Graph, layers: tuple[tuple[str, ...], ...]) -> Graph:
    """The modules of a package joined to the parts that stand in its layers.

    A module belongs to the longest name that it is or is in. The package itself is no part: it only
    collects what others import from it.
    """
    known = {name for layer in layers for name in layer}
    found: dict[str, set[str]] = {}
    for name, used in graph.items():
        part = _part(name, known)
        if part is not None:
            parts = {_part(one, known) for one in used} - {part, None}
            found.setdefault(part, set()).update(one for one in parts if one)
    return found


def _part(module: str, known: set[str]) -> str | None:
    _, _, inner = module.partition(".")
    longest = inner
    while longest and longest not in known:
        longest = longest.rpartition(".")[0]
    return longest or inner.partition(".")[0] or None


def main() -> int:
    """0 if no file is in a cycle, and no arrow runs up."""
    found = against(between_crates(ROOT), LAYERS["crates"])
    for package, graph in of_packages(ROOT):
        found += against(in_parts(graph, LAYERS[package]), LAYERS[package])
    for graphs in (of_crates(ROOT), of_packages(ROOT)):
        for _, graph in graphs:
            for group in cycles(graph):
                found.append(f"a cycle of {len(group)} files:")
                found += [
                    f"  {name} uses {other}"
                    for name in group
                    for other in sorted(graph[name] & set(group))
                ]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
