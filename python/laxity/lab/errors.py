"""What goes wrong in the lab."""

from __future__ import annotations

from laxity.errors import InputError


class LabError(InputError):
    """The lab cannot do what it was asked to. `help` says what to do about it."""


class UnreachableError(LabError):
    """A machine cannot be reached."""


class LeftRunningError(LabError):
    """What was begun on a machine may still run there, and needs its files."""
