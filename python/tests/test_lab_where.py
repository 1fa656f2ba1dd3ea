"""Real Xen hosts, by programs that stand in for ssh, xl and the hypervisor."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from conftest import HOST
from laxity import Host, InputError, substrates
from laxity.cli import ended
from laxity.lab.errors import LabError, LeftRunningError
from laxity.substrates.xen import Xen, executors
from laxity.substrates.xen.plan import Plan, Window

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS = Path(__file__).parents[2] / "xen" / "lab"

XL = """\
#!/bin/sh
echo "xl $*" >>"$DIARY"
case $1 in
info) cat "$STATE/info" ;;
list) echo 'Name ID Mem VCPUs State Time'; cat "$STATE/domains" ;;
domid) sed -n "s/^$2 \\([0-9]*\\) .*/\\1/p" "$STATE/domains" ;;
destroy) sed -i "/ $2 /d" "$STATE/domains" ;;
vcpu-list) cat "$STATE/vcpus" ;;
sched-credit) printf 'Name ID Weight Cap\\nDomain-0 0 512 0\\n' ;;
esac
"""

IP = """\
#!/bin/sh
echo "ip $*" >>"$DIARY"
case $2 in show) [ -f "$STATE/bridge" ] ;; esac
"""

VCPUS = """\
Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)
Domain-0                             0     0    1   r--     103.4  0-3 / all
Domain-0                             0     1    0   -b-       9.0  all / 1
Domain-0                             0     2    -   --p       0.1  all / all
"""

CALLS = """
duration = "1 s"
host = { cpus = 2, policy = "polling" }
calls = { streams = 4, media-server = "media" }

[[domain]]
name = "driver"
vcpus = 2
budget = "2 ms"
period = "10 ms"
workload = { kind = "driver" }

[[domain]]
name = "media"
budget = "2 ms"
period = "10 ms"
workload = { kind = "media-server" }
"""

SSH = """\
#!/bin/sh
echo "ssh $*" >>"$DIARY"
for command; do :; done
case $* in
*"visit.sh /"*)
    [ ! -f "$STATE/cut" ] || { echo 'Connection reset' >&2; exit 255; }
    ;;
*--leave*)
    left=$(cat "$STATE/deaf" 2>/dev/null || echo 0)
    echo $((left - 1)) >"$STATE/deaf"
    [ "$left" -le 0 ] || { echo 'Connection timed out' >&2; exit 255; }
    ;;
esac
[ ! -f "$STATE/unreachable" ] || { echo 'Permission denied (publickey).' >&2; exit 255; }
exec sh -c "$command"
"""

SCHED = """\
#!/bin/sh
echo "laxity-sched $*" >>"$DIARY"
case $1 in get) cat "$STATE/sched" ;; esac
"""

LIB = """\
policy() { :; }
settings() { :; }
parameters() { :; }
hang_in() {
    [ ! -f "$STATE/hangs-in-$1" ] || echo "$1" >"$STATE/hangs"
    while [ -f "$STATE/hangs" ]; do sleep 0.05; echo 'laxity: waiting'; done
}
create() { number=$((7 + $(wc -l <"$STATE/domains"))); echo "$1" >"$RESULTS/creating"
    echo "$1 $number -" >>"$STATE/domains"; hang_in create
    echo "$1 $number" >>"$RESULTS/domids"; rm "$RESULTS/creating"; }
start_all() { [ ! -f "$STATE/broken" ] || { echo 'laxity: error: the guest died' >&2; exit 1; }
    hang_in start_all; }
