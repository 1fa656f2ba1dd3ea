"""Know how late your virtual machines can be, and keep them inside it.

>>> import laxity
>>> run = laxity.Host.load("examples/rt-xen.toml").run(seed=1)
>>> run.missed, run.frame()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from laxity._core import __version__

if TYPE_CHECKING:
    from laxity.errors import HostError, InputError, Problem
    from laxity.host import Host
    from laxity.policies import POLICIES
    from laxity.results.check import Check
    from laxity.results.comparison import Comparison
    from laxity.results.run import Run
    from laxity.sweep import Sweep

__all__ = [
    "POLICIES",
    "Check",
    "Comparison",
    "Host",
    "HostError",
    "InputError",
    "Problem",
    "Run",
    "Sweep",
    "__version__",
]

_MODULES = {
    **dict.fromkeys(("HostError", "InputError", "Problem"), "laxity.errors"),
    "Host": "laxity.host",
    "POLICIES": "laxity.policies",
    "Check": "laxity.results.check",
    "Comparison": "laxity.results.comparison",
    "Run": "laxity.results.run",
    "Sweep": "laxity.sweep",
}
"""The module of each name, which is imported when the name is used: a command needs few of them."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
