"""What loads a policy of Laxity on a KVM host, with a loader that loads nothing."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from laxity.apply.agent import scheduler
from laxity.apply.agent.scheduler import Scheduler
from laxity.apply.agent.settings import changes

if TYPE_CHECKING:
    from pathlib import Path

LOADER = """\
#!{python}
import os, socket, sys

kernel, log = {kernel!r}, {log!r}
vcpus = []

def loaded(state):
    with open(f"{{kernel}}/state", "w") as file:
        file.write(state)

def obey(line, say):
    with open(log, "a") as file:
        file.write(line + "\\n")
    order, *words = line.split() or [""]
    if order == "vcpu":
        vcpus.append(f"vcpu {{words[0]}} {{words[1]}} {{words[2]}} {{words[3]}} budget=1")
    elif order == "show":
        for vcpu in vcpus:
            say(vcpu)
    elif order == "schedule":
        loaded("enabled")
        say("state scheduling")
    elif order == "serve":
        server = socket.socket(socket.AF_UNIX)
        server.bind(words[0])
        server.listen()
        say("state serving")
        serve(server)
        os.unlink(words[0])
    elif order == "set" and "budget=99" in words:
        say("state error the policy refuses it")
    return order not in ("end", "serve")

def serve(server):
    goes_on = True
    while goes_on:
        connection = server.accept()[0]
        with connection, connection.makefile("rw") as file:
            say = lambda text: print(text, file=file)
            while goes_on and (line := file.readline()):
                goes_on = obey(line.strip(), say)
            say("state obeyed")

for line in sys.stdin:
    if not obey(line.strip(), lambda text: print(text, flush=True)):
        break
loaded("disabled")
"""


@pytest.fixture
def made(tmp_path: Path) -> Scheduler:
    """A machine whose kernel has sched_ext, and the loader."""
    run, programs, kernel = (tmp_path / name for name in ("run", "programs", "kernel"))
    for directory in (run, programs, kernel / "root"):
        directory.mkdir(parents=True)
    (kernel / "state").write_text("disabled\n")
    (kernel / "root/ops").write_text("laxity\n")
    text = LOADER.format(python=sys.executable, kernel=str(kernel), log=str(tmp_path / "log"))
    (programs / scheduler.LOADER).write_text(text)
    (programs / scheduler.LOADER).chmod(0o755)
    return Scheduler(programs, run, kernel)


def wanted(policy: str = "sedf", **budgets: int) -> dict[str, Any]:
    domains = {
        name: {"parameters": f"budget={budget} period=100", "cpus": [1]}
        for name, budget in budgets.items()
    }
    return {"policy": policy, "cpus": 2, "settings": "quantum=0", "domains": domains}


def orders(tmp_path: Path) -> list[str]:
    """What the loader was told since the last time, besides questions."""
    log = tmp_path / "log"
    lines = [line for line in log.read_text().splitlines() if line not in ("", "show")]
    log.write_text("")
    return lines


def test_a_policy_is_loaded_changed_and_taken_off(made: Scheduler, tmp_path: Path) -> None:
    assert made.seen() == {"possible": True, "loaded": None, "given": None}
    made.make(wanted(a=10))
    serve = f"serve {tmp_path}/run/{scheduler.SOCKET}"
    loads = ["settings 2 quantum=0", "domain a budget=10 period=100", "schedule", serve]
    assert orders(tmp_path) == loads
    assert made.seen() == {"possible": True, "loaded": "laxity", "given": wanted(a=10)}

    # A thread is named once, on the CPU where its VCPU begins.
    thread = os.getpid()
    for _ in range(2):
        made.name(thread, "a 0")
    assert orders(tmp_path) == [f"vcpu a 0 {thread} 1"]
    assert made.members() == {thread: "a 0"}

    # Parameters and further domains are live changes.
    made.make(wanted(a=20, b=30))
    assert orders(tmp_path) == [
        "set a budget=20 period=100",
        "domain b budget=30 period=100",
    ]
    with pytest.raises(OSError, match="the policy refuses it"):
        made.make(wanted(a=99, b=30))
    assert made.given() == wanted(a=20, b=30)

    # Another policy is loaded anew, and threads stay named that are still there.
    orders(tmp_path)
    made.make(wanted("polling", a=10))
    loads.insert(2, f"vcpu a 0 {thread} 1")
    assert orders(tmp_path) == ["end", *loads]
    made.make(None)
    assert orders(tmp_path) == ["end"]
    assert made.seen() == {"possible": True, "loaded": None, "given": None}
    assert list((tmp_path / "run").iterdir()) == []
    made.make(None)
    assert orders(tmp_path) == []


def test_what_the_loader_complains_of_is_told(made: Scheduler, tmp_path: Path) -> None:
    loader = tmp_path / "programs" / scheduler.LOADER
    loader.write_text("#!/bin/sh\necho state error the kernel refuses it\n")
    with pytest.raises(OSError, match="kernel refuses it"):
        made.make(wanted(a=10))
    loader.write_text("#!/bin/sh\necho out of memory >&2\n")
    with pytest.raises(OSError, match="ended: out of memory"):
        made.make(wanted(a=10))
    assert made.given() is None


def test_another_scheduler_is_not_ours(made: Scheduler, tmp_path: Path) -> None:
    (tmp_path / "kernel/state").write_text("enabled\n")
    (tmp_path / "kernel/root/ops").write_text("lavd\n")
    assert made.seen() == {"possible": True, "loaded": "lavd", "given": None}
    assert json.dumps(made.seen())


def test_a_guest_that_starts_leaves_the_parameters_of_others() -> None:
    def of(guest: str | None, wanted: Any, given: Any) -> Any:
        """What is loaded when a guest has started; without one, when all is applied."""
        seen: Any = {"guests": [], "interrupts": {}, "scheduler": {"given": given}}
        asked: Any = {"domains": {}, "interrupts": {}, "scheduler": wanted}
        found = changes(asked, seen, [], only=guest)
        return found[0]["new"] if found else given

    # `laxity sched set` has changed both since they were applied.
    applied, now = wanted(a=10, b=20), wanted(a=11, b=21)
    assert of("a", applied, now) == wanted(a=10, b=21)
    assert of("b", applied, now) == wanted(a=11, b=20)
    assert of(None, applied, now) == applied
    assert of("c", applied, now) == now
    assert of("c", wanted(a=10, c=30), now) == wanted(a=11, b=21, c=30)
    assert of("a", None, now) == now
    # What is not loaded, as after a boot, and another policy are loaded whole.
    assert of("a", applied, None) == applied
    assert of("a", wanted("polling", a=10, b=20), now) == wanted("polling", a=10, b=20)