tasks() { mkdir -p "$RESULTS/$2"; echo "$3" >"$RESULTS/$2/$1.tasks"; }
window() { echo 5 >"$RESULTS/$1/start"; }
network() { echo "$1" >"$RESULTS/bridge"; ls "$LAXITY" >"$RESULTS/files"; }
pin() { :; }
connect() { :; }
program() { :; }
calls() { :; }
"""

PARAMETERS = {
    "budget_ns": 1,
    "period_ns": 2,
    "priority": 3,
    "weight": 4,
    "cap_percent": 0,
    "laxity_ns": 0,
    "extratime": True,
}

POOL = {
    "pools": [
        {
            "id": 0,
            "scheduler": "laxity",
            "policy": "polling",
            "quantum_ns": 5,
            "time_slice_ns": 6,
            "tick_ns": 7,
            "accounting_ns": 8,
            "accounting_phase_ns": 3,
        }
    ],
    "domains": [{**PARAMETERS, "priority": 9, "vcpu": [{"id": 0, **PARAMETERS}]}],
}


RESTORED = [
    (
        "laxity-sched set --pool 0 policy=polling quantum=5 time-slice=6 tick=7 accounting=8 "
        "accounting-phase=3"
    ),
    "laxity-sched set Domain-0 budget=1 period=2 laxity=0 priority=9 extratime=1 weight=4 cap=0",
    "laxity-sched set Domain-0/0 budget=1 period=2 laxity=0 priority=3 extratime=1 weight=4 cap=0",
]

MKTEMP = """#!/bin/sh
home=$(/usr/bin/mktemp "$@") && echo "$home" >>"$STATE/homes" && echo "$home"
"""


@dataclass(frozen=True)
class FakeHost:
    """What the stand-ins say, and what they were asked."""

    state: Path

    def diary(self) -> list[str]:
        return (self.state / "diary").read_text().splitlines()

    def domains(self) -> list[str]:
        return (self.state / "domains").read_text().splitlines()

    def homes(self) -> set[Path]:
        """The temporary directories of visits that are still there."""
        made = self.state / "homes"
        lines = made.read_text().splitlines() if made.exists() else []
        return {home for home in map(Path, lines) if home.exists()}

    def write(self, name: str, text: str) -> None:
        (self.state / name).write_text(text)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    programs, state = tmp_path / "bin", tmp_path / "state"
    programs.mkdir()
    state.mkdir()
    for name, text in (("xl", XL), ("ssh", SSH), ("mktemp", MKTEMP), ("ip", IP)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STATE", str(state))
    monkeypatch.setenv("DIARY", str(state / "diary"))
    files = {"laxity-sched": SCHED.encode(), "lib.sh": LIB.encode()}
    files["visit.sh"] = (SCRIPTS / "visit.sh").read_bytes()
    monkeypatch.setattr(executors, "_files", lambda _: files)
    media = {"laxity-media": b"", "network.cpio": b"", "vif": b""}
    monkeypatch.setattr(executors, "_network_files", lambda _: media)
    host = FakeHost(state)
    host.write("info", "nr_cpus                : 4\nxen_scheduler          : (null)\n")
    host.write("domains", "Domain-0 0 -\nshop 3 -\n")
    host.write("sched", json.dumps(POOL))
    host.write("vcpus", VCPUS)
    return host


def plan(*overrides: str, scheduler: str | None = None, text: str = HOST) -> Plan:
    host = Host.parse(text).resolved(overrides)
    return Plan.of([Window("run", host)], mode="live", scheduler=scheduler)


def results(tmp_path: Path) -> Path:
    directory = tmp_path / "out"
    (directory / "results").mkdir(parents=True)
    return directory


@pytest.mark.parametrize("at", ["local", "ssh://root@server"])
def test_a_visit_leaves_results_here_and_nothing_there(
    fake: FakeHost, tmp_path: Path, at: str
) -> None:
    before, directory, said = fake.homes(), results(tmp_path), list[str]()
    executors.executor(at, "live").execute(plan(), directory, said.append)
    assert (directory / "results/run/start").read_text() == "5\n"
    assert (directory / "results/run/laxity-batch.tasks").read_text() == "\n"
    assert fake.homes() == before
    assert fake.domains() == ["Domain-0 0 -", "shop 3 -"]
    diary = fake.diary()
    assert [line for line in diary if line.startswith("laxity-sched set")] == RESTORED
    through_ssh = [line for line in diary if line.startswith("ssh")]
    assert bool(through_ssh) == at.startswith("ssh")
    assert all(
        line.startswith("ssh -o BatchMode=yes -o ConnectTimeout=15 -- ssh://root@server ")
        for line in through_ssh
    )
    assert any("root@server" in line for line in said) == at.startswith("ssh")


@pytest.mark.parametrize("scheduler", [None, "credit"])
def test_a_visit_with_calls_gives_dom0_back(
    fake: FakeHost, tmp_path: Path, scheduler: str | None
) -> None:
    """The bridge is gone, and its VCPUs run where they did, with their weight."""
    if scheduler:
        fake.write("info", f"nr_cpus : 4\nxen_scheduler : {scheduler}\n")
    directory = results(tmp_path)
    made = plan(scheduler=scheduler, text=CALLS)
    executors.executor("ssh://root@server", "live").execute(made, directory, print)
    there = (directory / "results/files").read_text().split()
    assert {"laxity-media", "network.cpio", "vif"} <= set(there)
    diary = fake.diary()
    assert "ip link delete laxity0" in diary
    restored = [line for line in diary if line.startswith(("xl vcpu-pin", "xl sched-credit -d"))]
    pins = ["xl vcpu-pin Domain-0 0 0-3 all", "xl vcpu-pin Domain-0 1 all 1"]
    asked, weight = "xl sched-credit -d Domain-0", "xl sched-credit -d Domain-0 -w 512 -c 0"
    assert restored == ([asked, *pins, weight] if scheduler else pins)
    assert fake.homes() == set()


def test_a_visit_that_fails_tidies_up_and_says_why(fake: FakeHost, tmp_path: Path) -> None:
    fake.write("broken", "")
    before = fake.homes()
    with pytest.raises(LabError, match=r"root@server failed: .*the guest died"):
        executors.executor("ssh://root@server", "live").execute(plan(), results(tmp_path), print)
    assert fake.homes() == before
    assert fake.domains() == ["Domain-0 0 -", "shop 3 -"]


@pytest.fixture
def _as_a_command() -> Iterator[None]:
    """Signals end what runs as they end a command."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    ended.end_by_signals()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.slow
