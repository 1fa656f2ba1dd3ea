"""Run in namespaces of its own: libvirt starts a guest twice beside a daemon of agreements.

    libvirt_agreements.py ROOT DIRECTORY PROGRAM

ROOT has Debian's libvirt and QEMU. DIRECTORY has domain.xml and the agreements files; told.json, of
what happened, and the log go there. PROGRAM is laxity-bandwidth.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libvirt_host

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT, HERE, PROGRAM = map(Path, sys.argv[1:])
SOCKET = "/srv/socket"
DAEMONS: list[subprocess.Popen[bytes]] = []
LINKS = (
    "set lo up",
    "add br0 type bridge",
    "add up0 type veth peer name far",
    "set up0 master br0",
    *(f"set {name} up" for name in ("br0", "up0", "far")),
)
CONFIGURATION = f"""\
{libvirt_host.CONFIGURATION}
user = "root"
group = "root"
cgroup_controllers = []
"""
USER = 64056
"""The daemon has no more than it needs."""
AS_USER = (
    *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--no-new-privs"),
    *("--inh-caps=-all,+net_admin,+bpf", "--ambient-caps=-all,+net_admin,+bpf"),
    "--bounding-set=-all,+net_admin,+bpf",
)


def run(*words: str | Path) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def inside(*words: str) -> list[str | Path]:
    return ["chroot", ROOT, *words]


def prepare() -> None:
    for words in LINKS:
        run("ip", "link", *words.split())
    for place in ("etc", "run", "srv", "var", "tmp"):
        (ROOT / place).mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", ROOT / place)
    for place in ("dev", "proc", "sys"):
        (ROOT / place).mkdir(exist_ok=True)
    run("mount", "--rbind", "/dev", ROOT / "dev")
    run("mount", "-t", "proc", "proc", ROOT / "proc")
    run("mount", "-t", "sysfs", "sysfs", ROOT / "sys")
    for place in libvirt_host.DIRECTORIES:
        (ROOT / place).mkdir(parents=True)
    (ROOT / "run/laxity-bandwidth").mkdir()
    os.chown(ROOT / "run/laxity-bandwidth", USER, USER)
    (ROOT / "var/run").symlink_to("/run")
    (ROOT / "etc/passwd").write_text(f"{libvirt_host.USERS}laxity:x:{USER}:{USER}::/:/bin/false\n")
    (ROOT / "etc/group").write_text(f"{libvirt_host.GROUPS}laxity:x:{USER}:\n")
    (ROOT / "etc/libvirt/qemu.conf").write_text(CONFIGURATION)
    # Without D-Bus libvirt has nobody to ask whether it may answer a user.
    (ROOT / "etc/libvirt/libvirtd.conf").write_text('auth_unix_ro = "none"\n')
    for file in HERE.glob("*.*"):
        shutil.copy(file, ROOT / "srv")
    for program in (PROGRAM, *map(shutil.which, ("timeout", "setpriv"))):
        assert program is not None
        shutil.copy(program, ROOT / "srv")
    os.environ["PATH"] += ":/srv"


def tried(file: str) -> tuple[int, str]:
    words = inside(*AS_USER, "laxity-bandwidth", "run", f"/srv/{file}", "--dry-run")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def start_daemon(*words: str) -> subprocess.Popen[bytes]:
    log = (HERE / "log").open("ab")
    DAEMONS.append(subprocess.Popen(inside(*words), stdout=log, stderr=log))
    return DAEMONS[-1]


def check_daemons() -> None:
    for daemon in DAEMONS:
        assert daemon.poll() is None, f"{daemon.args} has ended"


def holder(is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Waits until the state of the agreement is so."""
    while True:
        check_daemons()
        words = inside("laxity-bandwidth", "status", "--json", "--socket", SOCKET)
        asked = subprocess.run(words, capture_output=True, check=False)
        if asked.returncode == 0:
            found: dict[str, Any] = json.loads(asked.stdout)["holders"][0]
            if is_so(found):
                return found
        time.sleep(0.05)


def start() -> dict[str, Any]:
    """Starts the guest, until frames of it have left by the link."""
    run(*inside("virsh", "start", "voice"))
    there = holder(lambda found: found["is_present"])
    sent = holder(lambda found: found["delivered_bytes"] > there["delivered_bytes"])
    return {**sent, "cards": run(*inside("virsh", "domiflist", "voice"))}


def stop() -> None:
    run(*inside("virsh", "destroy", "voice"))
    holder(lambda found: not found["is_present"])


def main() -> None:
    prepare()
    start_daemon("libvirtd", "--config", "/etc/libvirt/libvirtd.conf")
    version = inside("virsh", "version")
    while subprocess.run(version, capture_output=True, check=False).returncode != 0:
        check_daemons()
        time.sleep(0.1)
    run(*inside("virsh", "define", "/srv/domain.xml"))
    told: dict[str, Any] = {name: tried(f"{name}.toml") for name in ("strict", "unknown")}
    words = (*AS_USER, "laxity-bandwidth", "run", "/srv/agreements.toml", "--socket", SOCKET)
    daemon = start_daemon(*words)
    told["before"] = holder(lambda _: True)
    told["first"] = start()
    told["running"] = tried("strict.toml")
    stop()
    told["second"] = start()
    stop()
    daemon.terminate()
    told["ended"] = daemon.wait()
    (HERE / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
