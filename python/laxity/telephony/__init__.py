"""Calls: their voice quality, how many a host carries, and the first bottleneck."""

SEEDS = 3
"""Seeds with which every load of a search for the capacity is tried, if nothing else is said."""
