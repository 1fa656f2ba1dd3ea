"""Linux's settings of threads, control groups and interrupts: seen, read and written."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
from pathlib import Path
from typing import Any

from .scheduler import Scheduler
from .settings import (
    SCHED_DEADLINE,
    SCHED_EXT,
    SCHED_OTHER,
    Change,
    Group,
    Guest,
    Interrupt,
    Of,
    Scheduling,
    Seen,
    Thread,
)

VCPU_NAME = re.compile(r"CPU (\d+)/(KVM|TCG)")
"""How QEMU names the threads of VCPUs if it runs with debug-threads=on."""

CALLS = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275), "ppc64le": (355, 356)}
"""The numbers of sched_setattr and sched_getattr."""

ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""struct sched_attr in its first version."""

PROGRAMS = Path(__file__).parent.parent / "scheduler"
"""Where the loader of policies is, beside this package."""

KERNEL_THREAD = 0x00200000
"""PF_KTHREAD: the flag of the kernel's threads in their `stat`."""

FILES = ("cpu.weight", "cpu.max", "cpu.max.burst")
"""The settings of a control group that are changed."""

OF_A_GUEST = re.compile(
    r"(^|/)machine-[^/]*\.scope$|^/?qemu\.slice/[^/]+\.scope$|^machine/qemu-[^/]*\.libvirt-qemu$"
)
"""The groups in which libvirt, with systemd and without, and Proxmox keep a guest and its helper
processes."""
UNIT = re.compile(r"\.(scope|service|libvirt-qemu)$")
"""How the name ends of a group that is a whole: a unit of systemd's, or without systemd a guest of
libvirt's. QEMU's own threads are in groups below it."""
_SLICES = r"(?:(?!user\.slice/)[^/]+\.slice/)+"
"""Slices of root's systemd. Nobody else can move a process to a unit there: what an ordinary user
may divide is below a service, or in user.slice."""
OF_LIBVIRT = re.compile(
    rf"{_SLICES}machine-(qemu[^/]*)\.scope(?:/|$)|machine/(qemu-[^/]*)\.libvirt-qemu(?:/|$)"
)
"""The group of a guest of libvirt, with systemd and without: it has the guest's number and name."""
OF_PROTECTION = re.compile(rf"{_SLICES}laxity-protect\.service(?:/|$)")
CUT_FROM = 63
"""The length from which libvirt may have cut a group's name off."""
USERS_FIRST, USERS = 0x7000_0000, 0x1000_0000
"""The users of laxity-protect's guests (crates/laxity-protect/src/guest/confinement.rs)."""


class VanishedError(Exception):
    """A thread or group is not there any more."""


