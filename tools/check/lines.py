"""Counts the lines of product code: code, comments and all, without tests.

    tools/check/lines.py [CHECKOUT ...]    this checkout, or others beside one another

Tests, benchmarks, fuzzers and what is in `tools/` are no product. Parts of Rust files that are only
built for tests are left out. Comments are whole lines of them, docstrings included.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {
    ".rs": "Rust",
    ".c": "C",
    ".h": "C",
    ".def": "C",
    ".py": "Python",
    ".pyi": "Python",
    ".sh": "shell",
    "": "shell",
}
NO_PRODUCT = re.compile(r"(^|/)(tests?|benches|bench|fuzz|tools|docs|\.ci)/|(^|/)tests\.rs$")
_TESTS_IN_RUST = re.compile(r"^#\[cfg\(test\)\]\n(?:.*\n)?mod \w+ \{\n(?:.*\n)*?\}\n", re.MULTILINE)


def count(root: Path) -> Counter[tuple[str, str]]:
    """Lines by language and kind: `code`, `comments`, `all` (blank ones included)."""
    found: Counter[tuple[str, str]] = Counter()
    listed = subprocess.run(
        ["git", "ls-files"],  # noqa: S607
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:
        path = root / name
        language = LANGUAGES.get(path.suffix)
        if language is None or NO_PRODUCT.search(name) or not path.is_file():
            continue
        if path.suffix == "" and not path.read_bytes().startswith(b"#!"):
            continue
        text = path.read_text("utf-8")
        if language == "Rust":
            text = _TESTS_IN_RUST.sub("", text)
        comments = _in_python(text) if language == "Python" else _comments(text, language)
        lines = text.splitlines()
        blank = sum(not line.strip() for line in lines)
        found[language, "all"] += len(lines)
        found[language, "comments"] += comments
        found[language, "code"] += len(lines) - blank - comments
    return found


def _comments(text: str, language: str) -> int:
    starts = ("#",) if language == "shell" else ("//", "/*", "* ", "*/")
    return sum(line.lstrip().startswith(starts) for line in text.splitlines())


def _in_python(text: str) -> int:
    found: set[int] = set()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[: token.start[1]].strip():
            found.add(token.start[0])
    return sum(bool(lines[number - 1].strip()) for number in found)


def main(checkouts: list[str]) -> None:
    """Prints a table."""
    roots = [Path(name).resolve() for name in checkouts] or [ROOT]
    counts = [count(root) for root in roots]
    width = max(len(str(root)) for root in roots)
    print(f"{'':{width}}  {'':8} {'code':>8} {'comments':>9} {'all':>8}")
    for root, found in zip(roots, counts, strict=True):
        for language in (*dict.fromkeys(LANGUAGES.values()), "together"):
            of = (
                [sum(found[one, kind] for one in set(LANGUAGES.values())) for kind in KINDS]
                if language == "together"
                else [found[language, kind] for kind in KINDS]
            )
            print(f"{root!s:{width}}  {language:8} {of[0]:8,} {of[1]:9,} {of[2]:8,}")


KINDS = ("code", "comments", "all")

if __name__ == "__main__":
    main(sys.argv[1:])
