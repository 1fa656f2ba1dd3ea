"""A window: one run of a host in a boot of Xen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laxity.host import Host

STOCK = "xen:"
"""Before the name of one of Xen's own schedulers."""


@dataclass(frozen=True)
class Window:
    """A run of a host on Xen."""

    name: str
    """Unique among all windows: letters, digits and `-`."""
    scheduler: str
    """A policy, or one of Xen's own: "xen:credit"."""
    host: Host
    overrides: tuple[str, ...]
    """Overrides of the host, with the policy that stands for the scheduler."""
    policy_events: bool = True
    """Whether what a policy says of itself is traced: budgets used up, replenishments. To say it
    takes time of the policy's."""
    what: str = ""
    """What stands in a table for it, if that is a row for each window."""

    @property
    def stock(self) -> str | None:
        """The name of Xen's own scheduler, if it is one."""
        return self.scheduler.removeprefix(STOCK) if self.scheduler.startswith(STOCK) else None
