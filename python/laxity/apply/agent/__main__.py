"""Does what one line of JSON on the standard input asks for; or, called by libvirt's hook, `hook`.

Answers with one line of JSON. Exit code 0, or 1 with an `error` in the answer.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from .journal import JournalError
from .keeping import Keeper, Paths, RefusedError
from .linux import Linux

if TYPE_CHECKING:
    from .settings import Answer, Request


def answer(request: Request) -> Answer:
    """Returns what was asked for."""
    linux = Linux()
    keeper = Keeper(linux, Paths())
    do = request["do"]
    if do == "observe":
        return {"seen": linux.observe(request["nics"])}
    if do == "plan":
        return {"changes": keeper.plan(request["wanted"], keep=request["keep"])}
    if do == "apply":
        keep, persist = request["keep"], request["persist"]
        return keeper.apply(request["wanted"], keep=keep, persist=persist)
    if do == "plan-revert":
        return {"changes": keeper.restorations()}
    return keeper.revert()


def main(words: list[str]) -> int:
    """Returns the exit code."""
    # libvirt's hook runs as root what is written here: nobody else may write it.
    os.umask(0o022)
    try:
        if words[:1] == ["hook"]:
            Keeper(Linux(), Paths()).apply_again(words[1])
            return 0
        said = answer(json.load(sys.stdin))
    except (RefusedError, JournalError, OSError) as error:
        said = {"error": str(error)}
        if isinstance(error, RefusedError):
            said["refused"] = {"change": error.change, "why": error.why}
    if words[:1] == ["hook"]:
        print(f"laxity apply: {said['error']}", file=sys.stderr)
    else:
        print(json.dumps(said))
    return 1 if "error" in said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
