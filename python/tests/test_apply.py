"""`laxity apply`: real threads, named as QEMU names its own, get settings and lose them again.

Control groups are files of the test: what stands in /sys/fs/cgroup differs from machine to machine.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from laxity import Host, InputError
from laxity.apply import live
from laxity.apply.agent import __main__ as agent
from laxity.apply.agent import keeping, linux, settings
from laxity.apply.agent.journal import Journal, JournalError
from laxity.apply.agent.keeping import Keeper, Paths, RefusedError
from laxity.apply.agent.linux import Linux, guest_name, user_of
from laxity.apply.wanted import Asked, Helpers, ask, cpus_of, listed
from laxity.tables.apply import parameters_table
from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Laxity
    from laxity.apply.agent.settings import Seen

KILLS = int(os.environ.get("LAXITY_KILLS", "100"))

CPUS = sorted(os.sched_getaffinity(0))
NOBODY = 65534
"""The number of an ordinary user."""
GETATTR = linux.CALLS[os.uname().machine][1]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="it sets real-time threads, as root")

GUEST = """
import ctypes, os, sys, threading
libc, forever, named = ctypes.CDLL(None), threading.Event(), threading.Barrier(len(sys.argv) - 2)
os.setresuid(*3 * [int(os.environ.get("GUEST_USER", 0))])
def thread(name):
    libc.prctl(15, name.encode(), 0, 0, 0)
    named.wait()
    forever.wait()
names = sys.argv[3:]
for name in names:
    threading.Thread(target=thread, args=[name], daemon=True).start()
named.wait()
print("ready", flush=True)
sys.stdin.read()
"""


@dataclass
class Machine:
    """Guests, and files in place of the kernel's control groups and of a host's directories."""

    root: Path
    guests: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    groups: dict[int, str] = field(default_factory=dict)

    @property
    def paths(self) -> Paths:
        return Paths(self.root / "var/lib/laxity/apply", self.root / "lock", self.root / "libvirt")

    @property
    def linux(self) -> Linux:
        machine = self

        class OnFiles(Linux):
            def _path(self, pid: int) -> str | None:
                return machine.groups.get(pid)

            def _guests(self) -> tuple[list[settings.Guest], list[str], list[str]]:
                # Other tests may have guests of these names at the same time.
                guests, _, strangers = super()._guests()
                return [guest for guest in guests if guest["pid"] in machine.groups], [], strangers

        return OnFiles(groups=self.root / "cgroup")

    @property
    def keeper(self) -> Keeper:
        return Keeper(self.linux, self.paths)

    def start(self, name: str, *threads: str, group: str | None = None, user: int = 0) -> None:
        words = ["qemu-system-x86_64", "-c", GUEST, "-name", f"guest={name},debug-threads=on"]
        environment = {**os.environ, "PYTHONHOME": sys.base_prefix, "GUEST_USER": str(user)}
        process = subprocess.Popen(
            [*words, *threads],
            executable=sys.executable,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.guests[name] = process
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        path = group or f"machine.slice/machine-qemu-{process.pid}.scope"
        directory = self.root / "cgroup" / path
        directory.mkdir(parents=True)
        for file, value in GROUP.items():
            (directory / file).write_text(value + "\n")
        (directory / "cgroup.procs").write_text(f"{process.pid}\n")
        self.groups[process.pid] = path

    def stop(self, name: str) -> None:
        process = self.guests.pop(name)
        process.kill()
        process.communicate()
        shutil.rmtree(self.root / "cgroup" / self.groups.pop(process.pid))

    def threads(self, name: str) -> dict[str, int]:
        tasks = Path(f"/proc/{self.guests[name].pid}/task")
        return {(task / "comm").read_text().strip(): int(task.name) for task in tasks.iterdir()}

    def snapshot(self) -> dict[str, Any]:
        """All that can be touched, read by other means than those of the agent."""
        found: dict[str, Any] = {}
        libc = ctypes.CDLL(None)
        for name, process in self.guests.items():
            for task in Path(f"/proc/{process.pid}/task").iterdir():
                tid, buffer = int(task.name), ctypes.create_string_buffer(56)
                assert libc.syscall(GETATTR, tid, buffer, 56, 0) == 0
                nice = os.getpriority(os.PRIO_PROCESS, tid)
                found[f"{name} {tid}"] = (buffer.raw, nice, os.sched_getaffinity(tid))
        for path in sorted(self.root.rglob("*")):
            if path != self.paths.lock:
                content = path.read_bytes() if path.is_file() else None
                found[str(path)] = (content, path.stat().st_mode)
        for irq in Path("/proc/irq").glob("*/smp_affinity_list"):
            found[str(irq)] = irq.read_text()
        return found


GROUP = {"cpu.weight": "100", "cpu.max": "max 100000", "cpu.max.burst": "0"}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup/cgroup.controllers").write_text("cpu cpuset\n")
    (tmp_path / "libvirt").mkdir()
    (tmp_path / "var/lib").mkdir(parents=True)
    made = Machine(tmp_path)
    made.start("control", "CPU 0/KVM", "CPU 1/KVM", "IO iothread1", "vhost-1")
    made.start("batch", "CPU 0/KVM", "worker")
    try:
        yield made
    finally:
        for name in list(made.guests):
            made.stop(name)


HOST = f"""\
duration = "1 s"

