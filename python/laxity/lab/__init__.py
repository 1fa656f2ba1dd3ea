"""The lab: the real hypervisor, in an emulated machine that repeats to the byte."""
