"""What kernels take of a machine whose substrate knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Kernel:
    """CPU time that VCPUs take beside their jobs, where it is known of a machine and its guests."""

    arrival_ns: int = 0
    """What a VCPU takes each time that it gets a CPU, beside decisions that a trace tells."""
    interrupt_ns: int = 0
    """What an interrupt of a guest's timer takes: one for all jobs and ticks that come until it is
    served."""
    wake_ns: int = 0
    """What a job takes beside its cost and the interrupt."""
    tick: Mapping[str, int] | None = None
    """The tick of a guest's kernel by the keys of a host file, ns, but for when it comes; None
    where it has none."""
    stolen: float = 0
    """What the host takes of a VCPU for each nanosecond of its work, ns."""
    timer_latency_ns: int = 0
    """How late a timer of the policy is served."""
