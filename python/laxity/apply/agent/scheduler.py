"""A policy of Laxity as the scheduler of a host: loaded through sched_ext, asked, and taken off.

`laxity-scx` (kvm/programs) has it loaded as long as it lives, and takes orders on a socket. What it
was told is kept beside the socket, and counts only while it answers. A boot forgets both.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from .settings import Loaded, SchedExt

LOADER = "laxity-scx"
SOCKET, GIVEN, LOG = f"{LOADER}.sock", f"{LOADER}.json", f"{LOADER}.log"

OPERATIONS = "laxity"
"""How the kernel calls it."""

WAIT_S = 600.0
"""For what takes a moment, on a host that may be busy."""


class Scheduler:
    """The policy of Laxity that schedules a host, if one does."""

    def __init__(
        self, programs: Path, run: Path, kernel: Path = Path("/sys/kernel/sched_ext")
    ) -> None:
        """Takes the directories of the loader and its policies, of its socket, and the kernel's."""
        self._programs, self._run, self._kernel = programs, run, kernel

    def seen(self) -> SchedExt:
        """Returns whether the kernel can have one, whose it has, and what ours was given."""
        return {
            "possible": self._kernel.is_dir(),
            "loaded": self._loaded(),
            "given": self.given(),
        }

    def given(self) -> Loaded | None:
        """Returns what was loaded; None while nothing of ours is."""
        if self._loaded() != OPERATIONS:
            return None
        # One that was killed in the middle of a load is on its way, or will end by itself.
        end_s = time.monotonic() + WAIT_S
        while not self._answers():
            if self._loaded() != OPERATIONS:
                return None
            if time.monotonic() > end_s:
                raise OSError(f"{LOADER} does not answer")
            time.sleep(0.05)
        given: Loaded = json.loads((self._run / GIVEN).read_text("utf-8"))
        return given

    def make(self, wanted: Loaded | None) -> None:
        """Loads what is wanted, changes what is loaded, or takes it off.

        Raises OSError if the kernel or the policy refuses it.
        """
        given = self.given()
        if given == wanted:
            return
        if given is None or wanted is None or not _is_change(given, wanted):
            members = self.members() if given is not None else {}
            if given is not None:
                self._end()
            if wanted is not None:
                self._start(wanted, members)
            return
        for name, domain in wanted["domains"].items():
            if name not in given["domains"]:
                self._ask(f"domain {name} {domain['parameters']}")
            elif domain["parameters"] != given["domains"][name]["parameters"]:
                self._ask(f"set {name} {domain['parameters']}")
        self._keep(wanted)

    def members(self) -> dict[int, str]:
        """Returns the VCPUs of threads, `NAME NUMBER`."""
        found = {}
        for line in self._ask("show"):
            words = line.split()
            if words[0] == "vcpu":
                found[int(words[3])] = f"{words[1]} {words[2]}"
        return found

    def name(self, thread: int, vcpu: str) -> None:
        """Says which VCPU a thread is. Raises OSError if it cannot be."""
        given = self.given()
        if given is None:
            raise OSError("no policy of Laxity is loaded")
        if self.members().get(thread) != vcpu:
            self._ask(_vcpu_order(given, thread, vcpu))

    def _loaded(self) -> str | None:
        try:
            if (self._kernel / "state").read_text().strip() == "disabled":
                return None
            return (self._kernel / "root/ops").read_text().strip()
        except OSError:
            return None

    def _answers(self) -> bool:
        try:
            self._ask("")
        except OSError:
            return False
        return True

    def _ask(self, order: str) -> list[str]:
        """Returns the lines of an answer. Raises OSError with what is wrong."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(WAIT_S)
            connection.connect(str(self._run / SOCKET))
            connection.sendall(f"{order}\n".encode())
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("r", encoding="utf-8") as answer:
                lines = answer.read().splitlines()
        for line in lines:
            if line.startswith("state error "):
                raise OSError(line[len("state error ") :])
        return lines[:-1]

    def _keep(self, given: Loaded) -> None:
        new = self._run / f"{GIVEN}.new"
        new.write_text(json.dumps(given), "utf-8")
        new.replace(self._run / GIVEN)

    def _start(self, wanted: Loaded, members: dict[int, str]) -> None:
        policy = wanted["policy"]
        words = [str(self._programs / LOADER), str(self._programs / f"{policy}.bpf.o"), policy]
        if Path("/run/systemd/system").is_dir():
            # It outlives the service or the session that loads it.
            words = ["systemd-run", "--quiet", "--scope", f"--unit={LOADER}", "--collect", *words]
        self._keep(wanted)
        with (self._run / LOG).open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - the words are ours
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd="/",
            )
        assert process.stdin is not None  # noqa: S101 - for the types
        assert process.stdout is not None  # noqa: S101 - for the types
        orders = [f"settings {wanted['cpus']} {wanted['settings']}"]
        for name, domain in wanted["domains"].items():
            orders.append(f"domain {name} {domain['parameters']}")
        for thread, vcpu in members.items():
            if vcpu.split()[0] in wanted["domains"] and _is_there(thread):
                orders.append(_vcpu_order(wanted, thread, vcpu))
        # It ends if this process does before it is told to serve.
        self._tell(process.stdin, [*orders, "schedule"])
        self._await(process.stdout, "state scheduling")
        self._tell(process.stdin, [f"serve {self._run / SOCKET}"])
        self._await(process.stdout, "state serving")
        process.stdin.close()
        process.stdout.close()

    def _tell(self, orders: IO[bytes], lines: list[str]) -> None:
        try:
            orders.write("".join(f"{line}\n" for line in lines).encode())
            orders.flush()
        except BrokenPipeError:
            # It has ended, and its last line says why.
            return

    def _await(self, said: IO[bytes], state: str) -> None:
        for line in said:
            text = line.decode(errors="replace").strip()
            if text == state:
                return
            if text.startswith("state error "):
                raise OSError(text[len("state error ") :])
        log = (self._run / LOG).read_text("utf-8", "replace").strip().splitlines()
        raise OSError(f"{LOADER} ended: {log[-1] if log else 'without a word'}")

    def _end(self) -> None:
        self._ask("end")
        end_s = time.monotonic() + WAIT_S
        while self._loaded() == OPERATIONS:
            if time.monotonic() > end_s:
                raise OSError(f"{LOADER} does not end")
            time.sleep(0.05)
        for name in (GIVEN, LOG):
            (self._run / name).unlink(missing_ok=True)


def _is_change(given: Loaded, wanted: Loaded) -> bool:
    """Whether what is loaded becomes what is wanted without being loaded anew."""
    return (
        given["policy"] == wanted["policy"]
        and given["cpus"] == wanted["cpus"]
        and given["settings"] == wanted["settings"]
        and given["domains"].keys() <= wanted["domains"].keys()
    )


def _vcpu_order(given: Loaded, thread: int, vcpu: str) -> str:
    name, number = vcpu.split()
    cpus = given["domains"][name]["cpus"]
    cpu = cpus[int(number)] if int(number) < len(cpus) else 0
    return f"vcpu {name} {number} {thread} {cpu}"


def _is_there(thread: int) -> bool:
    try:
        os.sched_getaffinity(thread)
    except ProcessLookupError:
        return False
    return True
