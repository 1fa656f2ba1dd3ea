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
    [
        ("deferrable", 9013),
        ("credit", 9013),
        ("sedf", 9017),
        ("sedf", 8659),
        ("deferrable", 8679),
    ],
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


def test_as_many_other_tasks_do_the_same(laxity: Laxity, tmp_path: Path) -> None:
    """On KVM a task of 9019 is found as another one, which explains the VCPU as well."""
    own = page.text(9019, "deferrable")[0]
    other = own.replace("73503 us", f"{73503 + 2 * 4674} us")
    other = other.replace('"80000 us"', '"400000 us"\noffset = "160000 us"')
    ran = []
    for name, text in (("own", own), ("other", other)):
        host, run = tmp_path / f"{name}.toml", tmp_path / name
        host.write_text(text)
        laxity("run", host, "-o", run)
        ran.append(who_ran(run))
    assert other.count("82851 us") == other.count("offset") == 1
    assert ran[0] == ran[1] != []


def tasks(path: Path) -> list[page.Tasks]:
    return [sorted(of_domain) for of_domain in page.tasks(Host.load(path).resolve())]


def who_ran(run: Path) -> list[tuple[int, ...]]:
    """Each time at which a VCPU woke, began to run, stopped or blocked."""
    records = tracefile.records(tracefile.find(run))
    kinds = [tracefile.number_of(kind) for kind in ("wake", "run", "stop", "block")]
    own = records[np.isin(records["kind"], kinds)]
    return list(zip(*(own[name].tolist() for name in ("time_ns", "kind", "domain")), strict=True))
