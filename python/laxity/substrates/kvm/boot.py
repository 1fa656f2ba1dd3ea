"""From a host to a run on one boot of an emulated KVM host."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.lab import fingerprint, kvm_image, kvm_policies
from laxity.lab.files import RESULTS
from laxity.lab.kvm_machine import KvmMachine
from laxity.substrates.kvm import collect
from laxity.substrates.kvm.plan import BOOT_S, RUN, Plan, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from laxity.lab.modes import Mode
    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run

LIMIT_S_MIN = 900.0
LIMIT_S_PER_S = 30.0
"""How much longer than the estimate a busy computer may take."""


def boot(
    host: Resolved,
    mode: Mode,
    directory: Path,
    say: Say,
    *,
    options: Sequence[str] = (),
    exits: bool = False,
) -> Run:
    """Runs a host on one boot.

    `directory`, a new one, gets the console's log, all that the host wrote, in `results`, and the
    trace, run.laxtrace. `options` name the substrate on the command line. With `exits` it is also
    recorded when guests are entered and left, and why.

    Raises InputError before anything boots if Linux cannot run it, LabError if the machine fails.
    """
    return boot_all({RUN: host}, mode, directory, say, options=options, exits=exits)[RUN]


def boot_all(
    hosts: Mapping[str, Resolved],
    mode: Mode,
    directory: Path,
    say: Say,
    *,
    options: Sequence[str] = (),
    profiled: Mapping[str, Sequence[str]] = MappingProxyType({}),
    exits: bool = False,
) -> dict[str, Run]:
    """Runs hosts by name, one after the other, on one boot; returns their runs by name.

    See `boot`; the results and the trace of each have its name. `profiled` has, by the name of a
    host, functions of the kernel whose calls are timed in its run, for `profile.read`.
    """
    plans = {
        name: Plan.of(host.host, mode=mode, profiled=profiled.get(name, ()), exits=exits)
        for name, host in hosts.items()
    }
    try:
        (directory / RESULTS).mkdir(parents=True)
    except FileExistsError:
        raise InputError(f"{directory} is there already", "name a new directory") from None
    image = kvm_image.build(say)
    kvm_image.programs(say)
    policies = {plan.policy.name: plan.policy for plan in plans.values() if plan.policy}
    schedulers = kvm_policies.build(list(policies.values()), say) if policies else None
    estimate_s = BOOT_S + sum(plan.run_s for plan in plans.values())
    names = ", ".join(dict.fromkeys(host.host["policy"] for host in hosts.values()))
    say(f"{names} on KVM, Linux {image.version}: about {estimate_s:.0f} s")
    began_ns = time.monotonic_ns()
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
        write_all(plans, Path(temporary))
        machine = KvmMachine(
            image,
            Path(temporary),
            memory_mib=max(plan.memory_mib for plan in plans.values())
            + sum(plan.traced_mib for plan in plans.values()),
            schedulers=schedulers,
            mode=mode,
            cpus=max(int(host.host["cpus"]) for host in hosts.values()),
            limit_s=LIMIT_S_MIN + LIMIT_S_PER_S * estimate_s,
        )
        machine.run(directory, say)
    return {
        name: collect.run(
            host,
            directory / RESULTS / name,
            directory / f"{name}.laxtrace",
            wall_ns=time.monotonic_ns() - began_ns,
            machine=fingerprint.read(directory),
            options=options,
        )
        for name, host in hosts.items()
    }


@contextmanager
def temporary() -> Iterator[Path]:
    """Gives the name of a new directory, which is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="laxity-kvm.") as directory:
        yield Path(directory) / "boot"
