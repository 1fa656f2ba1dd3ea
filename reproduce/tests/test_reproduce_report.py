"""The report on a reproduction, which the package adds to Laxity's own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import laxity
import numpy as np
import pandas as pd
from html_report import read
from laxity.directory import Manifest

if TYPE_CHECKING:
    from pathlib import Path


def reproduction(directory: Path) -> Path:
    directory.mkdir()
    Manifest("reproduce", None, ()).save(directory)
    rows = [
        {"what": "misses <30 %", "published": 0, "ours": 0.0, "verdict": "reproduced", "why": ""},
        {"what": "all", "published": [1, 2.5], "ours": None, "verdict": "differs", "why": "a & b"},
    ]
    names = ("figure-5", "figure-6", "table-1")
    content = {"paper": "rt-xen", "experiments": [{"name": name, "rows": rows} for name in names]}
    (directory / "reproduce.json").write_text(json.dumps(content), "utf-8")
    return directory


def test_reproduce_without_data(tmp_path: Path) -> None:
    document = read(reproduction(tmp_path / "reproduce"))
    assert "3 of 6 published values and claims are reproduced." in document.text
    assert "misses <30 %" in document.text
    assert "a & b" in document.text
    assert document.count("table") == 3
    assert document.count("img") == 0
    assert "laxity reproduce rt-xen -o again" in document.text


def test_reproduce_with_curves(tmp_path: Path) -> None:
    directory = reproduction(tmp_path / "reproduce")
    (directory / "data").mkdir()
    loads = np.arange(30, 101, 10)
    pd.concat(
        pd.DataFrame(
            {
                "pattern": pattern,
                "load_percent": loads,
                "policy": policy,
                "seed": seed,
                "jobs": 100,
                "missed": np.maximum(0, loads - 85),
            }
        )
        for pattern in ("decreasing", "even", "increasing")
        for policy in laxity.POLICIES
        for seed in (1, 2)
    ).to_parquet(directory / "data/figure-6.parquet")
    pd.concat(
        pd.DataFrame(
            {
                "quantum_us": quantum,
                "utilization_percent": range(1, 51),
                "jobs": 10,
                "missed": [0] * 40 + [10] * 10,
            }
        )
        for quantum in (10, 100, 1000)
    ).to_parquet(directory / "data/figure-5.parquet")
    document = read(directory)
    assert document.count("img") == 2
    assert document.text.count("the paper states in numbers are marked as published") == 2


def test_a_figure_without_published_values_says_nothing_of_them(tmp_path: Path) -> None:
    directory = reproduction(tmp_path / "reproduce")
    content = json.loads((directory / "reproduce.json").read_text("utf-8"))
    content["paper"] = "bandwidth"
    rows = [{"panel": "all", "line": "VM 1", "at_s": s, "delivered_mbit_s": 600} for s in (1, 2)]
    (directory / "data").mkdir()
    for experiment, name in zip(content["experiments"], ("bursty", "joining", "liar"), strict=True):
        experiment["name"] = name
        pd.DataFrame(rows).to_parquet(directory / f"data/{name}.parquet")
    (directory / "reproduce.json").write_text(json.dumps(content), "utf-8")
    document = read(directory)
    assert document.count("img") == 3
    assert "are marked as published" not in document.text
