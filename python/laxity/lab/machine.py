"""Emulated machines: QEMU, without disk or network.

A machine gets a kernel and a root with the plan on top, and gives back a console log and, through
memory that it shares with us, an archive of results. In repeatable mode time passes with
instructions, and nothing else enters: the same files give the same bytes.

Whatever happens the process has ended when `run` returns or raises, and it ends with ours.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import re
import shutil
import struct
import subprocess
import tarfile
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, ClassVar, Literal

from laxity import places
from laxity.bound import bound
from laxity.errors import InputError
from laxity.lab import fingerprint, packages
from laxity.lab.errors import LabError
from laxity.lab.files import CONSOLE, RESULTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from threading import Event

    from laxity.lab.modes import Mode
    from laxity.progress import Say

    Crashes = tuple[tuple[re.Pattern[str], str], ...]


QEMU = "qemu-system-x86_64"

STEADY = places.SOURCES / "guest" / "laxity-steady.c"
"""What QEMU loads before itself, so that a run repeats on a busy computer, too."""
STEADY_LIBRARY = "laxity-steady.so"
"""Its name in QEMU's working directory: LD_PRELOAD splits at blanks, which its path may have."""

SHELF_MAGIC = b"LAXITYRS"
SHELF_HEADER = struct.Struct("<8sQ")
"""Magic, and the length of what follows, as guest/laxity-shelf.c writes them."""
SHELF_BYTES = 256 << 20
"""A power of two, as PCI wants it."""

ROOT, SHELF = "root.cpio", "shelf"
"""The names of the machine's root file system and of the shelf in QEMU's working directory."""

POLL_S = 0.05
SETTLE_S = 2.0
"""For the rest of what a crash says, which is shown and decides nothing."""

PROGRESS = "laxity: "
"""Begins the lines of the console that are for us, see xen/lab/init."""
ENDED = "laxity: the plan ended with status "
QUIET = re.compile(r"laxity: .*: quiet for (\d+) s")
"""Says for how long, in the machine's time, nothing will be on the console."""
QUIET_WALL_S_PER_S = 60
"""Wall time that a second in the machine may take, on a busy computer."""

SHELL_ARGUMENT = "laxity_shell=1"


STARVED = "IO-APIC + timer doesn't work"
"""A hypervisor's last words if its timer did not tick for 10 ms: QEMU had no CPU meanwhile."""
BOOTS_MAX = 5
"""Boots of a machine that a busy computer starves."""


class PowerCutError(LabError):
    """Somebody has cut the machine's power."""


class StarvedError(LabError):
    """A busy computer left the machine too little time to boot."""


LAST_LINES = 12


