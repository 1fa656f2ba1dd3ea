"""Changes behind a journal: made, made again when a guest starts, and put back."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .journal import Journal
from .linux import PROGRAMS, Linux, VanishedError
from .settings import Answer, Change, Key, Of, Seen, Wanted, changes, key

if TYPE_CHECKING:
    from collections.abc import Iterator

WANTED = "wanted.json"
AGENT = "agent"
"""This package in the state's directory, for the hook."""
SCHEDULER = PROGRAMS.name
"""What loads a policy of Laxity, in the same directory."""

HOOK = """\
#!/bin/sh
# Written by `laxity apply`, which makes the settings of a guest again when it starts;
# `laxity apply --revert` removes this file. A failure does not keep the guest from starting.
[ "$2" = started ] || exit 0
export PYTHONDONTWRITEBYTECODE=1
cd {state} && python3 -m {agent} hook "$1" || echo "laxity apply: $1 was left as it is" >&2
exit 0
"""


@dataclass(frozen=True)
class Paths:
    """Where things are on a host."""

    state: Path = Path("/var/lib/laxity/apply")
    lock: Path = Path("/run/laxity-apply.lock")
    libvirt: Path = Path("/etc/libvirt")

    @property
    def hook(self) -> Path:
        """The hook that libvirt calls."""
        return self.libvirt / "hooks/qemu.d/laxity"


class RefusedError(Exception):
    """The kernel has refused a change; all changes of this call have been put back."""

    def __init__(self, change: Change, why: str) -> None:
        """Takes the change and the kernel's reason."""
        super().__init__(f"{change['label']}: {why}")
        self.change = change
        self.why = why


