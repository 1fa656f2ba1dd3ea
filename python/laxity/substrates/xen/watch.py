"""A Xen host that runs, watched for a while: Xen's trace buffers, and what its tools tell.

The host is not changed, but for trace buffers where Xen has none yet; they stay until it boots.
With packets dom0's kernel records what it does, too, and has a probe meanwhile.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity import tracefs
from laxity.errors import InputError
from laxity.lab import image
from laxity.lab.errors import LabError
from laxity.policies import TABLE
from laxity.shell import STEP_S_MAX, Shell, end
from laxity.substrates.xen import told
from laxity.substrates.xen.collect import BUFFERS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from laxity.progress import Say
    from laxity.substrates.xen.told import ToldDomain

SCHED, TRACE = "laxity-sched", "laxity-trace"
"""Programs of ours that run in dom0."""

OWN = ("credit", *(name for name, policy in TABLE.items() if policy.own_of == "xen"))
"""Xen's own schedulers, which host files call alike."""
TOLD_BY_XL = {"credit": "", "credit2": "", "rtds": " -v all"}
"""Those whose parameters xl tells, with what its command needs for all of them."""

KERNEL = "kernel.bin"
"""What dom0's kernel recorded, in a directory."""

PAGES_PER_S = 49
"""The size of a CPU's trace buffer: 5,000 records of 40 bytes a second."""
PAGES_MIN, PAGES_MAX = 512, 65535
DURATION_S_MAX = PAGES_MAX // PAGES_PER_S

HEADER = struct.Struct("<8sIIQQQQ")
"""The head of laxity-trace's files; its fifth and last values are its begin and end, ns."""


@dataclass(frozen=True)
class Watched:
    """What there was to see; times are of the host's real-time clock."""

    name: str
    """How messages call the host."""
    buffers: Path
    """A file of laxity-trace."""
    kernel: Path | None
    """Its file of what dom0's kernel did, if packets were asked for."""
    start_ns: int
    duration_ns: int
    cpus: int
    policy: str
    """The scheduler, by its name in host files."""
    settings: Mapping[str, object]
    """The scheduler's, by field."""
    domains: tuple[ToldDomain, ...]
    parameters: Mapping[int, Mapping[str, object]]
    """The values of each domain by field, by its number."""


IS_DOM0 = (
    "grep -qs control_d /proc/xen/capabilities || "
    "{ grep -qs xen /sys/hypervisor/type && command -v xl; }"
)
"""Without Xen's file system a guest of Xen differs from dom0 in that it has no tools."""


def is_dom0(shell: Shell) -> bool:
    """Returns whether a machine is the dom0 of a Xen host."""
    return shell.run(IS_DOM0).returncode == 0


def watch(
    shell: Shell, duration_s: float, directory: Path, say: Say, *, packets: bool = False
) -> Watched:
    """Watches a host for so long, and leaves Xen's buffers in a file of the directory.

    With `packets` it also leaves what dom0's kernel did meanwhile. Raises InputError if it is no
    Xen host where we may do this, or one that no host file describes, and LabError if something
    fails on the way.
    """
    if not 0 < duration_s <= DURATION_S_MAX:
        raise InputError(
            f"Xen's trace buffers do not hold {duration_s:g} s",
            f"--duration is at most {DURATION_S_MAX} s",
        )
    info = _info(shell)
    made = image.programs(say)
    with shell.directory() as home:
        shell.send(home, {name: (made / name).read_bytes() for name in (SCHED, TRACE)})
        before = told.domains(shell.checked("xl vcpu-list").decode())
        policy, settings, parameters = _scheduler(shell, home, info["xen_scheduler"])
        say(f"watching {shell.name} for {duration_s:g} s")
        buffers, kernel = _trace(shell, home, duration_s, directory, packets=packets)
        if told.domains(shell.checked("xl vcpu-list").decode()) != before:
            raise LabError(
                f"domains of {shell.name} came, went or were pinned while it was watched",
                "watch it while its domains stay",
            )
    _, _, _, _, start_ns, _, stop_ns = HEADER.unpack_from(buffers.read_bytes())
    duration_ns = min(round(duration_s * 1e9), stop_ns - start_ns)
    return Watched(
        *(shell.name, buffers, kernel, start_ns, duration_ns, int(info["nr_cpus"])),
        *(policy, settings, tuple(before), parameters),
    )


def _info(shell: Shell) -> dict[str, str]:
    """What `xl info` tells."""
    done = shell.run("xl info")
    info = told.info(done.stdout.decode())
    if done.returncode != 0 or not {"nr_cpus", "xen_scheduler"} <= info.keys():
        raise InputError(
            f"{shell.name} is not a Xen host where we may do this: {end(done.stderr)}",
            "it must be dom0 of a running Xen, with xl, and the user be root",
        )
    told.refuse_several_pools(shell.name, shell.checked("xl cpupool-list").decode())
    return info


def _scheduler(
    shell: Shell, home: str, name: str
) -> tuple[str, Mapping[str, object], dict[int, Mapping[str, object]]]:
    """The policy, its settings, and the parameters of domains by number."""
    if name in OWN:
        settings: dict[str, int] = {}
        text = ""
        if name in TOLD_BY_XL:
            text = shell.checked(f"xl sched-{name}{TOLD_BY_XL[name]}").decode()
        if (slice_ns := told.time_slice_ns(text)) is not None:
            settings["time_slice_ns"] = slice_ns
        return name, settings, dict(told.parameters(name, text))
    # libxl names a scheduler that it does not know, such as Laxity's, "(null)" or the like.
    done = shell.run(f"{home}/{SCHED} get --json")
    if done.returncode != 0:
        raise InputError(f"no host file describes Xen's scheduler {name}", "see laxity policies")
    says: told.Sched = json.loads(done.stdout)
    (pool,) = says["pools"]
    return pool["policy"], pool, {domain["id"]: domain for domain in says["domains"]}


def _trace(
    shell: Shell, home: str, duration_s: float, directory: Path, *, packets: bool
) -> tuple[Path, Path | None]:
    """Records Xen's buffers, and with packets those of dom0's kernel.

    Nothing of ours runs there in the end, whatever happens.
    """
    pages = min(PAGES_MAX, max(PAGES_MIN, math.ceil(duration_s * PAGES_PER_S)))
    # Packets have as much as switches and wakes.
    kib = 2 * tracefs.buffer_kib(duration_s)
    begin = (
        f"{home}/{TRACE} record --events sched,laxity --for {math.ceil(duration_s * 1e9)} "
        f"--pages {pages} "
        f"{f'--kernel {home}/{KERNEL} --kib {kib} ' if packets else ''}"
        f"{home}/{BUFFERS} & echo $! >{home}/pid; wait $!"
    )
    try:
        done = shell.run(begin, limit_s=duration_s + STEP_S_MAX)
    finally:
        shell.checked(f"kill $(cat {home}/pid) 2>/dev/null || :")
    if done.returncode != 0:
        raise LabError(f"tracing on {shell.name} failed: {end(done.stderr)}")
    written = []
    for name in (BUFFERS, KERNEL) if packets else (BUFFERS,):
        written.append(directory / name)
        written[-1].write_bytes(shell.checked(f"cat {home}/{name}"))
    return written[0], written[1] if packets else None
