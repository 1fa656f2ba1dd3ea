"""Time by instructions on a busy computer: guest/laxity-steady.c in real QEMU."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from laxity.lab import machine, packages

SOURCES = Path(__file__).parent / "steady"
WAKES = 40

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, (machine.QEMU, "gcc"))), reason="needs qemu-system-x86 and gcc"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """QEMU's working directory: a machine to boot, and what is preloaded."""
    made = tmp_path_factory.mktemp("steady")
    freestanding = ("-m32", "-nostdlib", "-static", "-Wl,-Ttext=0x100000,--build-id=none")
    packages.run("gcc", *freestanding, "-o", made / "halts", SOURCES / "halts.S")
    library = ("-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    packages.run("gcc", *library, "-o", made / "shaken.so", SOURCES / "shaken.c")
    machine.make_steady(made)
    return made


def wakes(place: Path, *preloaded: str) -> list[str]:
    """The times at which the machine was woken."""
    log = place / "log"
    words = "-accel tcg,thread=single -icount shift=1,sleep=off -rtc base=2026-01-01,clock=vm"
    words += f" -display none -nodefaults -no-reboot -m 16 -kernel halts -serial file:{log.name}"
    subprocess.run(
        [machine.QEMU, *words.split(), "-device", "isa-debug-exit,iobase=0xf4"],
        cwd=place,
        env={**os.environ, "LD_PRELOAD": ":".join(f"./{name}" for name in preloaded)},
        stdin=subprocess.DEVNULL,
        timeout=600,
        # The code of isa-debug-exit for 0.
        check=False,
    )
    return log.read_text().splitlines()


@pytest.mark.slow
def test_a_main_loop_that_comes_between_does_not_change_the_time(place: Path) -> None:
    expected = wakes(place, machine.STEADY_LIBRARY)
    assert len(set(expected)) == WAKES
    assert wakes(place, machine.STEADY_LIBRARY) == expected
    assert wakes(place, machine.STEADY_LIBRARY, "shaken.so") == expected
    # It does where nothing prevents it: this is what happens, seldom, on a busy computer.
    assert wakes(place, "shaken.so") != expected
