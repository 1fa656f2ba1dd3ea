"""Executors of plans: an emulated machine, this machine's dom0, and a real host through ssh.

The last two do the same steps, by shell commands that run here or there: look whether the host is
a dom0 that can do it, copy programs and plan into a temporary directory, run `visit.sh`, fetch the
results. Domains that the plan created are destroyed, the scheduler's parameters restored and the
directory removed whatever happens, Ctrl-C included. If the host cannot be reached any more, or we
are killed, the visit does all but the last by itself.
"""

from __future__ import annotations

import io
import json
import math
import re
import shlex
import signal
import subprocess
import tarfile
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from laxity.errors import InputError
from laxity.lab import image, machine
from laxity.lab.errors import LabError
from laxity.lab.files import CONSOLE, GUEST_ROOT, HOME, HOTPLUG, KERNEL, NETWORK_ROOT, RESULTS
from laxity.policies import PARAMETERS, can_switch
from laxity.substrates.xen import packets
from laxity.substrates.xen.plan import DOM0

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from laxity.lab.modes import Mode, Variant
    from laxity.progress import Say
    from laxity.substrates.xen.plan import Plan

EMULATOR = "emulator"
LOCAL = "local"
SSH = "ssh://"

SSH_COMMAND = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15")
"""Never asks for a password; gives up on a host that does not answer."""
SSH_ITSELF_FAILED = 255

KILLED = 128
"""The exit code of who was ended by a signal is this and its number."""

DOM0_MIB = 320
EMULATION_S_MIN = 1200.0
EMULATION_S_PER_S = 30.0
"""How much longer than the estimate a busy computer may take."""

STEP_S_MAX = 600.0
"""For a command that only looks or tidies up, and for one that copies beside its bytes."""
LINK_MIB_PER_S = 0.5
"""The slowest link that we copy through."""
BOOTING_S_MAX = 600.0
"""For each guest, as in lib.sh."""
VISIT_S_MAX = 1200.0
"""For all that is neither."""
TRIES_S = 7.0
"""For each second of a run, which lib.sh may try as often but one."""

SCHED = "laxity-sched"
PROGRAMS = (SCHED, "laxity-trace")
SCRIPTS = ("lib.sh", "visit.sh")
"""What a real host needs of ours; the rest of the lab's programs are for the emulated machine."""
RESTORE = "restore.sh"
"""Beside them: what visit.sh does in the end."""

VCPU_ROW = re.compile(r"\S+ +\d+ +(\d+) +\d+ +\S+ +[\d.]+ +(\S+) / (\S+)")
"""A VCPU of `xl vcpu-list`: its number, and the CPUs on which it may and should run."""

POOL_KEYS = {
    "policy": "policy",
    **{each.field: each.name for each in PARAMETERS.values() if each.is_setting},
}
VCPU_KEYS = {each.field: each.name for each in PARAMETERS.values() if not each.is_setting}
"""What laxity-sched tells, and how it is set."""

MESSAGE_LINES_MAX = 3


class Executor(Protocol):
    """Carries out plans on a Xen host."""

    @property
    def mode(self) -> Mode:
        """The mode of the plans that it takes."""
        ...

    def execute(self, plan: Plan, directory: Path, say: Say) -> None:
        """Carries out a plan.

        Leaves what dom0 wrote in RESULTS of `directory`, which is there and empty, and beside it
        Xen's log, CONSOLE. Raises InputError if the place cannot do this plan, LabError if it fails
        on the way; what there is by then stays there.
        """
        ...


def executor(at: str, mode: Mode) -> Executor:
    """Returns the executor at `emulator`, `local`, or `ssh://USER@HOST`.

    Raises InputError if there is no such place, or it does not run in that mode.
    """
    if at == EMULATOR:
        return Emulated(mode)
    if mode != "live":
        raise InputError(
            f"a run at {at} is in the time on the wall, which does not repeat",
            "add --mode live, or leave --at out for the emulated machine",
        )
    return real_host(at)


def real_host(at: str) -> RealHost:
    """The real host of that name: `local`, or `ssh://USER@HOST`. InputError if none is."""
    if at == LOCAL:
        return RealHost("this machine", ("sh", "-c"))
    host = at.removeprefix(SSH)
    if host == at or not re.fullmatch(r"[^\s/-][^\s/]*", host):
        raise InputError(
            f"there is no place {at!r}",
            f"the places are {EMULATOR}, {LOCAL} and {SSH}root@HOST[:PORT]",
        )
    return RealHost(host, (*SSH_COMMAND, "--", at))


