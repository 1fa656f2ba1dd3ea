"""Recording who runs on this machine's CPUs: the kernel's own tracepoints, as trace-cmd's files.

Recording has an instance of its own in tracefs, so that whoever traces beside it is not disturbed,
and removes it in the end. Nothing else of the machine is changed.
"""

from __future__ import annotations

import math
import os
import struct
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from laxity.progress import Progress

Events = dict[str, tuple[str, ...]]
"""Names of events by the kernel's systems of them."""

TRACING = Path("/sys/kernel/tracing")
EVENTS: Events = {"sched": ("sched_switch", "sched_wakeup")}
"""What is always recorded."""
PACKETS: Events = {
    "net": ("netif_receive_skb", "net_dev_queue"),
    "skb": ("skb_copy_datagram_iovec", "kfree_skb", "consume_skb"),
}
"""What is recorded of packets, too, where these are asked for."""
SOCKETS: Events = {"sock": ("sk_data_ready", "sock_recv_length")}
"""What is then recorded of UDP sockets, where the kernel has it: since Linux 6.3."""
EXITS: Events = {"kvm": ("kvm_entry", "kvm_exit")}
"""What is recorded of the guests of KVM, too, where these are asked for."""
ONLY_UDP = "protocol == 17"
"""The filter of the events of sockets."""
CLOCK = "mono"
"""The clock of the events. All CPUs share it, and it counts ns."""

FAIR = 100
"""The least priority of the fair class; below 0 is SCHED_DEADLINE, between them SCHED_FIFO."""

BUFFER_KIB_MIN = 8192
BUFFER_KIB_PER_S = 4096
"""The size of the kernel's buffer for each CPU: a busy second has 60,000 events there, and as many
of packets where these are recorded. Room for as many is added for the events of guests.

The buffers are read when all is recorded, so that recording itself runs nothing on the host.
"""
PROGRESS_S = 0.2

MAGIC = b"\x17\x08\x44tracing"
"""The first bytes of a file of trace-cmd."""
TRACE_CLOCK = 4
"""The option of such a file that names the clock."""


def record(
    out: Path,
    duration_s: float,
    progress: Progress | None = None,
    *,
    packets: bool = False,
    exits: bool = False,
) -> None:
    """Records for so long, and writes a file of trace-cmd, version 6 (trace-cmd.dat.v6(5)).

    With `packets` it also tells when packets came and threads took them, with `exits` when guests
    were left and entered. Raises InputError if this machine does not let itself be traced.
    """
    kib = buffer_kib(duration_s) * (1 + packets + exits)
    with traced(kib, packets=packets, exits=exits) as instance:
        _wait(duration_s, progress)
        save(instance, out)


def buffer_kib(duration_s: float) -> int:
    """Returns the size of a CPU's buffer for what happens in so long."""
    return max(BUFFER_KIB_MIN, math.ceil(BUFFER_KIB_PER_S * duration_s))


def save(instance: Path, out: Path) -> None:
    """Ends the tracing of an instance, and writes the file.

    Raises InputError if the kernel lost events.
    """
    _set(instance, "tracing_on", "0")
    cpus = sorted(
        (instance / "per_cpu").glob("cpu*"), key=lambda cpu: int(cpu.name.removeprefix("cpu"))
    )
    _refuse_lost(cpus)
    pages = [_pages(cpu, out, _page_bytes(instance)) for cpu in cpus]
    with out.open("wb") as file:
        _write(file, instance, pages)
    for page in pages:
        page.unlink()


@contextmanager
def _instance() -> Iterator[Path]:
    if not (TRACING / "instances").is_dir():
        raise InputError(
            f"tracefs is not mounted at {TRACING}",
            f"as root, mount it: mount -t tracefs nodev {TRACING}",
        )
    instance = TRACING / "instances" / f"laxity-{os.getpid()}"
    is_made = False
    try:
        with uninterrupted():
            _make(instance)
            is_made = True
        yield instance
    finally:
        if is_made:
            instance.rmdir()


def _make(instance: Path) -> None:
    try:
        instance.mkdir()
    except OSError as error:
        raise InputError(
            f"the kernel's trace buffers cannot be made: {error.strerror}", "run it as root"
        ) from None


def _set(instance: Path, name: str, value: str) -> None:
    try:
        (instance / name).write_text(value)
    except OSError as error:
        raise InputError(
            f"{instance / name} cannot be set to {value}: {error.strerror}",
            "a kernel with the events that are to be recorded and the clock mono is needed",
        ) from None


@contextmanager
def traced(buffer_kib: int, *, packets: bool = False, exits: bool = False) -> Iterator[Path]:
    """Traces in an instance of its own, which it gives, with a buffer of that size for each CPU."""
    with _instance() as instance:
        _set(instance, "tracing_on", "0")
        _set(instance, "trace_clock", CLOCK)
        _set(instance, "buffer_size_kb", str(buffer_kib))
        for system, events in wanted(instance, packets=packets, exits=exits).items():
            for event in events:
                if system in SOCKETS:
                    _set(instance, f"events/{system}/{event}/filter", ONLY_UDP)
                _set(instance, f"events/{system}/{event}/enable", "1")
        _set(instance, "tracing_on", "1")
        try:
            yield instance
        finally:
            _set(instance, "tracing_on", "0")


