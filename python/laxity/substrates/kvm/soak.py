"""A soak of KVM: ten minutes of whatever an administrator may do to guests under a policy.

What is done is drawn from a seed (soak_plan); kvm/programs/laxity-soak.c does it on the emulated
host, whose kernel checks its memory meanwhile and is impatient of whoever waits. What is left is
judged here: the kernel's trace, in which nobody who could run waits for long and no budget is
exceeded, and the kernel's log.

In repeatable mode a seed gives the same soak every time, to the byte.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from laxity import _core, tracefile
from laxity.lab import cpio, fingerprint, kvm_image, kvm_policies
from laxity.lab.errors import LabError
from laxity.lab.files import CONSOLE, RESULTS, SCRIPT
from laxity.lab.kvm_machine import KvmMachine
from laxity.policies import TABLE
from laxity.substrates.kvm.soak_plan import CPUS, MILLISECOND_NS, SECOND_NS, draw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from laxity.lab.modes import Mode
    from laxity.policies import Policy
    from laxity.progress import Say

SHIFT = 1
"""An instruction takes 2 ns, as in the lab. Where it takes 8, a turn of the reserve of ordinary
tasks is 25,000 instructions, most of which are the switches to and from it, and the kernel's own
work takes longer than the kernel allows."""

SECONDS_A_MINUTE = 60

WAIT_NS = {"servers": 2 * SECOND_NS, "deadlines": 2 * SECOND_NS, "shares": 6 * SECOND_NS}
"""The longest wait of a VCPU that could run, by the family of the policy. Each is less than the
patience after which the scheduler itself gives a VCPU a moment, which would hide that it was
forgotten."""
NEGLECT_NS = {"scheduler-s": 2 * SECOND_NS}
"""How long a VCPU's own CPU may run no VCPU in one wait of the VCPU while it is not parked, by the
family of the policy. These are families whose rules bound no wait (docs/explanation/policies.md).
Interruptions of SLACK_NS do not count: the reserve of ordinary tasks, and laxity-soak itself, which
looks every 2 ms whether what it waits for is there."""
WAIT_OF_ORDINARY_NS = 10 * SECOND_NS
"""The longest wait of an ordinary task."""

SLACK_NS = {"repeatable": 10 * MILLISECOND_NS, "live": 500 * MILLISECOND_NS}
"""How much longer than its budget a VCPU may run, once in an interval: the CPUs of the emulated
machine take turns, in which 7 ms may pass for the one that has none, and live they wait for those
of the computer that they run on. What was overrun is owed, so that it counts once and not in each
period."""

TURN_NS = 5_000
"""How much longer a turn of a VCPU may be in the trace than for the policy, which counts from when
the kernel chose the VCPU, and not from when it switched: some 2,000 instructions of this computer.
"""

ARGUMENTS = (
    # Checks of the kernel's allocators: red zones, poison, sanity, and guarded samples.
    "slab_debug=FZP kfence.sample_interval=100 init_on_free=1"
    # A CPU that stays in the kernel is a complaint after 10 s, in place of 20 s.
    " watchdog_thresh=5 log_buf_len=1M"
)
"""What Debian's kernel has of debugging; it is built without lockdep."""

MEMORY_MIB = 1536
TRACE_MIB, TRACE_MIB_PER_MINUTE = 8, 6.0
"""The trace buffers of each CPU."""
MINUTES_MAX = 12.0
"""More would not fit the memory through which results leave the machine."""

POLICY_MIB = 32
"""The memory for what a policy of NEGLECT_NS does: eight times what ten minutes take."""
POLICY_EVENTS = "policy.bin"
"""The file of that, among the results of a host."""
PARKED = 3
"""The class of a VCPU that may not run, since its domain has used up its cap: S_PARKED of
policy/src/scheduler_s.c."""

PREPARE_S = 3600.0
WALL_S_PER_S = 60.0
"""Wall time for the beginning and the end, and for a second in the machine. Both only stop what
hangs."""

KERNEL_LOG = "kernel.log"
"""The kernel's log, among the results of a host."""

