"""A protected guest on this machine: two hosts that are daemons, in a namespace of the network.

The namespace has a bridge with a tap device for each host; the hosts talk over its loopback
interface, and clients reach the guest from the bridge's address. All of it goes with the site.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypedDict

from laxity import programs
from laxity.errors import InputError
from laxity.lab.machine import QEMU
from laxity.namespaces.network import GUEST_ADDRESS, taps
from laxity.namespaces.process import Place, Process, process, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from laxity.appliances.image import Appliance

PROGRAM = "laxity-protect"
HOSTS = ("north", "south")
VM = "guest"
PORTS = (7421, 7422)
"""The ports of the two hosts on the loopback interface."""
DETECTION_HEARTBEATS = 3
"""The least in `detection`: with so few, a standby waits for all of it."""
READY_S_MAX = 600.0
POLL_S = 0.02
TAKES_OVER = "taking over from checkpoint"
"""In the log of a standby."""
UP = "laxity: up at"
"""On an appliance's console."""
CONSOLE = "console"
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=1 cryptomgr.notests mitigations=off"
    # On a busy host an emulated timer is late, for which Linux would not boot.
    " no_timer_check"
    # The files of an appliance may take more than a half of its memory.
    " rootfstype=ramfs"
)
PROGRAMS = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    QEMU: "qemu-system-x86",
}

Mode = Literal["unprotected", "no-net", "net"]
"""Not at all; without and with output that waits for its checkpoint."""


class Pause(TypedDict):
    """How long a guest stands still for a checkpoint."""

    p50_ns: int
    p99_ns: int


class VmState(TypedDict):
    """What a host says of a virtual machine, as far as it is read here."""

    name: str
    state: str
    interval_ns: int | None
    last_pages: int
    """Changed pages in the last checkpoint."""
    pause: Pause


class Status(TypedDict):
    """What `laxity protect status --json` says."""

    vms: list[VmState]


