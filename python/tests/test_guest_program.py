"""The program that runs a guest's tasks, here as a plain process; and the shelf."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pytest
from laxity.lab import jobs

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "xen" / "programs"
SHARED = Path(__file__).parents[2] / "guest"

MS = 1_000_000
QUICK_NS = MS
LONG_NS = MS + 5_000
ENDLESS_NS = 10**15
"""What jobs cost by SPEED, in place of the machine's own: 64,000 instructions, 5,000 times as
many, and years."""
SPEED = f"speed {10**9} {MS} {MS - 1}"

STRETCHES = (1, 4, 16, 64, 256)
"""How many times slower a test runs until other work on the machine leaves time for it."""

HANGS_S = 600
"""A process that has not ended by then never will."""

PROGRAMS = ("laxity-guest", "laxity-shelf")


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("programs"), *PROGRAMS)


@pytest.fixture(scope="session")
def listened_to(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A guest's program with a Xen inside that says what it is told."""
    out = tmp_path_factory.mktemp("listened-to")
    flags = "-O2 -Wall -Wextra -Werror -Wl,--wrap=open,--wrap=ioctl test/told.c"
    return build(out, "laxity-guest", f"CFLAGS={flags}") / "laxity-guest"


def build(out: Path, *targets: str) -> Path:
    for program in ("make", "gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"the guest's program is not tested without {program}")
    words = [f"OUT={out}", *(word if "=" in word else str(out / word) for word in targets)]
    make = ["make", "--no-print-directory", "-C", str(SOURCES), *words]
    built = subprocess.run(make, capture_output=True, text=True, check=False)
    if "apt-get install libxen-dev" in built.stderr:
        pytest.skip(f"the guest's program is not tested: {built.stderr.strip()}")
    assert built.returncode == 0, built.stderr
    return out


class Guest:
    """A guest's program that waits for orders."""

    def __init__(
        self, program: Path, complaints: IO[str] | int | None = None, **environment: str
    ) -> None:
        self.start_ns = 0
        self._process = subprocess.Popen(
            [program, "--stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, **environment},
            text=True,
        )
        assert self.until("state ready ").startswith("state ready ")

    def run(
        self, name: str, tasks: str, duration_ns: int, cpu_bound: str = "0"
    ) -> jobs.GuestReport:
        """Its report of a run, which begins as far ahead as this machine needs to be ready."""
        self.order(SPEED, f"cpu_bound {cpu_bound}", f"tasks {tasks}")
        for stretch in STRETCHES:
            self.start_ns = start_ns = time.time_ns() + 100 * MS * stretch
            self.order(f"run {name} {start_ns} {duration_ns}")
            output = self.until("state ")
            if not output.startswith(f"state late {name} {start_ns} "):
                assert output.endswith(f"state done {name}\n")
                return jobs.parse(output, name)
        raise AssertionError(output)

    def order(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines))
        self._process.stdin.flush()

    def until(self, start: str) -> str:
        """Its further output up to the line that starts so."""
        assert self._process.stdout is not None
        output = ""
        for line in self._process.stdout:
            output += line
            if line.startswith(start):
                return output
        raise AssertionError(output)

    def end(self) -> tuple[str, int]:
        """All of its further output, and its exit code."""
        output, _ = self._process.communicate(timeout=HANGS_S)
        return output, self._process.returncode


@pytest.fixture
def guest(programs: Path) -> Guest:
    return Guest(programs / "laxity-guest")


def refusal(guest: Guest, *lines: str) -> str:
    guest.order(*lines)
    output, code = guest.end()
    assert code == 2
    assert "laxity-report" not in output
    assert output.startswith("state error ")
    return output.removeprefix("state error ").rstrip("\n")


def test_every_job_is_released_and_counted(guest: Guest) -> None:
    # Releases at 0, 20, ..., 480; at 7, 107, ..., 407; at 499; none before the end. The first two
    # tasks work for next to no time, the third would for longer than any machine leaves it.
    for stretch in STRETCHES:
        ms = MS * stretch
        tasks = (
            f"{QUICK_NS},{20 * ms},{20 * ms},0,0;{QUICK_NS},{100 * ms},{100 * ms},{7 * ms},0;"
            f"{ENDLESS_NS},{500 * ms},1,{499 * ms},0;{QUICK_NS},{ms},{ms},{500 * ms},0"
        )
        report = guest.run(f"run_{stretch}.a-b", tasks, 500 * ms)
        assert report.duration_ns == 500 * ms
        assert [task.jobs for task in report.tasks] == [25, 5, 1, 0]
        assert len(report.vcpus) == os.cpu_count()
        fast, slow, last, none = (task.completions_ns for task in report.tasks)
        assert len(last) == len(none) == 0
        assert (fast >= np.arange(len(fast)) * 20 * ms).all()
        assert (slow >= np.arange(len(slow)) * 100 * ms + 7 * ms).all()
        if (len(fast), len(slow)) == (25, 5):
            assert guest.end() == ("", 0)
            return
    pytest.fail(f"not all jobs were complete, even {stretch} times as slow")


def test_late_jobs_queue(guest: Guest) -> None:
    """What a job costs is for the emulated machine to show, where time is exact."""
    report = guest.run("late", f"{ENDLESS_NS},{MS},{MS},0,0;{QUICK_NS},{MS},{MS},0,0", 400 * MS)
    endless, quick = report.tasks
    assert (endless.jobs, quick.jobs) == (400, 400)
    assert len(endless.completions_ns) == 0
    assert (quick.completions_ns >= np.arange(len(quick.completions_ns)) * MS).all()


def test_shorter_periods_go_first(guest: Guest) -> None:
    # With the CPU shared in any other way the first of the list would be complete in time.
    report = guest.run(
        "rate", f"{QUICK_NS},{100 * MS},1,{20 * MS},0;{ENDLESS_NS},{20 * MS},1,0,0", 500 * MS
    )
    if report.notes:
        assert report.notes == ("SCHED_FIFO was refused: the tasks had no priorities",)
        pytest.skip("SCHED_FIFO is refused here")
    slow, endless = (task.completions_ns for task in report.tasks)
    assert len(slow) == len(endless) == 0


def test_runs_follow_one_another(guest: Guest) -> None:
    one = guest.run("one", f"{QUICK_NS},{10 * MS},1,0,0", 200 * MS, cpu_bound="1")
    two = guest.run("two", "", 60 * MS)
    assert guest.end() == ("", 0)
    assert [task.jobs for task in one.tasks] == [20]
    assert all(vcpu.cpu_bound_ns > 0 for vcpu in one.vcpus)
    assert two.tasks == ()
    assert all(vcpu.tasks_ns == vcpu.cpu_bound_ns == 0 for vcpu in two.vcpus)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["tasks 1,2"], 'tasks: task 0 is "1,2", which must be cost_ns,period_ns,deadline_ns,'),
        (["tasks 1,2,3,4,0,6"], 'task 0 is "1,2,3,4,0,6", which must be cost_ns'),
        (["tasks 9,9,9,9,0;"], 'task 1 is "", which must be cost_ns'),
        (["tasks 9,9,9,9,0;x,9,9,9,0"], 'cost_ns of task 1 is "x", which must be a whole number'),
        (["tasks 0,9,9,9,0"], 'cost_ns of task 0 is "0", which must be a whole number from 1 to'),
        (["tasks 9,0,9,9,0"], 'period_ns of task 0 is "0"'),
        (["tasks 9,9,-1,9,0"], 'deadline_ns of task 0 is "-1"'),
        (["tasks 9,9,9,,0"], 'offset_ns of task 0 is "", which must be a whole number from 0 to'),
        (["tasks 9,9,9, 9,0"], 'offset_ns of task 0 is " 9"'),
        (["tasks 9,1000000000000001,9,9,0"], "to 1000000000000000"),
        (["tasks 9,99999999999999999999,9,9,0"], "to 1000000000000000"),
        (["tasks 9,9,9,9,100000"], 'vcpu of task 0 is "100000", which must be a whole number'),
        (["tasks " + ";".join(["9,9,9,9,0"] * 98)], "more than 97 tasks"),
        (
            ["tasks 9,9,9,9,0"],
            "cost_ns of task 0 is 9, which must be at least 999999: so long does",
        ),
        (["speed 1 0 1"], 'standard input: "speed 1 0 1" must begin with'),
        (["tasks 5000000,1,1,0,0"], "more than 1048576 jobs in 5000000 ns: make it shorter"),
        (["cpu_bound yes"], 'cpu_bound: "yes" must be 0 or 1'),
        (["cpu_bound"], "must begin with tasks, cpu_bound, tells, speed or run"),
        (["runs r 1 2"], "must begin with tasks, cpu_bound, tells, speed or run"),
        (["tells 2"], 'tells: "2" must be 0 or 1'),
        (["tells 1"], "tells: /dev/xen/privcmd cannot be opened: No such file or directory"),
        (["run r 1"], 'run: "r 1" must be NAME START_REALTIME_NS DURATION_NS'),
        (["run r 1 2 3"], 'run: "r 1 2 3" must be NAME START_REALTIME_NS DURATION_NS'),
        (["run r  2"], "the start in"),
        (["run r/s 1 2"], 'the name in "r/s 1 2" must have 1 to 64 letters'),
        (["run " + "r" * 65 + " 1 2"], "must have 1 to 64 letters"),
        (["run  1 2"], 'the name in " 1 2" must have'),
        (["run r x 2"], 'the start in "r x 2" must be a whole number'),
        (["run r 9223372036854775807 2"], "the start in"),
        (["run r 1 0"], 'the duration in "r 1 0" must be a whole number from 1 to'),
        (["run r 1 2ms"], 'the duration in "r 1 2ms"'),
    ],
)
def test_bad_orders_are_refused(guest: Guest, lines: list[str], message: str) -> None:
    assert message in refusal(guest, SPEED, *lines, f"run r {time.time_ns()} {5 * MS}")


