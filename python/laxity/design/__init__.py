"""Values for what a host file leaves open: found, explained and checked."""
