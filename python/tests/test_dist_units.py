"""The shipped units do their work under systemd, and what security.md promises holds there."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from booted import Booted, booted
from test_dist import CHECKOUT, DIST, unpack
from test_units import EXPOSURE_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.dist

ROOT = CHECKOUT / "out" / "debian-12-booted.tar"
PACKAGES = "systemd-sysv,dbus,procps,iproute2,qemu-system-x86"
GUEST = CHECKOUT / "target" / "protect"
HOSTS = ("north", "south")
ADDRESSES = {"north": "192.0.2.1", "south": "192.0.2.2"}
GUEST_ADDRESS = "192.0.2.10"
PATIENCE_S = 600.0

SITE = """\
directory = "/var/lib/laxity-protect"
[[host]]
name = "north"
address = "192.0.2.1:7421"
[[host]]
name = "south"
address = "192.0.2.2:7421"
[[vm]]
name = "counter"
hosts = ["north", "south"]
tap = "tap0"
kernel = "/var/lib/guest/kernel"
initrd = "/var/lib/guest/counter.cpio"
memory = "96 MiB"
accelerator = "tcg"
"""
AGREEMENTS = """\
[link]
interface = "cable"
rate = "1 Gbit/s"
[[agreement]]
name = "counter"
interface = "tap0"
class = 1
minimum = "300 Mbit/s"
maximum = "600 Mbit/s"
"""

# Asks the guest of the tests of failures to count, and prints what it has counted.
ASK = f"""
import socket, struct, time
until = time.monotonic() + {PATIENCE_S}
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
    asks.settimeout(0.2)
    while time.monotonic() < until:
        try:
            asks.sendto(struct.pack("<Q", 1), ("{GUEST_ADDRESS}", 7))
            print(*struct.unpack("<QQQ", asks.recv(24)))
            break
        except OSError:
            time.sleep(0.05)
"""


def _run(*words: object) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def wait_until(what: str, is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.1)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A network namespace a host, with a bridge and a tap device, and a cable between both."""
    names = {host: f"{tmp_path.name}-{host}" for host in HOSTS}
    with contextlib.ExitStack() as ends:
        for name in names.values():
            _run("ip", "netns", "add", name)
            ends.callback(_run, "ip", "netns", "delete", name)
        north, south = names.values()
        cable = ("ip", "-n", north, "link", "add", "cable", "type", "veth", "peer", "name", "cable")
        _run(*cable, "netns", south)
        for host, name in names.items():
            for words in (
                "link set lo up",
                "link add br0 type bridge forward_delay 0",
                f"address add {ADDRESSES[host]}/24 dev br0",
                "link set br0 up",
                "link set cable master br0 up",
                "tuntap add dev tap0 mode tap",
                "link set tap0 master br0 up",
            ):
                _run("ip", "-n", name, *words.split())
        yield names


@pytest.fixture
def hosts(network: dict[str, str], tmp_path: Path) -> Iterator[dict[str, Booted]]:
    """Two systems with the packages of both daemons, the site's file and each its own keys."""
    if not (GUEST / "counter.cpio").exists():
        pytest.skip("the guest is not built: make protect-guest")
    debian = unpack(ROOT, PACKAGES, tmp_path / "debian")
    for name in ("laxity-bandwidth", "laxity-protect"):
        (package,) = DIST.glob(f"{name}_*.deb")
        shutil.copy(package, debian.root / "package.deb")
        debian.run("dpkg", "--install", "/package.deb")
    etc = debian.root / "etc/laxity-protect"
    etc.mkdir()
    (etc / "site.toml").write_text(SITE, "utf-8")
    debian.run("laxity-protect", "keys", "/etc/laxity-protect/site.toml", "/keys")
    (debian.root / "etc/laxity").mkdir()
    (debian.root / "etc/laxity/agreements.toml").write_text(AGREEMENTS, "utf-8")
    shutil.copytree(GUEST, debian.root / "var/lib/guest")
    with contextlib.ExitStack() as ends:
        systems = {}
        for host in HOSTS:
            layer = tmp_path / host
            layer.mkdir()
            _run("mount", "-t", "tmpfs", "tmpfs", layer)
            ends.callback(_run, "umount", "--lazy", layer)
            root, upper, work = (layer / name for name in ("root", "upper", "work"))
            for each in (root, upper, work):
                each.mkdir()
            options = f"lowerdir={debian.root},upperdir={upper},workdir={work}"
            _run("mount", "-t", "overlay", "overlay", "-o", options, root)
            ends.callback(_run, "umount", "--lazy", root)
            for key in ("site.crt", f"{host}.crt", f"{host}.key"):
                shutil.copy(debian.root / "keys" / key, root / "etc/laxity-protect")
            systems[host] = ends.enter_context(booted(root, host, network[host]))
        yield systems


