"""What the papers state, and the host files of their experiments: the files beside this module."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import Any


def facts(paper: str) -> dict[str, Any]:
    """The numbers that a paper states: its table of `published.toml`, such as "rt_xen"."""
    text = files(__package__).joinpath("published.toml").read_text("utf-8")
    paper_facts: dict[str, Any] = tomllib.loads(text)[paper]
    return paper_facts


def host_file(paper: str, name: str) -> bytes:
    """The host file of an experiment, such as "rt_xen", "even"."""
    return files(__package__).joinpath(paper, "hosts", f"{name}.toml").read_bytes()


def percentage_text(claim: str) -> str:
    """The first percentage of a sentence as it stands there: "1-2" from "1-2 % may seem low"."""
    found = re.search(r"[0-9][0-9.-]*(?= %)", claim)
    assert found is not None, claim  # noqa: S101 - the claims are ours
    return found[0]


def percentages(claim: str) -> list[float]:
    """The percentages in a sentence, in order: 85.0 from "nearly 85 %"."""
    return [float(number) for number in re.findall(r"(\d+(?:\.\d+)?) %", claim)]
