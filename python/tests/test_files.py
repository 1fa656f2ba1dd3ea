"""Files that never end, never come or are no files: refused by every command, in little memory."""

from __future__ import annotations

import json
import os
import pty
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest
import typer
from conftest import commands
from laxity import Host, InputError, files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Laxity

GIB = 1 << 30

WRITTEN = {"--output", "--wav", "--docs", "out"}
"""Options and arguments that are paths of what a command writes."""

MORE = {"trace": ("--text",), "sweep": ("--set", "host.cpus=1..2:1")}
"""What else a command must be given before it looks at its file."""

CHILD = """
import json, resource, signal, sys
from laxity import cli
# Matplotlib, which reports need, is loaded before memory is limited; so are threads of libraries.
import laxity.report, laxity.voice.scored_capture
mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + int(sys.argv[1]),) * 2)
codes = []
for words in json.load(sys.stdin):
    print(words, file=sys.stderr, flush=True)
    # Nothing here takes long; what blocks would block for ever.
    signal.alarm(300)
    sys.argv = ["laxity", *words]
    codes.append(cli.guarded())
print(json.dumps(codes))
"""


def paths_of(function: Callable[..., Any]) -> list[str | None]:
    """For each path that the command reads the option that takes it, None for an argument."""
    found: list[str | None] = []
    for name, hint in get_type_hints(function, include_extras=True).items():
        if "Path" not in str(hint) or name == "return":
            continue
        info = next(each for each in hint.__metadata__ if hasattr(each, "param_decls"))
        is_option = isinstance(info, typer.models.OptionInfo)
        names = info.param_decls or [f"--{name}"] if is_option else [name]
        if not WRITTEN.intersection(names):
            found.append(names[0] if is_option else None)
    return found


def readers(trace: Path) -> Iterator[list[str]]:
    """The words of each command for each file that it reads, whose name then comes last."""
    for words, command in commands():
        paths = paths_of(command.callback)
        for place, option in enumerate(paths):
            before = [str(trace) for other in paths[:place] if other is None]
            yield [*words, *MORE.get(words[-1], ()), *before, *([option] if option else [])]


def laxity_in_little_memory(cases: list[list[str]]) -> list[int]:
    """The exit code of each command line, all in one process that may map 1 GiB more."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(GIB)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    codes: list[int] = json.loads(done.stdout.splitlines()[-1])
    assert "mistake in laxity" not in done.stderr, done.stderr
    return codes


@contextmanager
def no_files(directory: Path) -> Iterator[dict[str, Path]]:
    """What is no file, or has no end, by what it is."""
    sparse, fifo, link = directory / "sparse", directory / "fifo", directory / "link"
    with sparse.open("wb") as file:
        file.truncate(20 * GIB)
    os.mkfifo(fifo)
    link.symlink_to("/dev/zero")
    place = directory / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        yield {
            "device": Path("/dev/zero"),
            "random": Path("/dev/urandom"),
            "link": link,
            "sparse": sparse,
            "fifo": fifo,
            "socket": place,
            "directory": directory,
            "missing": directory / "nothing",
        }


@pytest.mark.slow
def test_every_command_that_reads_a_file_refuses_what_is_none(host: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    Host.load(host).run(duration="10 ms", trace=trace)
    lines = list(readers(trace))
    assert {line[0] for line in lines} >= {"check", "run", "report", "trace", "diff", "voice"}
    assert "site" in {line[0] for line in lines}
    with no_files(tmp_path) as paths:
        cases = [[*line, str(path)] for line in lines for path in paths.values()]
        codes = laxity_in_little_memory(cases)
    assert [case for case, code in zip(cases, codes, strict=True) if code != 2] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["run", "compare", "sweep"])
def test_an_output_directory_with_something_else_in_it_is_refused(
    kind: str, host: Path, tmp_path: Path
) -> None:
    output = tmp_path / kind
    small = Host.load(host)
    if kind == "run":
        small.run(duration="10 ms", trace=tmp_path / "trace").save(output)
    elif kind == "compare":
        small.compare(["periodic"], duration="10 ms").save(output)
    else:
        small.sweep(["duration=10..20:10 ms"]).save(output)
    names = sorted(path.name for path in output.iterdir())
    assert len(names) >= 3
    cases = []
    with no_files(tmp_path) as paths:
        for name in names:
            for what in ("device", "sparse", "fifo", "directory"):
                damaged = tmp_path / f"{what}-{name}"
                shutil.copytree(output, damaged)
                (damaged / name).unlink()
                (damaged / name).symlink_to(paths[what])
                readers = ["report"]
                if kind == "run" and name in ("laxity.json", "host.toml", "trace.laxtrace"):
                    readers += ["why", "observe"]
                cases += [[command, str(damaged)] for command in readers]
        codes = laxity_in_little_memory(cases)
    assert [case for case, code in zip(cases, codes, strict=True) if code != 2] == []


def test_what_is_nested_without_end_is_damaged(laxity: Laxity, host: Path, tmp_path: Path) -> None:
    output = Host.load(host).compare(["periodic"], duration="10 ms").save(tmp_path / "out")
    for name in ("results.json", "laxity.json"):
        (output / name).write_text("[" * 100_000)
        assert "error:" in laxity("report", output, code=2).stderr
    nested = tmp_path / "nested.toml"
    nested.write_text("a = " + "[" * 3000)
    assert "error:" in laxity("design", nested, code=2).stderr


def test_what_an_output_says_of_itself_is_checked(
    laxity: Laxity, host: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    laxity("run", host, "--duration", "100 ms", "-o", output)
    manifest = json.loads((output / "laxity.json").read_text())
    # The host file is the one that was written there.
    (output / "laxity.json").write_text(json.dumps({**manifest, "host": "/nowhere"}))
    laxity("why", output)
    laxity("observe", output)
    (output / "laxity.json").write_text(json.dumps({**manifest, "overrides": [1]}))
    for command in ("why", "observe", "report"):
        assert "laxity.json is damaged" in laxity(command, output, code=2).stderr


def test_the_standard_input_is_read_within_the_limit(host: Path) -> None:
    def check(stdin: Any) -> subprocess.CompletedProcess[str]:
        program = Path(sys.executable).with_name("laxity")
        return subprocess.run(
            [program, "check", "-"], stdin=stdin, capture_output=True, text=True, check=False
        )

    with host.open() as file:
        assert "deadline" in check(file).stdout
    with Path("/dev/zero").open() as zeros:
        done = check(zeros)
    assert done.returncode == 2
    assert f"more than {files.HOST_BYTES_MAX:,} bytes" in done.stderr
    ours, theirs = pty.openpty()
    try:
        done = check(theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert "is a terminal" in done.stderr


def test_a_file_of_the_kernel_that_has_nothing_now_is_refused(tmp_path: Path) -> None:
    # Such files call themselves regular and empty; reading one may block without O_NONBLOCK.
    maps = Path("/proc/self/maps")
    assert files.read(maps, 1 << 20)
    with pytest.raises(InputError, match="more than 16 bytes"):
        files.read(maps, 16)
    one_more = tmp_path / "one more"
    one_more.write_bytes(bytes(17))
    with pytest.raises(InputError, match="17 bytes"):
        files.read(one_more, 16)
    assert files.read(one_more, 17) == bytes(17)