class Linux:
    """The machine that this runs on."""

    def __init__(
        self,
        proc: Path = Path("/proc"),
        groups: Path = Path("/sys/fs/cgroup"),
        nics: Path = Path("/sys/class/net"),
        scheduler: Scheduler | None = None,
    ) -> None:
        """Takes the directories of the kernel's files, and what loads policies."""
        self._proc, self._groups, self._nics = proc, groups, nics
        self._scheduler = scheduler or Scheduler(PROGRAMS, Path("/run"))
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._slice_ns = 0
        # What the kernel reports of a thread without a slice of its own is its default.
        self._slice_ns = self._scheduling(0)["runtime_ns"]

    def boot(self) -> str:
        """Returns what no other boot of any machine has."""
        return _text(self._proc / "sys/kernel/random/boot_id").strip()

    def observe(self, nics: list[str]) -> Seen:
        """Returns the machine, with the interrupts of some network interfaces."""
        guests, unnamed, strangers = self._guests()
        kernel = self._proc / "sys/kernel"
        least, most = (
            int(_text(kernel / f"sched_deadline_period_{bound}_us", str(default)))
            for bound, default in (("min", 100), ("max", 1 << 22))
        )
        return {
            "boot": self.boot(),
            "cpus": _cpus(_text(Path("/sys/devices/system/cpu/online"))),
            "rt_runtime_us": int(_text(kernel / "sched_rt_runtime_us")),
            "rt_period_us": int(_text(kernel / "sched_rt_period_us")),
            "deadline_period_us": [least, most],
            "deadlines": self._deadlines(),
            "guests": guests,
            "unnamed": unnamed,
            "strangers": strangers,
            "interrupts": {nic: self._interrupts(nic) for nic in nics},
            "scheduler": self._scheduler.seen(),
        }

    def read(self, change: Change) -> Any:  # noqa: ANN401 - JSON
        """Returns what a setting is. Raises VanishedError if its thread or group is gone."""
        what, of = change["what"], change["of"]
        try:
            if what == "scheduler":
                return self._scheduler.given()
            if what == "interrupt":
                return _cpus(_text(self._interrupt(of["irq"])))
            if what == "group":
                return _text(self._group_file(of)).strip()
            if self._start(of["tid"]) != of["start"]:
                raise VanishedError
            if what == "affinity":
                return sorted(os.sched_getaffinity(of["tid"]))
            return self._scheduling(of["tid"])
        except (FileNotFoundError, ProcessLookupError):
            raise VanishedError from None

    def write(self, change: Change, value: Any) -> None:  # noqa: ANN401 - JSON
        """Makes a setting so.

        Raises VanishedError if its thread or group is gone, and OSError if the kernel refuses it.
        """
        what, of = change["what"], change["of"]
        try:
            if what == "scheduler":
                self._scheduler.make(value)
            elif what == "interrupt":
                _write(self._interrupt(of["irq"]), ",".join(map(str, value)))
            elif what == "group":
                _write(self._group_file(of), value)
            elif self._start(of["tid"]) != of["start"]:
                raise VanishedError
            elif what == "affinity":
                os.sched_setaffinity(of["tid"], value)
            else:
                self._set_scheduling(of["tid"], value)
        except (FileNotFoundError, ProcessLookupError):
            raise VanishedError from None

    def _interrupt(self, irq: int) -> Path:
        return self._proc / "irq" / str(irq) / "smp_affinity_list"

    def _group_file(self, of: Of) -> Path:
        group = self._groups / str(of["path"])
        if group.stat().st_ino != of["id"]:
            raise VanishedError
        return group / str(of["file"])

    def _guests(self) -> tuple[list[Guest], list[str], list[str]]:
        guests: list[Guest] = []
        unnamed: list[str] = []
        strangers: list[str] = []
        vhost = self._vhost()
        for pid in _numbers(self._proc):
            words = _text(self._proc / str(pid) / "cmdline", "").split("\0")
            name = guest_name(words)
            if name is None:
                continue
            is_so_named = self._is_so_named(pid, name)
            name = _printable(name)
            if not is_so_named:
                strangers.append(name)
                continue
            threads = self._threads(pid, vhost.get(pid, []))
            if any(thread["vcpu"] is not None for thread in threads):
                group = self._group(pid)
                guests.append(Guest(name=name, pid=pid, threads=threads, group=group))
            elif "qemu" in words[0] or "kvm" in words[0]:
                unnamed.append(name)
        return guests, unnamed, strangers

    def _is_so_named(self, pid: int, name: str) -> bool:
        """Whether root, or a manager of guests that root has started, started a process by a name.

        Everybody can name a process and its threads as QEMU's, and a QEMU that its guest has taken
        over can name itself anew. It changes neither its user nor its group.
        """
        status = _text(self._proc / str(pid) / "status", "")
        found = re.search(r"^Uid:((?:\s+\d+){4})$", status, re.MULTILINE)
        # Whoever owns /proc/PID does not count: root does if the process cannot be traced.
        users = set(found[1].split()) if found else set()
        if users == {"0"}:
            return True
        path = self._path(pid) or ""
        of_libvirt = OF_LIBVIRT.match(path)
        if of_libvirt:
            return _is_machine(of_libvirt[1] or of_libvirt[2], name)
        return bool(OF_PROTECTION.match(path)) and users == {str(user_of(name))}

    def _vhost(self) -> dict[int, list[int]]:
        """Returns the kernel threads of vhost by the process that they serve.

        Newer kernels have them among the threads of that process.
        """
        found: dict[int, list[int]] = {}
        for pid in _numbers(self._proc):
            serves = re.fullmatch(r"vhost-(\d+)", _text(self._proc / str(pid) / "comm", "").strip())
            if serves and self._is_of_kernel(pid):
                found.setdefault(int(serves[1]), []).append(pid)
        return found

    def _is_of_kernel(self, pid: int) -> bool:
        """Whether a process is a thread of the kernel, as which everybody can name their own."""
        words = _text(self._proc / str(pid) / "stat", "").rpartition(")")[2].split()
        return bool(words) and bool(int(words[6]) & KERNEL_THREAD)

    def _threads(self, pid: int, others: list[int]) -> list[Thread]:
        found: list[Thread] = []
        for tid in _numbers(self._proc / str(pid) / "task") + others:
            try:
                name = _printable(_text(self._proc / str(tid) / "comm").rstrip("\n"))
                number = VCPU_NAME.fullmatch(name)
                thread = Thread(
                    tid=tid,
                    start=self._start(tid),
                    name=name,
                    vcpu=int(number[1]) if number else None,
                    scheduling=self._scheduling(tid),
                    affinity=sorted(os.sched_getaffinity(tid)),
                    allowed=self._allowed(tid),
                )
            except (FileNotFoundError, ProcessLookupError):
                continue
            found.append(thread)
        return found

    def _start(self, tid: int) -> int:
        return int(_text(self._proc / str(tid) / "stat").rpartition(")")[2].split()[19])

    def _path(self, pid: int) -> str | None:
        """Returns the control group of version 2 that a process is in, below the root."""
        for line in _text(self._proc / str(pid) / "cgroup", "").splitlines():
            if line.startswith("0::"):
                return line[len("0::") :].strip("/")
        return None

    def _allowed(self, tid: int) -> list[int]:
        path = self._path(tid)
        if path is not None:
            for group in (self._groups / path, *(self._groups / path).parents):
                cpus = _text(group / "cpuset.cpus.effective", "").strip()
                if cpus:
                    return _cpus(cpus)
                if group == self._groups:
                    break
        return _cpus(_text(Path("/sys/devices/system/cpu/online")))

    def _group(self, pid: int) -> Group | None:
        """Returns the group of a guest: the whole that it is in, or else that of its process."""
        path = self._path(pid)
        if path is None or not (self._groups / "cgroup.controllers").exists():
            return None
        parts = path.split("/")
        units = [end for end, part in enumerate(parts) if UNIT.search(part)]
        own = "/".join(parts[: units[-1] + 1]) if units else path
        group = self._groups / own
        if not own or not group.is_dir():
            return None
        files = {name: _text(group / name, "").strip() for name in FILES}
        return Group(
            path=own,
            id=group.stat().st_ino,
            files={name: value for name, value in files.items() if value},
            is_own=bool(OF_A_GUEST.search(own)) or _processes(group) <= {pid},
        )

    def _interrupts(self, nic: str) -> list[Interrupt] | None:
        device = self._nics / nic / "device"
        if not (self._nics / nic).exists():
            return None
        numbers = _numbers(device / "msi_irqs")
        if not numbers:
            numbers = [int(_text(device / "irq"))] if (device / "irq").exists() else []
        return [
            Interrupt(irq=irq, affinity=_cpus(_text(self._interrupt(irq))))
            for irq in numbers
            if self._interrupt(irq).exists()
        ]

    def _deadlines(self) -> list[tuple[int, int, int]]:
        found = []
        for pid in _numbers(self._proc):
            for tid in _numbers(self._proc / str(pid) / "task"):
                try:
                    if os.sched_getscheduler(tid) & ~os.SCHED_RESET_ON_FORK != SCHED_DEADLINE:
                        continue
                    given = self._scheduling(tid)
                except (OSError, ValueError):
                    continue
                found.append((tid, given["runtime_ns"], given["period_ns"]))
        return found

    def _call(self, which: int, *arguments: object) -> None:
        machine = platform.machine()
        if machine not in CALLS:
            raise OSError(
                f"the numbers of sched_setattr and sched_getattr on {machine} are unknown"
            )
        if self._libc.syscall(CALLS[machine][which], *arguments) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    def _scheduling(self, tid: int) -> Scheduling:
        buffer = ctypes.create_string_buffer(ATTRIBUTES.size)
        self._call(1, tid, buffer, ATTRIBUTES.size, 0)
        _, policy, flags, _, priority, runtime, deadline, period = ATTRIBUTES.unpack(buffer.raw)
        if policy != SCHED_DEADLINE and runtime == self._slice_ns:
            runtime = 0
        # The kernel reports the nice value of ordinary threads alone in the structure.
        nice = os.getpriority(os.PRIO_PROCESS, tid)
        found: Scheduling = {
            "policy": policy,
            "flags": flags,
            "nice": nice,
            "priority": priority,
            "runtime_ns": runtime,
            "deadline_ns": deadline,
            "period_ns": period,
        }
        if policy == SCHED_EXT and self._scheduler.given() is not None:
            vcpu = self._scheduler.members().get(tid)
            if vcpu is not None:
                found["vcpu"] = vcpu
        return found

    def _set_scheduling(self, tid: int, value: Scheduling) -> None:
        if "vcpu" in value:
            self._scheduler.name(tid, value["vcpu"])
        numbers = [value["policy"], value["flags"], value["nice"], value["priority"]]
        times = [value["runtime_ns"], value["deadline_ns"], value["period_ns"]]
        self._call(0, tid, ATTRIBUTES.pack(ATTRIBUTES.size, *numbers, *times), 0)
        if value["policy"] != SCHED_OTHER:
            os.setpriority(os.PRIO_PROCESS, tid, value["nice"])


