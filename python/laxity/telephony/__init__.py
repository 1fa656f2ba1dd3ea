"""Calls: their voice quality, how many a host carries, and the first bottleneck."""
