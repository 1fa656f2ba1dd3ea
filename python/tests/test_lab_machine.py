"""The machine's edges, with a shell script in QEMU's place: what goes wrong, and what is left."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from laxity.errors import InputError
from laxity.lab import image, machine
from laxity.lab.errors import LabError
from laxity.lab.image import Image
from laxity.lab.xen_machine import XenMachine

QEMU = """\
#!/bin/sh
# Finds its console and its shelf as QEMU does.
case $1 in
--version) echo 'QEMU emulator version 0.1 (fake)'; exit ;;
-L) echo {place}; exit ;;
esac
echo $$ >{place}/pid
for word; do
    case $word in
    file:*) console=${{word#file:}} ;;
    *mem-path=*) shelf=${{word##*mem-path=}} ;;
    esac
done
say() {{ printf '%s\\r\\r\\n' "$*" >>"$console"; }}
shelve() {{ dd if="{place}/$1" of="$shelf" conv=notrunc 2>/dev/null; }}
{script}
"""

WELL = """\
say '(XEN) Xen version 4.17'
say 'laxity: dom0 is up'
shelve results
say 'laxity: the plan ended with status 0'
exec sleep 6000
"""


def archive(**files: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        directory = tarfile.TarInfo("./run")
        directory.type = tarfile.DIRTYPE
        tar.addfile(directory)
        for name, text in files.items():
            entry = tarfile.TarInfo(f"./{name}")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


def on_shelf(data: bytes) -> bytes:
    return machine.SHELF_HEADER.pack(machine.SHELF_MAGIC, len(data)) + data


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(image, "ours", lambda: b"ours")
    monkeypatch.setattr(machine, "SETTLE_S", 0.1)
    for name in ("xen", "kernel", "root.cpio"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "plan.sh").write_text("true\n")
    (tmp_path / "results").write_bytes(on_shelf(archive(status="0\n", shown="well")))
    return tmp_path


def new_machine(place: Path, script: str, **settings: object) -> XenMachine:
    qemu = place / machine.QEMU
    qemu.write_text(QEMU.format(place=place, script=script))
    qemu.chmod(0o755)
    boots = Image(place / "kernel", place / "root.cpio")
    return XenMachine(place / "xen", boots, place / "plan", **settings)  # type: ignore[arg-type]


def assert_gone(place: Path) -> None:
    pid = int((place / "pid").read_text())
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.02)


def test_results_and_progress(place: Path) -> None:
    said: list[str] = []
    results = new_machine(place, WELL).run(place / "out", said.append)
    assert (results / "shown").read_text() == "well"
    assert (results / "run").is_dir()
    assert said == ["dom0 is up", "the plan ended with status 0"]
    assert "Xen version" in (place / "out" / "console.log").read_text()
    assert_gone(place)


@pytest.mark.parametrize(
    ("script", "limit_s", "silence_s", "expected"),
    [
        ("echo 'no such kernel' >&2; exit 1", 600, 600, "ended with code 1: no such kernel"),
        ("say 'laxity: dom0 is up'", 600, 600, "ended without results"),
        ("say '(XEN) Panic on CPU 0:'; say why; exec sleep 6000", 600, 600, "Xen has crashed"),
        (
            "say '(XEN) Hardware Dom0 crashed: rebooting'; exec sleep 6000",
            600,
            600,
            "dom0 has ended",
        ),
        (
            "say '[ 1.0] Kernel panic - not syncing: no init'; exec sleep 6000",
            600,
            600,
            "kernel has crashed",
        ),
        ("exec sleep 6000", 600, 1, "nothing has come on its console for 1 s"),
        ("while sleep 0.1; do say tick; done", 2, 600, "was not done in 2 s"),
    ],
)
def test_a_machine_that_fails(
    place: Path, script: str, limit_s: float, silence_s: float, expected: str
) -> None:
    with pytest.raises(LabError, match=expected) as caught:
        new_machine(place, script, limit_s=limit_s, silence_s=silence_s).run(place / "out")
    assert "console.log" in str(caught.value)
    assert_gone(place)


def test_the_last_lines_are_shown(place: Path) -> None:
    script = (
        "say first; say second; say '(XEN) Panic on CPU 0:'; sleep 1; say 'out of luck'; "
        "exec sleep 6000"
    )
    with pytest.raises(LabError, match=r"second\n.*Panic on CPU 0:\n.*out of luck"):
        new_machine(place, script).run(place / "out")


NO_TIMER = """\
say '(XEN) Panic on CPU 0:'
sleep 1
say "(XEN) IO-APIC + timer doesn't work!  Boot with apic_verbosity=debug and send a report"
exec sleep 6000
"""


@pytest.mark.slow
def test_a_boot_without_time_is_repeated(place: Path) -> None:
    at_second = f"if mkdir {place}/first 2>/dev/null; then\n{NO_TIMER}fi\n{WELL}"
    results = new_machine(place, at_second).run(place / "out")
    assert (results / "shown").read_text() == "well"
    assert "IO-APIC" not in (place / "out" / "console.log").read_text()

    with pytest.raises(LabError, match="too busy"):
        new_machine(place, f"echo >>{place}/boots\n{NO_TIMER}").run(place / "out")
    assert (place / "boots").read_text() == "\n" * machine.BOOTS_MAX
    assert_gone(place)


class Clock:
    """A clock that stands unless a test moves it on, in the place of the machine's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stands at 0 s."""
        self.now_s = 0.0
        clock = SimpleNamespace(monotonic=self.read, sleep=time.sleep)
        monkeypatch.setattr(machine, "time", clock)

    def read(self) -> float:
        return self.now_s


def test_what_a_machine_waits_for_a_cpu_does_not_count(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of a second: many seconds it did not have."""
    clock = Clock(monkeypatch)

    def starved_s(process: int) -> float:
        del process
        clock.now_s += 10
        if clock.now_s >= 30:
            (place / "go").touch()
        return clock.now_s

    monkeypatch.setattr(machine, "_starved_s", starved_s)
    script = f"until [ -e {place}/go ]; do sleep 0.1; done\n{WELL}"
    new_machine(place, script, silence_s=1, limit_s=1).run(place / "out")


def test_a_process_tells_how_long_it_waited_for_a_cpu() -> None:
    one_cpu = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
    command = [*one_cpu, sys.executable, "-c", "while True: pass"]
    first, second = (subprocess.Popen(command) for _ in range(2))
    while min(machine._starved_s(process.pid) for process in (first, second)) < 0.1:
        time.sleep(0.02)
    for process in (first, second):
        process.kill()
        process.wait()
    assert machine._starved_s(first.pid) == 0, "it has ended"


@pytest.mark.parametrize("quiet_s", [60, 1])
def test_a_quiet_window_is_no_hang(
    place: Path, monkeypatch: pytest.MonkeyPatch, quiet_s: int
) -> None:
    """A thousand seconds after the line that announces it, there is still nothing."""
    clock, looked = Clock(monkeypatch), []

    def read() -> float:
        looked.append(clock.now_s)
        # With this look it has been seen that nothing came until then.
        if looked.count(1000) == 2:
            (place / "go").touch()
        return clock.now_s

    def move_on(line: str) -> None:
        if "quiet" in line:
            clock.now_s = 1000

    monkeypatch.setattr(machine.time, "monotonic", read)
    wait = f"until [ -e {place}/go ]; do sleep 0.1; done"
    script = f"say 'laxity: run one: quiet for {quiet_s} s'\n{wait}\n{WELL}"
    emulator = new_machine(place, script, silence_s=600)
    if quiet_s * machine.QUIET_WALL_S_PER_S + 600 > 1000:
        emulator.run(place / "out", move_on)
    else:
        with pytest.raises(LabError, match="nothing has come on its console for 600 s"):
            emulator.run(place / "out", move_on)


def test_a_plan_that_fails(place: Path) -> None:
    data = archive(status="1\n", error="the guest dom1 has ended\n")
    (place / "results").write_bytes(on_shelf(data))
    with pytest.raises(LabError, match="the plan failed: the guest dom1 has ended"):
        new_machine(place, WELL).run(place / "out")
    assert (place / "out" / "results" / "error").is_file(), "what there is is kept"


@pytest.mark.parametrize("name", ["../outside", "/outside"])
def test_results_stay_inside(place: Path, name: str) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    (place / "results").write_bytes(on_shelf(data.getvalue()))
    with pytest.raises(LabError, match="outside of them"):
        new_machine(place, WELL).run(place / "out")
    assert not (place / "out" / "outside").exists()


def test_damaged_results(place: Path) -> None:
    (place / "results").write_bytes(machine.SHELF_HEADER.pack(machine.SHELF_MAGIC, 1 << 60))
    with pytest.raises(LabError, match="the results are damaged"):
        new_machine(place, WELL).run(place / "out")
    (place / "results").write_bytes(on_shelf(b"no archive" * 100))
    with pytest.raises(LabError, match="the results are damaged"):
        new_machine(place, WELL).run(place / "out")


def test_two_machines_do_not_write_into_one_directory(place: Path) -> None:
    second = new_machine(place, WELL)
    refused: list[str] = []

    def start_another(line: str) -> None:
        if not refused:
            with pytest.raises(InputError, match="another machine is writing into") as caught:
                second.run(place / "out")
            refused.append(f"{line}: {caught.value}")

    results = new_machine(place, WELL).run(place / "out", start_another)
    assert len(refused) == 1
    assert "Xen version" in (place / "out" / "console.log").read_text()
    assert (results / "shown").read_text() == "well"
    second.run(place / "out")


def test_without_qemu(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = new_machine(place, WELL)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LabError, match="needs qemu-system-x86_64"):
        emulator.run(place / "out")


def test_ctrl_c_ends_the_machine(place: Path) -> None:
    def interrupt(line: str) -> None:
        del line
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        new_machine(place, "say 'laxity: x'; exec sleep 6000").run(place / "out", interrupt)
    assert_gone(place)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_machine_ends_with_us(place: Path, how: signal.Signals) -> None:
    new_machine(place, "say 'laxity: dom0 is up'; exec sleep 6000")
    script = f"""
from pathlib import Path
from laxity.lab import image
from laxity.lab.xen_machine import XenMachine
image.ours = lambda: b""
place = Path({str(place)!r})
boots = image.Image(place / "kernel", place / "root.cpio")
emulator = XenMachine(place / "xen", boots, place / "plan")
emulator.run(place / "out", lambda _: print(flush=True))
"""
    # Nobody is left to remove its directory, which therefore lies in ours.
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(place)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(how)
        process.wait()
    assert_gone(place)


def test_what_the_machine_sees_does_not_depend_on_where_its_files_are(place: Path) -> None:
    """Xen reads the names of its files, and time counts its instructions."""
    said = []
    for name in ("here", "a,somewhat/longer/path"):
        directory = place / name
        directory.mkdir(parents=True)
        for file in ("xen", "kernel", "root.cpio"):
            (directory / file).write_bytes(file.encode())
        script = f"""\
for word; do [ "$word" = "file:$console" ] || echo "$word"; done >>{place}/said
cat xen kernel >>{place}/said
{WELL}"""
        qemu = new_machine(place, script)
        boots = Image(directory / "kernel", directory / "root.cpio")
        replace(qemu, hypervisor=directory / "xen", image=boots).run(place / "out")
        said.append((place / "said").read_text())
        (place / "said").unlink()
    assert said[0] == said[1]
    assert said[0].endswith("xenkernel")
    assert str(place) not in said[0]
