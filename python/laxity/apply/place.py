"""The machine that is made so: the agent, copied there and asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.apply import agent
from laxity.errors import InputError
from laxity.lab.errors import LabError
from laxity.shell import Shell, end

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laxity.apply.agent.settings import Answer, Change, Request, Seen, Wanted

PACKAGE = Path(agent.__file__).parent
ABLE = (
    "python3 -c 'import os, sys; "
    "sys.exit(4 if sys.version_info < (3, 9) else 5 if os.geteuid() else 0)'"
)
"""Ends with one of these codes, or with another one where there is no Python at all."""
NOT_ROOT = 5
REMEDIES = {
    "Operation not permitted": "be root there; let SCHED_DEADLINE threads run on all CPUs; for "
    "real-time threads in a control group see CONFIG_RT_GROUP_SCHED of its kernel",
    "Device or resource busy": "make budgets smaller: Linux admits no more SCHED_DEADLINE threads",
}
"""By what the kernel says."""


class Place:
    """A KVM host."""

    def __init__(self, at: str) -> None:
        """Takes `local` or `ssh://USER@HOST`; raises InputError for another place."""
        self._shell = Shell.at(at)

    @property
    def name(self) -> str:
        """How messages call it."""
        return self._shell.name

    def observe(self, nics: list[str]) -> Seen:
        """Returns what the machine is, with the interrupts of these network interfaces."""
        return self._ask({"do": "observe", "nics": nics})["seen"]

    def plan(self, wanted: Wanted, *, keep: bool = False) -> list[Change]:
        """Returns what `apply` would change."""
        return self._ask({"do": "plan", "wanted": wanted, "keep": keep})["changes"]

    def apply(
        self,
        wanted: Wanted,
        *,
        keep: bool = False,
        persist: bool = True,
        programs: Mapping[str, bytes] | None = None,
    ) -> Answer:
        """Makes the machine so; see `Keeper.apply` of the agent.

        `programs` are the files of a policy of Laxity, by name, where one is to be loaded. Raises
        LabError if the kernel refuses a change; then all is as it was before.
        """
        beside = {f"scheduler/{name}": content for name, content in (programs or {}).items()}
        request: Request = {"do": "apply", "wanted": wanted, "keep": keep, "persist": persist}
        return self._ask(request, beside)

    def plan_revert(self) -> list[Change]:
        """Returns what `revert` would change."""
        return self._ask({"do": "plan-revert"})["changes"]

    def revert(self) -> Answer:
        """Puts everything back; see `Keeper.revert` of the agent."""
        return self._ask({"do": "revert"})

    def _ask(self, request: Request, beside: Mapping[str, bytes] | None = None) -> Answer:
        code = self._shell.run(ABLE).returncode
        if code == NOT_ROOT:
            raise InputError(
                f"settings of {self.name} are root's alone",
                "call it as root, or with --at ssh://root@HOST",
            )
        if code != 0:
            raise InputError(
                f"{self.name} has no Python 3.9 or newer", "install the package python3 there"
            )
        files = {f"agent/{file.name}": file.read_bytes() for file in PACKAGE.glob("*.py")}
        with self._shell.directory() as home:
            self._shell.send(home, {**files, **(beside or {})})
            command = f"cd {home} && exec python3 -m agent"
            done = self._shell.run(command, json.dumps(request).encode())
        try:
            said: Answer = json.loads(done.stdout)
        except ValueError:
            raise LabError(f"on {self.name}: {end(done.stderr)}") from None
        if "error" in said:
            why = said["refused"]["why"] if "refused" in said else ""
            raise LabError(f"on {self.name}: {said['error']}", REMEDIES.get(why))
        return said
