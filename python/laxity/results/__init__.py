"""Results: what runs and checks found, and the files of an output directory that keep it."""