NEVER = 2**63 - 1


class Told(NamedTuple):
    """What a guest told, and when."""

    left_ns: int
    order: int
    at_ns: int


def all_told(path: Path) -> list[Told]:
    """Without the first, by which the guest sees whether there is somebody who listens."""
    lines = path.read_text().splitlines()
    first, *told = [Told(*map(int, line.removeprefix("told ").split())) for line in lines]
    assert first[:2] == (NEVER, NEVER)
    return told


@pytest.mark.parametrize("cpu_bound", [False, True])
def test_what_a_guest_tells_of_its_work(listened_to: Path, tmp_path: Path, cpu_bound: bool) -> None:
    """Each job is told once, with its deadline: before it has to run, unless a loop runs then."""
    period_ns, deadline_ns, jobs_there = 20 * MS, 15 * MS, 5
    with (tmp_path / "told").open("w") as file:
        guest = Guest(listened_to, file)
    guest.order("tells 1")
    tasks, flag = f"{QUICK_NS},{period_ns},{deadline_ns},0,0", str(int(cpu_bound))
    (task,) = guest.run("r", tasks, period_ns * jobs_there, flag).tasks
    assert guest.end() == ("", 0)
    *between, last = all_told(tmp_path / "told")
    assert last[:2] == (NEVER, NEVER)
    assert all(told.order == 0 or (cpu_bound and told[:2] == (NEVER, NEVER)) for told in between)
    of_jobs = [told for told in between if told.order == 0]
    assert len(of_jobs) == jobs_there == task.jobs
    before_ns = -guest.start_ns
    for number, (told, done_ns) in enumerate(zip(of_jobs, task.completions_ns, strict=True)):
        release_ns = number * period_ns
        # By the clock that the guest read for it.
        told_ns = release_ns + deadline_ns - told.left_ns
        assert (release_ns if cpu_bound else before_ns) <= told_ns <= done_ns
        before_ns = done_ns