@pytest.mark.parametrize("at", ["local", "ssh://root@server"])
@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, ended.EndedError)]
)
@pytest.mark.parametrize("step", ["create", "start_all"])
@pytest.mark.usefixtures("_as_a_command")
def test_an_interrupted_visit_tidies_up(
    fake: FakeHost, tmp_path: Path, at: str, number: int, raised: type[BaseException], step: str
) -> None:
    """Ctrl-C falls while domains run there, or while one is being created."""

    def interrupt() -> None:
        while not (fake.state / "hangs").exists():
            time.sleep(0.05)
        assert len(fake.domains()) == (3 if step == "create" else 6)
        os.kill(os.getpid(), number)
        time.sleep(0.2)
        # It is not interrupted, and ends what it began, as xl does.
        (fake.state / "hangs").unlink()

    fake.write(f"hangs-in-{step}", "")
    before = fake.homes()
    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(raised):
        executors.executor(at, "live").execute(plan(), results(tmp_path), print)
    thread.join()
    assert fake.homes() == before
    assert fake.domains() == ["Domain-0 0 -", "shop 3 -"]
    assert [line for line in fake.diary() if line.startswith("laxity-sched set")] == RESTORED


def test_a_visit_that_nobody_listens_to_ends_by_itself(fake: FakeHost, tmp_path: Path) -> None:
    """The connection is lost, or the process that came is killed."""
    for name, content in executors._files(print).items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    (tmp_path / executors.RESTORE).write_text(f"{tmp_path}/{RESTORED[0]}\n")
    plan().write(tmp_path / "plan", str(tmp_path))
    fake.write("hangs-in-start_all", "")
    with subprocess.Popen(
        ["/bin/sh", tmp_path / "visit.sh", tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as visit:
        assert visit.stdout is not None
        visit.stdout.readline()
        assert len(fake.domains()) == 6
        visit.stdout.close()
        visit.wait(600)
    assert fake.domains() == ["Domain-0 0 -", "shop 3 -"]
    assert fake.diary()[-1] == RESTORED[0]
    assert not (tmp_path / executors.RESTORE).exists()


def test_a_visit_that_is_ended_while_it_tidies_up_does_it_once(
    fake: FakeHost, tmp_path: Path
) -> None:
    """The connection is lost, and the other end comes to see at the same time."""
    for name, content in executors._files(print).items():
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    fake.write("broken", "")
    end = "".join(f"kill -{name} $(cat {tmp_path}/pid)\n" for name in ("TERM", "PIPE", "HUP"))
    (tmp_path / executors.RESTORE).write_text(f"{tmp_path}/{RESTORED[0]}\n{end}")
    plan().write(tmp_path / "plan", str(tmp_path))
    for words in ((tmp_path,), ("--leave", tmp_path)):
        subprocess.run(["/bin/sh", tmp_path / "visit.sh", *words], check=False, timeout=600)
    assert fake.diary().count(RESTORED[0]) == 1
    assert not (tmp_path / executors.RESTORE).exists()


def test_a_host_that_does_not_take_what_it_is_sent(
    fake: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says why, also where a pipe without a reader would end us, as in the command."""
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    monkeypatch.setattr(executors, "_files", lambda _: {"kernel": os.urandom(1 << 20)})
    (tmp_path / "bin/tar").write_text("#!/bin/sh\necho 'No space left on device' >&2; exit 2\n")
    (tmp_path / "bin/tar").chmod(0o755)
    try:
        with pytest.raises(LabError, match=r"tar.*failed: No space left on device"):
            executors.executor("local", "live").execute(plan(), results(tmp_path), print)
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert fake.homes() == set()


def test_hosts_that_cannot_do_it_are_refused(fake: FakeHost, tmp_path: Path) -> None:
    def refused(made: Plan, message: str) -> None:
        directory = tmp_path / "out"
        with pytest.raises(InputError, match=message):
            executors.executor("local", "live").execute(made, directory, print)
        assert not any("create" in line for line in fake.diary())

    refused(plan("host.cpus=8"), "this machine has 4")
    refused(plan(scheduler="credit2"), "and not credit2")
    refused(plan("host.policy=sedf"), "cannot be changed into sedf")
    refused(plan("domain.driver.vcpus=1", text=CALLS), "and that of this machine has 2")
    refused(plan(text=CALLS, scheduler="rtds"), "and not rtds")
    fake.write("info", "nr_cpus : 4\nxen_scheduler : rtds\n")
    refused(plan(text=CALLS, scheduler="rtds"), "could not give back")
    fake.write("info", "nr_cpus : 4\nxen_scheduler : (null)\n")
    fake.write("bridge", "")
    refused(plan(text=CALLS), "already has a network interface laxity0")
    fake.write("domains", "Domain-0 0 -\nlaxity-late 3 -\n")
    refused(plan(), "already has laxity-late")
    fake.write("domains", "Domain-0 0 -\n")
    fake.write("sched", json.dumps({"pools": [{"scheduler": "credit2"}], "domains": []}))
    refused(plan(), "does not run Laxity's scheduler")
    fake.write("unreachable", "")
    with pytest.raises(LabError, match=r"ssh does not reach root@server: Permission denied"):
        executors.executor("ssh://root@server", "live").execute(plan(), tmp_path, print)


def test_a_host_that_is_hard_to_reach_is_left_as_it_was(
    fake: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "LEAVING_PAUSE_S", 0)
    before, there = fake.homes(), executors.executor("ssh://root@server", "live")
    fake.write("deaf", "3")
    there.execute(plan(), results(tmp_path), lambda _: None)
    assert fake.homes() == before
    # A connection that breaks during the visit leaves nothing there either.
    fake.write("cut", "")
    with pytest.raises(LabError, match="Connection reset"):
        there.execute(plan(), results(tmp_path / "cut"), lambda _: None)
    assert fake.homes() == before
    (fake.state / "cut").unlink()
    # One that is out of reach for good needs what is there to tidy up by itself.
    fake.write("deaf", "1000")
    with pytest.raises(LeftRunningError, match=r"Connection timed out; its visit ends by itself"):
        there.execute(plan(), results(tmp_path / "again"), lambda _: None)
    (home,) = fake.homes() - before
    assert (home / "visit.sh").is_file()
    shutil.rmtree(home)


def test_a_comparison_that_a_running_xen_cannot_make_does_not_begin(fake: FakeHost) -> None:
    there = Xen(at="ssh://root@server", mode="live")
    with pytest.raises(InputError, match="cannot change its policy among deferrable, sedf"):
        Host.parse(HOST).compare(["deferrable", "sedf"], on=there)
    assert not (fake.state / "diary").exists()


def test_a_machine_without_xen_is_refused(
    fake: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin/xl").unlink()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(InputError, match=r"this machine is not a Xen host.*xl.*not found"):
        executors.executor("local", "live").execute(plan(), tmp_path, print)
    assert not (fake.state / "diary").exists()


@pytest.mark.parametrize(
    "at", ["nowhere", "ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://a/b", "root@server"]
)
def test_places_that_there_are_not(at: str) -> None:
    with pytest.raises(InputError, match="there is no place"):
        executors.executor(at, "live")


@pytest.mark.parametrize("at", ["local", "ssh://root@server"])
def test_a_real_host_does_not_repeat(at: str) -> None:
    with pytest.raises(InputError, match="does not repeat"):
        executors.executor(at, "repeatable")


def test_words_for_laxity_sched_arrive_as_they_are(
    fake: FakeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "laxity-sched"
    program.write_text(
        '#!/bin/sh\nfor word; do echo "<$word>"; done\necho "complaint" >&2; exit 2\n'
    )
    monkeypatch.setattr(executors.image, "programs", lambda _: tmp_path)
    words = ["set", "a b", "budget=2 ms", "; rm -rf $HOME", "it's", ""]
    code, output, complaint = executors.real_host("ssh://root@server").sched(words)
    assert (code, complaint) == (2, "complaint\n")
    assert output.splitlines() == [f"<{word}>" for word in words]
    assert any(shlex.quote("; rm -rf $HOME") in line for line in fake.diary())


@pytest.mark.parametrize(
    ("at", "mode", "options"),
    [
        ("emulator", "repeatable", ()),
        ("emulator", "live", ("--mode", "live")),
        ("local", "live", ("--at", "local", "--mode", "live")),
        ("ssh://root@server", "live", ("--at", "ssh://root@server", "--mode", "live")),
    ],
)
def test_xen_knows_what_names_it_on_the_command_line(
    at: str, mode: Literal["repeatable", "live"], options: tuple[str, ...]
) -> None:
    on = Xen(at=at, mode=mode)
    assert on.words == ("--on", "xen", *options)
    assert substrates.of_words(on.words) == on
