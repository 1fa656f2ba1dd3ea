"""Output directories: what `-o DIR` writes, and what `report`, `trace` and `diff` read."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laxity import _core, files
from laxity.errors import InputError
from laxity.substrates.names import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

MANIFEST = "laxity.json"
HOST = "host.toml"
TRACE = "trace.laxtrace"
WRITE_AGAIN = "write the directory again, as it was written"
"""What helps where a file of an output directory is damaged."""
WHOLE = "an output directory that is whole"
"""What to name instead of one without a file that it should have."""
KINDS = ("run", "compare", "sweep", "reproduce", "fidelity", "capacity")

OURS = (
    *(MANIFEST, HOST, "trace.*", "result.json", "results.json", "reproduce.json"),
    *(
        "responses.parquet",
        "response-counts.parquet",
        "streams.parquet",
        "sweep.parquet",
        "capacity.json",
        "data",
        "report.html",
        "figures",
        "fidelity.json",
        # What a model was held against.
        "trace",
        # What substrates leave besides results, and the runs of a comparison of two of them.
        *NAMES,
        "*.png",
        "*.svg",
    ),
)
"""What Laxity writes into an output directory, and so replaces there."""


@dataclass(frozen=True)
class Manifest:
    """What an output directory says of itself, in `laxity.json`."""

    kind: str
    """One of `KINDS`."""
    host: str | None
    """The name of the host file in the directory; None for a reproduction, which has many."""
    overrides: tuple[str, ...]
    """What `--set` and the other options changed in it, in order."""
    options: tuple[str, ...] = ()
    """Where it was run, as on the command line: empty for the simulator."""
    version: str = _core.__version__
    """The version of Laxity that wrote it."""

    def save(self, directory: Path) -> None:
        """Writes `laxity.json`."""
        content = {
            "kind": self.kind,
            "laxity": self.version,
            "host": self.host,
            "overrides": list(self.overrides),
            "options": list(self.options),
        }
        write_json(directory / MANIFEST, content)

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Reads it back. Raises InputError if `directory` is no output of Laxity, or damaged."""
        path = directory / MANIFEST
        if not path.is_file():
            raise InputError(
                f"{directory} is not an output directory of laxity",
                f"it has no {MANIFEST}; `laxity run HOST -o DIR` writes such a directory",
            )
        content = read_json(path)
        wrong = InputError(f"{path} is damaged: laxity writes other contents", WRITE_AGAIN)
        try:
            manifest = cls(
                content["kind"],
                content["host"],
                tuple(content["overrides"]),
                # Older outputs do not say where they were run.
                tuple(content.get("options", ())),
                content["laxity"],
            )
        except (KeyError, TypeError):
            raise wrong from None
        texts = (*manifest.overrides, *manifest.options)
        if manifest.kind not in KINDS or not all(isinstance(text, str) for text in texts):
            raise wrong
        return manifest


def read_json(path: Path) -> Any:  # noqa: ANN401 - JSON is anything
    """Reads a file of an output directory; InputError if it is damaged or not there."""
    content = files.read(path, files.RESULT_BYTES_MAX, WHOLE)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}", WRITE_AGAIN) from None


def write_json(path: Path, content: object) -> None:
    """Indented, for people to read too."""
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


@contextmanager
def output(path: Path) -> Iterator[Path]:
    """A directory to write into, which becomes `path` when all has gone well.

    An earlier output of Laxity at `path` is replaced then, and stays as it is when something fails
    or is interrupted; what others put beside it stays in any case. Raises InputError, before
    anything is written, if something else is there.
    """
    refuse_unless_ours(path)
    with _writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield staging
        with _writing_to(path):
            _replace(path, staging)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _writing_to(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from None


def _replace(path: Path, staging: Path) -> None:
    path.mkdir(exist_ok=True)
    for entry in [entry for pattern in OURS for entry in path.glob(pattern)]:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for entry in staging.iterdir():
        # Not a rename: `path` may be a link to another file system.
        shutil.move(entry, path / entry.name)


def refuse_unless_ours(path: Path) -> None:
    """Raises InputError if `path` is there and neither empty nor an earlier output of Laxity."""
    help_other = "name a new directory, or an empty one, or an earlier output of laxity"
    if path.is_dir():
        if any(path.iterdir()) and not (path / MANIFEST).is_file():
            raise InputError(f"{path} holds something else than an output of laxity", help_other)
    elif path.exists() or path.is_symlink():
        raise InputError(f"{path} is not a directory", help_other)