def test_urgent_jobs_are_told_when_they_come(listened_to: Path, tmp_path: Path) -> None:
    """What is told last before a job is complete is that job, whatever came in between."""
    for stretch in STRETCHES:
        with (tmp_path / "told").open("w") as file:
            guest = Guest(listened_to, file)
        guest.order("tells 1")
        # The long jobs are interrupted by those of the short period.
        ms = MS * stretch
        tasks = f"{QUICK_NS},{10 * ms},{10 * ms},0,0;{LONG_NS},{100 * ms},{100 * ms},{3 * ms},0"
        report = guest.run("r", tasks, 400 * ms)
        assert guest.end() == ("", 0)
        if all(task.completions_ns.size for task in report.tasks):
            break
    told = sorted(all_told(tmp_path / "told"), key=lambda each: each.at_ns)
    for order, task in enumerate(report.tasks):
        assert sum(each.order == order for each in told) >= task.completions_ns.size > 0
        # Without priorities each may come between at any time.
        for done_ns in () if report.notes else task.completions_ns:
            before = [each for each in told if each.at_ns <= guest.start_ns + done_ns]
            assert before[-1].order == order


@pytest.mark.parametrize(("error", "is_fault"), [(errno.EOPNOTSUPP, False), (errno.ENOSYS, True)])
def test_a_hypervisor_that_does_not_listen(listened_to: Path, error: int, is_fault: bool) -> None:
    """A policy may make nothing of it, and another may come; without Laxity nobody ever will."""
    guest = Guest(listened_to, subprocess.DEVNULL, FAKE_ERROR=str(error))
    guest.order(SPEED, "tells 1")
    if is_fault:
        message = refusal(guest, f"run r {time.time_ns()} {MS}")
        assert message.startswith("tells: the hypervisor takes no deadlines from here: ")
    else:
        guest.run("r", f"{QUICK_NS},{10 * MS},1,0,0", 20 * MS)
        assert guest.end() == ("", 0)


