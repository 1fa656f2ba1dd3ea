"""Virtual machines with one server each, small enough to be checkpointed many times a second.

`image` makes them from Debian's packages: a kernel, and a root file system that contains the server
and `init`. An appliance has no disk; its registrations and calls are in memory.
"""
