"""Calls: their voice quality, how many a host carries, and what gives out first."""
