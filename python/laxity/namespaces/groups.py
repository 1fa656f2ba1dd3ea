"""Control groups: weights, caps and pinning of the processes of a run, under cgroup v2 or v1.

A run's groups stand in one group of its own, which carries the process that made it in its name, so
that the next run removes what a killed one left behind.
"""

from __future__ import annotations

import math
import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.policies import default_of
from laxity.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 10_000
"""The interval in which a cap holds. A tenth of the default, which would keep a media server
waiting for several packets."""
QUOTA_US_MIN = 1_000
"""The least of it that the kernel grants."""
WEIGHT_DEFAULT = default_of("weight")
"""The default weight of a domain becomes the kernel's default."""
V2_WEIGHTS = (1, 100, 10_000)
V1_SHARES = (2, 1024, 262_144)
"""The kernel's least, default and greatest weight."""
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset")
PREFIX = "laxity-"
REMOVAL_S_MAX = 120.0
"""For processes that were killed to be gone, however busy the machine is."""
LEFT_BEHIND_S_MAX = 5.0
"""For those of another run that was killed: what it left can also go later."""

Settings = dict[str, str]
"""What is written to a group: by file, with its controller before it under v1."""


@dataclass(frozen=True)
class Share:
    """The part of the CPUs that a group may have."""

    weight: int
    """The weight against the other groups."""
    cap_percent: int
    """The cap in percent of one CPU; 0 is no cap."""
    cpus: tuple[int, ...]
    """The CPUs that it may run on."""
    quota_us: tuple[int, int] | None = None
    """The CPU time in every so long, in place of a cap in percent."""


def settings_v2(shares: Mapping[str, Share]) -> dict[str, Settings]:
    """Settings of each group under cgroup v2; those of the group around them have no name."""
    weights = _weights(shares, *V2_WEIGHTS)
    return {"": {"cpu.weight": weights[""]}} | {
        name: {
            "cpu.weight": weights[name],
            "cpu.max": f"{_quota_us(share) or 'max'} {_period_us(share)}",
            "cpuset.cpus": ",".join(map(str, share.cpus)),
        }
        for name, share in shares.items()
    }


def settings_v1(shares: Mapping[str, Share]) -> dict[str, Settings]:
    """The same under cgroup v1, where weights are called shares."""
    weights = _weights(shares, *V1_SHARES)
    return {"": {"cpu/cpu.shares": weights[""]}} | {
        name: {
            "cpu/cpu.shares": weights[name],
            "cpu/cpu.cfs_period_us": str(_period_us(share)),
            "cpu/cpu.cfs_quota_us": str(_quota_us(share) or -1),
            "cpuset/cpuset.cpus": ",".join(map(str, share.cpus)),
        }
        for name, share in shares.items()
    }


def _weights(shares: Mapping[str, Share], least: int, default: int, most: int) -> dict[str, str]:
    """Weights as the kernel takes them, and that of the group around them, under "".

    It weighs what they do together, so that each stands against the machine's other processes as it
    would alone. Only ratios count: where the sum would be too much, all are smaller.
    """
    total = sum(share.weight for share in shares.values())
    scale = min(default / WEIGHT_DEFAULT, most / total)
    weights = {name: share.weight for name, share in shares.items()} | {"": total}
    return {name: str(max(least, round(weight * scale))) for name, weight in weights.items()}


def _quota_us(share: Share) -> int:
    if share.quota_us is not None:
        return share.quota_us[0]
    return share.cap_percent * _period_us(share) // 100


def _period_us(share: Share) -> int:
    """Longer for caps of which the kernel would not take that little at once."""
    if share.quota_us is not None:
        return share.quota_us[1]
    return max(PERIOD_US, math.ceil(100 * QUOTA_US_MIN / (share.cap_percent or 100)))