class Keeper:
    """Changes of one host."""

    def __init__(self, linux: Linux, paths: Paths) -> None:
        """Takes the machine, and where its journal is."""
        self._linux, self._paths = linux, paths

    def plan(self, wanted: Wanted, *, keep: bool = False) -> list[Change]:
        """Returns what `apply` would change."""
        with self._locked():
            journal = self._journal()
            return changes(wanted, self._seen(wanted, journal), journal.changes, keep=keep)

    def apply(
        self,
        wanted: Wanted,
        *,
        only: str | None = None,
        keep: bool = False,
        persist: bool = False,
    ) -> Answer:
        """Makes a host so, as `changes` says; with `persist`, again whenever a guest starts.

        Returns the changes that were made, and the labels of settings whose thread or group had
        gone. Raises RefusedError.
        """
        with self._locked():
            journal = self._journal()
            found = changes(wanted, self._seen(wanted, journal), journal.changes, only, keep)
            self._compact(journal)
            made, vanished = self._make_all(journal, found)
            if persist and self._paths.libvirt.is_dir():
                self._copy(Path(__file__).parent, AGENT)
                self._copy(PROGRAMS, SCHEDULER)
                self._write_wanted(wanted)
                made += self._make_all(journal, self._hook_changes())[0]
            return {"changes": made, "vanished": [change["label"] for change in vanished]}

    def apply_again(self, guest: str) -> Answer:
        """Makes the settings of a guest that has started, as the last `apply` wanted them."""
        wanted: Wanted = json.loads((self._paths.state / WANTED).read_text("utf-8"))
        return self.apply(wanted, only=guest)

    def restorations(self) -> list[Change]:
        """Returns what `revert` would change."""
        with self._locked():
            return self._restorations(self._journal().changes)

    def revert(self) -> Answer:
        """Puts everything back as it was before the first `apply`.

        Returns the changes that were made; those whose setting somebody else had changed
        `meanwhile`; and those that `failed`, for which the journal stays.
        """
        with self._locked():
            journal = self._journal()
            todo = self._restorations(journal.changes)
            last = {key(change): change["new"] for change in journal.changes}
            failed = self._put_back(todo)
            if not failed:
                self._forget(journal)
            return {
                "changes": [each for each in todo if each not in [entry[0] for entry in failed]],
                "meanwhile": [each for each in todo if each["old"] != last[key(each)]],
                "failed": [{"label": each["label"], "why": why} for each, why in failed],
            }

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _journal(self) -> Journal:
        return Journal(self._paths.state, self._linux.boot())

    def _seen(self, wanted: Wanted, journal: Journal) -> Seen:
        changed = [each["of"]["nic"] for each in journal.changes if each["what"] == "interrupt"]
        return self._linux.observe(sorted({*wanted["interrupts"], *changed}))

    def _compact(self, journal: Journal) -> None:
        """Forgets changes whose thread or group has gone."""
        there = [change for change in journal.changes if self._read(change) is not _GONE]
        if len(there) < len(journal.changes):
            journal.rewrite(there)

    def _read(self, change: Change) -> Any:  # noqa: ANN401 - JSON
        if change["what"] == "hook":
            path = Path(change["of"]["path"])
            return path.read_text("utf-8") if path.exists() else None
        try:
            return self._linux.read(change)
        except VanishedError:
            return _GONE

    def _make_all(
        self, journal: Journal, wanted: list[Change]
    ) -> tuple[list[Change], list[Change]]:
        """Makes changes, all or none; returns those made, and those whose thread had gone."""
        before = list(journal.changes) if journal.is_there else None
        made: list[Change] = []
        vanished: list[Change] = []
        for change in wanted:
            journal.append(change)
            try:
                self._make(change)
                made.append(change)
            except VanishedError:
                vanished.append(change)
            except OSError as error:
                why = error.strerror or str(error)
                if self._put_back(self._restorations(journal.changes[len(before or []) :])):
                    why += "; not all could be put back, which --revert tries again"
                elif before is None:
                    self._forget(journal)
                else:
                    journal.rewrite(before)
                raise RefusedError(change, why) from None
        return made, vanished

    def _make(self, change: Change) -> None:
        if change["what"] == "hook":
            _write_hook(change, change["new"])
            return
        self._linux.write(change, change["new"])
        now = self._linux.read(change)
        if now != change["new"]:
            raise OSError(f"the kernel has made it {now} instead of {change['new']}")

    def _restorations(self, made: list[Change]) -> list[Change]:
        """Returns the changes that undo others: the last is undone first."""
        first: dict[Key, Change] = {}
        for change in made:
            first.setdefault(key(change), change)
        found: list[Change] = []
        for change in reversed(list(first.values())):
            now = self._read(change)
            if now is not _GONE and now != change["old"]:
                what, of, label = change["what"], change["of"], change["label"]
                undone = Change(what=what, of=of, label=label, old=now, new=change["old"])
                found.append(undone)
        # A guest that starts meanwhile stays as it is.
        return sorted(found, key=lambda change: change["what"] != "hook")

    def _put_back(self, todo: list[Change]) -> list[Any]:
        """Makes all changes that can be made, and returns the others, each with a reason.

        One may have to wait for another, such as a reservation for time that another one frees.
        """
        while todo:
            failed: list[Any] = []
            for change in todo:
                try:
                    self._make(change)
                except VanishedError:
                    continue
                except OSError as error:
                    failed.append((change, error.strerror or str(error)))
            if len(failed) == len(todo):
                return failed
            todo = [change for change, _ in failed]
        return []

    def _hook_changes(self) -> list[Change]:
        path = self._paths.hook
        made = [str(each) for each in (path.parent, path.parent.parent) if not each.exists()]
        of: Of = {"path": str(path), "directories": " ".join(made)}
        new = HOOK.format(state=self._paths.state, agent=AGENT)
        change = Change(what="hook", of=of, label=str(path), old=None, new=new)
        change["old"] = self._read(change)
        return [change] if change["old"] != new else []

    def _copy(self, directory: Path, name: str) -> None:
        """Copies this package, or the programs beside it, for the hook."""
        there, new = self._paths.state / name, self._paths.state / f"{name}.new"
        if directory == there or not directory.is_dir():
            return
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(directory, new, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.rmtree(there, ignore_errors=True)
        new.rename(there)

    def _write_wanted(self, wanted: Wanted) -> None:
        self._paths.state.mkdir(parents=True, exist_ok=True)
        new = self._paths.state / f"{WANTED}.new"
        new.write_text(json.dumps(wanted), "utf-8")
        new.replace(self._paths.state / WANTED)

    def _forget(self, journal: Journal) -> None:
        state = self._paths.state
        for change in journal.changes:
            # What a hook that was begun has left.
            if change["what"] == "hook":
                _write_hook(change, change["old"])
        for name in (AGENT, f"{AGENT}.new", SCHEDULER, f"{SCHEDULER}.new"):
            shutil.rmtree(state / name, ignore_errors=True)
        for name in (WANTED, f"{WANTED}.new", "journal.new"):
            (state / name).unlink(missing_ok=True)
        journal.remove()
        for directory in (state, state.parent):
            _remove_if_empty(directory)


_GONE = object()
"""In place of the value of a setting whose thread or group has gone."""


def _write_hook(change: Change, content: str | None) -> None:
    path = Path(change["of"]["path"])
    new = path.parent / f".{path.name}.new"
    if content is None:
        for file in (new, path):
            file.unlink(missing_ok=True)
        for directory in change["of"]["directories"].split():
            _remove_if_empty(Path(directory))
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    new.write_text(content, "utf-8")
    new.chmod(0o755)
    new.replace(path)


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return
