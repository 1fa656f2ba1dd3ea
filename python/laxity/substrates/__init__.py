"""What can run a host: the simulator, real Xen, this machine."""
