"""The scheduling policies, by name."""

from __future__ import annotations

SCHEDULER_S = ("s-base", "s-a", "s-ab", "s-al", "s-all", "s-aill", "s-allc")
"""Scheduler S, with more and more of its parts."""

BY_WEIGHT = ("credit", *SCHEDULER_S)
"""Policies under which domains have weights and caps, and VCPUs move between CPUs."""

POLICIES = ("deferrable", "periodic", "polling", "sporadic", "credit", "sedf", *SCHEDULER_S)
"""All policies, in the order of tables."""
