"""What goes wrong in the lab."""

from __future__ import annotations

from laxity.errors import InputError


class LabError(InputError):
    """The lab cannot do what it was asked to. `help` says what to do about it."""


class UnreachableError(LabError):
    """A machine cannot be reached any more: what runs there goes on, or ends by itself."""