COMPLAINTS = re.compile(
    r"soft lockup|hard LOCKUP|blocked for more than|self-detected stall|detected stalls|"
    r"Kernel panic|\bBUG\b|WARNING:|Oops|Call Trace:|KFENCE|Workqueue lockup|workqueue lockup|"
    r"general protection|runnable task stall|Object padding|Redzone|Poison|list_add corruption|"
    r"list_del corruption|scheduling while atomic|RT throttling|Modules linked in:"
)
"""What Linux says when something is wrong."""

GOES = re.compile(r'sched_ext: (?:BPF )?scheduler "laxity".* disabled \((.*)\)')
UNREGISTERED = "unregistered from user space"
"""Why a scheduler goes that its loader took off."""


# ---- What was done ----


@dataclass(frozen=True)
class Done:
    """An operation that was done."""

    before_ns: int
    """From the start of the soak, as all times here."""
    after_ns: int
    words: tuple[str, ...]


@dataclass
class Life:
    """A guest, or an ordinary task, from when it came until it was killed or the soak was over."""

    name: str
    threads: list[int]
    came: Done
    ends_ns: int
    bound_until_ns: int
    """The end of its run, or when it was killed: a thread that exits is an ordinary task."""

    @property
    def is_guest(self) -> bool:
        """Whether it is a guest."""
        return self.came.words[0] == "create"


@dataclass(frozen=True)
class Interval:
    """The time between two changes in which a VCPU has a budget, which it must keep."""

    from_ns: int
    to_ns: int
    budget_ns: int
    period_ns: int


def parse(text: str) -> tuple[int, list[Done]]:
    """The file `done` of laxity-soak: the start, ns of the TSC's clock, and what was done."""
    first, *lines = text.splitlines()
    start_ns, done = int(first), []
    for line in lines:
        before, after, *words = line.split()
        done.append(Done(int(before) - start_ns, int(after) - start_ns, tuple(words)))
    return start_ns, done


def lives(done: Iterable[Done], start_ns: int, end_ns: int) -> list[Life]:
    """Returns who was there, in the order in which they came."""
    found: list[Life] = []
    for each in done:
        kind, name, *rest = each.words
        if kind in ("create", "hog"):
            count = (len(rest) - 5) // 2 if kind == "create" else 1
            run_ends, *threads = [int(word) for word in rest[-count - 1 :]]
            run_ends_ns = run_ends - start_ns if run_ends else end_ns
            found.append(Life(name, threads, each, end_ns, min(run_ends_ns, end_ns)))
        elif kind in ("destroy", "unhog"):
            life = next(life for life in reversed(found) if life.name == name)
            life.ends_ns = each.after_ns
            life.bound_until_ns = min(life.bound_until_ns, each.before_ns)
    return found


def intervals(done: Iterable[Done], life: Life, vcpu: int) -> list[Interval]:
    """When a VCPU of a guest had which budget, where it is bound to it."""
    found = []
    changes = [*_changes(done, life, vcpu), (None, {})]
    for (change, own), (following, _) in pairwise(changes):
        to_ns = min(following.before_ns if following else life.bound_until_ns, life.bound_until_ns)
        if change and own and not own.get("extratime") and change.after_ns < to_ns:
            found.append(Interval(change.after_ns, to_ns, own["budget"], own["period"]))
    return found


def _changes(
    done: Iterable[Done], life: Life, vcpu: int
) -> Iterator[tuple[Done | None, dict[str, int]]]:
    """What changed parameters of a VCPU in its life, and what it has since then; nothing: it is not
    the policy's.
    """
    domain: dict[str, int] = {}
    own: dict[str, int] = {}
    for each in done:
        kind, name, *rest = each.words
        of, _, number = name.partition("/")
        if of != life.name:
            continue
        before = own
        if kind == "set":
            given = {key: int(value) for key, value in (pair.split("=") for pair in rest)}
            domain = domain if number else {**domain, **given}
            own = {**own, **given} if own and number in ("", str(vcpu)) else own
        elif each is life.came or (own is before and kind == "join" and rest[0] == str(vcpu)):
            own = dict(domain) if each.before_ns >= life.came.before_ns else {}
        elif kind == "leave" and rest[0] == str(vcpu):
            own = {}
        if own is not before:
            yield each, own


# ---- What must be ----


@dataclass(frozen=True)
class Runs:
    """When a thread could run, and when it did, from a trace: arrays of ns from the start."""

    began_ns: np.ndarray
    ended_ns: np.ndarray
    waited_since_ns: np.ndarray
    """The beginnings of waits: it could run, and did not."""
    waited_until_ns: np.ndarray


