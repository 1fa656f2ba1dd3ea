"""Writes how much of each paper is reproduced into docs/results/index.md and README.md.

python tools/pages/reproduced.py [--check]

The numbers are added up from the tables at the head of the results pages, which
`laxity reproduce … --docs` writes.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"

PAPERS = {
    "EMSOFT 2011": ("rt-xen", "xen", "kvm"),
    "IPTComm 2009": ("telephony",),
    "VEE 2010": ("soft-real-time",),
    "CCNC 2012": ("bandwidth", "bandwidth-linux", "bandwidth-xen"),
    "IMSAA 2010": ("availability", "availability-linux"),
}
"""The pages of each paper, by where the paper was published."""

ROW = re.compile(r"^\| [^|]+ \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
"""An experiment in the table at the head of a page: rows, reproduced, differ."""

TITLE = re.compile(
    r"^# (?P<paper>.*): published and ours(?:, on (?P<substrate>\w+))?$", re.MULTILINE
)
"""The title of a page."""

SUBSTRATES = {
    None: "simulator",
    "Xen": "real Xen",
    "KVM": "emulated KVM",
    "Linux": "real packets",
}
"""What a page's experiments ran on, by the end of its title."""

BEGIN, END = "<!-- reproduced: begin -->\n", "<!-- reproduced: end -->"

PLACES = {ROOT / "README.md": "docs/results/", RESULTS / "index.md": ""}
"""The files that contain the table, and where the results are from there."""


@dataclass(frozen=True)
class Count:
    """How many rows one page compares, and how they came out."""

    rows: int
    reproduced: int
    differ: int


def count(page: str) -> Count:
    """The sums over the experiments of a page; a page without any is a mistake."""
    found = [tuple(map(int, row.groups())) for row in ROW.finditer(page)]
    rows, reproduced, differ = (sum(of) for of in zip(*found, strict=True))
    if rows != reproduced + differ:
        raise ValueError(f"{rows} rows, but {reproduced} reproduced and {differ} differ")
    return Count(rows, reproduced, differ)


def table(directory: str) -> str:
    """The table, with links to pages in `directory`."""
    lines = ["| paper | where | rows reproduced | rows that differ |", "|---|---|--:|--:|"]
    for venue, pages in PAPERS.items():
        for name in pages:
            page = (RESULTS / f"{name}.md").read_text()
            of, title = count(page), TITLE.search(page)
            if title is None:
                raise ValueError(f"{name}.md has no title of a paper")
            # A paper is named in the first of its rows.
            paper = f"*{title['paper']}* ({venue})" if name == pages[0] else ""
            where = f"[{SUBSTRATES[title['substrate']]}]({directory}{name}.md)"
            lines.append(f"| {paper} | {where} | {of.reproduced} of {of.rows} | {of.differ} |")
    return "\n".join(lines) + "\n"


def filled(text: str, directory: str) -> str:
    """The text with the table between its marks."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(directory)}\n{END}{after}"


def main() -> int:
    """Writes the tables, or says whether they are up to date."""
    stale = [
        path
        for path, directory in PLACES.items()
        if path.read_text() != filled(path.read_text(), directory)
    ]
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            print(f"{path.name} is not what the results say; run tools/pages/reproduced.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(filled(path.read_text(), PLACES[path]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
