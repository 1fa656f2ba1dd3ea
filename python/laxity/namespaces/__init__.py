"""Processes of this machine in network namespaces and control groups, which end with the run."""
