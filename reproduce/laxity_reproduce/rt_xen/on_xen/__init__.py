"""RT-Xen's experiments on the real hypervisor, beside what the paper states and the simulator says.

Each experiment says which windows it needs; all windows of a scheduler share one boot, in which the
guests stay and get other tasks. Experiments then judge what came of the windows, without a machine.
"""
