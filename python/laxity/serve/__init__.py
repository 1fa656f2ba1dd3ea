"""A page on this machine that answers questions about a host file while it is written."""
