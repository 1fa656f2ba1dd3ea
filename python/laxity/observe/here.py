"""This machine: its virtual machines, and how they are configured. Nothing is changed."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.observe.known import Configuration, Known
from laxity.observe.threads import QEMU, VHOST, Machine, with_affinity
from laxity.text import name_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")

CPU_MAX_FIELDS = 2
MICROSECOND_NS = 1000


def machines() -> list[Machine]:
    """The virtual machines of QEMU that run, named as they were started."""
    found = []
    processes = sorted(int(path.name) for path in PROC.glob("[0-9]*"))
    of_kernel = _threads_of_vhost(processes)
    for process in processes:
        threads, others = [], set(of_kernel.get(process, ()))
        for thread in sorted(PROC.glob(f"{process}/task/[0-9]*"), key=lambda path: int(path.name)):
            match = QEMU.fullmatch(_read(thread / "comm").strip())
            if match is not None:
                threads.append((int(match[1]), int(thread.name)))
            else:
                others.add(int(thread.name))
        if threads:
            order = tuple(thread for _, thread in sorted(threads))
            found.append(Machine(_name(process), order, process, tuple(sorted(others))))
    return found


def _threads_of_vhost(processes: Sequence[int]) -> dict[int, list[int]]:
    """Threads of vhost by the process whose cards they serve, where they are the kernel's own.

    Since Linux 6.4 they are threads of that process.
    """
    found: dict[int, list[int]] = {}
    for process in processes:
        match = VHOST.fullmatch(_read(PROC / str(process) / "comm").strip())
        if match is not None:
            found.setdefault(int(match[1]), []).append(process)
    return found


def _name(process: int) -> str:
    """The name that a virtual machine was given (-name), or one from its process."""
    words = _read(PROC / str(process) / "cmdline").split("\0")
    for word, value in pairwise(words):
        if word == "-name" and value:
            return name_of(value.split(",")[0].removeprefix("guest="))
    return f"vm-{process}"


def with_settings(known: Configuration, domains: Sequence[Machine], cpus: int) -> Configuration:
    """Adds what this machine's kernel says of the domains: affinity, weights, quotas."""
    affinity = {}
    for machine in domains:
        allowed: set[int] = set()
        for thread in machine.threads:
            try:
                allowed |= os.sched_getaffinity(thread)
            except OSError:
                continue
        if allowed:
            affinity[machine.name] = tuple(sorted(allowed))
    known = with_affinity(known, affinity, cpus)
    if known.policy_name != "eevdf":
        return known
    paths = {machine.name: _group(machine.threads[0]) for machine in domains}
    groups = {
        name: settings_of_group(path, _others(paths, name), _read_group)
        for name, path in paths.items()
    }
    return replace(known, domains=groups)


def _others(paths: Mapping[str, str], name: str) -> list[str]:
    return [path for other, path in paths.items() if other != name]


def settings_of_group(
    path: str, others: Sequence[str], read: Mapping[str, str] | _Read
) -> dict[str, Known]:
    """The weight and the quota of a domain whose threads are in a control group.

    The weight is that of the outermost group which no other domain shares; the quota is the
    tightest of the groups from there on. `read` has the content of a group's file by its path.
    """
    parts = [part for part in path.split("/") if part]
    levels = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    own = [
        level
        for level in levels
        if not any(f"{other.strip('/')}/".startswith(f"{level}/") for other in others)
    ]
    known: dict[str, Known] = {}
    if not own:
        return known
    weight = read[f"{own[0]}/cpu.weight"].strip()
    if weight.isdecimal():
        known["weight"] = Known(int(weight), f"{own[0]}/cpu.weight")
    tightest = None
    for level in own:
        words = read[f"{level}/cpu.max"].split()
        if len(words) == CPU_MAX_FIELDS and words[0].isdecimal():
            quota_us, period_us = int(words[0]), int(words[1])
            ratio = quota_us / period_us
            if tightest is None or ratio < tightest[0]:
                tightest = ratio, quota_us, period_us, f"{level}/cpu.max"
    if tightest is not None:
        _, quota_us, period_us, source = tightest
        known["quota"] = Known(quota_us * MICROSECOND_NS, source)
        known["quota-period"] = Known(period_us * MICROSECOND_NS, source)
    return known


class _Read:
    """The content of files of control groups, by their paths below the root of all groups."""

    def __getitem__(self, path: str) -> str:
        return _read(GROUPS / path)


_read_group = _Read()


def _group(thread: int) -> str:
    """The control group (version 2) of a thread."""
    for line in _read(PROC / str(thread) / "cgroup").splitlines():
        if line.startswith("0::"):
            return line.removeprefix("0::")
    return ""


def _read(path: Path) -> str:
    """The content of a file of the kernel; nothing if it is not there (any more)."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
