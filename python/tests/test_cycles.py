"""The check for cycles reads Rust and Python as their compilers do, as far as it needs to."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools" / "check"
sys.path.insert(0, str(TOOLS))
cycles = importlib.import_module("cycles")
module_files = importlib.import_module("module_files")
rust = importlib.import_module("rust_modules")
python = importlib.import_module("python_modules")


def crate(place: Path, **files: str) -> dict[str, set[str]]:
    """The uses between the files of a crate with these; `__` in a name is a directory."""
    for name, text in {"lib": "", **files}.items():
        path = place / f"{name.replace('__', '/')}.rs"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = rust.uses(rust.crate(place / "lib.rs"))
    names = {path: path.relative_to(place).with_suffix("").as_posix() for path in found}
    return {names[path]: {names[other] for other in used} for path, used in found.items()}


LIB = "mod a; mod b; pub use a::A; pub struct Own;"


@pytest.mark.parametrize(
    ("b", "used"),
    [
        ("use crate::a::A;", {"a"}),
        ("use super::a;", {"a"}),
        ("fn f() { let x = crate::a::A::new(); }", {"a"}),
        ("use crate::{a::{A, other}, Own};", {"a", "lib"}),
        ("use crate::A;", {"a"}),  # what is re-exported is where it is defined
        ("use crate::A as B; use self::inner::X; mod inner { pub struct X; }", {"a"}),
        ("use super::*;", {"lib"}),
        ("mod inner { use super::super::a::A; }", {"a"}),
        ("use crate::Own;", {"lib"}),
        ("use std::fmt; fn a() {}", set()),
        ('// use crate::a::A;\nconst X: &str = "crate::a::A"; /* crate::a::A */', set()),
        ("fn f<'a>(x: &'a str) -> char { '\"' } const Y: &str = r#\"\"crate::a::A\"#;", set()),
        ("#[cfg(test)] mod tests { use crate::a::A; }", set()),
        ("#[cfg(test)]\n#[allow(x)]\nuse crate::a::A; use crate::Own;", {"lib"}),
    ],
)
def test_what_a_file_uses(tmp_path: Path, b: str, used: set[str]) -> None:
    assert crate(tmp_path, lib=LIB, a="pub struct A;", b=b)["b"] == used


def test_a_name_that_a_glob_brings(tmp_path: Path) -> None:
    lib = "mod a; mod b; pub use a::*;"
    assert crate(tmp_path, lib=lib, a="pub struct A;", b="use crate::A;")["b"] == {"a"}


@pytest.mark.parametrize("parent", ["a", "a__mod"])
def test_a_directory_of_modules(tmp_path: Path, parent: str) -> None:
    files = {parent: "mod inner; pub fn f() { inner::g() }", "a__inner": "use super::f;"}
    found = crate(tmp_path, lib="mod a;", **files)
    name = parent.replace("__", "/")
    assert found[name] == {"a/inner"}
    assert found["a/inner"] == {name}


def test_a_module_in_another_place(tmp_path: Path) -> None:
    lib = '#[path = "elsewhere/a.rs"] mod a; mod b;'
    found = crate(tmp_path, lib=lib, elsewhere__a="pub struct A;", b="use crate::a::A;")
    assert found["b"] == {"elsewhere/a"}


def test_a_module_beside_its_children_is_found(tmp_path: Path) -> None:
    for name in ("a.rs", "a/inner.rs", "b/mod.rs", "b/inner.rs", "c.rs", "c/program"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert list(module_files.beside_their_children(tmp_path)) == [tmp_path / "a.rs"]


def test_what_uses_itself_through_others() -> None:
    graph = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"e"}, "e": set(), "f": {"a"}}
    assert cycles.cycles(graph) == [["a", "b", "c"]]
    assert cycles.cycles({**graph, "e": {"d"}}) == [["a", "b", "c"], ["d", "e"]]


@pytest.mark.parametrize(
    "b",
    [
        "from package.a import x",
        "from package import a",
        "import package.a",
        "from . import a",
        "from .a import x",
        "def f():\n    from package import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from package.a import x",
    ],
)
def test_every_import_counts(tmp_path: Path, b: str) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name, text in {"__init__": "", "a": "x = 1", "b": b, "c": "import os"}.items():
        (package / f"{name}.py").write_text(text + "\n")
    found = python.uses(package)
    assert found["package.b"] == {"package.a"}
    assert found["package.c"] == set()


LAYERS = (("top",), ("left", "right"), ("low",))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"left": {"right", "low"}}, []),
        ({"low": {"top"}}, ["low uses top, which stands above it"]),
        ({"new": {"low"}}, ["new stands in no layer"]),
        ({"left": {"top"}, "low": {"right"}}, ["left uses top", "low uses right"]),
    ],
)
def test_arrows_run_down(change: dict[str, set[str]], said: list[str]) -> None:
    graph = {"top": {"left", "low"}, "left": set(), "right": {"low"}, "low": set(), **change}
    found = cycles.against(graph, LAYERS)
    assert len(found) == len(said)
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True))


def test_what_is_gone_has_no_layer() -> None:
    assert cycles.against({"top": set(), "left": set(), "right": set()}, LAYERS) == [
        "low is not there, but stands in a layer"
    ]


def test_parts_of_a_package() -> None:
    graph = {
        "package": {"package.a"},
        "package.a": {"package.b.c.x", "package.new.y"},
        "package.b": {"package.b.c.x"},
        "package.b.c.x": {"package.b", "package.d"},
        "package.d": {"package"},
        "package.new.y": set(),
    }
    layers = (("a",), ("b",), ("b.c", "d"))
    assert cycles.in_parts(graph, layers) == {
        "a": {"b.c", "new"},
        "b": {"b.c"},
        "b.c": {"b", "d"},
        "d": set(),
        "new": set(),
    }
