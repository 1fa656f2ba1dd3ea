"""A Debian below a directory, booted by its own systemd in namespaces of its own, as root.

There is no virtual machine: the kernel is this one. systemd has a hierarchy of control groups of
its own (version 2, without controllers), a /dev with the few devices that are named, and the
network namespace that is named.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOT_S = 600.0
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "net/tun")

# Makes the directory a machine's root, and becomes its first process.
INIT = """
set -e
root=$1 name=$2
shift 2
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs dev
for device in "$@"; do
    mkdir -p "dev/$(dirname "$device")"
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
hostname "$name"
mkdir -p old
pivot_root . old
exec chroot . sh -c 'umount -l /old
    exec env -i container=other PATH=/usr/sbin:/usr/bin /lib/systemd/systemd --unit=basic.target'
"""


@dataclass(frozen=True)
class Booted:
    """A running system."""

    first: int
    """Number of its first process, seen from here."""

    def run(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Runs a program there; any exit code will do if `code` is None."""
        inside = ["nsenter", f"--target={self.first}", "--all", "env", "-i"]
        done = subprocess.run(
            [*inside, "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        assert code is None or done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done


def _control_groups() -> Path:
    """Where the hierarchy of version 2 is mounted here."""
    for line in Path("/proc/mounts").read_text("utf-8").splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise AssertionError("there is no hierarchy of control groups of version 2")


@contextmanager
def booted(root: Path, name: str, network: str) -> Iterator[Booted]:
    """The system below `root`, with this host name, in this network namespace of iproute2's."""
    group = _control_groups() / f"laxity-{os.getpid()}-{name}"
    group.mkdir()
    namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--cgroup"]
    enter = f'echo $$ >"{group}/cgroup.procs" && exec "$@"'
    command = ["ip", "netns", "exec", network, "unshare", *namespaces, "--propagation=private"]
    command += ["sh", "-c", INIT, "init", str(root), name, *DEVICES]
    (root / "etc/machine-id").write_text("", "utf-8")
    (root / "etc/hostname").write_text(f"{name}\n", "utf-8")
    with subprocess.Popen(["/bin/sh", "-c", enter, "enter", *command]) as outside:
        try:
            yield _first(outside)
        finally:
            outside.kill()
            outside.wait()
            _remove(group)


def _first(outside: subprocess.Popen[bytes]) -> Booted:
    """The system, once systemd has booted it."""
    until = time.monotonic() + BOOT_S
    children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")
    while time.monotonic() < until:
        assert outside.poll() is None, "systemd has ended"
        if first := children.read_text("utf-8").split():
            system = Booted(int(first[0]))
            asked = ("systemctl", "is-active", "basic.target")
            if system.run(*asked, code=None).returncode == 0:
                return system
        time.sleep(0.1)
    raise AssertionError("systemd does not come up")


def _remove(group: Path) -> None:
    """Removes a control group with all below it, once their processes have ended."""
    until = time.monotonic() + BOOT_S
    while group.exists() and time.monotonic() < until:
        for each in sorted(group.rglob("*/"), reverse=True):
            _try_rmdir(each)
        _try_rmdir(group)
        time.sleep(0.05)


def _try_rmdir(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()
