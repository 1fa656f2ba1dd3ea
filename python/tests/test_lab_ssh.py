"""A real dom0 through the real ssh: the emulated machine, with a network card and an ssh server.

Its network is QEMU's own, and nothing leads into it but a port of this computer's loopback, and
nothing out. Keys are made for the test and go with it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from laxity import Host
from laxity.lab import cpio, image, machine, packages
from laxity.lab.errors import LabError
from laxity.lab.xen_machine import XenMachine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from conftest import Laxity

pytestmark = [
    pytest.mark.xen,
    *(
        pytest.mark.skipif(shutil.which(program) is None, reason=f"there is no {program}")
        for program in (machine.QEMU, "ssh", "ssh-keygen")
    ),
    pytest.mark.skipif(
        not (image.CACHE / "hypervisor/release/xen").is_file(),
        reason="the hypervisor has not been built: xen/build.sh release",
    ),
]

SERVER_PACKAGES = (
    *("dropbear-bin", "libcrypt1", "libgmp10", "libtomcrypt1", "libtommath1", "zlib1g"),
    *("libc6", "libgcc-s1"),
)
LIMIT_S = 7200
CONNECT_S_MAX = 600
RUN_S = 3000
"""How long the run is that is interrupted."""
CARD = "e1000"
"""One of QEMU's cards, whose driver is a single module."""

LISTENING = "listening"
TRACING = "/sys/kernel/tracing"

CONFIG = "config"
"""The file with ssh's configuration."""
CONTROL = "control"
"""The socket of the connection that is shared."""

INTERRUPTED = 130
"""An exit code."""

PLAN = f"""
ip link set lo up
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
mount -t tracefs nodev {TRACING}
# As a kernel that has them built in.
for module in /network/*; do
    insmod "$module"
done
# As on a host that keeps no logs of its guests' consoles.
killall xenconsoled
rm -r /var/log/xen/console
xenconsoled
dropbear -E -s -r /etc/host-key -P /run/dropbear.pid
while :; do
    echo "laxity: {LISTENING}"
    sleep 1
done
"""

HOST = """
duration = "1 s"
seed = 3

[host]
cpus = 1
policy = "polling"

[[domain]]
name = "control"
budget = "4 ms"
period = "10 ms"
tasks = [{ name = "loop", cost = "1 ms", period = "40 ms" }]

[[domain]]
name = "batch"
budget = "20 ms"
period = "50 ms"
workload = { kind = "cpu-bound" }
"""

CALLS = """
duration = "1 s"

[host]
cpus = 1
policy = "deferrable"

[[domain]]
name = "dom0"
budget = "5 ms"
period = "10 ms"
workload = { kind = "driver" }

[[domain]]
name = "media"
budget = "4 ms"
period = "10 ms"
workload = { kind = "media-server", threads = 1 }

[calls]
streams = 4
media-server = "media"
sample = 1
"""
"""A host file whose run lasts for a second."""


class OverError(Exception):
    """Nobody needs the machine any more."""


@dataclass(frozen=True)
class NetworkedMachine(XenMachine):
    """With a card, whose network is this computer's loopback."""

    port: int = 0

    def _command(self, *dom0_arguments: str) -> list[str]:
        forward = f"hostfwd=tcp:127.0.0.1:{self.port}-10.0.2.15:22"
        return [
            *super()._command(*dom0_arguments),
            *("-netdev", f"user,id=net,restrict=on,{forward}"),
            *("-device", f"{CARD},netdev=net,romfile="),
        ]