@dataclass
class Site:
    """Two hosts, of which the first has the guest at the start."""

    place: Place
    mode: Mode
    _stack: ExitStack
    _daemons: dict[str, Process] = field(default_factory=dict)

    def start(self, host: str) -> None:
        """Starts the daemon of a host."""
        command = [str(programs.find(PROGRAM)), "run", f"{host}.toml", "--as", host]
        command += ["--socket", f"{host}.sock"]
        self._daemons[host] = self._stack.enter_context(process(host, command, self.place))

    def kill(self, host: str) -> None:
        """Kills the daemon and all that it has started at once, as a loss of power would."""
        popen = self._daemons.pop(host).popen
        os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()

    def status(self, host: str) -> VmState | None:
        """What a host says of the guest; None if it says nothing."""
        words = [str(programs.find(PROGRAM)), "status", "--json"]
        done = subprocess.run(
            [*words, "--socket", str(self.place.files / f"{host}.sock")],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            return None
        status: Status = json.loads(done.stdout)
        return status["vms"][0] if status["vms"] else None

    def wait_for(self, host: str, state: str) -> VmState:
        """Until the guest is in that state there, and returns what the host says of it then."""
        deadline_s = time.monotonic() + READY_S_MAX
        while True:
            status = self.status(host)
            if status is not None and status["state"] == state:
                return status
            daemon = self._daemons[host]
            if not daemon.is_running or time.monotonic() > deadline_s:
                was = status["state"] if status else "silent"
                raise InputError(
                    f"the guest on {host} is {was} and not {state}: {daemon.complaint()}"
                )
            time.sleep(POLL_S)

    def wait_for_takeover(self, host: str) -> int:
        """Until a host says that it takes over; when it did, in ns of the monotonic clock."""
        log = self.place.files / f"{host}.err"
        await_until(lambda: TAKES_OVER in log.read_text(), self._daemons[host].complaint)
        line = next(line for line in log.read_text().splitlines() if TAKES_OVER in line)
        said = datetime.fromisoformat(line.split()[0])
        return time.monotonic_ns() - time.time_ns() + round(said.timestamp() * 1e9)


@contextmanager
def site(
    files: Path,
    mode: Mode,
    appliance: Appliance,
    arguments: str,
    memory_mib: int = 128,
    detection_s: float | None = None,
) -> Iterator[Site]:
    """A guest that is up and, unless `mode` says otherwise, protected.

    `files` gets logs and consoles; `arguments` go to the guest's kernel. The standby takes over
    after `detection_s` of silence, however evenly it heard its primary; by default as the daemon's
    defaults have it. Raises InputError if that cannot be had on this machine.
    """
    require(PROGRAMS)
    with ExitStack() as stack:
        namespace = stack.enter_context(taps(HOSTS))
        made = Site(Place(namespace, files=files), mode, stack)
        arguments = f"{KERNEL_ARGUMENTS} address={GUEST_ADDRESS}/24 {arguments}".strip()
        (files / CONSOLE).touch()
        if mode == "unprotected":
            stack.enter_context(_alone(made.place, appliance, arguments, memory_mib))
        else:
            _write(files, mode, appliance, arguments, memory_mib, detection_s)
            for host in HOSTS:
                made.start(host)
            made.wait_for(HOSTS[0], "protected")
        await_until(lambda: UP in (files / CONSOLE).read_text(), lambda: "see its console")
        yield made


def _write(
    files: Path,
    mode: Mode,
    appliance: Appliance,
    arguments: str,
    memory_mib: int,
    detection_s: float | None,
) -> None:
    """The hosts' keys, and a site file for each, which differ by their tap device."""
    for host in HOSTS:
        lines = [f'directory = "{files}/{host}"', f'keys = "{files}/keys"']
        for name, port in zip(HOSTS, PORTS, strict=True):
            lines += ["", "[[host]]", f'name = "{name}"', f'address = "127.0.0.1:{port}"']
        lines += ["", "[[vm]]", f'name = "{VM}"', f"hosts = {list(HOSTS)}", f'mode = "{mode}"']
        # The machine without protection is emulated, too: only protection makes a difference.
        lines += ['accelerator = "tcg"']
        if detection_s is not None:
            heartbeat_ns = round(detection_s * 1e9 / DETECTION_HEARTBEATS)
            lines += [f'heartbeat = "{heartbeat_ns} ns"', f'detection = "{detection_s * 1e3:g} ms"']
        lines += [f'memory = "{memory_mib} MiB"', f'kernel = "{appliance.kernel}"']
        lines += [f'initrd = "{appliance.root}"', f'append = "{arguments}"', f'tap = "{host}"']
        lines += [f'addresses = ["{GUEST_ADDRESS}"]', f'console = "{files}/{CONSOLE}"']
        (files / f"{host}.toml").write_text("\n".join(lines) + "\n", "utf-8")
    done = subprocess.run(
        [str(programs.find(PROGRAM)), "keys", str(files / f"{HOSTS[0]}.toml"), str(files / "keys")],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise InputError(f"the hosts' keys cannot be made: {done.stderr.strip()}")


@contextmanager
def _alone(place: Place, appliance: Appliance, arguments: str, memory_mib: int) -> Iterator[None]:
    """The same guest, without a daemon."""
    command = [QEMU, "-M", "pc", "-accel", "tcg", "-m", str(memory_mib), "-nodefaults"]
    command += ["-display", "none", "-kernel", str(appliance.kernel)]
    command += ["-initrd", str(appliance.root), "-append", arguments]
    command += ["-serial", f"file:{CONSOLE}", "-device", "virtio-net-pci,netdev=net,romfile="]
    command += ["-netdev", f"tap,id=net,ifname={HOSTS[0]},script=no,downscript=no"]
    with process("alone", command, place):
        yield


def await_until(is_so: Callable[[], bool], why_not: Callable[[], str]) -> None:
    """Waits for something to be so. Raises InputError if it is not for too long."""
    deadline_s = time.monotonic() + READY_S_MAX
    while not is_so():
        if time.monotonic() > deadline_s:
            raise InputError(f"the guest does not come up: {why_not()}")
        time.sleep(POLL_S)
