"""Know how late your virtual machines can be, and keep them inside it.

>>> import laxity
>>> run = laxity.Host.load("examples/rt-xen.toml").run(seed=1)
>>> run.missed, run.frame()
"""

from laxity._core import __version__
from laxity.errors import HostError, InputError, Problem
from laxity.host import POLICIES, Host
from laxity.results import Check, Comparison, Run
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