def runs_of(records: np.ndarray, life: Life) -> Runs:
    """From the records of one VCPU, in order; waits before its life, when it was made, are none."""
    kinds = {name: tracefile.number_of(name) for name in ("run", "stop", "wake")}
    began, ended, since, until = [], [], [], []
    running: int | None = None
    waits: int | None = None
    for record in records:
        kind, at_ns = int(record["kind"]), int(record["time_ns"])
        if kind == kinds["wake"] and running is None and waits is None:
            waits = at_ns
        elif kind == kinds["run"]:
            if waits is not None and at_ns > life.came.after_ns:
                since.append(max(waits, life.came.after_ns))
                until.append(at_ns)
            running, waits = at_ns, None
        elif kind == kinds["stop"] and running is not None:
            began.append(running)
            ended.append(at_ns)
            running, waits = None, at_ns if record["argument"] else None
    if waits is not None and waits < life.ends_ns:
        since.append(max(waits, life.came.after_ns))
        until.append(life.ends_ns)
    if running is not None:
        began.append(running)
        ended.append(life.ends_ns)
    return Runs(*(np.array(each, dtype=np.int64) for each in (began, ended, since, until)))


def longest_wait_ns(runs: Runs) -> tuple[int, int]:
    """The longest wait, and when it began; (0, 0) if there was none."""
    waits_ns = runs.waited_until_ns - runs.waited_since_ns
    if not len(waits_ns):
        return 0, 0
    place = int(waits_ns.argmax())
    return int(waits_ns[place]), int(runs.waited_since_ns[place])


@dataclass(frozen=True)
class Turns:
    """How long a CPU had run VCPUs by when, in ns: arrays, with a straight line between entries."""

    at_ns: np.ndarray
    ran_ns: np.ndarray

    def between(self, from_ns: int, to_ns: int) -> int:
        """How long the CPU ran VCPUs between two times."""
        from_ran, to_ran = np.interp([from_ns, to_ns], self.at_ns, self.ran_ns)
        return round(float(to_ran - from_ran))


def turns_of(records: np.ndarray, end_ns: int, slack_ns: int) -> list[Turns]:
    """From the records of VCPUs, in order; the result has an entry for each CPU.

    What interrupts VCPUs for `slack_ns` at most counts as if they ran.
    """
    run, stop = tracefile.number_of("run"), tracefile.number_of("stop")
    of_turns = records[(records["kind"] == run) | (records["kind"] == stop)]
    found = []
    for cpu in range(CPUS):
        own = of_turns[of_turns["cpu"] == cpu]
        at_ns = np.concatenate(([0], own["time_ns"], [end_ns]))
        lengths_ns = np.diff(at_ns)
        ran = np.concatenate(([False], own["kind"] == run)) | (lengths_ns <= slack_ns)
        ran_ns = np.cumsum(np.where(ran, lengths_ns, 0))
        found.append(Turns(at_ns, np.concatenate(([0], ran_ns))))
    return found


@dataclass(frozen=True)
class Place:
    """Where a VCPU is from some time on."""

    from_ns: int
    cpu: int
    may_run: bool
    """Whether it is the policy's, and not parked."""


def places_of(records: np.ndarray, done: Iterable[Done], life: Life, vcpu: int) -> list[Place]:
    """From the records of one VCPU, with what the policy did to it, and what was done; in order."""
    run, migrate, classed = (tracefile.number_of(each) for each in ("run", "migrate", "class"))
    changes: list[tuple[int, dict[str, int]]] = []
    for record in records[np.isin(records["kind"], (run, migrate, classed))]:
        kind, argument = int(record["kind"]), int(record["argument"])
        change = {"parked": int(argument == PARKED)} if kind == classed else {"cpu": argument}
        changes.append(
            (int(record["time_ns"]), {"cpu": int(record["cpu"])} if kind == run else change)
        )
    for each in done:
        operation, name, *rest = each.words
        is_own = name == life.name and life.came.before_ns <= each.before_ns < life.ends_ns
        if is_own and operation == "leave" and rest[0] == str(vcpu):
            changes.append((each.before_ns, {"left": 1}))
        elif is_own and operation == "join" and rest[0] == str(vcpu):
            changes.append((each.after_ns, {"left": 0, "parked": 0, "cpu": int(rest[1])}))
    # create NAME DURATION_NS CPU_BOUND TELLS TASKS CPU...
    state = {"cpu": int(life.came.words[6 + vcpu]), "parked": 0, "left": 0}
    found = [Place(life.came.before_ns, state["cpu"], may_run=True)]
    for at_ns, change in sorted(changes, key=lambda change: change[0]):
        state |= change
        found.append(Place(at_ns, state["cpu"], not (state["parked"] or state["left"])))
    return found