[host]
cpus = {len(CPUS)}
policy = "fifo"

[[domain]]
name = "control"
vcpus = 2
budget = "1 ms"
period = "100 ms"
rt-priority = 30
weight = 512
workload = {{ kind = "cpu-bound" }}

[[domain]]
name = "batch"
budget = "2 ms"
period = "100 ms"
affinity = [0]
workload = {{ kind = "cpu-bound" }}
"""

NO_HELPERS = Helpers()
EVERYWHERE = f"domain.batch.affinity={CPUS}"


def asked(
    machine: Machine, *overrides: str, helpers: Helpers = NO_HELPERS, **changed: Any
) -> Asked:
    seen: Any = {**machine.linux.observe([nic for nic, _ in helpers.interrupts]), **changed}
    return ask(Host.parse(HOST).resolved(overrides), seen, helpers)


def test_threads_get_what_the_file_says(machine: Machine) -> None:
    wanted = asked(machine, helpers=Helpers(cpus=(CPUS[-1],))).wanted
    before = machine.snapshot()
    made = machine.keeper.apply(wanted)
    control, batch = machine.threads("control"), machine.threads("batch")
    for name in ("CPU 0/KVM", "CPU 1/KVM"):
        assert os.sched_getscheduler(control[name]) & 0xFF == os.SCHED_FIFO
        assert os.sched_getparam(control[name]).sched_priority == 30
        assert sorted(os.sched_getaffinity(control[name])) == CPUS
    assert os.sched_getaffinity(batch["CPU 0/KVM"]) == {0}
    for tid in (control["IO iothread1"], control["vhost-1"], machine.guests["control"].pid):
        assert os.sched_getscheduler(tid) == os.SCHED_OTHER
        assert os.sched_getaffinity(tid) == {CPUS[-1]}
    assert made["vanished"] == []
    # The same again changes nothing.
    assert machine.keeper.plan(wanted) == []
    assert machine.keeper.apply(wanted)["changes"] == []
    done = machine.keeper.revert()
    assert (done["failed"], done["meanwhile"]) == ([], [])
    assert machine.snapshot() == before
    assert machine.keeper.revert()["changes"] == []


def test_deadlines_and_shares(machine: Machine) -> None:
    # Linux takes SCHED_DEADLINE threads only with all CPUs.
    os.sched_setaffinity(machine.threads("control")["CPU 0/KVM"], CPUS[:1])
    before = machine.snapshot()
    reclaims = "domain.control.reclaim=true"
    machine.keeper.apply(asked(machine, "host.policy=deadline", EVERYWHERE, reclaims).wanted)
    seen = {guest["name"]: guest for guest in machine.linux.observe([])["guests"]}
    given = {
        thread["name"]: thread["scheduling"]
        for thread in seen["control"]["threads"]
        if thread["vcpu"] is not None
    }
    assert {(each["policy"], each["runtime_ns"], each["period_ns"]) for each in given.values()} == {
        (6, 1_000_000, 100_000_000)
    }
    assert all(each["flags"] & settings.RECLAIM for each in given.values())
    (plain,) = (each for each in seen["batch"]["threads"] if each["vcpu"] is not None)
    assert not plain["scheduling"]["flags"] & settings.RECLAIM
    chrt = ["chrt", "--pid", str(machine.threads("control")["CPU 1/KVM"])]
    shown = subprocess.run(chrt, capture_output=True, text=True, check=True).stdout
    assert "SCHED_DEADLINE" in shown
    assert "1000000/100000000/100000000" in shown
    # The next one keeps the first one's originals, and puts back what it does not want itself.
    quota = ("domain.control.quota=20 ms", "domain.control.quota-burst=5 ms")
    machine.keeper.apply(asked(machine, "host.policy=eevdf", *quota, EVERYWHERE).wanted)
    group = machine.root / "cgroup" / machine.groups[machine.guests["control"].pid]
    assert {name: (group / name).read_text().strip() for name in GROUP} == {
        "cpu.weight": "512",
        "cpu.max": "20000 100000",
        "cpu.max.burst": "5000",
    }
    assert os.sched_getscheduler(machine.threads("control")["CPU 1/KVM"]) == os.SCHED_OTHER
    machine.keeper.apply(asked(machine).wanted)
    assert {name: (group / name).read_text().strip() for name in GROUP} == GROUP
    machine.keeper.revert()
    # The files of groups are the test's own, and lose the end of line that the kernel's have.
    assert _lines(machine.snapshot()) == _lines(before)


def _lines(snapshot: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (value[0].strip(), value[1]) if "/cgroup/" in name and value[0] else value
        for name, value in snapshot.items()
    }


def test_a_guest_that_starts_gets_its_settings_by_the_hook(machine: Machine) -> None:
    machine.stop("batch")
    before = machine.snapshot()
    found = asked(machine)
    assert found.missing == ("batch",)
    machine.keeper.apply(found.wanted, persist=True)
    hook = machine.paths.hook
    assert os.access(hook, os.X_OK)
    subprocess.run(["sh", "-n", hook], check=True)  # noqa: S607
    machine.start("batch", "CPU 0/KVM")
    machine.keeper.apply_again("batch")
    batch = machine.threads("batch")["CPU 0/KVM"]
    assert os.sched_getscheduler(batch) & 0xFF == os.SCHED_FIFO
    # The copy for the hook is whole, and runs by itself: without the laxity package.
    words = [sys.executable, "-I", "-c", HOOKED.format(state=str(machine.paths.state))]
    subprocess.run(words, check=True)
    machine.stop("batch")
    assert machine.keeper.revert()["failed"] == []
    assert machine.snapshot() == before


HOOKED = """
import sys
sys.path.insert(0, {state!r})
sys.dont_write_bytecode = True
sys.modules["laxity"] = None
import agent.__main__
"""


def test_interrupts_of_a_network_card(machine: Machine, tmp_path: Path) -> None:
    """The card and its interrupts are files: real ones are the machine's."""
    for irq in (40, 41):
        (tmp_path / f"nics/card0/device/msi_irqs/{irq}").mkdir(parents=True)
        (tmp_path / f"irq-{irq}").write_text(f"{listed(CPUS)}\n")

    class WithCard(type(machine.linux)):  # type: ignore[misc]
        def _interrupt(self, irq: int) -> Path:
            return tmp_path / f"irq-{irq}"

    def keeper() -> Keeper:
        card = WithCard(groups=machine.root / "cgroup", nics=tmp_path / "nics")
        return Keeper(card, machine.paths)

    seen = keeper()._linux.observe(["card0"])
    helpers = Helpers(interrupts=(("card0", (CPUS[0],)),))
    wanted = asked(machine, helpers=helpers, interrupts=seen["interrupts"]).wanted
    keeper().apply(wanted)
    assert [(tmp_path / f"irq-{irq}").read_text() for irq in (40, 41)] == [str(CPUS[0])] * 2
    # Another apply that does not name the card puts its interrupts back.
    keeper().apply(asked(machine).wanted)
    back = ",".join(map(str, CPUS))
    assert [(tmp_path / f"irq-{irq}").read_text() for irq in (40, 41)] == [back] * 2
    keeper().apply(wanted)
    keeper().revert()
    assert [(tmp_path / f"irq-{irq}").read_text() for irq in (40, 41)] == [back] * 2