@dataclass(frozen=True)
class Dom0:
    """One that listens to ssh. What tests ask it goes through one connection, and visits, too,
    until `part`.
    """

    port: int
    directory: Path

    @property
    def place(self) -> str:
        return f"ssh://root@127.0.0.1:{self.port}"

    def part(self) -> None:
        """From now on each command of a visit has a connection of its own."""
        config = self.directory / CONFIG
        config.write_text(config.read_text().replace(shared(self.directory), ""))

    def run(self, command: str) -> str:
        option = f"-o{shared(self.directory).strip()}"
        done = subprocess.run(
            [shutil.which("ssh") or "", option, "--", self.place, command],
            capture_output=True,
            text=True,
            check=False,
            timeout=1800,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def state(self) -> tuple[str, Any]:
        """What a visit must leave as it was: domains, files and processes; parameters."""
        seen, told = self.run(
            "xl list | awk '{ print $1, $2 }'; ls /tmp /sys/class/net; "
            f"ls {TRACING}/instances; cat {TRACING}/kprobe_events; "
            "xl vcpu-list Domain-0 | awk '{ print $3, $7, $9 }'; "
            "ps -o args | grep -e laxity- -e visit.sh -e ^cat | grep -v grep; "
            "echo parameters:; /laxity/laxity-sched get --json"
        ).split("parameters:")
        parameters = json.loads(told)
        for pool in parameters["pools"]:
            for counter in ("decisions", "switches", "timers", "wakes"):
                del pool[counter]
        return seen, parameters


@pytest.fixture(scope="module")
def dom0(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dom0]:
    """On the PATH there is an `ssh` whose user has the key, and knows the host."""
    directory = tmp_path_factory.mktemp("dom0")
    try:
        built = image.build(say=lambda _: None)
        kernel, debs = packages_of_server()
    except LabError as error:
        pytest.skip(f"packages are missing: {error}")
    with (
        booted(directory, built, kernel, debs) as machine_,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PATH", f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}")
        yield machine_


def free_port() -> int:
    """A port below those that the kernel gives by itself: nobody gets it before QEMU does."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextmanager
def booted(directory: Path, built: image.Image, kernel: Path, debs: list[Path]) -> Iterator[Dom0]:
    """It is off afterwards."""
    port = free_port()
    plan, root = directory / "plan", directory / "root.cpio"
    plan.mkdir()
    (plan / "plan.sh").write_text(PLAN)
    modules = image.kernel(image.OTHER_MODULES).modules
    network = image.numbered("network", modules, image.NETBACK_MODULES)
    server = cpio.archive([*server_of(directory, debs, port), driver(kernel), *network])
    root.write_bytes(built.root.read_bytes() + server)
    emulated = NetworkedMachine(
        image.hypervisor("release", lambda _: None),
        image.Image(built.kernel, root),
        plan,
        mode="live",
        # Files are in memory, and the kernel of the guests is sent here once more.
        dom0_memory_mib=512,
        xen_arguments="sched=laxity laxity=deferrable",
        limit_s=LIMIT_S,
        port=port,
    )
    listens, over, failures = threading.Event(), threading.Event(), list[Exception]()

    def say(line: str) -> None:
        if line == LISTENING:
            listens.set()
        if over.is_set():
            raise OverError

    def boot() -> None:
        try:
            emulated.run(directory / "machine", say)
        except OverError:
            pass
        except LabError as error:
            failures.append(error)
        finally:
            listens.set()

    # QEMU ends with the thread that started it, at the latest.
    thread = threading.Thread(target=boot, daemon=True)
    thread.start()
    try:
        listens.wait()
        if failures:
            raise failures[0]
        with shared_connection(directory, port):
            yield Dom0(port, directory)
    finally:
        over.set()
        thread.join()
    assert failures == []


def shared(directory: Path) -> str:
    """The line of ssh's configuration with which commands share a connection."""
    return f"ControlPath {directory}/{CONTROL}\n"


@contextmanager
def shared_connection(directory: Path, port: int) -> Iterator[None]:
    """A connection that each ssh uses: to begin one takes the emulated machine seconds."""
    words = [str(directory / "bin/ssh"), "-M", "-N", "--", f"ssh://root@127.0.0.1:{port}"]
    said = directory / "connection.log"
    with (
        said.open("w") as log,
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=log) as connection,
    ):
        try:
            while not (directory / CONTROL).exists():
                assert connection.poll() is None, said.read_text()
                time.sleep(0.1)
            yield
        finally:
            # Asked to end, ssh has been seen to wait for the machine, which is to be turned off.
            connection.kill()


def packages_of_server() -> tuple[Path, list[Path]]:
    """The kernel's, and those of the ssh server."""
    downloads = packages.downloads((image._kernel_package(), *SERVER_PACKAGES))
    files = packages.fetch(downloads, image.CACHE / "packages")
    (kernel,) = (file for file in files if file.name.startswith("linux-image-"))
    return kernel, [file for file in files if file != kernel]


def server_of(directory: Path, debs: list[Path], port: int) -> list[cpio.Entry]:
    """An ssh server; and in `bin` of the directory, ssh for who may use it."""
    unpacked, key, host_key = (directory / name for name in ("unpacked", "key", "host-key"))
    for package in debs:
        packages.run("dpkg-deb", "--extract", package, unpacked)
    libraries = ":".join(str(unpacked / name) for name in image.LIBRARY_DIRECTORIES)
    dropbear, dropbearkey = unpacked / "usr/sbin/dropbear", unpacked / "usr/bin/dropbearkey"
    loader = (unpacked / image.LOADER, "--library-path", libraries)
    packages.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    told = packages.run(*loader, dropbearkey, "-t", "ed25519", "-f", host_key)
    (public,) = (line for line in told.splitlines() if line.startswith("ssh-ed25519 "))
    (directory / "known-hosts").write_text(f"[127.0.0.1]:{port} {public}\n")
    (directory / CONFIG).write_text(
        f"IdentityFile {key}\nIdentitiesOnly yes\nUserKnownHostsFile {directory}/known-hosts\n"
        + shared(directory)
    )
    ssh = directory / "bin/ssh"
    ssh.parent.mkdir()
    # ssh looks for the configuration of its user where the user database says, not in $HOME. What
    # comes first holds: a busy computer's emulated machine takes long to exchange keys.
    options = f"-F {directory}/{CONFIG} -o ConnectTimeout={CONNECT_S_MAX}"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
    ssh.chmod(0o755)
    return [
        cpio.file("bin/dropbear", dropbear, executable=True),
        *image.libraries(unpacked, [dropbear]),
        cpio.file("etc/host-key", host_key),
        cpio.file("etc/passwd", b"root::0:0::/root:/bin/sh\n"),
        cpio.file("etc/shells", b"/bin/sh\n"),
        cpio.file("root/.ssh/authorized_keys", key.with_suffix(".pub")),
    ]


