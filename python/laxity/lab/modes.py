"""How the emulated machine runs, and which hypervisor."""

from __future__ import annotations

from typing import Literal

Mode = Literal["repeatable", "live"]
"""Repeatable: instruction-counted time on one CPU, the same bytes every time. Live: wall time."""

Variant = Literal["release", "debug", "measured"]
"""The hypervisor as on a host, with assertions, or with the costs of scheduling in its trace."""
