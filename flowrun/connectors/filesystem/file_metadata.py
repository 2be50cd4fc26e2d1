"""The values of METADATA columns of the filesystem connector: facts about the file that a row was read from, as in Flink."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.fs as pafs

from flowrun.connectors.filesystem.table_path import open_error
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING, DataType, timestamp_ltz

PATH = "file.path"
NAME = "file.name"
SIZE = "file.size"
MODIFICATION_TIME = "file.modification-time"
FILE_METADATA: tuple[tuple[str, DataType], ...] = (
    (PATH, STRING),
    (NAME, STRING),
    (SIZE, BIGINT),
    (MODIFICATION_TIME, timestamp_ltz(3)),
)


def file_values(filesystem: pafs.FileSystem, path: str, wanted: Schema, keys: Sequence[str]) -> dict[str, pa.Scalar]:
    """The values of the wanted columns for a file, by their names. It blocks on I/O if the size or the time of the file is among them.

    Args:
        filesystem: the file system of the file.
        path: the path of the file.
        wanted: the columns.
        keys: which fact each column holds, in the order of the columns.

    Raises:
        ConnectorError: the file system does not answer.
    """
    values: dict[str, object] = {PATH: path, NAME: path.rsplit("/", 1)[-1]}
    if SIZE in keys or MODIFICATION_TIME in keys:
        try:
            info = filesystem.get_file_info(path)
        except OSError as error:
            raise open_error(path, error) from error
        values[SIZE], values[MODIFICATION_TIME] = info.size, info.mtime
    return {f.name: pa.scalar(values[key], f.type.arrow) for f, key in zip(wanted, keys, strict=True)}
