"""Time by instructions on a busy computer: guest/laxity-steady.c in real QEMU."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from laxity.lab import machine, packages

SOURCES = Path(__file__).parent / "steady"
WAKES, ROUNDS = 40, 8
"""How often the machines `halts` and `stale` write a line."""
TURNS = 40
"""And `turns`."""

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, (machine.QEMU, "gcc"))), reason="needs qemu-system-x86 and gcc"
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """QEMU's working directory: machines to boot, and what is preloaded."""
    made = tmp_path_factory.mktemp("steady")
    freestanding = ("-m32", "-nostdlib", "-static", "-Wl,-Ttext=0x100000,--build-id=none")
    for name in ("halts", "stale", "turns"):
        packages.run("gcc", *freestanding, "-o", made / name, SOURCES / f"{name}.S")
    library = ("-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    for name in ("shaken", "hasty"):
        packages.run("gcc", *library, "-o", made / f"{name}.so", SOURCES / f"{name}.c")
    machine.make_steady(made)
    return made


def said(
    place: Path, kernel: str, *preloaded: str, haste_s: int = 0, processors: int = 1
) -> list[str]:
    """The lines that a machine has written, the computer's clock being so hasty."""
    log = place / "log"
    words = "-accel tcg,thread=single -icount shift=1,sleep=off -rtc base=2026-01-01,clock=vm"
    words += f" -display none -nodefaults -no-reboot -m 32 -kernel {kernel} -serial file:{log.name}"
    words += f" -smp {processors}"
    preload = ":".join(f"./{name}" for name in preloaded)
    subprocess.run(
        [machine.QEMU, *words.split(), "-device", "isa-debug-exit,iobase=0xf4"],
        cwd=place,
        env={**os.environ, "LD_PRELOAD": preload, "HASTE": str(haste_s)},
        stdin=subprocess.DEVNULL,
        timeout=600,
        # The code of isa-debug-exit for 0.
        check=False,
    )
    return log.read_text().splitlines()


@pytest.mark.slow
def test_a_main_loop_that_comes_between_does_not_change_the_time(place: Path) -> None:
    expected = said(place, "halts", machine.STEADY_LIBRARY)
    assert len(set(expected)) == WAKES
    assert said(place, "halts", machine.STEADY_LIBRARY) == expected
    assert said(place, "halts", machine.STEADY_LIBRARY, "shaken.so") == expected
    # It does where nothing prevents it: this is what happens, seldom, on a busy computer.
    assert said(place, "halts", "shaken.so") != expected


def test_the_clock_does_not_change_which_translations_a_processor_has(place: Path) -> None:
    expected = said(place, "stale", machine.STEADY_LIBRARY)
    for haste_s in (0, 1):
        hasty = (machine.STEADY_LIBRARY, "hasty.so")
        assert said(place, "stale", *hasty, haste_s=haste_s) == expected
    # It does where nothing prevents it, on a computer that is so busy that time passes in between.
    unhurried, hurried = (said(place, "stale", "hasty.so", haste_s=haste_s) for haste_s in (0, 1))
    assert len(unhurried) == len(hurried) == ROUNDS
    assert unhurried != hurried


def test_processors_that_wait_for_each_other_have_short_turns(place: Path) -> None:
    assert said(place, "turns", machine.STEADY_LIBRARY, processors=2) == ["y"] * TURNS
    # They have turns of any length where nothing ends them.
    unsteady = said(place, "turns", processors=2)
    assert len(unsteady) == TURNS
    assert "n" in unsteady
