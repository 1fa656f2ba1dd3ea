"""Where a substrate is registered."""

from __future__ import annotations

NAMES = ("sim", "xen", "kvm", "linux")
"""All substrates: `laxity.substrates.NAME.SUBSTRATE` is the class. The first is the default."""