class Groups:
    """The groups of a run, by name."""

    def __init__(self, shares: Mapping[str, Share], root: Path = ROOT) -> None:
        """Makes them."""
        self._name = f"{PREFIX}{os.getpid()}"
        if (root / "cgroup.controllers").exists():
            self._version, self._hierarchies = 2, [root]
            settings = settings_v2(shares)
        elif all((root / controller).is_dir() for controller in V1_CONTROLLERS):
            self._version, self._hierarchies = 1, [root / name for name in V1_CONTROLLERS]
            settings = settings_v1(shares)
        else:
            raise InputError(
                f"there are no control groups for CPUs in {root}",
                "mount cgroup2 there, or cgroup with cpu, cpuacct and cpuset",
            )
        self._root = root
        self._groups = list(shares)
        self._sweep()
        try:
            self._make(settings)
        except OSError as error:
            self.remove()
            raise InputError(
                f"cannot make control groups: {error}",
                "be root, and let no domain have a CPU that this machine lacks",
            ) from None

    def _make(self, settings: Mapping[str, Settings]) -> None:
        for hierarchy in self._hierarchies:
            run = hierarchy / self._name
            for path in (run, *(run / group for group in self._groups)):
                path.mkdir()
                if hierarchy.name == "cpuset":
                    # v1 fills in nothing: a group without CPUs and memory takes no process.
                    for name in ("cpuset.mems", "cpuset.cpus"):
                        (path / name).write_text((path.parent / name).read_text())
                elif self._version == 2:  # noqa: PLR2004 - the version
                    (path.parent / "cgroup.subtree_control").write_text("+cpu +cpuset")
        for group, files in settings.items():
            for file, value in files.items():
                self._file(group, file).write_text(value)

    def _file(self, group: str, file: str) -> Path:
        controller, _, name = file.rpartition("/")
        return self._root / controller / self._name / group / name

    def entries(self, group: str) -> list[Path]:
        """The files to which a process writes its number to enter the group."""
        return [path / self._name / group / "cgroup.procs" for path in self._hierarchies]

    def cpu_ns(self, group: str) -> int:
        """CPU time that the group's processes have had."""
        if self._version == 1:
            return int(self._file(group, "cpuacct/cpuacct.usage").read_text())
        text = self._file(group, "cpu.stat").read_text()
        used_us = dict(line.split() for line in text.splitlines())["usage_usec"]
        return 1000 * int(used_us)

    def threads(self, group: str) -> list[int]:
        """The numbers of the group's threads, in order."""
        name = "cgroup.threads" if self._version == 2 else "cpu/tasks"  # noqa: PLR2004 - as above
        return sorted(map(int, self._file(group, name).read_text().split()))

    def paths(self) -> list[Path]:
        """The groups' directories, those within others first."""
        runs = [hierarchy / self._name for hierarchy in self._hierarchies]
        return [run / group for run in runs for group in self._groups] + runs

    def remove(self) -> None:
        """Removes them, once their processes are gone."""
        for hierarchy in self._hierarchies:
            _remove(hierarchy / self._name)

    def _sweep(self) -> None:
        for hierarchy in self._hierarchies:
            for path in hierarchy.glob(f"{PREFIX}*"):
                if is_left_behind(path.name):
                    with suppress(OSError):
                        _remove(path, LEFT_BEHIND_S_MAX)


def is_left_behind(name: str) -> bool:
    """Whether a run that is no more made what has this name."""
    found = re.match(rf"{PREFIX}(\d+)\b", name)
    return found is not None and not Path(f"/proc/{found[1]}").exists()


def _remove(path: Path, s_max: float = REMOVAL_S_MAX) -> None:
    """Removes a group with those in it. Another run may be removing it, too."""
    deadline_s = time.monotonic() + s_max
    for group in (*(child for child in path.glob("*") if child.is_dir()), path):
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                if group.exists() and time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)


@contextmanager
def groups(shares: Mapping[str, Share]) -> Iterator[Groups]:
    """The groups for as long as they are needed."""
    made: Groups | None = None
    try:
        with uninterrupted():
            made = Groups(shares)
        yield made
    finally:
        with uninterrupted():
            if made is not None:
                made.remove()
