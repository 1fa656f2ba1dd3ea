"""What the machine boots: archives, the kernel's file, packages that are not there."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import struct
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from laxity.lab import cpio, image, packages
from laxity.lab.errors import LabError

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = (
    cpio.file("laxity/lib.sh", b"echo\n"),
    cpio.file("init", b"#!/bin/sh\n", executable=True),
    cpio.link("bin/sh", "busybox"),
    cpio.directory("dev"),
    cpio.character_device("dev/console", 5, 1),
)


def unpack(archive: bytes, into: Path) -> list[str]:
    """What cpio makes of it: the long listing."""
    into.mkdir()
    done = subprocess.run(
        ["cpio", "-itv"],  # noqa: S607
        input=archive,
        capture_output=True,
        check=True,
        cwd=into,
    )
    return done.stdout.decode().splitlines()


@pytest.mark.skipif(shutil.which("cpio") is None, reason="needs cpio")
def test_cpio_reads_the_archive(tmp_path: Path) -> None:
    listing = unpack(cpio.archive(ENTRIES), tmp_path / "a")
    assert [re.sub(r"\s+", " ", line) for line in listing] == [
        "drwxr-xr-x 2 root root 0 Jan 1 1970 bin",
        "lrwxrwxrwx 1 root root 7 Jan 1 1970 bin/sh -> busybox",
        "drwxr-xr-x 2 root root 0 Jan 1 1970 dev",
        "crw------- 1 root root 5, 1 Jan 1 1970 dev/console",
        "-rwxr-xr-x 1 root root 10 Jan 1 1970 init",
        "drwxr-xr-x 2 root root 0 Jan 1 1970 laxity",
        "-rw-r--r-- 1 root root 5 Jan 1 1970 laxity/lib.sh",
    ]


def test_the_order_of_entries_does_not_matter() -> None:
    assert cpio.archive(ENTRIES) == cpio.archive(reversed(ENTRIES))
    assert len(cpio.archive(ENTRIES)) % 4 == 0


def elf(content: bytes, zeros: int) -> bytes:
    """A program with two segments, the second with zeros at its end, and section headers."""
    first, second = b"first", content + bytes(zeros)
    offset = 64 + 2 * image.SEGMENT_HEADER_BYTES
    header = bytearray(64)
    struct.pack_into("<QQ", header, 32, 64, offset + len(first) + len(second))
    struct.pack_into("<HHH", header, 56, 2, 64, 9)
    segments = b"".join(
        struct.pack("<IIQQQQQQ", 1, 5, at, 0, 0, size, size, 4096)
        for at, size in ((offset, len(first)), (offset + len(first), len(second)))
    )
    return bytes(header) + segments + first + second + b"section headers"


def test_a_kernel_loses_its_last_zeros_and_keeps_its_size_in_memory() -> None:
    shorter = image._without_zeros(elf(b"x" * 100, 5000))
    assert shorter.endswith(b"first" + b"x" * 100)
    last = 64 + image.SEGMENT_HEADER_BYTES
    file_bytes, memory_bytes = struct.unpack_from("<QQ", shorter, last + 32)
    assert (file_bytes, memory_bytes) == (100, 5100)
    assert struct.unpack_from("<Q", shorter, 40) == (0,)


PROGRAM = b"\x7fELF" + bytes(range(256)) * 20


def packed(path: Path, payload: bytes) -> Path:
    """A kernel's file with that in it, as the build of Linux makes one; 5 sectors come before."""
    header = bytearray(5 * 512)
    header[0x1F1] = 4
    struct.pack_into("<II", header, 0x248, 3, 4 + len(payload))
    path.write_bytes(bytes(header) + b"abc" + payload + struct.pack("<I", len(PROGRAM)) + b"rest")
    return path


