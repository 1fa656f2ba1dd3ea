"""What a result was made from, and how an output directory keeps that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    host = files.read(directory / directories.HOST, files.HOST_BYTES_MAX, directories.WHOLE)
    return Origin(host, directories.HOST, manifest.overrides, manifest.options)


TABLE_BYTES_MAX = 2 << 30
"""What a Parquet file of an output directory may take in memory: a million runs of 20 domains do. A
file of a megabyte may claim thousands of times its size."""

VALUE_BYTES = 8
"""A number of a table takes so many in memory, and so does the place of a text."""


def read_table(path: Path) -> pa.Table:
    """Reads a Parquet file of an output directory; InputError if it would take too much memory."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    def refuse_beyond(size: int) -> None:
        if size > TABLE_BYTES_MAX:
            raise InputError(
                f"{path} would take {size:,} bytes in memory",
                f"tables of at most {TABLE_BYTES_MAX:,} bytes are read",
            )

    with files.open_regular(path) as file:
        schema, metadata = pq.read_schema(file), pq.read_metadata(file)
        refuse_beyond(
            sum(
                max(column["num_values"] * VALUE_BYTES, column["total_uncompressed_size"])
                for group in metadata.to_dict()["row_groups"]
                for column in group["columns"]
            )
        )
        for each in schema:
            if pa.types.is_nested(each.type) and each.type != pa.list_(pa.int64()):
                message = f"{path} is damaged: {each.name} is of type {each.type}"
                raise InputError(message, directories.WRITE_AGAIN)
        # A text that stands in many rows is in the file, and so far in memory, once.
        texts = [each.name for each in schema if _is_text(each.type)]
        table = pq.read_table(file, read_dictionary=texts)
    chunks = (chunk for name in texts for chunk in table[name].chunks)
    lengths = (pc.take(pc.binary_length(each.dictionary), each.indices) for each in chunks)
    refuse_beyond(sum(pc.sum(each).as_py() or 0 for each in lengths))
    return table.cast(schema)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
