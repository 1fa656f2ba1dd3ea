"""The threads of a Linux host that are VCPUs, and how they are scheduled."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.observe.known import Configuration, Known
from laxity.tracefs import FAIR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from laxity.observation_schema import Thread

QEMU = re.compile(r"CPU (\d+)/KVM")
"""The name that QEMU gives the thread of a VCPU."""
VHOST = re.compile(r"vhost-(\d+)")
"""The name that the kernel gives a thread which serves cards of the process with that number."""

NETBACK = re.compile(r"vif(\d+)\.\d+-q\d+-g")
"""How the name of the thread begins that copies packets for the domain of Xen with that number.

The kernel cuts names: the whole one would be vif3.0-q0-guest-rx.
"""

FIFO_MOST = 99
"""The host file's priority of SCHED_FIFO for the kernel's 0."""

THREAD_DIGITS_MAX = 7
"""Linux has no thread beyond 4194304."""

PRIORITY = "the priority of its threads in the trace"


@dataclass(frozen=True)
class Machine:
    """A domain of a Linux host."""

    name: str
    threads: tuple[int, ...]
    """Those of its VCPUs, in order."""
    process: int | None = None
    """Its process, while it runs."""
    workers: tuple[int, ...] = ()
    """Other threads that take packets for it: those of vhost, or of QEMU itself."""


def named(words: Iterable[str]) -> list[Machine]:
    """The domains that people name: "media=4711,4712+4709" has two VCPUs' threads and a worker's.

    Raises InputError for what is not of that form.
    """
    machines = []
    for word in words:
        name, _, numbers = word.partition("=")
        threads, plus, workers = (
            part.split(",") if part else [] for part in numbers.partition("+")
        )
        every = [*threads, *workers]
        is_whole = bool(name and threads) and bool(plus) == bool(workers)
        if not is_whole or not all(map(_is_thread, every)):
            raise InputError(
                f"--domain {word!r} names no threads",
                "write --domain NAME=THREAD,THREAD,... with a thread for each VCPU; behind a + may "
                "stand others that take its packets",
            )
        if name.startswith("("):
            raise InputError(
                f"--domain {word!r}: names in parentheses are those of programs beside the domains",
                "choose a name without them",
            )
        machines.append(Machine(name, tuple(map(int, threads)), workers=tuple(map(int, workers))))
    return machines


def _is_thread(text: str) -> bool:
    return text.isdecimal() and len(text) <= THREAD_DIGITS_MAX


def of_qemu(threads: Sequence[Thread]) -> list[Machine]:
    """The virtual machines of QEMU among the threads of a trace, by the names of their threads.

    A trace does not say which threads are of one process. Threads are numbered as they are made, so
    that each VCPU 0 begins another machine, and the last process with threads of vhost between the
    one before and this one is its own.
    """
    machines: list[list[int]] = []
    for thread in sorted(threads, key=lambda thread: int(thread["thread"])):
        match = QEMU.fullmatch(thread["name"])
        if match is not None:
            if match[1] == "0" or not machines:
                machines.append([])
            machines[-1].append(int(thread["thread"]))
    workers = _workers(threads)
    before = [0, *(own[0] for own in machines)]
    return [
        Machine(f"vm-{own[0]}", tuple(own), workers=_last_between(workers, last, own[0]))
        for last, own in zip(before, machines, strict=False)
    ]


def _workers(threads: Sequence[Thread]) -> dict[int, tuple[int, ...]]:
    """The threads of vhost and of the process itself, by process."""
    names = {int(thread["thread"]): thread["name"] for thread in threads}
    workers: dict[int, tuple[int, ...]] = {}
    for thread, name in sorted(names.items()):
        match = VHOST.fullmatch(name)
        if match is not None:
            process = int(match[1])
            own = (process,) if process in names and not QEMU.fullmatch(names[process]) else ()
            workers[process] = (*workers.get(process, own), thread)
    return workers


def _last_between(workers: Mapping[int, tuple[int, ...]], first: int, last: int) -> tuple[int, ...]:
    process = max((each for each in workers if first < each < last), default=None)
    return () if process is None else workers[process]


def refuse_unknown(machines: Sequence[Machine], threads: Sequence[Thread]) -> None:
    """Raises InputError if there is no domain, or one of its threads did nothing."""
    if not machines:
        raise InputError(
            "no thread is a VCPU of QEMU (its name would be CPU 0/KVM)",
            "name threads as domains: --domain NAME=THREAD,THREAD",
        )
    seen = {int(thread["thread"]) for thread in threads}
    for machine in machines:
        for thread in machine.threads:
            if thread not in seen:
                raise InputError(
                    f"thread {thread} of domain {machine.name} never ran",
                    "leave it out, or observe for longer",
                )
    whose: dict[int, str] = {}
    for machine in machines:
        for thread in (*machine.threads, *machine.workers):
            if thread in whose:
                raise InputError(
                    f"thread {thread} of domain {machine.name} is one of {whose[thread]}, too",
                    "name it once",
                )
            whose[thread] = machine.name


def configuration(machines: Sequence[Machine], threads: Sequence[Thread]) -> Configuration:
    """How the kernel schedules the threads, as far as their priorities tell."""
    priorities = {int(thread["thread"]): int(thread["priority"]) for thread in threads}
    of_machines = {
        machine.name: [priorities[thread] for thread in machine.threads] for machine in machines
    }
    everyone = [priority for each in of_machines.values() for priority in each]
    if all(0 <= priority < FAIR for priority in everyone):
        domains = {
            name: {"rt-priority": Known(max(1, FIFO_MOST - min(each)), PRIORITY)}
            for name, each in of_machines.items()
        }
        return Configuration(policy={"fifo": PRIORITY}, domains=domains)
    said = PRIORITY
    if any(priority < FAIR for priority in everyone):
        said = "assumed: not all threads are of one class, or the trace does not tell their budgets"
    return Configuration(policy={"eevdf": said})


def with_affinity(
    known: Configuration, affinity: Mapping[str, tuple[int, ...]], cpus: int
) -> Configuration:
    """Adds the CPUs on which domains may run, where these are not all."""
    every_cpu = tuple(range(cpus))
    restricted = {name: given for name, given in affinity.items() if given != every_cpu}
    return replace(known, affinity=restricted)
