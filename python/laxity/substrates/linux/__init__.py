"""Real packets on this machine: network namespaces for clients and server, groups for neighbours.

`scene` is what a run needs to know, pure; `network` and `groups` make what it needs and remove it;
`media` runs it.
"""
