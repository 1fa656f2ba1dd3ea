"""Refuses sentences that do not start with their subject, and lines of prose that are not wrapped.

    tools/check/english.py           looks at all comments, docstrings and Markdown
    tools/check/english.py PATH ...  looks at these files and directories

CONTRIBUTING.md has the rule. What a program can see of it are openers: relative words without
anything before them (`Whose`, `From which`), `Of`, `As` and `So` in front of what they belong to,
and `See there`. A question may begin with `Which` or `Who`. The exit code is 1 if there is one.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
MARKDOWN_COLUMNS_MAX, COMMENT_COLUMNS_MAX = 100, 120
"""The longest line of prose in Markdown, and of a comment."""

OPENERS = re.compile(
    r"""
    (?: Of | Who | Whom | Whose | Which
      | As (?! \s (?: long | soon | far | root | in )\b )
      | So (?! \s far \b )
      | (?: At | By | For | From | In | On | Through | To | With ) \s (?: which | whom | whose )
      | For \s how
      | See \s there
      | That \s one \.
    ) \b
    """,
    re.VERBOSE,
)
_SENTENCE = re.compile(r"(?:^|(?<=[.!?])\s+|(?<=[.!?][)*_`])\s+)(?=\S)")
_MARKERS = re.compile(r"^(?:[-*>]|[0-9]+\.|#+)\s+")
_COMMENT = re.compile(r"^(?P<before>.*?)//[/!]?(?:\s(?P<text>.*))?$")
_TABLE = re.compile(r"^\s*//[/!]? \|")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
SUFFIXES = (".rs", ".c", ".h", ".py", ".md")


@dataclass(frozen=True)
class Offence:
    """A sentence, or a line."""

    path: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        """One line, as compilers write it."""
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"


def offences(path: str, text: str) -> Iterator[Offence]:
    """All in one file."""
    suffix = Path(path).suffix
    blocks = {".py": _of_python, ".md": _of_markdown}.get(suffix, _of_rust)
    for line, block in blocks(text):
        for sentence in _SENTENCE.split(block):
            plain = _MARKERS.sub("", sentence.strip()).lstrip("*_(")
            if OPENERS.match(plain) and not plain.rstrip("*_").endswith("?"):
                yield Offence(path, line, "opener", plain[:80])
    if suffix != ".py":  # of Python the formatter and the linter see to it
        most = MARKDOWN_COLUMNS_MAX if suffix == ".md" else COMMENT_COLUMNS_MAX
        for line, columns in enumerate(_prose(text, suffix, most), 1):
            if columns > most:
                yield Offence(path, line, "line", f"{columns} columns")


def _prose(text: str, suffix: str, most: int) -> Iterator[int]:
    """How long each line is, if it is prose that could be wrapped; else 0."""
    is_code = False
    for line in text.splitlines():
        is_code ^= suffix == ".md" and _FENCE.match(line) is not None
        is_prose = (
            not is_code and not line.lstrip().startswith(("|", "<", "#", "!["))
            if suffix == ".md"
            else line.lstrip().startswith(("//", "/*", "* ")) and not _TABLE.match(line)
        )
        can_wrap = " " in line.strip()[:most].lstrip("-*#/! ")
        yield len(line) if is_prose and can_wrap else 0


def _of_rust(text: str) -> Iterator[tuple[int, str]]:
    """Comments of Rust and C: lines that follow each other are one."""
    begun, is_code = 0, False
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        match = _COMMENT.match(line)
        said = match["text"] or "" if match and not match["before"].strip() else None
        if said is None and line.lstrip().startswith(("/*", "* ")):
            said = line.strip().removeprefix("/*").removesuffix("*/").lstrip("* ")
        if said is not None and _FENCE.match(said):
            is_code = not is_code
            said = ""
        if said and not is_code and not _MARKERS.match(said):
            begun = begun or number
            lines.append(said)
            continue
        if lines:
            yield begun, " ".join(lines)
        begun, lines = 0, []
        if said is None:
            is_code = False
            if match and match["text"] and match["before"].rstrip().endswith((",", ";", "{", ")")):
                yield number, match["text"]
        elif said and not is_code:
            begun, lines = number, [said]


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    """Docstrings, those of attributes too, by paragraph, and comments."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            content = node.value.value
            if isinstance(content, str):
                for paragraph in content.split("\n\n"):
                    yield node.lineno, " ".join(paragraph.split())
    begun = last = 0
    lines: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        said = token.string.lstrip("#!: ")
        if said.startswith(("noqa", "type:")):
            continue
        if token.start[0] != last + 1 and lines:
            yield begun, " ".join(lines)
            lines = []
        begun = begun if lines else token.start[0]
        last = token.start[0]
        lines.append(said)
    if lines:
        yield begun, " ".join(lines)


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs and items, without code and tables."""
    begun, is_code = 0, False
    lines: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_fence = _FENCE.match(line) is not None
        is_code ^= is_fence
        said = line.strip()
        is_skipped = is_code or is_fence or not said or said.startswith("|")
        if (is_skipped or _MARKERS.match(said)) and lines:
            yield begun, " ".join(lines)
            lines = []
        if not is_skipped:
            begun = begun if lines else number
            lines.append(said)


def main(paths: list[str]) -> int:
    """0 if there is none."""
    listed = subprocess.run(
        ["git", "ls-files", *paths],  # noqa: S607
        cwd=ROOT if not paths else None,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    base = Path() if paths else ROOT
    files = [name for name in listed if name.endswith(SUFFIXES) and (base / name).exists()]
    found = [one for name in files for one in offences(name, (base / name).read_text("utf-8"))]
    print("".join(f"{one}\n" for one in found), end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