@dataclass(frozen=True)
class Emulated:
    """A machine that this one emulates."""

    mode: Mode = "repeatable"
    build: Variant = "release"
    """The build of the hypervisor; a measured one traces what its scheduler costs."""

    def execute(self, plan: Plan, directory: Path, say: Say) -> None:
        """See Executor. In repeatable mode the same plan leaves the same bytes."""
        hypervisor = image.hypervisor(self.build, say)
        built = image.build(say=say)
        with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
            plan.write(Path(temporary), HOME)
            machine.Machine(
                hypervisor,
                built,
                Path(temporary),
                mode=self.mode,
                cpus=plan.cpus,
                dom0_memory_mib=DOM0_MIB + math.ceil(plan.traced_mib),
                xen_arguments=" ".join(plan.hypervisor_arguments),
                beside=_network(say) if plan.has_packets else b"",
                limit_s=EMULATION_S_MIN + EMULATION_S_PER_S * plan.estimate_s,
            ).run(directory, say)


@dataclass(frozen=True)
class RealHost:
    """A dom0 that runs shell commands."""

    name: str
    """How messages call it."""
    shell: tuple[str, ...]
    """The program and its arguments that run the command that comes behind them."""
    mode: Mode = "live"

    def execute(self, plan: Plan, directory: Path, say: Say) -> None:
        """See Executor."""
        self._refuse_unless_able(plan)
        files = _files(say) | (_network_files(say) if plan.has_packets else {})
        with _tidy_when_ended(), self._directory() as home:
            say(f"copying programs to {self.name}")
            script = {f"plan/{name}": text.encode() for name, text in plan.files(home).items()}
            self._send(home, {**files, **script})
            if restoring := self._restoring(home, plan):
                self._send(home, {RESTORE: restoring.encode()})
            say(f"running on {self.name}")
            try:
                self._visit(home, plan)
            except LabError:
                self._fetch(home, plan, directory)
                raise
            self._fetch(home, plan, directory)

    def sched(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Runs laxity-sched there with these words: its exit code, output and complaints."""
        program = {SCHED: (image.programs(_silent) / SCHED).read_bytes()}
        with self._directory() as home:
            self._send(home, program)
            done = self._run(shlex.join([f"{home}/{SCHED}", *words]))
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def _refuse_unless_able(self, plan: Plan) -> None:
        """Before anything is copied."""
        done = self._run("xl info")
        if done.returncode != 0:
            raise InputError(
                f"{self.name} is not a Xen host where we may do this: {_end(done.stderr)}",
                "it must be dom0 of a running Xen, with xl, and the user be root",
            )
        # libxl names a scheduler that it does not know, such as Laxity's, "(null)" or the like.
        info = dict(re.findall(r"^(\w+)\s*: (.*)$", done.stdout.decode(), re.MULTILINE))
        cpus, scheduler = int(info.get("nr_cpus", 0)), info.get("xen_scheduler")
        if cpus < plan.cpus:
            raise InputError(
                f"`host.cpus` is {plan.cpus}, and {self.name} has {cpus}",
                f"add --set host.cpus={cpus}",
            )
        if plan.scheduler not in (None, scheduler):
            raise InputError(
                f"{self.name} runs the scheduler {scheduler}, and not {plan.scheduler}",
                f"boot it with sched={plan.scheduler} on Xen's command line",
            )
        listed = self._checked("xl list").decode().splitlines()[1:]
        there = {line.split()[0] for line in listed if line.strip()}
        if taken := [name for name in plan.domains if name in there]:
            raise InputError(
                f"{self.name} already has {', '.join(taken)}",
                f"if they are left over, xl destroy {taken[0]} and so on",
            )
        if (driver := packets.driver(plan.windows[0].host)) is not None:
            vcpus, given = len(self._vcpus()), len(driver["vcpus"])
            if vcpus != given:
                raise InputError(
                    f"`domain.{driver['name']}` is dom0 and has VCPUs: {given}, and that of "
                    f"{self.name} has {vcpus}",
                    f"add --set domain.{driver['name']}.vcpus={vcpus}, or there "
                    f"`xl vcpu-set {DOM0} {given}`",
                )
            if plan.scheduler == "rtds":
                raise InputError(
                    f"`domain.{driver['name']}` is dom0, and what rtds gives it now we could not "
                    "give back",
                    "choose another --scheduler",
                )
        if plan.has_packets and self._run(f"ip link show dev {packets.BRIDGE}").returncode == 0:
            raise InputError(
                f"{self.name} already has a network interface {packets.BRIDGE}",
                f"if it is left over, ip link delete {packets.BRIDGE}",
            )

    def _vcpus(self) -> list[tuple[str, str, str]]:
        """Returns each of dom0's VCPUs: its number, and the CPUs where it may and should run."""
        listed = self._checked(f"xl vcpu-list {DOM0}").decode().splitlines()[1:]
        rows = filter(None, (VCPU_ROW.fullmatch(line.rstrip()) for line in listed))
        return [(row[1], row[2], row[3]) for row in rows]

    def _restoring(self, home: str, plan: Plan) -> str:
        """A script that gives the pool its policy and settings back, and dom0 its parameters.

        InputError if the plan is for our scheduler, and another runs, or one that cannot change to
        the plan's policy.
        """
        return self._restoring_scheduler(home, plan) + self._restoring_driver(plan)

    def _restoring_driver(self, plan: Plan) -> str:
        """The part for dom0, where the plan says how it runs: affinity, and Xen's own weight."""
        if packets.driver(plan.windows[0].host) is None:
            return ""
        lines = [
            f"xl vcpu-pin {DOM0} {vcpu} {shlex.quote(hard)} {shlex.quote(soft)}\n"
            for vcpu, hard, soft in self._vcpus()
        ]
        if plan.scheduler in ("credit", "credit2"):
            command = f"xl sched-{plan.scheduler} -d {DOM0}"
            _, _, weight, cap = self._checked(command).decode().splitlines()[-1].split()
            lines.append(f"{command} -w {int(weight)} -c {int(cap)}\n")
        return "".join(lines)

    def _restoring_scheduler(self, home: str, plan: Plan) -> str:
        """The part for the scheduler; see _restoring."""
        if plan.scheduler == "credit":
            told = self._checked("xl sched-credit -s -p Pool-0").decode()
            slice_ms = re.search(r"tslice=(\d+)ms", told)
            return f"xl sched-credit -s -p Pool-0 -t {slice_ms[1]}\n" if slice_ms else ""
        if plan.scheduler is not None:
            return ""
        sched = f"{home}/{SCHED}"
        done = self._run(f"{sched} get --json {DOM0}")
        pool = json.loads(done.stdout)["pools"][0] if done.returncode == 0 else {}
        if pool.get("scheduler") != "laxity":
            raise InputError(
                f"the hypervisor of {self.name} does not run Laxity's scheduler",
                "boot what xen/build.sh builds with sched=laxity, or choose one of Xen's own "
                "with --scheduler",
            )
        policies = {pool["policy"], plan.policy}
        if not can_switch(policies):
            raise InputError(
                f"{self.name} runs the policy {pool['policy']}, which cannot be changed into "
                f"{plan.policy} while domains run",
                f"boot it with laxity={plan.policy} on Xen's command line",
            )
        (dom0,) = json.loads(done.stdout)["domains"]
        restore = [
            f"{sched} set --pool {pool['id']} {_assignments(pool, POOL_KEYS)}",
            # The VCPUs that dom0 may get come first, and then those that it has.
            f"{sched} set {DOM0} {_assignments(dom0, VCPU_KEYS)}",
        ]
        restore += [
            f"{sched} set {DOM0}/{vcpu['id']} {_assignments(vcpu, VCPU_KEYS)}"
            for vcpu in dom0["vcpu"]
        ]
        return " &&\n".join(restore) + "\n"

    def _visit(self, home: str, plan: Plan) -> None:
        running_s: float = sum(window.host["duration_ns"] for window in plan.windows) / 1e9
        limit_s = VISIT_S_MAX + BOOTING_S_MAX * len(plan.domains) + TRIES_S * running_s
        try:
            # Not the last command, which a shell may turn into: interrupted, we kill that shell,
            # and the visit has to be there to tidy up.
            done = self._run(f"sh {home}/visit.sh {home}; exit $?", limit_s=limit_s)
        finally:
            self._checked(f"sh {home}/visit.sh --leave {home}")
        if done.returncode != 0:
            raise LabError(f"the run on {self.name} failed: {_end(done.stderr)}")

    @contextmanager
    def _directory(self) -> Iterator[str]:
        """A directory there, which is removed in the end."""
        home = self._checked("mktemp -d /tmp/laxity.XXXXXXXX").decode().strip()
        if re.fullmatch(r"/tmp/laxity\.\w{8}", home) is None:  # noqa: S108 - made by mktemp
            raise LabError(f"{self.name} made no temporary directory, but said {home!r}")
        try:
            yield home
        finally:
            self._checked(f"rm -rf {home}")

    def _send(self, directory: str, files: Mapping[str, bytes]) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
        self._checked(f"tar -xzf - -C {directory}", archive.getvalue())

    def _fetch(self, home: str, plan: Plan, directory: Path) -> None:
        """What the plan left, if it left anything, and Xen's log."""
        limit_s = STEP_S_MAX + plan.traced_mib / LINK_MIB_PER_S
        done = self._run(f"tar -czf - -C {home}/{RESULTS} .", limit_s=limit_s)
        if done.returncode == 0:
            with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
                tar.extractall(directory / RESULTS, filter="data")
        (directory / CONSOLE).write_bytes(self._checked("xl dmesg"))

    def _checked(self, command: str, given: bytes = b"") -> bytes:
        limit_s = STEP_S_MAX + len(given) / 2**20 / LINK_MIB_PER_S
        done = self._run(command, given, limit_s=limit_s)
        if done.returncode != 0:
            raise LabError(f"on {self.name}, `{command}` failed: {_end(done.stderr)}")
        return done.stdout

    def _run(
        self, command: str, given: bytes = b"", *, limit_s: float = STEP_S_MAX
    ) -> subprocess.CompletedProcess[bytes]:
        """A command for the host's shell; what is not ours in it has been quoted."""
        try:
            # A file: to write into a pipe that a failed command does not read would end us. And in
            # a session of its own the command does not hear the Ctrl-C that is for us.
            with tempfile.TemporaryFile() as file:
                file.write(given)
                file.seek(0)
                done = subprocess.run(  # noqa: S603 - ssh or sh, with commands of this file
                    [*self.shell, command],
                    stdin=file,
                    capture_output=True,
                    check=False,
                    timeout=limit_s,
                    start_new_session=True,
                )
        except FileNotFoundError:
            raise InputError(
                f"there is no program {self.shell[0]}", f"install {self.shell[0]}"
            ) from None
        except subprocess.TimeoutExpired:
            raise LabError(f"{self.name} took more than {limit_s:.0f} s for `{command}`") from None
        if self.shell[0] == SSH_COMMAND[0] and done.returncode == SSH_ITSELF_FAILED:
            raise LabError(
                f"ssh does not reach {self.name}: {_end(done.stderr)}",
                f"see that `{shlex.join([*self.shell, 'true'])}` works without a password",
            )
        return done


@contextmanager
def _tidy_when_ended() -> Iterator[None]:
    """To be terminated, or to lose the terminal, is as Ctrl-C: what is to be tidied up, is."""

    def end(number: int, frame: object) -> NoReturn:
        del frame
        raise SystemExit(KILLED + number)

    before = {}
    # Elsewhere signals are not ours to handle; and who ignores one, as nohup does, means it.
    if threading.current_thread() is threading.main_thread():
        before = {
            number: signal.signal(number, end)
            for number in (signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silent(line: str) -> None:
    del line


def _assignments(told: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    """For laxity-sched, which writes a flag as true and takes it as 1."""
    values = {
        name: int(told[key]) if isinstance(told[key], bool) else told[key]
        for key, name in keys.items()
    }
    return " ".join(f"{name}={value}" for name, value in values.items())


def _network(say: Say) -> bytes:
    """What calls need: in dom0 their parties, in a guest the media server."""
    media = image.static(packets.PROGRAM, say)
    return image.network([media], [media])


def _files(say: Say) -> dict[str, bytes]:
    """What a real host needs beside the plan."""
    made = image.programs(say)
    scripts = image.XEN / "lab"
    return {
        **{name: (made / name).read_bytes() for name in PROGRAMS},
        **{name: (scripts / name).read_bytes() for name in SCRIPTS},
        KERNEL: image.build(say=say).kernel.read_bytes(),
        GUEST_ROOT: image.guest_root(made / image.GUEST_PROGRAM),
    }


def _network_files(say: Say) -> dict[str, bytes]:
    """What it needs for calls: their parties in dom0, the media server in a guest."""
    media = image.static(packets.PROGRAM, say)
    return {
        packets.PROGRAM: media.read_bytes(),
        HOTPLUG: (image.XEN / "lab" / HOTPLUG).read_bytes(),
        NETWORK_ROOT: image.network_root([media]),
    }


def _end(text: bytes) -> str:
    """The last lines of what a program complained of, in one."""
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return "; ".join(lines[-MESSAGE_LINES_MAX:]) or "it did not say why"
