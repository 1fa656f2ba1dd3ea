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
import shlex
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from laxity.errors import InputError
from laxity.lab import image
from laxity.lab.errors import LabError, LeftRunningError, UnreachableError
from laxity.lab.files import CONSOLE, GUEST_ROOT, HOME, HOTPLUG, KERNEL, NETWORK_ROOT, RESULTS
from laxity.lab.xen_machine import XenMachine
from laxity.policies import OWN_PARAMETERS, can_switch
from laxity.shell import LINK_MIB_PER_S, STEP_S_MAX, Shell, end
from laxity.substrates.xen import packets, told
from laxity.substrates.xen.plan import DOM0
from laxity.substrates.xen.told import MILLISECOND_NS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from laxity.lab.modes import Mode, Variant
    from laxity.progress import Say
    from laxity.substrates.xen.plan import Plan

EMULATOR = "emulator"

DOM0_MIB = 320
EMULATION_S_MIN = 1200.0
EMULATION_S_PER_S = 30.0
"""How much longer than the estimate a busy computer may take."""

BOOTING_S_MAX = 600.0
"""For each guest, as in lib.sh."""
VISIT_S_MAX = 1200.0
"""For all that is neither."""
LEAVING_TRIES, LEAVING_PAUSE_S = 5, 2.0
"""To end a visit on a host that cannot be reached at once."""
TRIES_S = 7.0
"""For each second of a run, which lib.sh may try as often but one."""

SCHED = "laxity-sched"
PROGRAMS = (SCHED, "laxity-trace")
SCRIPTS = ("lib.sh", "visit.sh")
"""What a real host needs of ours; the rest of the lab's programs are for the emulated machine."""
RESTORE = "restore.sh"
"""Beside them: what visit.sh does in the end."""

POOL_KEYS = {
    "policy": "policy",
    **{each.field: each.name for each in OWN_PARAMETERS.values() if each.is_setting},
}
VCPU_KEYS = {each.field: each.name for each in OWN_PARAMETERS.values() if not each.is_setting}
"""What laxity-sched tells, and how it is set."""


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
    return RealHost(Shell.at(at, EMULATOR))