def test_what_ends_meanwhile_is_told(machine: Machine) -> None:
    wanted = asked(machine).wanted
    seen = machine.linux.observe([])
    machine.stop("batch")

    class Before(Keeper):
        def _seen(self, *_: object) -> Seen:
            return seen

    made = Before(machine.linux, machine.paths).apply(wanted)
    assert set(made["vanished"]) == {"batch VCPU 0"}
    machine.keeper.revert()


def test_a_thread_of_the_same_number_is_another_one(machine: Machine) -> None:
    tid = machine.threads("batch")["worker"]
    of = {"tid": tid, "start": 1}
    change = settings.Change(what="affinity", of=of, label="batch", old=CPUS, new=[CPUS[0]])
    for way in (machine.linux.read, lambda change: machine.linux.write(change, change["new"])):
        with pytest.raises(linux.VanishedError):
            way(change)
    assert sorted(os.sched_getaffinity(tid)) == CPUS


def test_what_the_kernel_refuses_is_undone(machine: Machine) -> None:
    before = machine.snapshot()
    wanted = asked(machine).wanted
    wanted["domains"]["batch"]["vcpus"][0]["scheduling"] = {
        **wanted["domains"]["batch"]["vcpus"][0]["scheduling"],
        "priority": 100,
    }
    with pytest.raises(RefusedError, match="batch VCPU 0: Invalid argument"):
        machine.keeper.apply(wanted, persist=True)
    assert machine.snapshot() == before


def test_what_somebody_else_has_changed_is_told_and_put_back(machine: Machine) -> None:
    before = machine.snapshot()
    machine.keeper.apply(asked(machine).wanted)
    os.sched_setscheduler(machine.threads("control")["CPU 0/KVM"], os.SCHED_RR, os.sched_param(3))
    done = machine.keeper.revert()
    assert [each["label"] for each in done["meanwhile"]] == ["control VCPU 0"]
    assert machine.snapshot() == before


def test_the_journal_stays_while_something_cannot_be_put_back(machine: Machine) -> None:
    before = machine.snapshot()
    machine.keeper.apply(asked(machine).wanted, persist=True)

    class Refusing(type(machine.linux)):  # type: ignore[misc]
        def write(self, change: settings.Change, value: Any) -> None:
            if change["label"] == "control VCPU 1":
                raise PermissionError(1, "Operation not permitted")
            super().write(change, value)

    refusing = Refusing(groups=machine.root / "cgroup")
    done = Keeper(refusing, machine.paths).revert()
    assert done["failed"] == [{"label": "control VCPU 1", "why": "Operation not permitted"}]
    assert not machine.paths.hook.exists()
    assert [change["label"] for change in machine.keeper.restorations()] == ["control VCPU 1"]
    assert machine.keeper.revert()["failed"] == []
    assert machine.snapshot() == before