def test_a_run_that_is_asked_for_too_late_can_be_asked_for_again(guest: Guest) -> None:
    guest.order("run r 1 2")
    assert guest.until("state ").startswith("state late r 1 ")
    assert guest.run("r", "", MS).tasks == ()
    assert guest.end() == ("", 0)


def test_only_a_guest_runs_it_as_its_first_process(programs: Path) -> None:
    done = subprocess.run([programs / "laxity-guest"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--stdin" in done.stderr


# ---- the shelf, in place of a PCI device plain files


def put_on_shelf(
    programs: Path, directory: Path, content: bytes, shelf_bytes: int, devices: int = 1
) -> subprocess.CompletedProcess[bytes]:
    """Runs laxity-shelf where /sys/bus/pci/devices is a directory of ours."""
    root = directory / "devices"
    for number in range(3):
        device = root / f"0000:00:0{number}.0"
        device.mkdir(parents=True)
        is_shelf = number >= 3 - devices
        (device / "vendor").write_text("0x1af4\n")
        (device / "device").write_text("0x1110\n" if is_shelf else "0x1000\n")
        (device / "enable").write_text("0\n")
        (device / "resource2").write_bytes(b"x" * shelf_bytes)
    script = 'mount -t tmpfs laxity /sys; mkdir -p "${1%/*}"; ln -s "$2" "$1"; exec "$3"'
    place, program = "/sys/bus/pci/devices", programs / "laxity-shelf"
    words = ["sh", "-ec", script, "sh", place, root, program]
    private = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*private, "mount", "-t", "tmpfs", "laxity", "/sys"], check=False).returncode:
        pytest.skip("the shelf is not tested where processes may not mount")
    return subprocess.run([*private, *words], input=content, capture_output=True, check=False)


# What is in a pipe at a time is less than the longer one.
@pytest.mark.parametrize("length", [5000, 300_000])
def test_the_shelf_has_what_is_put_there(programs: Path, tmp_path: Path, length: int) -> None:
    put = os.urandom(length)
    done = put_on_shelf(programs, tmp_path, put, length + 16)
    assert (done.returncode, done.stderr) == (0, b"")
    shelves = sorted((tmp_path / "devices").iterdir())
    content = (shelves[2] / "resource2").read_bytes()
    assert content == b"LAXITYRS" + length.to_bytes(8, "little") + put
    assert (shelves[1] / "resource2").read_bytes() == b"x" * (length + 16)
    assert (shelves[2] / "enable").read_text().startswith("1")


