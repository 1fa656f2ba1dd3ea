"""Fleets: guests placed on many hosts, so that every host holds and any one may fail."""
