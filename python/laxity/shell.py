"""Shells on which commands run: of this machine, or of another one through ssh."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laxity.errors import InputError
from laxity.lab.errors import LabError, LeftRunningError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOCAL = "local"
SSH = "ssh://"

SSH_COMMAND = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15")
"""Never asks for a password; gives up on a host that does not answer."""
SSH_ITSELF_FAILED = 255

STEP_S_MAX = 600.0
"""For a command that only looks or tidies up, and for one that copies beside its bytes."""
LINK_MIB_PER_S = 0.5
"""The slowest link that we copy through."""

MESSAGE_LINES_MAX = 3


@dataclass(frozen=True)
class Shell:
    """A machine's shell."""

    name: str
    """How messages call the machine."""
    words: tuple[str, ...]
    """The program and its arguments that run the command that comes behind them."""

    @classmethod
    def at(cls, place: str, *others: str) -> Shell:
        """The shell at `local` or `ssh://USER@HOST`.

        Raises InputError, which also names the `others`, for any other place.
        """
        if place == LOCAL:
            return cls("this machine", ("sh", "-c"))
        host = place.removeprefix(SSH)
        if host == place or not re.fullmatch(r"[^\s/-][^\s/]*", host):
            places = ", ".join((*others, LOCAL))
            raise InputError(
                f"there is no place {place!r}", f"the places are {places} and {SSH}root@HOST[:PORT]"
            )
        return cls(host, (*SSH_COMMAND, "--", place))

    def run(
        self, command: str, given: bytes = b"", *, limit_s: float = STEP_S_MAX
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs a command, in which all that is not ours has been quoted.

        Raises UnreachableError if the machine cannot be reached, LabError if it takes too long.
        """
        try:
            # A file: to write into a pipe that a failed command does not read would end us. And in
            # a session of its own the command does not hear the Ctrl-C that is for us.
            with tempfile.TemporaryFile() as file:
                file.write(given)
                file.seek(0)
                done = subprocess.run(  # noqa: S603 - ssh or sh, with commands of ours
                    [*self.words, command],
                    stdin=file,
                    capture_output=True,
                    check=False,
                    timeout=limit_s,
                    start_new_session=True,
                )
        except FileNotFoundError:
            raise InputError(
                f"there is no program {self.words[0]}", f"install {self.words[0]}"
            ) from None
        except subprocess.TimeoutExpired:
            raise LabError(f"{self.name} took more than {limit_s:.0f} s for `{command}`") from None
        if self.words[0] == SSH_COMMAND[0] and done.returncode == SSH_ITSELF_FAILED:
            raise UnreachableError(
                f"ssh does not reach {self.name}: {end(done.stderr)}",
                f"see that `{shlex.join([*self.words, 'true'])}` works without a password",
            )
        return done

    def checked(self, command: str, given: bytes = b"") -> bytes:
        """Returns the output of a command. Raises LabError if it fails."""
        limit_s = STEP_S_MAX + len(given) / 2**20 / LINK_MIB_PER_S
        done = self.run(command, given, limit_s=limit_s)
        if done.returncode != 0:
            raise LabError(f"on {self.name}, `{command}` failed: {end(done.stderr)}")
        return done.stdout

    @contextmanager
    def directory(self) -> Iterator[str]:
        """Gives a directory there, which is removed in the end.

        It stays where what was begun may still run there, as LeftRunningError says.
        """
        home = self.checked("mktemp -d /tmp/laxity.XXXXXXXX").decode().strip()
        if re.fullmatch(r"/tmp/laxity\.\w{8}", home) is None:  # noqa: S108 - made by mktemp
            raise LabError(f"{self.name} made no temporary directory, but said {home!r}")
        try:
            yield home
        except LeftRunningError:
            raise
        except BaseException:
            self.checked(f"rm -rf {home}")
            raise
        self.checked(f"rm -rf {home}")

    def send(self, directory: str, files: Mapping[str, bytes]) -> None:
        """Writes files, which are executable, into a directory there."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(content), 0o755
                tar.addfile(entry, io.BytesIO(content))
        self.checked(f"tar -xzf - -C {directory}", archive.getvalue())


def end(text: bytes) -> str:
    """Returns the last lines of what a program complained of, in one."""
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    return "; ".join(lines[-MESSAGE_LINES_MAX:]) or "it did not say why"