def longest_neglect_ns(
    runs: Runs, places: Sequence[Place], turns: Sequence[Turns], until_ns: int
) -> tuple[int, int]:
    """How long a VCPU that might run was left while its CPU ran none: the most in one wait, and
    when that wait began; (0, 0) if there was none.
    """
    longest_ns, at_ns = 0, 0
    starts_ns = [place.from_ns for place in places]
    for since_ns, waited_until_ns in zip(runs.waited_since_ns, runs.waited_until_ns, strict=True):
        to_ns = min(int(waited_until_ns), until_ns)
        if to_ns - int(since_ns) <= longest_ns:
            continue
        first = max(bisect_right(starts_ns, since_ns) - 1, 0)
        neglect_ns = 0
        for place, ends_ns in zip(places[first:], [*starts_ns[first + 1 :], to_ns], strict=True):
            from_ns = max(place.from_ns, int(since_ns))
            if from_ns >= to_ns:
                break
            here_ns = min(ends_ns, to_ns)
            if place.may_run and from_ns < here_ns:
                neglect_ns += here_ns - from_ns - turns[place.cpu].between(from_ns, here_ns)
        if neglect_ns > longest_ns:
            longest_ns, at_ns = neglect_ns, int(since_ns)
    return longest_ns, at_ns


def overrun_ns(runs: Runs, interval: Interval) -> int:
    """By how much a VCPU ran longer than its budgets allow, in the worst part of an interval.

    In a part of length L it may have ceil(L / period) + 1 budgets, and TURN_NS in each turn. The
    result is negative if it never had as much.
    """
    began = np.clip(runs.began_ns, interval.from_ns, interval.to_ns)
    ended = np.clip(runs.ended_ns, interval.from_ns, interval.to_ns)
    began, ended = began[began < ended], ended[began < ended]
    used_before = np.concatenate(([0], np.cumsum(ended - began - TURN_NS)))
    worst = -interval.budget_ns
    for place, from_ns in enumerate(began):
        used = used_before[place + 1 :] - used_before[place]
        periods = -(-(ended[place:] - from_ns) // interval.period_ns)
        worst = max(worst, int((used - (periods + 1) * interval.budget_ns).max()))
    return worst


def refuse_complaints(log: Path) -> None:
    """Raises LabError if Linux complains in its log, or has taken the scheduler off itself."""
    for line in log.read_text("utf-8", "replace").splitlines():
        goes = GOES.search(line)
        if COMPLAINTS.search(line) or (goes and goes[1] != UNREGISTERED):
            raise LabError(f"in the kernel's log: {line.strip()}", f"the log is {log}")


def judge(policy: Policy, directory: Path, seconds: int, slack_ns: int) -> list[str]:
    """Judges what a host left, and returns what was seen, as sentences.

    Writes the trace, `soak.laxtrace`. Raises LabError for what must not be.
    """
    results, end_ns = directory / RESULTS, seconds * SECOND_NS
    for log in (results / KERNEL_LOG, directory / CONSOLE):
        refuse_complaints(log)
    start_ns, done = parse((results / "done").read_text("utf-8"))
    there = lives(done, start_ns, end_ns)
    trace = directory / "soak.laxtrace"
    _import(policy, results, trace, there, start_ns, end_ns)
    seen = _Seen(policy, slack_ns, f"the trace is {trace}, and what was done is {results / 'done'}")
    records = tracefile.records(trace)
    guests = [number for number, life in enumerate(there) if life.is_guest]
    turns = turns_of(records[np.isin(records["domain"], guests)], end_ns, slack_ns)
    by_vcpu = _records_by_vcpu(records)
    for number, life in enumerate(there):
        for vcpu in range(len(life.threads)):
            own = by_vcpu.get((number, vcpu), np.empty(0, tracefile.RECORD))
            runs = runs_of(own, life)
            seen.take(life, vcpu, runs, done)
            if life.is_guest and policy.family in NEGLECT_NS:
                places = places_of(own, done, life, vcpu)
                neglect = longest_neglect_ns(runs, places, turns, life.bound_until_ns)
                seen.take_neglect(life, vcpu, *neglect)
    kinds = Counter(each.words[0] for each in done)
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return [counted, *seen.told()]


class _Seen:
    """What was seen of all threads."""

    def __init__(self, policy: Policy, slack_ns: int, where: str) -> None:
        self.policy = policy
        self.slack_ns = slack_ns
        self.where = where
        self.guests = 0
        self.waits: dict[bool, tuple[int, str]] = {True: (0, "none"), False: (0, "none")}
        self.neglect: tuple[int, str] | None = None
        self.overruns_ns: list[int] = []

    def take(self, life: Life, vcpu: int, runs: Runs, done: Sequence[Done]) -> None:
        """Judges one thread by its waits and budgets. Raises LabError."""
        name = f"{life.name}/{vcpu}" if life.is_guest else life.name
        self.guests += life.is_guest and vcpu == 0
        wait_ns, at_ns = longest_wait_ns(runs)
        self.waits[life.is_guest] = max(self.waits[life.is_guest], (wait_ns, name))
        most_ns = WAIT_NS.get(self.policy.family) if life.is_guest else WAIT_OF_ORDINARY_NS
        if most_ns is not None and wait_ns > most_ns:
            raise LabError(
                f"{name}, thread {life.threads[vcpu]}, could run at {at_ns / 1e9:.3f} s and "
                f"waited for {wait_ns / 1e9:.3f} s, and {most_ns / 1e9:g} s are the most",
                self.where,
            )
        # Under a policy that lends, budgets do not bind.
        if not life.is_guest or not self.policy.uses("budget") or self.policy.listens:
            return
        for interval in intervals(done, life, vcpu):
            over_ns = overrun_ns(runs, interval)
            self.overruns_ns.append(over_ns)
            if over_ns > self.slack_ns:
                raise LabError(
                    f"{name} ran {over_ns} ns longer than {interval.budget_ns} ns in each "
                    f"{interval.period_ns} ns allow, between {interval.from_ns / 1e9:.3f} and "
                    f"{interval.to_ns / 1e9:.3f} s, and {self.slack_ns} ns are the most",
                    self.where,
                )

    def take_neglect(self, life: Life, vcpu: int, neglect_ns: int, at_ns: int) -> None:
        """Judges a VCPU by how long its CPU ran none while it waited. Raises LabError."""
        name, most_ns = f"{life.name}/{vcpu}", NEGLECT_NS[self.policy.family]
        self.neglect = max(self.neglect or (0, name), (neglect_ns, name))
        if neglect_ns > most_ns:
            raise LabError(
                f"{name}, thread {life.threads[vcpu]}, could run at {at_ns / 1e9:.3f} s and "
                f"waited, and for {neglect_ns / 1e9:.3f} s of that its CPU ran no VCPU, and "
                f"{most_ns / 1e9:g} s are the most",
                self.where,
            )

    def told(self) -> list[str]:
        """Returns sentences."""
        of_vcpus, of_ordinary = (
            f"{wait_ns / 1e6:.1f} ms ({name})" for wait_ns, name in self.waits.values()
        )
        waits = f"the longest wait of a VCPU that could run {of_vcpus}"
        said = [f"{self.guests} guests; {waits}, of an ordinary task {of_ordinary}"]
        if self.neglect:
            neglect_ns, name = self.neglect
            said.append(
                "the most of a wait in which the CPU of the VCPU ran none: "
                f"{neglect_ns / 1e6:.1f} ms ({name})"
            )
        if self.overruns_ns:
            worst_ns = max(self.overruns_ns)
            over = f"{worst_ns / 1e6:.3f} ms" if worst_ns > 0 else "nothing"
            said.append(
                f"{len(self.overruns_ns)} intervals with a budget; the most that one was exceeded "
                f"by: {over}"
            )
        return said


def _import(
    policy: Policy, results: Path, trace: Path, there: Sequence[Life], start_ns: int, end_ns: int
) -> None:
    names = [f"{number} {life.name}" for number, life in enumerate(there)]
    of_none = {"budget_ns": 0, "period_ns": 0, "tasks": []}
    metadata = {
        "substrate": "kvm",
        "policy": policy.name,
        "seed": 0,
        "duration_ns": end_ns,
        "cpus": CPUS,
        "domains": [
            {"name": name, "vcpus": len(life.threads), **of_none}
            for name, life in zip(names, there, strict=True)
        ],
    }
    threads = {name: life.threads for name, life in zip(names, there, strict=True)}
    try:
        _core.import_kvm(
            str(results / "trace.bin"),
            str(trace),
            json.dumps(metadata),
            json.dumps(threads),
            [[] for _ in there],
            start_ns,
            str(results / POLICY_EVENTS) if policy.family in NEGLECT_NS else None,
        )
    except (ValueError, OSError) as error:
        raise LabError(f"the trace of the soak: {error}", f"see {results}") from None


def _records_by_vcpu(records: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    key = records["domain"].astype(np.int64) << 16 | records["vcpu"]
    order = np.argsort(key, kind="stable")
    borders = np.flatnonzero(np.diff(key[order])) + 1
    return {
        (int(part[0]["domain"]), int(part[0]["vcpu"])): part
        for part in np.split(records[order], borders)
        if len(part)
    }


# ---- The soak ----


def plan(policy: Policy, seed: int, seconds: int) -> dict[str, str]:
    """The files of a plan that soaks: its script, and the operations."""
    mib = TRACE_MIB + round(TRACE_MIB_PER_MINUTE * seconds / SECONDS_A_MINUTE)
    words = f'"$LAXITY/{policy.name}.bpf.o" {shlex.quote(policy.name)} "$PLAN/operations"'
    script = (
        "real_time\n"
        f'laxity-soak {words} {seconds} {mib} "$RESULTS" 2>/tmp/said || fail "$(cat /tmp/said)"\n'
    )
    settings, *operations = draw(policy, seed, seconds)
    if policy.family in NEGLECT_NS:
        operations.insert(0, f"trace {POLICY_MIB} /tmp/{POLICY_EVENTS}")
        script += f'mv /tmp/{POLICY_EVENTS} "$RESULTS"\n'
    return {SCRIPT: script, "operations": "\n".join([settings, *operations]) + "\n"}


def soak(
    policy_name: str, seed: int, minutes: float, mode: Mode, directory: Path, say: Say
) -> list[str]:
    """Soaks for that many minutes of the machine's time, and returns what was seen, as sentences.

    Leaves `console.log`, the host's results and the trace in the directory. Raises LabError if
    anything was not as it must be, and says how to repeat it.
    """
    policy = TABLE[policy_name]
    image = kvm_image.build(say)
    soak = kvm_image.programs(say) / "laxity-soak"
    program = cpio.file("laxity/laxity-soak", soak, executable=True)
    schedulers = kvm_policies.build([policy], say)
    seconds = round(minutes * SECONDS_A_MINUTE)
    say(f"soaking {policy.name} for {minutes:g} minutes, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="laxity.") as temporary:
        for name, text in plan(policy, seed, seconds).items():
            (Path(temporary) / name).write_text(text, "utf-8")
        machine = KvmMachine(
            image,
            Path(temporary),
            memory_mib=MEMORY_MIB,
            schedulers=schedulers,
            beside=cpio.archive([program]),
            arguments=ARGUMENTS,
            mode=mode,
            cpus=CPUS,
            shift=SHIFT,
            limit_s=PREPARE_S + WALL_S_PER_S * seconds,
        )
        try:
            try:
                machine.run(directory, say)
            except LabError:
                # Without a scheduler orders fail, too: what the kernel says comes first.
                for log in directory.glob(f"{RESULTS}/{KERNEL_LOG}"):
                    refuse_complaints(log)
                raise
            return judge(policy, directory, seconds, SLACK_NS[mode])
        except LabError as error:
            parts = fingerprint.read(directory) or {}
            say(f"on the machine {parts.get('fingerprint')}: see {directory / fingerprint.FILE}")
            again = (
                f"laxity lab kvm soak --policy {policy.name} --seed {seed} "
                f"--minutes {minutes:g} --mode {mode}"
            )
            raise LabError(error.message, f"{error.help}; again: {again}") from None