@pytest.mark.parametrize(
    ("shelf_bytes", "devices", "code", "message"),
    [
        (5015, 1, 2, "there are more bytes than the 4999 that the shelf can hold"),
        (15, 1, 2, "the shelf of 15 bytes cannot hold anything"),
        (5016, 0, 1, "there is no PCI device 1af4:1110"),
        (5016, 2, 1, "only one can be the shelf"),
    ],
)
def test_what_does_not_fit_stays_off_the_shelf(
    programs: Path, tmp_path: Path, shelf_bytes: int, devices: int, code: int, message: str
) -> None:
    done = put_on_shelf(programs, tmp_path, bytes(5000), shelf_bytes, devices)
    assert done.returncode == code
    assert message in done.stderr.decode()
    for device in (tmp_path / "devices").iterdir():
        assert b"LAXITYRS" not in (device / "resource2").read_bytes()


HARNESS = """
#include "program.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words)
{
    struct program program;
    struct failure failure;
    char *output = NULL;
    bool good = count == 3 ? network_up(words[1], words[2], &failure)
                           : program_start(&program, words[1], &failure);
    if (good && count == 2) {
        while (access("ready", F_OK)) /* The program makes that file. */
            usleep(1000);
        good = program_stop(&program, &output, &failure);
    }
    puts(good ? output ? output : "up" : failure.text);
    free(output);
    return !good;
}
"""


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    """Starts a guest's server and ends it, or brings up its network."""
    del programs  # That skips where there is no compiler.
    out = tmp_path_factory.mktemp("harness")
    (out / "harness.c").write_text(HARNESS)
    sources = [str(out / "harness.c"), str(SOURCES / "program.c"), str(SHARED / "request.c")]
    words = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g"]
    words += [
        "-fsanitize=address,undefined",
        f"-I{SOURCES}",
        f"-I{SHARED}",
        *sources,
        "-o",
        str(out / "harness"),
    ]
    subprocess.run(words, check=True)
    return out / "harness"


@pytest.mark.parametrize(
    ("lines", "code", "said"),
    [
        ("/bin/sh\n-c\ntrap 'echo \"$0 it\"; exit' INT; >ready; while :; do sleep 0.1; done\ns",
         0, "s it\n\n"),
        ("/bin/sh\n-c\ntrap '' INT; >ready; chrt -p $$ | head -1; exit 3", 1,
         "program: it ended with status 0x300: "),
        ("/bin/sh\n-c\ntrap '' INT; >ready; head -c 70000 /dev/zero | tr '\\0' x", 1,
         "program: it says more than 65536 bytes\n"),
        ("/nowhere", 1, "program: /nowhere cannot be started: No such file or directory\n"),
        ("", 1, "program: it must be a path and at most 31 arguments, a line each\n"),
        ("a\n" * 40, 1, "program: it must be a path and at most 31 arguments, a line each\n"),
    ],
)  # fmt: skip
def test_a_guests_server(harness: Path, tmp_path: Path, lines: str, code: int, said: str) -> None:
    done = subprocess.run(
        [harness, lines],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(said)


@pytest.mark.parametrize("address", ["", "192.0.2.1", "192.0.2.1/33", "192.0.2.400/24", "a/24"])
def test_a_guests_address_that_is_none(harness: Path, tmp_path: Path, address: str) -> None:
    words = [harness, tmp_path, address]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert (done.returncode, done.stderr) == (1, "")
    assert "must be ADDRESS/PREFIX, as 192.0.2.2/24" in done.stdout


def test_a_guests_module_that_cannot_be_loaded(harness: Path, tmp_path: Path) -> None:
    (tmp_path / "0-none.ko").write_text("no module\n")
    words = [harness, tmp_path, "192.0.2.2/24"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANGS_S)
    assert done.returncode == 1
    assert f"the module {tmp_path}/0-none.ko cannot be loaded: " in done.stdout
    missing = subprocess.run(
        [harness, tmp_path / "none", "192.0.2.2/24"], capture_output=True, text=True, check=False
    )
    assert "none cannot be read: No such file or directory" in missing.stdout
