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

NO_STATISTICS_ARGUMENTS = (
    # Averages of pressure.
    "psi=0"
    # Statistics of memory, every 11 days, and compaction in advance.
    " sysctl.vm.stat_interval=1000000 sysctl.vm.compaction_proactiveness=0"
)
"""Keep a kernel of a lab from what it does for itself once or twice a second."""

STILL_KERNEL_ARGUMENTS = (
    f"tsc=reliable nowatchdog {NO_STATISTICS_ARGUMENTS}"
    # Neighbours on the network are probed every 11 days, not every 5 s. Drivers that wait for
    # others give up at once, not 10 s after the boot.
    " sysctl.net.ipv4.neigh.default.interval_probe_time_ms=1000000000"
    " sysctl.net.ipv6.neigh.default.interval_probe_time_ms=1000000000"
    " deferred_probe_timeout=0"
)
"""Keep a kernel of Xen's lab from waking for itself.

Whoever waits for a CPU by turns loses one to each such wake, and so do all after it.
"""

GUEST_ARGUMENTS = (
    "console=hvc0 quiet loglevel=1"
    # What only takes time: at a boot, and of mitigations at every interrupt.
    " rodata=off audit=0 cryptomgr.notests mitigations=off"
    f" {STILL_KERNEL_ARGUMENTS}"
)