def wanted(instance: Path, *, packets: bool, exits: bool = False) -> Events:
    """The events that are recorded; those of sockets only where the kernel has all of them."""
    always = EVENTS | (EXITS if exits else {})
    if not packets:
        return always
    of_sockets = [
        instance / "events" / system / event for system in SOCKETS for event in SOCKETS[system]
    ]
    has_sockets = all(event.is_dir() for event in of_sockets)
    return always | PACKETS | (SOCKETS if has_sockets else {})


def recorded(instance: Path) -> Events:
    """The events that an instance records."""
    events = instance / "events"
    return {
        system: names
        for system, names in (EVENTS | EXITS | PACKETS | SOCKETS).items()
        if all(_is_enabled(events / system / name) for name in names)
    }


def _is_enabled(event: Path) -> bool:
    try:
        return (event / "enable").read_text().startswith("1")
    except OSError:
        return False


def _wait(duration_s: float, progress: Progress | None) -> None:
    start = time.monotonic()
    while (passed := time.monotonic() - start) < duration_s:
        time.sleep(min(PROGRESS_S, duration_s - passed))
        if progress is not None:
            progress(min(round(1e9 * passed), round(1e9 * duration_s)), round(1e9 * duration_s))


def _pages(cpu: Path, out: Path, page_bytes: int) -> Path:
    """Returns a file with the pages of a CPU; the kernel's buffer is empty then."""
    path = out.with_name(f"{out.name}.{cpu.name}")
    pipe = os.open(cpu / "trace_pipe_raw", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with path.open("wb") as file:
            _drain(pipe, file, page_bytes)
    finally:
        os.close(pipe)
    return path


def _page_bytes(instance: Path) -> int:
    try:
        return 1024 * int((instance / "buffer_subbuf_size_kb").read_text())
    except OSError:
        # Kernels before 6.8 have pages of the machine's size alone.
        return os.sysconf("SC_PAGE_SIZE")


def _drain(pipe: int, file: BinaryIO, page_bytes: int) -> None:
    while True:
        try:
            page = os.read(pipe, page_bytes)
        except BlockingIOError:
            return
        if not page:
            return
        file.write(page.ljust(page_bytes, b"\0"))


def _refuse_lost(cpus: list[Path]) -> None:
    """Raises InputError if the buffers of a CPU were full."""
    for cpu in cpus:
        lines = (cpu / "stats").read_text().splitlines()
        said = {name: value for name, _, value in (line.partition(": ") for line in lines)}
        lost = int(said.get("overrun", 0)) + int(said.get("dropped events", 0))
        if lost:
            raise InputError(
                f"the kernel lost {lost:,} events of {cpu.name}: its buffer was full",
                "observe while less happens, or for a shorter time with --duration",
            )


def _write(file: BinaryIO, instance: Path, pages: list[Path]) -> None:
    """Writes the file: what the kernel says of its events, and the pages of each CPU."""
    page_bytes = _page_bytes(instance)
    file.write(MAGIC + b"6\0" + bytes([0, 8]) + struct.pack("<I", page_bytes))
    for name in ("header_page", "header_event"):
        file.write(name.encode() + b"\0")
        _write_block(file, (instance / "events" / name).read_bytes())
    file.write(struct.pack("<I", 0))
    systems = recorded(instance)
    file.write(struct.pack("<I", len(systems)))
    for system, events in systems.items():
        file.write(system.encode() + b"\0" + struct.pack("<I", len(events)))
        for event in events:
            _write_block(file, (instance / "events" / system / event / "format").read_bytes())
    file.write(struct.pack("<II", 0, 0))
    _write_block(file, (TRACING / "saved_cmdlines").read_bytes())
    file.write(struct.pack("<I", len(pages)))
    clock = f"[{CLOCK}]\0".encode()
    file.write(b"options  \0" + struct.pack("<HI", TRACE_CLOCK, len(clock)) + clock)
    file.write(struct.pack("<H", 0) + b"flyrecord\0")
    offset = _aligned(file.tell() + 16 * len(pages), page_bytes)
    for path in pages:
        size = path.stat().st_size
        file.write(struct.pack("<QQ", offset, size))
        offset += _aligned(size, page_bytes)
    for path in pages:
        file.write(bytes(_aligned(file.tell(), page_bytes) - file.tell()))
        file.write(path.read_bytes())


def _write_block(file: BinaryIO, content: bytes) -> None:
    file.write(struct.pack("<Q", len(content)) + content)


def _aligned(offset: int, page_bytes: int) -> int:
    return -(-offset // page_bytes) * page_bytes
