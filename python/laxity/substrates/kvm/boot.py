"""From a host to a run on one boot of an emulated KVM host."""

from __future__ import annotations

import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.lab import fingerprint, kvm_image, kvm_policies
from laxity.lab.files import RESULTS
from laxity.lab.kvm_machine import KvmMachine
from laxity.substrates.kvm import collect
from laxity.substrates.kvm.plan import RUN, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from laxity.lab.modes import Mode
    from laxity.progress import Say
    from laxity.resolved import Resolved
    from laxity.results.run import Run

LIMIT_S_MIN = 900.0
LIMIT_S_PER_S = 30.0
"""How much longer than the estimate a busy computer may take."""


def boot(
    host: Resolved, mode: Mode, directory: Path, say: Say, *, options: Sequence[str] = ()
) -> Run:
    """Runs a host on one boot.

    `directory`, a new one, gets the console's log, all that the host wrote, in `results`, and the
    trace, run.laxtrace. `options` name the substrate on the command line.

    Raises InputError before anything boots if Linux cannot run it, LabError if the machine fails.
    """
    plan = Plan.of(host.host, mode=mode)
    try:
        (directory / RESULTS).mkdir(parents=True)
    except FileExistsError:
        raise InputError(f"{directory} is there already", "name a new directory") from None
    image = kvm_image.build(say)
    kvm_image.programs(say)
    schedulers = kvm_policies.build([plan.policy], say) if plan.policy else None
    say(f"{host.host['policy']} on KVM, Linux {image.version}: about {plan.estimate_s:.0f} s")
    began_ns = time.monotonic_ns()
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
        plan.write(Path(temporary))
        machine = KvmMachine(
            image,
            Path(temporary),
            memory_mib=plan.memory_mib,
            schedulers=schedulers,
            mode=mode,
            cpus=int(host.host["cpus"]),
            limit_s=LIMIT_S_MIN + LIMIT_S_PER_S * plan.estimate_s,
        )
        machine.run(directory, say)
    return collect.run(
        host,
        directory / RESULTS / RUN,
        directory / f"{RUN}.laxtrace",
        wall_ns=time.monotonic_ns() - began_ns,
        machine=fingerprint.read(directory),
        options=options,
    )


@contextmanager
def temporary() -> Iterator[Path]:
    """Gives the name of a new directory, which is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="laxity-kvm.") as directory:
        yield Path(directory) / "boot"