def test_a_kernel_is_taken_out_of_the_file_that_unpacks_itself(tmp_path: Path) -> None:
    zstd = pa.Codec("zstd").compress(PROGRAM, asbytes=True)
    for payload in (lzma.compress(PROGRAM), zstd):
        assert image.unpacked_kernel(packed(tmp_path / "vmlinuz", payload)) == PROGRAM
    with pytest.raises(LabError, match="vmlinuz is packed neither by xz nor by zstd"):
        image.unpacked_kernel(packed(tmp_path / "vmlinuz", b"\x02!L\x18" * 9))


GROWING = b"\xba\x00\x00\x00\x08\x48\xc7\x05abcd\x02\x00\x00\x00"


def test_a_kernel_is_made_to_grow_less_where_it_is_known_how() -> None:
    less = b"\xba\x00\x00\x40\x00\x48\xc7\x05abcd\x02\x00\x00\x00"
    assert image._with_less_to_grow(b"before" + GROWING + b"after") == b"before" + less + b"after"
    for other in (b"no such code", GROWING + GROWING):
        assert image._with_less_to_grow(other) == other


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of programs that stand in for apt's."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    program(directory / "apt-cache", 'echo "linux-image-amd64"; echo "  Depends: linux-image-1"')
    program(directory / "dpkg-deb", "exit 1")
    return directory


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_modules_are_loaded_behind_those_that_they_need(tmp_path: Path) -> None:
    def module(name: str, needs: str) -> Path:
        path = tmp_path / f"{name}.ko"
        path.write_bytes(b"\x7fELF\0license=GPL\0depends=" + needs.encode() + b"\0retpoline=Y\0")
        return path

    card, bus, ring = (
        module("a-card", "the_bus,ring"),
        module("the-bus", "ring"),
        module("ring", ""),
    )
    assert image.in_load_order([card, bus, ring]) == [ring, bus, card]
    with pytest.raises(LabError, match="the module the_bus needs ring, which is not asked for"):
        image.in_load_order([bus])


def test_a_package_that_apt_does_not_know(tmp_path: Path, apt: Path) -> None:
    program(apt / "apt-get", 'echo "E: Unable to locate package xen-utils-4.17" >&2; exit 100')
    with pytest.raises(LabError, match=r"knows no package xen-utils-4\.17(.|\n)*apt-get update"):
        raise_as_text(lambda: image.build(tmp_path / "cache", print))


def test_a_registry_that_is_not_reached(tmp_path: Path, apt: Path) -> None:
    listing = "echo \"'http://x/a_1_amd64.deb' a_1_amd64.deb 5 SHA256:12\""
    program(
        apt / "apt-get",
        f'case "$*" in *--print-uris*) {listing};; '
        "*) echo 'E: Failed to fetch: Connection refused' >&2; exit 100;; esac",
    )
    with pytest.raises(LabError, match=r"cannot fetch a: .*Connection refused(.|\n)*registry"):
        raise_as_text(lambda: image.build(tmp_path / "cache", print))


def raise_as_text(call: object) -> None:
    """The whole text of an error becomes its message."""
    try:
        call()  # type: ignore[operator]
    except LabError as error:
        raise LabError(str(error)) from None


def test_without_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match="needs apt-get"):
        image.build(tmp_path / "cache", print)


def test_only_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []

    def enter() -> None:
        with packages.only_one(tmp_path / "lock"):
            inside.append(1)
            assert len(inside) == 1
            time.sleep(0.02)
            inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not inside


def test_programs_for_guests_are_built_without_libraries_unless_they_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin/cargo", f'echo "$RUSTFLAGS" "$@" >"{tmp_path}/told"')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setattr(image, "CACHE", tmp_path)
    monkeypatch.setenv("LAXITY_STATIC", str(tmp_path))
    built = image.static("laxity-media", print)
    assert built.is_relative_to(tmp_path / "cargo" / image.STATIC_TARGET)
    told = (tmp_path / "told").read_text()
    assert "-C target-feature=+crt-static" in told
    assert "--release --locked --package laxity-media" in told
    (tmp_path / "laxity-media").touch()
    assert image.static("laxity-media", print) == tmp_path / "laxity-media"
