"""What a host does, from who ran when: a host file, and a trace with its jobs."""
