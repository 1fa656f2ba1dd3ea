"""Names and sizes on which the emulated machine, plans of what it does, and its guests agree."""

from __future__ import annotations

HOME = "/laxity"
"""The directory of the machine that has our programs."""

SCRIPT = "plan.sh"
"""The plan that dom0 carries out."""

KERNEL = "kernel"
GUEST_ROOT = "guest.cpio"
NETWORK_ROOT = "network.cpio"
"""The kernel of guests, and the root file systems of those without and with a network."""

HOTPLUG = "vif"
"""The script that connects a guest's interface to the bridge."""
MODULES = "modules"
"""The directory of kernel modules, in a root file system."""

RESULTS = "results"
CONSOLE = "console.log"
"""What is left: the directory that dom0 wrote, and the console's log."""

MEMORY_MIB = 96
"""The memory of a guest with one VCPU."""
MEMORY_PER_VCPU_MIB = 4
"""The memory that each further VCPU adds."""

GUEST_ARGUMENTS = (
    "console=hvc0 quiet loglevel=1"
    # What only takes time: at a boot, and of mitigations at every interrupt.
    " rodata=off audit=0 cryptomgr.notests mitigations=off"
)