def guest_name(words: list[str]) -> str | None:
    """Returns the name of a guest from QEMU's command line: `-name guest=NAME,…` or `-name NAME`.

    None if there is no name.
    """
    for option, value in zip(words, words[1:]):  # noqa: B905, RUF007 - Python 3.9 has neither
        if option in ("-name", "--name"):
            # A comma that belongs to a value is written twice.
            parts = [part.replace("\0", ",") for part in value.replace(",,", "\0").split(",")]
            for position, part in enumerate(parts):
                if part.startswith("guest="):
                    return part[len("guest=") :]
                if position == 0 and "=" not in part:
                    return part
    return None


def user_of(name: str) -> int:
    """Returns the number of the user that laxity-protect runs a guest's QEMU as.

    It follows from the name by FNV-1a, so that it tells two guests apart.
    """
    number = 0xCBF2_9CE4_8422_2325
    for byte in name.encode("utf-8", "surrogateescape"):
        number = (number ^ byte) * 0x100_0000_01B3 % (1 << 64)
    return USERS_FIRST + number % USERS


def _is_machine(escaped: str, name: str) -> bool:
    """Whether libvirt gives a guest of a name this machine name, as systemd writes it.

    libvirt leaves out what no name of a host has, and where a dot or a hyphen stands depends on its
    version: letters and digits are compared.
    """
    machine = re.sub(r"\\x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), escaped)
    of_machine, of_name = (
        "".join(each for each in text if each.isascii() and each.isalnum())
        for text in (machine.split("-", 2)[-1], name)
    )
    is_cut = len(machine) >= CUT_FROM
    return of_machine == (of_name[: len(of_machine)] if is_cut else of_name)


def _printable(name: str) -> str:
    """Returns a name with a `?` for each character that a terminal would obey or not show."""
    return "".join(each if each.isprintable() else "?" for each in name)


def _processes(group: Path) -> set[int]:
    """Returns the processes of a group and of those in it."""
    found: set[int] = set()
    for directory, _, files in os.walk(group):
        if "cgroup.procs" in files:
            try:
                found.update(map(int, (Path(directory) / "cgroup.procs").read_text().split()))
            except OSError:
                # A threaded group does not tell; the group around it has its processes.
                continue
    return found


def _numbers(directory: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(directory) if name.isdigit())  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return []


def _cpus(text: str) -> list[int]:
    """Returns the CPUs of a list such as `0-3,8`."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found += range(int(first), int(last or first) + 1)
    return sorted(found)


def _text(path: Path, otherwise: str | None = None) -> str:
    try:
        return path.read_text("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        if otherwise is None:
            raise
        return otherwise


def _write(path: Path, text: str) -> None:
    # The file is there: what is to be set must not become a file of its own.
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
