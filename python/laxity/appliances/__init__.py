"""Virtual machines with one server each, small enough to be checkpointed many times a second.

`image` makes them of Debian's packages: a kernel, and a first root that has the server, `init`, and
nothing else. They have no disk: what they know, registrations and calls, is in memory.
"""
