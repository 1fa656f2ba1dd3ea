"""PARTSim as a second opinion, and its speed: the same task sets in both simulators."""
