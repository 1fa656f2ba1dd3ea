"""What is known of the emulated KVM host: a model that is held against it uses it unasked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laxity.policies import TABLE

if TYPE_CHECKING:
    from laxity.resolved import Resolved

SWITCH_NS = 50_000
"""What a CPU takes to go over to another VCPU under a policy of Laxity's, with the guest's way back
to its work (tools/fit/switches.py)."""


def table(switch_ns: int = SWITCH_NS) -> str:
    """Returns the costs of scheduling there, as the value of a key of a host file."""
    return f'{{ context-switch = "{switch_ns} ns" }}'


def costs(host: Resolved, switch_ns: int = SWITCH_NS) -> list[str]:
    """Returns the override for a file that does not say what scheduling costs.

    What Linux's own schedulers take was not measured.
    """
    if host.gives("host.costs") or TABLE[host.host["policy"]].own_of is not None:
        return []
    return [f"host.costs={table(switch_ns)}"]
