"""How the emulated machine runs, and which hypervisor."""

from __future__ import annotations

from typing import Literal

Mode = Literal["repeatable", "live"]
"""Instruction-counted time on one CPU, the same bytes every time; or time as on the wall."""

Variant = Literal["release", "debug", "measured"]
"""The hypervisor as on a host, with assertions, or with the costs of scheduling in its trace."""