def driver(kernel: Path) -> cpio.Entry:
    """The card's driver; init loads it."""
    unpack = f'dpkg-deb --fsys-tarfile "$0" | tar -xO --occurrence=1 --wildcards "*/{CARD}.ko"'
    done = subprocess.run(["/bin/sh", "-c", unpack, kernel], capture_output=True, check=True)
    return cpio.file(f"modules/9-{CARD}.ko", done.stdout)


def visit(words: tuple[object, ...], dom0: Dom0, interrupt_at: str | None = None) -> int:
    """Runs the command; its exit code. With `interrupt_at`, which is a test in dom0's shell, it is
    interrupted when that holds.
    """
    command = [sys.executable, "-c", "from laxity.cli import main; main()", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        while interrupt_at and process.poll() is None:
            if "now" in dom0.run(f"{interrupt_at} && echo now || sleep 0.5"):
                process.send_signal(signal.SIGINT)
                break
        _, said = process.communicate()
    assert process.returncode in (0, INTERRUPTED), said.decode()
    return process.returncode


def test_a_visit_through_ssh(dom0: Dom0, laxity: Laxity, tmp_path: Path) -> None:
    """Runs, leaves results here, and nothing there: not when it is interrupted either."""
    path, out = tmp_path / "host.toml", tmp_path / "out"
    path.write_text(HOST)
    words = ("run", path, "--on", "xen", "--mode", "live", "--at", dom0.place)
    laxity("sched", "--at", dom0.place, "set", "Domain-0", "budget=3ms", "priority=5")
    before = dom0.state()

    # First: Xen's trace buffers stay as large as the first run needs them.
    calls, heard = tmp_path / "calls.toml", tmp_path / "heard"
    calls.write_text(CALLS)
    with_calls = (*words[:1], calls, *words[2:])
    assert visit((*with_calls, "-o", heard), dom0) == 0
    voice = json.loads((heard / "result.json").read_text())["telephony"]["voice"]
    assert voice["streams_most"] == 4
    # How many are sent, and whether one of them arrives, depends on how busy this computer is.
    assert voice["received"] + voice["lost"] == voice["sent"]
    assert dom0.state() == before

    assert visit((*words, "-o", out), dom0) == 0
    result = json.loads((out / "result.json").read_text())
    assert (result["substrate"], result["policy"]) == ("xen", "polling")
    control, batch = result["domains"]
    assert control["jobs"] == 25
    assert control["cpu_ns"] > 0
    # Its budget is 0.4 s; a busy computer, which stops the whole machine, makes that inexact.
    assert 0 < batch["cpu_ns"] <= 1e9
    assert "laxity-report-end run" in (out / "xen/results/laxity-control.console").read_text()
    assert "Laxity" in (out / "xen/console.log").read_text()
    laxity("trace", out, "--text")
    assert dom0.state() == before

    with_packets = ("--duration", "1 s", "--packet-delay", "1 ms")
    laxity("observe", "--at", dom0.place, *with_packets, "-o", tmp_path / "seen")
    # No guest is there that a packet could be for.
    said = "Nothing was late or lost, as far as the trace tells"
    assert said in laxity("why", tmp_path / "seen").stdout
    seen = Host.load(tmp_path / "seen" / "host.toml").resolved()
    (only,) = seen["domains"]
    assert (seen["policy"], only["name"]) == ("deferrable", "Domain-0")
    parameters = only["parameters"]
    assert (parameters["budget_ns"], parameters["priority"]) == (3_000_000, 5)
    assert dom0.state() == before

    dom0.part()
    began_s = time.monotonic()
    tracing = "pidof laxity-trace >/dev/null"
    assert visit((*words, "--duration", f"{RUN_S} s"), dom0, tracing) == INTERRUPTED
    assert time.monotonic() - began_s < RUN_S, "it waited for the end of the run"
    assert dom0.state() == before

    def refused(*others: str, message: str) -> None:
        assert message in laxity(*words, *others, code=2).stderr

    refused("--set", "host.cpus=2", message="has 1")
    assert "that of" in laxity(*with_calls, "--set", "domain.dom0.vcpus=2", code=2).stderr
    refused("--scheduler", "credit", message="and not credit")
    assert dom0.state() == before