@dataclass(frozen=True, kw_only=True)
class Machine(ABC):
    """An emulated machine, before it is turned on; what it boots, its subclasses say."""

    mode: Mode = "repeatable"
    """Time by instructions, or as on the wall."""
    cpus: int = 1
    """By instructions, several take turns: what they do repeats, how fast they are says nothing."""
    shift: int = 1
    """By instructions, one takes 2 to the power of this many ns; above 3 clocks are not clean."""
    limit_s: float = 3600.0
    """For all, in wall time but for what QEMU waited for a CPU: this only stops what hangs."""
    silence_s: float = 900.0
    """For something to come on the console, in the same time."""
    cards: tuple[str, ...] = ()
    """QEMU's words for what the machine has besides: network cards."""
    descriptors: tuple[int, ...] = ()
    """Open files that QEMU has under the same numbers, for `cards` to name."""
    features: tuple[str, ...] = ()
    """Features of its processors, beside those that every such machine has."""

    firmware: ClassVar[tuple[str, ...]]
    """The files that QEMU runs before the kernel."""
    crashes: ClassVar[Crashes]
    """What its console says when it has crashed, in a line or in two, and how we call that."""

    @abstractmethod
    def contents(self) -> dict[str, bytes]:
        """Returns what the bytes of a run depend on beside the plan, by name."""

    @abstractmethod
    def fill(self, directory: Path, contents: Mapping[str, bytes]) -> None:
        """Writes the machine's files, of `contents` and the plan, into QEMU's working directory."""

    @abstractmethod
    def boot(self, *arguments: str) -> list[str]:
        """Returns QEMU's words for processors, memory and kernel.

        `arguments` go to the kernel whose first process carries out the plan.
        """

    def run(self, output: Path, say: Say | None = None, cut: Event | None = None) -> Path:
        """Boots, carries the plan out, and returns the directory of its results in `output`.

        Leaves `console.log` and the machine's fingerprint there, whatever happens. `say` is told
        what dom0 says of its progress. Raises InputError if another machine is writing into
        `output`, LabError if the machine does not boot, hangs, crashes
        or says that the plan failed, and PowerCutError, with QEMU killed, once `cut` is set.
        A boot for which a busy computer left too little time is repeated.
        """
        output.mkdir(parents=True, exist_ok=True)
        with _alone_in(output):
            for _ in range(BOOTS_MAX - 1):
                with suppress(StarvedError):
                    return self._run(output, say or _say_nothing, cut)
            return self._run(output, say or _say_nothing, cut)

    def _run(self, output: Path, say: Say, cut: Event | None) -> Path:
        log = output / CONSOLE
        log.write_bytes(b"")
        _refuse_without_programs()
        with self._files() as files:
            fingerprint.write(output, files.fingerprint)
            serial = ("-serial", f"file:{option(log.resolve())}")
            command = [*self._steadily(files.directory), *self._command(), *serial]
            with _running(command, files.directory, descriptors=self.descriptors) as process:
                console = _Console(log, say)
                self._watch(process, console, cut)
            results = output / RESULTS
            _unpack(_take_from_shelf(files.shelf, console), results, console)
        _refuse_failure(results, console)
        return results

    def interact(self) -> None:
        """Boots to a shell on this terminal; returns when the machine is turned off."""
        _refuse_without_programs()
        with self._files() as files:
            command = [*self._command(SHELL_ARGUMENT), "-serial", "mon:stdio"]
            with _running(command, files.directory, own_terminal=False) as process:
                process.wait()

    @contextmanager
    def _files(self) -> Iterator[_Files]:
        with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
            contents = self.contents()
            files = _Files(Path(temporary), fingerprint.of(QEMU, self.firmware, contents))
            self.fill(files.directory, contents)
            with files.shelf.open("wb") as shelf:
                shelf.truncate(SHELF_BYTES)
            yield files

    def _steadily(self, directory: Path) -> list[str]:
        """Words to stand before QEMU's in its working directory; in repeatable mode only."""
        if self.mode != "repeatable":
            return []
        make_steady(directory)
        return ["env", f"LD_PRELOAD=./{STEADY_LIBRARY}"]

    def _command(self, *arguments: str) -> list[str]:
        if self.mode == "repeatable":
            clock = ["-accel", "tcg,thread=single", "-icount", f"shift={self.shift},sleep=off"]
            clock += ["-rtc", "base=2026-01-01,clock=vm"]
        else:
            clock = ["-accel", f"tcg,thread={_threads(self.cpus)}"]
        shelf = f"memory-backend-file,id=shelf,share=on,size={SHELF_BYTES}"
        return [
            # What a processor draws at random is the same in each run.
            *(QEMU, *clock, "-seed", "1", "-smp", str(self.cpus)),
            *("-display", "none", "-nodefaults", "-no-reboot"),
            *self.boot(*arguments),
            *("-object", f"{shelf},mem-path={SHELF}"),
            *("-device", "ivshmem-plain,memdev=shelf"),
            *self.cards,
        ]

    def _watch(
        self, process: subprocess.Popen[bytes], console: _Console, cut: Event | None
    ) -> None:
        """Returns when dom0 has done all, or the machine is off."""
        end_s = time.monotonic() + self.limit_s
        silent_s = time.monotonic() + self.silence_s
        starved_s, before = 0.0, ""
        while process.poll() is None:
            _wait(cut)
            starved_s = max(starved_s, _starved_s(process.pid))
            now_s = time.monotonic() - starved_s
            if lines := console.read():
                silent_s = now_s + self.silence_s
            for line in lines:
                self._refuse_crash(before, line, console)
                before = line
                if quiet := QUIET.match(line):
                    silent_s += QUIET_WALL_S_PER_S * int(quiet[1])
                if line.startswith(ENDED):
                    return
            if now_s > end_s:
                raise console.error(
                    f"the machine was not done in {self.limit_s:.0f} s", "give it more time"
                )
            if now_s > silent_s:
                raise console.error(
                    f"the machine hangs: nothing has come on its console for {self.silence_s:.0f} s"
                )
        for line in console.read():
            self._refuse_crash(before, line, console)
            before = line
        if process.returncode != 0:
            complaint = process.stderr.read().decode(errors="replace") if process.stderr else ""
            raise console.error(f"{QEMU} ended with code {process.returncode}: {complaint.strip()}")

    def _refuse_crash(self, before: str, line: str, console: _Console) -> None:
        """Raises LabError if a line, or one with the line before it, says that it has crashed."""
        for pattern, what in self.crashes:
            if pattern.search(line) or pattern.search(f"{before}\n{line}"):
                time.sleep(SETTLE_S)
                console.read()
                if STARVED in console.text():
                    raise console.error(
                        "the computer is too busy for the machine to boot", kind=StarvedError
                    )
                raise console.error(what)


def make_steady(directory: Path) -> None:
    """Compiles what keeps QEMU's time steady, into its working directory."""
    words = ("-std=gnu11", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", "-pthread")
    packages.run("gcc", *words, "-o", directory / STEADY_LIBRARY, STEADY)


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Refuses a directory that another machine is writing into, whose files would be mixed up."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(
            f"another machine is writing into {directory}", "name another directory with -o"
        ) from None
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Files:
    """What one machine has for itself, in a directory of its own."""

    directory: Path
    fingerprint: dict[str, str]

    @property
    def shelf(self) -> Path:
        """The memory that the machine shares with us."""
        return self.directory / SHELF