def test_a_boot_forgets_all_but_the_hook(machine: Machine) -> None:
    machine.keeper.apply(asked(machine).wanted, persist=True)
    path = machine.paths.state / "journal"
    first, *changes = path.read_text().splitlines()
    assert json.loads(first)["boot"] == machine.linux.boot()
    path.write_text("\n".join(['{"boot":"another"}', *changes, ""]))
    kept = Journal(machine.paths.state, machine.linux.boot()).changes
    assert [change["what"] for change in kept] == ["hook"]
    assert machine.keeper.revert()["failed"] == []
    assert not machine.paths.hook.exists()
    assert not machine.paths.state.exists()


def test_what_root_runs_later_is_written_by_nobody_else(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = asked(machine).wanted
    request = {"do": "apply", "wanted": wanted, "keep": False, "persist": True}
    monkeypatch.setattr(agent, "Linux", lambda: machine.linux)
    monkeypatch.setattr(agent, "Paths", lambda: machine.paths)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request)))
    before = os.umask(0)
    try:
        assert agent.main([]) == 0, capsys.readouterr().out
    finally:
        os.umask(before)
    state, hook = machine.paths.state, machine.paths.hook
    made = [state.parent, *state.parent.rglob("*"), hook.parent.parent, hook.parent, hook]
    assert {keeping.AGENT, keeping.WANTED} <= {path.name for path in made}
    assert [path for path in made if path.stat().st_mode & 0o022] == []


def test_a_directory_that_others_can_write_is_not_used(machine: Machine) -> None:
    state = machine.paths.state
    state.parent.mkdir(mode=0o755)
    state.mkdir(mode=0o755)
    for directory in (state.parent, state):
        for change, back in (
            (lambda: directory.chmod(0o757), lambda: directory.chmod(0o755)),  # noqa: B023
            (lambda: os.chown(directory, NOBODY, 0), lambda: os.chown(directory, 0, 0)),  # noqa: B023
        ):
            change()
            with pytest.raises(JournalError, match="only root can write"):
                machine.keeper.apply(asked(machine).wanted)
            back()
    machine.keeper.apply(asked(machine).wanted)


def test_names_that_a_terminal_would_obey_are_shown_in_part(machine: Machine) -> None:
    machine.start("\x1b[31mred", "CPU 0/KVM", "\x1b[2J\nx")
    guests = machine.linux.observe([])["guests"]
    (red,) = (guest for guest in guests if guest["name"].endswith("red"))
    assert red["name"] == "?[31mred"
    assert "?[2J?x" in [thread["name"] for thread in red["threads"]]


def test_a_journal_that_is_cut_off_and_one_that_is_damaged(machine: Machine) -> None:
    before = machine.snapshot()
    machine.keeper.apply(asked(machine).wanted)
    path = machine.paths.state / "journal"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"what":"affin')
    assert machine.keeper.plan(asked(machine).wanted) == []
    assert path.read_bytes() == whole
    path.write_bytes(whole.replace(b"{", b"", 2))
    with pytest.raises(JournalError, match="damaged at line 1"):
        machine.keeper.revert()
    path.write_bytes(whole)
    machine.keeper.revert()
    assert machine.snapshot() == before


def _random_settings(machine: Machine, dice: random.Random) -> None:
    """Makes threads and groups somehow, by other means than those of the agent."""
    for name in machine.guests:
        for thread, tid in machine.threads(name).items():
            os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
            os.sched_setaffinity(tid, CPUS)
            os.setpriority(os.PRIO_PROCESS, tid, dice.randrange(-20, 20))
            # Linux moves no SCHED_DEADLINE thread to some of several CPUs, as helpers may be.
            kinds = ["-o", "-b", "-i", "-f", "-r", *(["-d"] if "CPU" in thread else [])]
            kind = dice.choice(kinds)
            times = ["-T", "100000", "-D", "50000000", "-P", "100000000"] if kind == "-d" else []
            priority = str(dice.randrange(1, 50) if kind in ("-f", "-r") else 0)
            reset = dice.choice([[], ["-R"]]) if kind not in ("-o", "-d") else []
            if kind != "-d":
                os.sched_setaffinity(tid, dice.sample(CPUS, dice.randrange(1, len(CPUS) + 1)))
            words = ["chrt", *reset, kind, *times, "-p", priority, str(tid)]
            subprocess.run(words, check=True)
        group = machine.root / "cgroup" / machine.groups[machine.guests[name].pid]
        (group / "cpu.weight").write_text(str(dice.randrange(1, 10_000)))
        (group / "cpu.max").write_text(f"{dice.randrange(1, 9) * 1000} 100000")
        (group / "cpu.max.burst").write_text(str(dice.randrange(1, 9) * 100))


def _random_wanted(machine: Machine, dice: random.Random) -> settings.Wanted:
    policy = dice.choice(["fifo", "deadline", "eevdf"])
    helpers = (
        Helpers(cpus=tuple(sorted(dice.sample(CPUS, 1)))) if dice.random() < 0.5 else NO_HELPERS
    )
    overrides = [
        f"host.policy={policy}",
        f"domain.control.weight={dice.randrange(1, 10_000)}",
        f"domain.control.rt-priority={dice.randrange(1, 99)}",
        f"domain.control.budget={dice.randrange(100, 900)} us",
    ]
    if policy == "deadline":
        overrides.append(EVERYWHERE)
    if policy == "eevdf":
        overrides.append("domain.batch.quota=30 ms")
    return asked(machine, *overrides, helpers=helpers).wanted