@dataclass(frozen=True)
class Emulated:
    """A machine that this one emulates."""

    mode: Mode = "repeatable"
    build: Variant = "release"
    """The build of the hypervisor; a measured one traces what its scheduler costs."""

    def execute(self, plan: Plan, directory: Path, say: Say) -> None:
        """See Executor. In repeatable mode the same plan leaves the same bytes."""
        hypervisor = image.hypervisor(self.build, say)
        image.programs(say)
        built = image.build(say=say)
        with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
            plan.write(Path(temporary), HOME)
            XenMachine(
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

    shell: Shell
    mode: Mode = "live"

    def execute(self, plan: Plan, directory: Path, say: Say) -> None:
        """See Executor."""
        self._refuse_unless_able(plan)
        files = _files(say) | (_network_files(say) if plan.has_packets else {})
        with self.shell.directory() as home:
            say(f"copying programs to {self.shell.name}")
            script = {f"plan/{name}": text.encode() for name, text in plan.files(home).items()}
            self.shell.send(home, {**files, **script})
            if restoring := self._restoring(home, plan):
                self.shell.send(home, {RESTORE: restoring.encode()})
            say(f"running on {self.shell.name}")
            try:
                self._visit(home, plan)
            except LabError:
                self._fetch(home, plan, directory)
                raise
            self._fetch(home, plan, directory)

    def sched(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Runs laxity-sched there with these words: its exit code, output and complaints."""
        program = {SCHED: (image.programs(_silent) / SCHED).read_bytes()}
        with self.shell.directory() as home:
            self.shell.send(home, program)
            done = self.shell.run(shlex.join([f"{home}/{SCHED}", *words]))
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def _refuse_unless_able(self, plan: Plan) -> None:
        """Before anything is copied."""
        done = self.shell.run("xl info")
        if done.returncode != 0:
            raise InputError(
                f"{self.shell.name} is not a Xen host where we may do this: {end(done.stderr)}",
                "it must be dom0 of a running Xen, with xl, and the user be root",
            )
        # libxl names a scheduler that it does not know, such as Laxity's, "(null)" or the like.
        info = told.info(done.stdout.decode())
        cpus, scheduler = int(info.get("nr_cpus", 0)), info.get("xen_scheduler")
        if cpus < plan.cpus:
            raise InputError(
                f"`host.cpus` is {plan.cpus}, and {self.shell.name} has {cpus}",
                f"add --set host.cpus={cpus}",
            )
        if plan.scheduler not in (None, scheduler):
            raise InputError(
                f"{self.shell.name} runs the scheduler {scheduler}, and not {plan.scheduler}",
                f"boot it with sched={plan.scheduler} on Xen's command line",
            )
        listed = self.shell.checked("xl list").decode().splitlines()[1:]
        there = {line.split()[0] for line in listed if line.strip()}
        if taken := [name for name in plan.domains if name in there]:
            raise InputError(
                f"{self.shell.name} already has {', '.join(taken)}",
                f"if they are left over, xl destroy {taken[0]} and so on",
            )
        if (driver := packets.driver(plan.windows[0].host)) is not None:
            vcpus, given = len(self._driver_vcpus()), len(driver["vcpus"])
            if vcpus != given:
                raise InputError(
                    f"`domain.{driver['name']}` is dom0 and has VCPUs: {given}, and that of "
                    f"{self.shell.name} has {vcpus}",
                    f"add --set domain.{driver['name']}.vcpus={vcpus}, or there "
                    f"`xl vcpu-set {DOM0} {given}`",
                )
            if plan.scheduler == "rtds":
                raise InputError(
                    f"`domain.{driver['name']}` is dom0, and what rtds gives it now we could not "
                    "give back",
                    "choose another --scheduler",
                )
        if (
            plan.has_packets
            and self.shell.run(f"ip link show dev {packets.BRIDGE}").returncode == 0
        ):
            raise InputError(
                f"{self.shell.name} already has a network interface {packets.BRIDGE}",
                f"if it is left over, ip link delete {packets.BRIDGE}",
            )

    def _driver_vcpus(self) -> dict[int, tuple[str, str]]:
        """The CPUs where dom0's VCPUs may and should run, by VCPU."""
        (dom0,) = told.domains(self.shell.checked(f"xl vcpu-list {DOM0}").decode())
        return dom0.affinity

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
            for vcpu, (hard, soft) in self._driver_vcpus().items()
        ]
        if plan.scheduler in ("credit", "credit2"):
            command = f"xl sched-{plan.scheduler} -d {DOM0}"
            _, _, weight, cap = self.shell.checked(command).decode().splitlines()[-1].split()
            lines.append(f"{command} -w {int(weight)} -c {int(cap)}\n")
        return "".join(lines)

    def _restoring_scheduler(self, home: str, plan: Plan) -> str:
        """The part for the scheduler; see _restoring."""
        if plan.scheduler == "credit":
            of_pool = "xl sched-credit -s -p Pool-0"
            slice_ns = told.time_slice_ns(self.shell.checked(of_pool).decode())
            return "" if slice_ns is None else f"{of_pool} -t {slice_ns // MILLISECOND_NS}\n"
        if plan.scheduler is not None:
            return ""
        sched = f"{home}/{SCHED}"
        done = self.shell.run(f"{sched} get --json {DOM0}")
        pool = json.loads(done.stdout)["pools"][0] if done.returncode == 0 else {}
        if pool.get("scheduler") != "laxity":
            raise InputError(
                f"the hypervisor of {self.shell.name} does not run Laxity's scheduler",
                "boot what xen/build.sh builds with sched=laxity, or choose one of Xen's own "
                "with --scheduler",
            )
        policies = {pool["policy"], plan.policy}
        if not can_switch(policies):
            raise InputError(
                f"{self.shell.name} runs the policy {pool['policy']}, which cannot be changed into "
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
            done = self.shell.run(f"sh {home}/visit.sh {home}; exit $?", limit_s=limit_s)
        finally:
            self._leave(home)
        if done.returncode != 0:
            raise LabError(f"the run on {self.shell.name} failed: {end(done.stderr)}")

    def _leave(self, home: str) -> None:
        """Ends the visit. A busy host may not take a connection at once."""
        for tries_left in reversed(range(LEAVING_TRIES)):
            try:
                self.shell.checked(f"sh {home}/visit.sh --leave {home}")
            except UnreachableError as error:
                if not tries_left:
                    raise LeftRunningError(
                        f"{error.message}; its visit ends by itself",
                        f"see that it has, and remove {home} there",
                    ) from None
                time.sleep(LEAVING_PAUSE_S)
            else:
                return

    def _fetch(self, home: str, plan: Plan, directory: Path) -> None:
        """What the plan left, if it left anything, and Xen's log."""
        limit_s = STEP_S_MAX + plan.traced_mib / LINK_MIB_PER_S
        done = self.shell.run(f"tar -czf - -C {home}/{RESULTS} .", limit_s=limit_s)
        if done.returncode == 0:
            with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
                tar.extractall(directory / RESULTS, filter="data")
        (directory / CONSOLE).write_bytes(self.shell.checked("xl dmesg"))


def _silent(line: str) -> None:
    del line


def _assignments(told: Mapping[str, object], keys: Mapping[str, str]) -> str:
    """For laxity-sched, which writes a flag as true and takes it as 1."""
    values = ((name, told[key]) for key, name in keys.items())
    return " ".join(
        f"{name}={int(value) if isinstance(value, bool) else value}" for name, value in values
    )


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
        GUEST_ROOT: image.tasks_root(made),
    }


def _network_files(say: Say) -> dict[str, bytes]:
    """What it needs for calls: their parties in dom0, the media server in a guest."""
    media = image.static(packets.PROGRAM, say)
    return {
        packets.PROGRAM: media.read_bytes(),
        HOTPLUG: (image.XEN / "lab" / HOTPLUG).read_bytes(),
        NETWORK_ROOT: image.network_root([media]),
    }