def _state(host: Booted) -> str:
    """The guest's state at a host, in one word."""
    shown = host.run("laxity-protect", "status", code=None).stdout
    found = re.search(r"^counter +(\S+)", shown, re.MULTILINE)
    return found[1] if found else ""


def _status(host: Booted, process: str) -> dict[str, str]:
    """The kernel's account of a process."""
    lines = host.run("cat", f"/proc/{process}/status").stdout.splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _is_refused(host: Booted, *words: str) -> bool:
    """Whether an ordinary user may not do it."""
    as_nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    return host.run(*as_nobody, *words, code=None).returncode != 0


def _count(network: str) -> int:
    """The guest's next count, for a client in this namespace."""
    answer = _run("ip", "netns", "exec", network, sys.executable, "-c", ASK).split()
    assert len(answer) == 3, "the guest does not answer"
    assert answer[2] == "0", "half a checkpoint"
    return int(answer[1])


def test_units_hold_what_is_promised(hosts: dict[str, Booted], network: dict[str, str]) -> None:
    """Two units protect a guest; one of them is killed, and the other host goes on."""
    north, south = hosts.values()
    for host in hosts.values():
        host.run("systemctl", "start", "laxity-protect", "laxity-bandwidth")
    wait_until("the guest is not protected", lambda: _state(north) == "protected")
    before = _count(network["south"])

    for host in hosts.values():
        for name, most in EXPOSURE_MAX.items():
            unit = name.rpartition("/")[2]
            rated = host.run("systemd-analyze", "security", "--no-pager", unit).stdout
            found = re.search(r"exposure level for \S+: ([0-9.]+)", rated)
            assert found is not None, rated
            assert float(found[1]) <= most, rated
        assert "counter" in host.run("laxity-bandwidth", "status").stdout
        daemon = host.run("systemctl", "show", "--value", "-p", "MainPID", "laxity-protect").stdout
        account = _status(host, daemon.strip())
        assert (account["NoNewPrivs"], account["Seccomp"]) == ("1", "2")
        (qemu,) = host.run("pgrep", "qemu").stdout.split()
        account = _status(host, qemu)
        assert int(account["Uid"].split()[0]) >= 0x7000_0000
        assert (account["NoNewPrivs"], account["Seccomp"]) == ("1", "2")
        assert all(int(account[of], 16) == 0 for of in ("CapEff", "CapPrm", "CapInh", "CapAmb"))
        # An ordinary user neither asks, nor reads keys, nor reads the memory of a guest.
        assert _is_refused(host, "laxity-protect", "status")
        assert _is_refused(host, "laxity-bandwidth", "status")
        assert _is_refused(host, "ls", "/run/laxity-protect")
        assert _is_refused(host, "ls", "/run/credentials/laxity-protect.service")
        assert _is_refused(host, "ls", f"/proc/{qemu}/fd")
    key = "/etc/laxity-protect/north.key"
    assert north.run("stat", "--format=%a %U", key).stdout.split() == ["600", "root"]
    assert _is_refused(north, "cat", key)

    # All processes of the unit die, and systemd starts the daemon again: south has taken over.
    north.run("systemctl", "kill", "--signal=KILL", "laxity-protect")
    wait_until("nobody takes over", lambda: _state(south) in {"alone", "copying", "protected"})
    after = _count(network["north"])
    assert after > before
    wait_until("it is not protected again", lambda: _state(south) == "protected")
    assert _count(network["north"]) > after
