"""What the page of observing says of hosts that no trace tells apart, by its own hosts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from laxity import tracefile
from laxity.host import Host

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "pages"))
import observe as page

if TYPE_CHECKING:
    from conftest import Laxity


@pytest.mark.parametrize(
    ("policy", "seed"),
    [("deferrable", 9013), ("sedf", 9017), ("sedf", 8659), ("deferrable", 8679)],
)
def test_another_host_does_the_same(laxity: Laxity, tmp_path: Path, policy: str, seed: int) -> None:
    """In the simulator a host is found with other tasks, and does the same to the nanosecond."""
    own, run, seen, model = (tmp_path / name for name in ("host.toml", "run", "seen", "model"))
    own.write_text(page.text(seed, policy)[0])
    laxity("run", own, "-o", run)
    laxity("observe", run, "-o", seen)
    found = seen / "host.toml"
    assert tasks(found) != tasks(own)
    laxity("run", found, "-o", model)
    assert who_ran(model) == who_ran(run) != []


def tasks(path: Path) -> list[page.Tasks]:
    return [sorted(of_domain) for of_domain in page.tasks(Host.load(path).resolve())]


def who_ran(run: Path) -> list[tuple[int, ...]]:
    """Each time at which a VCPU woke, began to run, stopped or blocked."""
    records = tracefile.records(tracefile.find(run))
    kinds = [tracefile.number_of(kind) for kind in ("wake", "run", "stop", "block")]
    own = records[np.isin(records["kind"], kinds)]
    return list(zip(*(own[name].tolist() for name in ("time_ns", "kind", "domain")), strict=True))
