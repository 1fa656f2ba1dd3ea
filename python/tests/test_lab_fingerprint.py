"""What tells one emulated machine from another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from laxity.lab import fingerprint
from laxity.lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

FIRMWARE = ("bios-256k.bin", "multiboot_dma.bin")
CONTENTS = {name: name.encode() for name in ("xen", "kernel", "root", "programs")}


def qemu(place: Path, version: str = "7.2", firmware: str = "bios") -> str:
    place.mkdir()
    (place / "bios-256k.bin").write_text(firmware)
    program = place / "qemu"
    program.write_text(
        f"#!/bin/sh\n[ $1 = -L ] && dirname $0 || echo 'QEMU emulator version {version}'\n"
    )
    program.chmod(0o755)
    return str(program)


def test_every_part_is_in_it(tmp_path: Path) -> None:
    first = fingerprint.of(qemu(tmp_path / "first"), FIRMWARE, CONTENTS)
    assert fingerprint.of(qemu(tmp_path / "a-longer-place"), FIRMWARE, CONTENTS) == first
    assert first["qemu"].startswith("7.2 ")
    changed = {
        "qemu": fingerprint.of(qemu(tmp_path / "newer", version="7.3"), FIRMWARE, CONTENTS),
        "firmware": fingerprint.of(qemu(tmp_path / "other", firmware="uefi"), FIRMWARE, CONTENTS),
        **{
            name: fingerprint.of(qemu(tmp_path / name), FIRMWARE, CONTENTS | {name: b"another"})
            for name in CONTENTS
        },
    }
    assert {"fingerprint", *changed} == set(first)
    for name, parts in changed.items():
        apart = {part for part in parts if parts[part] != first[part]}
        assert apart == {"fingerprint", name}


def test_it_is_left_beside_the_console(tmp_path: Path) -> None:
    assert fingerprint.read(tmp_path) is None, "a host that is not emulated"
    parts = fingerprint.of(qemu(tmp_path / "qemu"), FIRMWARE, CONTENTS)
    fingerprint.write(tmp_path, parts)
    assert fingerprint.read(tmp_path) == parts


def test_a_qemu_that_does_not_start(tmp_path: Path) -> None:
    program = tmp_path / "qemu"
    program.write_text("#!/bin/sh\necho 'no libaio' >&2; exit 127\n")
    program.chmod(0o755)
    with pytest.raises(LabError, match="qemu --version failed: no libaio"):
        fingerprint.of(str(program), FIRMWARE, CONTENTS)
