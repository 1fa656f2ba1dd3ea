#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Moves every pointer of a unit of LLVM's textual IR into the BPF arena.

    arena.py <policy.ll >policy.arena.ll

C has an address space for each pointer in its type, and the policies say none, since Xen and the
simulator have but one. In BPF the policies' data lies in the arena, whose pointers LLVM knows by
address space 1. With opaque pointers a unit has one type of pointers, `ptr`, so that moving them
all is changing that type: `ptr` becomes `ptr addrspace(1)`, in no string and no name.

Assignments of structures are copies (llvm.memcpy), which LLVM 19's back end for BPF does not make in
that address space: they become loads and stores of words.

That is right only where no pointer leads anywhere else. What would lead to the stack (alloca), to
functions or to global variables is refused: the optimizer has removed all of it when the policy is
written for that.
"""

from __future__ import annotations

import itertools
import re
import sys

ELSEWHERE = {
    r"\balloca\b": "memory on the stack, which is not in the arena",
    r"^@": "a global variable, which is not in the arena",
    r"\bllvm\.mem": "a copy or a setting of memory whose size or kind is not known here",
    r"\bcall\b[^@\"]*%[\w.]+\(": "a call through a pointer",
}
TOKEN = re.compile(r'"[^"]*"|[@%!$][\w.$-]+|\bptr\b')
"""Strings and names, which stay, or the type."""

COPY = re.compile(
    r"call void @llvm\.memcpy\.p0\.p0\.i64\("
    r"ptr [^%,]*(?P<into>%[\w.]+), ptr [^%,]*(?P<source>%[\w.]+), i64 (?P<size>\d+), i1 false\)"
)
WORDS = (8, 4, 2, 1)
"""In bytes."""


def words(copy: re.Match[str], place: int) -> str:
    """Returns the loads and stores of one copy, the `place`-th of the unit."""
    lines, offset, size = [], 0, int(copy["size"])
    while offset < size:
        width = next(width for width in WORDS if offset % width == 0 and offset + width <= size)
        name = f"%copy.{place}.{offset}"
        for end in ("into", "source"):
            element = f"getelementptr inbounds i8, ptr {copy[end]}, i64 {offset}"
            lines.append(f"  {name}.{end} = {element}\n")
        lines.append(f"  {name} = load i{8 * width}, ptr {name}.source, align {width}\n")
        lines.append(f"  store i{8 * width} {name}, ptr {name}.into, align {width}\n")
        offset += width
    return "".join(lines)


def main() -> None:
    function = ""
    unit = sys.stdin.read()
    copies = itertools.count()
    unit = re.sub(
        rf"^.*{COPY.pattern}.*\n", lambda copy: words(copy, next(copies)), unit, flags=re.MULTILINE
    )
    for line in unit.splitlines(keepends=True):
        code = re.sub(r'"[^"]*"', '""', line)
        if code.startswith("define"):
            function = code.split("@")[1].split("(")[0]
        if not code.startswith(("!", ";", "declare")):
            for pattern, what in ELSEWHERE.items():
                if re.search(pattern, code):
                    sys.exit(f"arena.py: {function}: {what}: {line.strip()}")
        sys.stdout.write(
            TOKEN.sub(lambda token: "ptr addrspace(1)" if token[0] == "ptr" else token[0], line)
        )


if __name__ == "__main__":
    main()
