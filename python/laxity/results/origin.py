"""What a result was made from, and how an output directory keeps that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laxity import directory as directories
from laxity import files
from laxity.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True)
class Origin:
    """What a result was made from."""

    host: bytes
    """The text of the host file."""
    name: str
    """How messages call the file."""
    overrides: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Where it was run, as on the command line: empty for the simulator."""


def frame_of(table: pa.Table) -> pd.DataFrame:
    """A data frame in which whole numbers stay whole where some are missing."""
    import pandas as pd
    import pyarrow as pa

    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def save_origin(directory: Path, kind: str, origin: Origin) -> None:
    """Writes the manifest and the host file, as it was given."""
    manifest = directories.Manifest(kind, directories.HOST, origin.overrides, origin.options)
    manifest.save(directory)
    (directory / directories.HOST).write_bytes(origin.host)


def load_origin(directory: Path, kind: str) -> Origin:
    """Reads them back; InputError if `directory` is not an output of that kind."""
    manifest = directories.Manifest.load(directory)
    if manifest.kind != kind:
        message = f"{directory} is the output of `laxity {manifest.kind}`, not of `laxity {kind}`"
        raise InputError(message)
    host = files.read(directory / directories.HOST, files.HOST_BYTES_MAX)
    return Origin(host, directories.HOST, manifest.overrides, manifest.options)


def read_json(path: Path) -> Any:  # noqa: ANN401 - JSON is anything
    """Reads a file of an output directory; InputError if it is damaged or not there."""
    content = files.read(path, files.RESULT_BYTES_MAX)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def read_table(path: Path) -> pa.Table:
    """Reads a Parquet file of an output directory."""
    import pyarrow.parquet as pq

    with files.open_regular(path) as file:
        return pq.read_table(file)