def _in_child(work: Callable[[], object], kill_at: int | None) -> int:
    """Does work in a process of its own, which kills itself at a line of the agent's.

    Returns how many lines it came to.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        lines = 0
        agents = str(Path(keeping.__file__).parent)

        def trace(frame: Any, event: str, _: object) -> Any:
            nonlocal lines
            if not frame.f_code.co_filename.startswith(agents):
                return None
            if event == "line":
                lines += 1
                if lines == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        code = 1
        try:
            sys.settrace(trace)
            work()
            sys.settrace(None)
            os.write(writing, str(lines).encode())
            code = 0
        except BaseException:  # noqa: BLE001 - the process ends in any case
            sys.settrace(None)
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    said = os.read(reading, 100)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or os.waitstatus_to_exitcode(status) == 0
    return int(said or kill_at or 0)


@pytest.mark.slow
def test_killed_at_any_point_all_goes_back(machine: Machine) -> None:
    """Kills apply, and often the revert after it, at a random line; a last revert restores all."""
    seed = int(os.environ.get("LAXITY_SEED", time.time_ns()))
    print(f"LAXITY_SEED={seed}")
    dice = random.Random(seed)  # noqa: S311
    wanted, before, lines, reverted = None, {}, 0, 0
    killed = 0
    for each in range(KILLS):
        if each % 10 == 0:
            _random_settings(machine, dice)
            before, wanted = machine.snapshot(), _random_wanted(machine, dice)

            def apply(wanted: Any = wanted) -> object:
                return machine.keeper.apply(wanted, persist=True)

            lines = _in_child(apply, None)
            reverted = _in_child(machine.keeper.revert, None)
            assert _lines(machine.snapshot()) == _lines(before)
        at = dice.randrange(1, lines + 1)
        killed += _in_child(apply, at) == at
        if dice.random() < 0.5:
            _in_child(machine.keeper.revert, dice.randrange(1, reverted + 1))
        if dice.random() < 0.3:
            _in_child(apply, dice.randrange(1, lines + 1))
        done = machine.keeper.revert()
        assert done["failed"] == [], f"kill {each}, at line event {at}"
        assert _lines(machine.snapshot()) == _lines(before), f"kill {each}, at line event {at}"
    assert killed > KILLS * 0.9


@pytest.mark.slow
def test_the_command_line(machine: Machine, laxity: Laxity, tmp_path: Path) -> None:
    """A real host in small: only the directories of the journal and of the lock are others."""
    name = f"guest-{os.getpid()}"
    file = tmp_path / "host.toml"
    file.write_text(HOST.split("[[domain]]", maxsplit=1)[0] + f'[[domain]]\nname = "{name}"\n')
    machine.start(name, "CPU 0/KVM", "worker")
    before = machine.snapshot()
    (tmp_path / "run").mkdir()
    mounts = f"mount --bind {tmp_path}/run /run && mount --bind {tmp_path}/var/lib /var/lib"

    def command(*words: str) -> str:
        shell = [*("unshare", "--mount", "sh", "-c", f'{mounts} && exec "$@"', "sh"), *COMMAND]
        path = f"{tmp_path}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            [*shell, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": path},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    words = ("apply", str(file), "--helpers", str(CPUS[0]))
    shown = command(*words, "--dry-run").splitlines()
    (row,) = (line.split() for line in shown if f"{name} VCPU 0 scheduling" in line)
    # A guest's threads have the nice value that the tests were started with.
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    assert row[4:] == ["fair,", "nice", f"{nice}", "fifo", "1"]
    assert any("would change on this machine" in line for line in shown)
    assert max(map(len, shown)) <= 80
    planned = json.loads(command(*words, "--dry-run", "--json"))["changes"]
    made = json.loads(command(*words, "--json"))["changes"]
    assert made == planned
    thread = machine.threads(name)["CPU 0/KVM"]
    assert os.sched_getscheduler(thread) & 0xFF == os.SCHED_FIFO
    assert "0 settings changed" in command(*words)
    assert "would be put back" in command("apply", "--revert", "--dry-run")
    # Through ssh all is the same; the stand-in runs the command here.
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nfor command; do :; done\nexec sh -c "$command"\n')
    ssh.chmod(0o755)
    there = command("apply", "--revert", "--at", "ssh://root@server")
    assert f"{len(made)} settings put back on root@server" in there
    shutil.rmtree(ssh.parent)
    shutil.rmtree(tmp_path / "run")
    assert machine.snapshot() == before
    for wrong in (("apply",), ("apply", file, "--revert"), ("apply", file, "--at", "there")):
        laxity(*wrong, code=2)
    laxity("apply", file, "--helpers", "1-0", code=2)
    laxity("apply", file, "--interrupts", "eth0", code=2)


COMMAND = [sys.executable, "-c", "from laxity.cli import main; main()"]


@pytest.mark.parametrize(
    ("overrides", "changed", "refusal"),
    [
        (("host.policy=deferrable",), {}, "eevdf"),
        (("host.cpus=64",), {}, "`host.cpus` is 64"),
        pytest.param(
            ("host.policy=deadline", "domain.control.affinity=[0]"),
            {},
            "keeps no SCHED_DEADLINE thread to some",
            marks=pytest.mark.skipif(len(CPUS) == 1, reason="there is one CPU"),
        ),
        (("host.policy=deadline", EVERYWHERE), {"rt_runtime_us": 1000}, "Linux admits"),
        (
            ("host.policy=deadline", EVERYWHERE),
            {"deadlines": [(1, 94, 100)] * len(CPUS)},
            f"beside {0.94 * len(CPUS):.3f} of other threads",
        ),
        (
            ("host.policy=deadline", EVERYWHERE),
            {"deadline_period_us": [200_000, 400_000]},
            "takes 200000 us to 400000 us",
        ),
        (("domain.control.quota=20 ms",), {}, "cpu.max holds only for ordinary threads"),
        (("domain.control.vcpus=1",), {}, "the guest has 2"),
        (("domain.control.name=other", "domain.batch.name=third"), {}, "no domain of the file"),
        ((), {"unnamed": ["control"]}, "debug-threads=on"),
        (
            ('domain.control.helpers=[{name="io",cost="1 ms",period="1 s",rt-priority=9}]',),
            {},
            "nothing says which threads",
        ),
    ],
)
def test_what_linux_cannot_do_is_refused(
    machine: Machine, overrides: tuple[str, ...], changed: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(InputError) as refused:
        asked(machine, *overrides, **changed)
    assert refusal in str(refused.value)
    assert refused.value.help


def test_groups_and_helpers_that_are_refused(machine: Machine) -> None:
    seen: Any = machine.linux.observe([])
    (control,) = (guest for guest in seen["guests"] if guest["name"] == "control")

    def refusal(*, helpers: Helpers = NO_HELPERS, **changed: Any) -> str:
        given = {**control, **changed}
        others = [guest for guest in seen["guests"] if guest is not control]
        with pytest.raises(InputError) as refused:
            asked(machine, "host.policy=eevdf", helpers=helpers, guests=[given, *others])
        return str(refused.value)

    group = control["group"]
    assert "no control group of its own" in refusal(group=None)
    assert "also has other processes" in refusal(group={**group, "is_own": False})
    assert "CPUWeight=100" in refusal(group={**group, "files": {}})
    confined = [{**thread, "allowed": []} for thread in control["threads"]]
    assert "virsh vcpupin" in refusal(threads=confined)
    assert "--helpers has the CPUs 9999" in refusal(helpers=Helpers(cpus=(9999,)))
    nowhere = Helpers(interrupts=(("nothing0", (0,)),))
    assert "no network interface 'nothing0'" in refusal(helpers=nowhere)
    assert "has no interrupts of its own" in refusal(helpers=Helpers(interrupts=(("lo", (0,)),)))


def test_vcpus_whose_numbers_have_a_gap_are_refused_where_all_are_meant(machine: Machine) -> None:
    machine.stop("control")
    machine.start("control", "CPU 0/KVM", "CPU 2/KVM", "CPU 3/KVM")
    for vcpus in (2, 3, 4):
        with pytest.raises(InputError, match="guest 'control' has the VCPUs 0,2-3, and"):
            asked(machine, f"domain.control.vcpus={vcpus}")
    seen = machine.linux.observe([])
    words = ["set", "control/1", "policy=fifo", "rt-priority=3"]
    with pytest.raises(InputError, match=r"no VCPU 1\n.*it has 0,2-3$"):
        live.change(seen, live.parse(words))
    machine.keeper.apply(live.change(seen, live.parse(["set", "control/2", *words[2:]])))
    threads = machine.threads("control")
    policies = [os.sched_getscheduler(threads[f"CPU {n}/KVM"]) & 0xFF for n in (0, 2, 3)]
    assert policies == [os.SCHED_OTHER, os.SCHED_FIFO, os.SCHED_OTHER]


def test_two_guests_of_one_name_are_refused(machine: Machine) -> None:
    guests = machine.linux.observe([])["guests"]
    with pytest.raises(InputError, match="2 guests on the machine are called 'batch'"):
        asked(machine, guests=[*guests, *(each for each in guests if each["name"] == "batch")])


@pytest.mark.parametrize(
    ("group", "user", "is_a_guest"),
    [
        ("machine.slice/machine-qemu\\x2d1\\x2d{name}.scope/libvirt/emulator", NOBODY, True),
        ("machine/qemu-1-{name}.libvirt-qemu/emulator", NOBODY, True),
        ("system.slice/laxity-protect.service", None, True),
        ("qemu.slice/100.scope", 0, True),
        # A QEMU that its guest has taken over, and that names itself as another guest's.
        ("machine.slice/machine-qemu\\x2d1\\x2dother.scope/libvirt/emulator", NOBODY, False),
        ("machine.slice/machine-qemu\\x2d1\\x2d{name}\\x2d2.scope", NOBODY, False),
        ("machine/qemu-1-other.libvirt-qemu/emulator", NOBODY, False),
        ("system.slice/laxity-protect.service", NOBODY, False),
        ("qemu.slice/100.scope", NOBODY, False),
        # An ordinary user.
        ("user.slice/user-1000.slice/session-1.scope", NOBODY, False),
        ("user.slice/user-1000.slice/machine-qemu-1-{name}.scope", NOBODY, False),
        ("user.slice/user-1000.slice/user@1000.service/machine-qemu-1-{name}.scope", NOBODY, False),
        ("system.slice/cron.service", NOBODY, False),
        ("system.slice/docker-1.scope/machine.slice/machine-qemu-1-{name}.scope", NOBODY, False),
    ],
)
def test_a_process_that_names_itself_as_a_guest_gets_nothing(
    machine: Machine, group: str, user: int | None, is_a_guest: bool
) -> None:
    name = f"mine-{os.getpid()}"
    group = group.replace("{name}", name.replace("-", "\\x2d"))
    machine.start(name, "CPU 0/KVM", group=group, user=user_of(name) if user is None else user)
    settings = HOST.split("[[domain]]", maxsplit=1)[0] + f'[[domain]]\nname = "{name}"\n'
    host = Host.parse(settings).resolved([])
    seen = machine.linux.observe([])
    (thread,) = (tid for each, tid in machine.threads(name).items() if each == "CPU 0/KVM")
    if is_a_guest:
        machine.keeper.apply(ask(host, seen, NO_HELPERS).wanted)
        assert os.sched_getscheduler(thread) & 0xFF == os.SCHED_FIFO
        return
    with pytest.raises(InputError, match="is run by an ordinary user or was started by another"):
        ask(host, seen, NO_HELPERS)
    # A guest of that name, once applied, does not let the other process have its settings.
    wanted = asked(machine).wanted
    machine.keeper.apply({**wanted, "domains": {name: wanted["domains"]["batch"]}})
    assert os.sched_getscheduler(thread) == os.SCHED_OTHER


def test_a_process_that_an_ordinary_user_names_as_a_helper_gets_nothing(machine: Machine) -> None:
    helper = f"vhost-{machine.guests['batch'].pid}"
    named = f"ctypes.CDLL(None).prctl(15, {helper.encode()!r}, 0, 0, 0); print(flush=True); input()"
    words = [sys.executable, "-c", f"import ctypes, os; os.setresuid(*3 * [{NOBODY}]); {named}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        machine.keeper.apply(asked(machine, helpers=Helpers(cpus=(CPUS[-1],))).wanted)
        allowed = os.sched_getaffinity(process.pid)
        process.communicate(b"\n")
    assert sorted(allowed) == CPUS


def test_threads_of_the_kernel_help_the_guest_that_they_are_named_after(tmp_path: Path) -> None:
    flags = {3: 0x00200000 | 0x40, 4: 0x40}
    for pid, of_pid in flags.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text("vhost-7\n")
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (vhost) 7) S 2 0 0 0 -1 {of_pid} 0 0\n")
    assert Linux(proc=tmp_path)._vhost() == {7: [3]}


def test_long_names_are_compared_as_far_as_libvirt_writes_them(machine: Machine) -> None:
    long = "long" * 20
    start = "machine.slice/machine-qemu\\x2d1\\x2d"
    machine.start(long, "CPU 0/KVM", group=f"{start}{long[:57]}.scope", user=NOBODY)
    machine.start(f"other-{long}", "CPU 0/KVM", group=f"{start}{long[:56]}.scope", user=NOBODY)
    names = {guest["name"] for guest in machine.linux.observe([])["guests"]}
    assert long in names
    assert f"other-{long}" not in names


def test_the_users_of_protected_guests() -> None:
    """`a_users_number_follows_from_the_guests_name` of the daemon has the same numbers."""
    assert user_of("media") == 0x7846_AF83
    assert user_of("signalling-1") == 0x7DF0_6A17


def test_a_group_with_other_processes_is_not_the_guests_own(machine: Machine) -> None:
    machine.stop("batch")
    machine.start("batch", "CPU 0/KVM", group="user.slice/session-1.scope")
    of = {guest["name"]: guest["group"] for guest in machine.linux.observe([])["guests"]}
    assert of["batch"] is not None
    assert of["batch"]["is_own"]
    (machine.root / "cgroup/user.slice/session-1.scope/cgroup.procs").write_text("1\n")
    of = {guest["name"]: guest["group"] for guest in machine.linux.observe([])["guests"]}
    assert of["batch"] is not None
    assert not of["batch"]["is_own"]


@pytest.mark.parametrize(
    ("whole", "below"),
    [
        ("machine.slice/machine-qemu\\x2d1\\x2dbatch.scope", "/libvirt/emulator"),
        ("machine/qemu-1-batch.libvirt-qemu", "/emulator"),
        ("qemu.slice/100.scope", ""),
    ],
)
def test_a_guests_group_has_all_its_threads(machine: Machine, whole: str, below: str) -> None:
    machine.stop("batch")
    machine.start("batch", "CPU 0/KVM", group=whole + below)
    of = {guest["name"]: guest["group"] for guest in machine.linux.observe([])["guests"]}
    assert of["batch"] is not None
    assert (of["batch"]["path"], of["batch"]["is_own"]) == (whole, True)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["qemu-kvm", "-name", "guest=web,debug-threads=on"], "web"),
        (["kvm", "-id", "100", "-name", "web,debug-threads=on"], "web"),
        (["kvm", "-name", "debug-threads=on,guest=a,,b"], "a,b"),
        (["kvm", "-name", "debug-threads=on"], None),
        (["kvm", "-smp", "2"], None),
    ],
)
def test_names_of_guests(words: list[str], name: str | None) -> None:
    assert guest_name(words) == name


def test_lists_of_cpus() -> None:
    dice = random.Random(5)  # noqa: S311
    for _ in range(1000):
        cpus = sorted(dice.sample(range(20), dice.randrange(1, 20)))
        assert cpus_of(listed(cpus), "--helpers") == tuple(cpus)
    for text in ("", "1-", "-1", "a", "3-1", "0,,1", "1-99999", "9" * 5000):
        with pytest.raises(InputError):
            cpus_of(text, "--helpers")


def test_live_parameters(machine: Machine) -> None:
    """`laxity sched` on KVM: keys that are not named stay, and --revert undoes what was set."""
    before = machine.snapshot()

    def sched(*words: str) -> list[dict[str, Any]]:
        parsed = live.parse(words)
        if parsed.command == "set":
            machine.keeper.apply(live.change(machine.linux.observe([]), parsed), keep=True)
        guests = live.parameters(machine.linux.observe([]), live.parse(["get"]))
        return [guest.to_json() for guest in guests]

    applied = asked(machine).wanted
    machine.keeper.apply(applied)
    sched("set", "control/1", "policy=deadline", "budget=2 ms", "period=100ms")
    sched("set", "control/1", "reclaim=true")
    sched("set", "control/1", "budget=3ms")
    sched("set", "batch", "affinity=0", "weight=77", "quota=20 ms")
    told = {guest["name"]: guest for guest in sched("set", "batch", "quota-burst=1ms")}
    assert told["control"]["vcpu"] == [
        {"id": 0, "policy": "fifo", "rt_priority": 30, "affinity": CPUS},
        {
            "id": 1,
            "policy": "deadline",
            "budget_ns": 3_000_000,
            "period_ns": 100_000_000,
            "reclaim": True,
            "affinity": CPUS,
        },
    ]
    assert told["batch"] == {
        "name": "batch",
        "weight": 77,
        "quota_ns": 20_000_000,
        "quota_period_ns": 100_000_000,
        "quota_burst_ns": 1_000_000,
        "vcpu": [{"id": 0, "policy": "fifo", "rt_priority": 1, "affinity": [0]}],
    }
    # What was set by hand ends with the next apply.
    machine.keeper.apply(applied)
    assert sched("get")[0]["weight"] == 100
    machine.keeper.revert()
    assert _lines(machine.snapshot()) == _lines(before)


def test_the_table_of_parameters_of_a_policy_of_laxity() -> None:
    """Its budgets have no `reclaim`, by which those of SCHED_DEADLINE are known."""
    values = {"budget_ns": 2_000_000, "period_ns": 10_000_000, "priority": 1}
    vcpu = live.VcpuParameters(0, "deferrable", values, [0])
    text = io.StringIO()
    guest = live.GuestParameters("control", {}, [vcpu])
    Console(file=text, width=120).print(parameters_table([guest]))
    assert "deferrable, budget_ns 2000000, period_ns 10000000, priority 1" in text.getvalue()


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        ("pool list", "is no command for a KVM host"),
        ("get a b", "too many or too few words"),
        ("set control", "too many or too few words"),
        ("set control budgte=1ms", "is not KEY=VALUE"),
        ("set nobody policy=fifo", "no guests on the machine are called 'nobody'"),
        ("set control/7 policy=fifo", "has no VCPU 7"),
        ("set control policy=sedf", "policy is 'sedf'"),
        ("set control budget=1ms", "add policy=deadline"),
        ("set control policy=deadline budget=1ms", "needs period"),
        ("set control policy=deadline budget=3ms period=2ms", "longer than the period"),
        ("set control policy=deadline budget=1ns period=2ms", "takes budgets of 1024 ns"),
        ("set control policy=fifo rt-priority=100", "out of bounds"),
        ("set control policy=fifo rt-priority=high", "rt-priority: "),
        ("set control reclaim=true", "add policy=deadline"),
        ("set control policy=deadline budget=1ms period=2ms reclaim=yes", "neither true nor false"),
        ("set control/0 weight=5", "is of the whole guest"),
        ("set control weight=20000", "cpu.weight is at most"),
        ("set control affinity=x", "is no list of CPUs"),
    ],
)
def test_live_parameters_that_are_refused(machine: Machine, words: str, refusal: str) -> None:
    with pytest.raises(InputError) as refused:
        live.change(machine.linux.observe([]), live.parse(words.split()))
    assert refusal in str(refused.value)
    assert refused.value.help