class _Console:
    """The log of the machine's console, as it grows."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path = path
        self._say = say
        self._read_bytes = 0
        self._rest = ""

    def read(self) -> list[str]:
        """The lines that have come since the last time."""
        with self._path.open("rb") as log:
            log.seek(self._read_bytes)
            data = log.read()
        self._read_bytes += len(data)
        text = self._rest + data.decode(errors="replace").replace("\r", "")
        *lines, self._rest = text.split("\n")
        for line in lines:
            if line.startswith(PROGRESS):
                self._say(line.removeprefix(PROGRESS))
        return lines

    def text(self) -> str:
        """All that has come."""
        return self._path.read_bytes().decode(errors="replace").replace("\r", "")

    def error(
        self, message: str, help: str | None = None, kind: type[LabError] = LabError
    ) -> LabError:
        """An error that shows the end of the log and says where all of it is."""
        lines = self.text().splitlines()
        shown = "".join(f"\n    {line}" for line in lines[-LAST_LINES:])
        where = f"the console is in {self._path}"
        return kind(
            f"{message}\n  the console's last lines:{shown or ' (none)'}",
            f"{help}; {where}" if help else where,
        )


def _starved_s(process: int) -> float:
    """How long a process could run and had no CPU, since it began: the most of its threads.

    From the kernel's `Documentation/scheduler/sched-stats.rst`; 0 where it does not tell.
    """
    waited_ns = [0]
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        # A thread may end between the two.
        with suppress(OSError, ValueError):
            waited_ns.append(int(path.read_text().split()[1]))
    return max(waited_ns) / 1e9


def _refuse_without_programs() -> None:
    of_programs = ((QEMU, "qemu-system-x86"), ("setpriv", "util-linux"), ("gcc", "gcc"))
    for program, package in of_programs:
        if shutil.which(program) is None:
            raise LabError(
                f"the emulated machine needs {program}",
                f"as root, `apt-get install {package}`",
            )


def _wait(cut: Event | None) -> None:
    """A moment. Raises PowerCutError if the power was cut meanwhile."""
    if cut is None:
        time.sleep(POLL_S)
    elif cut.wait(POLL_S):
        raise PowerCutError("the machine's power has been cut")


def _take_from_shelf(path: Path, console: _Console) -> bytes:
    """The archive that dom0 put there. Raises LabError if there is none."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as shelf:
        magic, length = SHELF_HEADER.unpack_from(shelf)
        if magic != SHELF_MAGIC:
            raise console.error("the machine ended without results")
        if length > len(shelf) - SHELF_HEADER.size:
            raise console.error(f"the results are damaged: {length} bytes, more than there can be")
        return shelf[SHELF_HEADER.size : SHELF_HEADER.size + length]


def _unpack(archive: bytes, into: Path, console: _Console) -> None:
    """Files and directories only, and only inside `into`, which is made anew."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts:
                    raise console.error(f"the results hold a file outside of them: {name}")
                path = into / name
                if member.isdir():
                    path.mkdir(exist_ok=True)
                elif content := tar.extractfile(member):
                    path.write_bytes(content.read())
    except tarfile.TarError as error:
        raise console.error(f"the results are damaged: {error}") from None


def _refuse_failure(results: Path, console: _Console) -> None:
    """Raises LabError with what lib.sh says, if the plan failed."""
    status, error = results / "status", results / "error"
    code = status.read_text().strip() if status.is_file() else "unknown"
    if code != "0":
        reason = (
            error.read_text("utf-8", "replace").strip() if error.is_file() else f"status {code}"
        )
        raise console.error(f"the plan failed: {reason}")


@contextmanager
def _running(
    command: list[str],
    directory: Path,
    *,
    own_terminal: bool = True,
    descriptors: tuple[int, ...] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a directory that has ended when this has, and that ends when we are killed.

    With `own_terminal` it does not hear the Ctrl-C that is for us: it ends because we do.
    """
    process = subprocess.Popen(  # noqa: S603 - the command is ours
        bound(command),
        cwd=directory,
        start_new_session=own_terminal,
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL if own_terminal else None,
        stdout=subprocess.DEVNULL if own_terminal else None,
        stderr=subprocess.PIPE if own_terminal else None,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()


def _threads(cpus: int) -> Literal["multi", "single"]:
    """How QEMU runs that many CPUs in wall-clock time.

    Xen's locks go round in the order of asking. Where the computer has fewer CPUs than the machine,
    the one whose turn it is often does not run, and all others spin for a time slice of the
    computer's before each decision: on two, seven VCPUs on three CPUs came up in 34 s, two such
    machines side by side in 110 s, and once not in four minutes. One thread for all goes on to the
    next CPU when one spins: 21 s.
    """
    return "multi" if cpus <= len(os.sched_getaffinity(0)) else "single"


def option(value: object) -> str:
    """Returns a part of one of QEMU's options, whose parts are separated by commas."""
    return str(value).replace(",", ",,")


def _say_nothing(line: str) -> None:
    del line
