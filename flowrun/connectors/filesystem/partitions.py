"""Partition folders: `country=DE/day=2024-03-01/…`, written from columns and read back into them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from flowrun.api.connector import PushedFilter
from flowrun.connectors.filesystem.table_path import relative_parts
from flowrun.connectors.formats.parquet_statistics import column_may_match
from flowrun.connectors.formats.text_values import parse_text
from flowrun.connectors.formats.value_text import value_text
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError

DEFAULT_PARTITION_NAME = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = {ord(c): f"%{ord(c):02X}" for c in map(chr, [*range(32), 127])} | {
    ord(c): f"%{ord(c):02X}" for c in "\"#%'*/:=?\\{[]^"
}


def folder_name(key: str, value: str) -> str:
    """The folder of one partition value; characters that are special in paths or to readers become %XX, as in Hive.

    >>> folder_name("day", "2024/03")
    'day=2024%2F03'
    """
    return f"{key.translate(_ESCAPED)}={value.translate(_ESCAPED)}"


def split_by_partition(
    columns: pa.RecordBatch, keys: Schema, default_name: str
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(a partition folder, its rows in their order and without the partition columns), for each partition of a batch.

    It takes one stable sort of group codes and one `take`, however many partitions there are.

    Args:
        columns: the rows with the partition columns.
        keys: the partition columns, outermost first.
        default_name: the text that stands for NULL and for an empty text.
    """
    rest = [n for n in columns.schema.names if n not in keys]
    codes = np.zeros(columns.num_rows, np.int64)
    folders: list[list[str]] = []
    for field in keys:
        encoded = value_text(columns.column(field.name), field.type).dictionary_encode(null_encoding="encode")
        names = [folder_name(field.name, v or default_name) for v in encoded.dictionary.to_pylist()]
        codes = codes * max(1, len(names)) + encoded.indices.to_numpy(zero_copy_only=False)
        folders.append(names)
    present, inverse = np.unique(codes, return_inverse=True)
    data = columns.select(rest)
    if len(present) == 1:
        yield _folder(int(present[0]), folders), data
        return
    order = np.argsort(inverse, kind="stable")
    data = data.take(pa.array(order))
    ends = np.cumsum(np.bincount(inverse, minlength=len(present)))
    for code, begin, end in zip(present, [0, *ends[:-1]], ends, strict=True):
        yield _folder(int(code), folders), data.slice(int(begin), int(end - begin))


def _folder(code: int, folders: Sequence[Sequence[str]]) -> str:
    parts: list[str] = []
    for names in reversed(folders):
        code, index = divmod(code, len(names))
        parts.append(names[index])
    return "/".join(reversed(parts))


def partition_values(path: str, base: str, keys: Schema, default_name: str) -> dict[str, pa.Scalar]:
    """The values of the partition columns in a file's path, by their names.

    Raises:
        ConnectorError: a folder `key=value` is missing in the path.
        DataError: the text of a folder is no value of the column's type.
    """
    spelled: dict[str, str] = {}
    for part in relative_parts(path, base):
        key, equals, value = part.partition("=")
        if equals:
            spelled[unquote(key)] = unquote(value)
    values: dict[str, pa.Scalar] = {}
    for field in keys:
        text = spelled.get(field.name)
        if text is None:
            raise ConnectorError(
                f"{path}: expected a folder '{field.name}=…' below {base}, because the table is partitioned by it",
                retryable=False,
                hint="remove the column from PARTITIONED BY if it is stored in the files",
            )
        parsed = parse_text(pa.array([None if text == default_name else text], pa.string()), field.type)
        if parsed.bad:
            raise DataError(f"{path}: partition column '{field.name}': {parsed.bad[0]}")
        values[field.name] = parsed.values[0]
    return values


def with_partition_columns(columns: pa.RecordBatch, values: dict[str, pa.Scalar], schema: Schema) -> pa.RecordBatch:
    """The rows with partition columns added, in the order of `schema`."""
    if not values:
        return columns
    rows = columns.num_rows
    arrays = [pa.repeat(values[n], rows) if n in values else columns.column(n) for n in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


@record
class _OneValue:
    """The statistics of a column that has one value in all rows."""

    value: Any

    has_null_count = True

    @property
    def null_count(self) -> int:
        return 0 if self.value is not None else 1

    @property
    def has_min_max(self) -> bool:
        return self.value is not None

    @property
    def min(self) -> Any:
        return self.value

    @property
    def max(self) -> Any:
        return self.value


def may_hold_rows(path: str, base: str, keys: Schema, default_name: str, filters: Sequence[PushedFilter]) -> bool:
    """Whether rows of a file may pass filters on partition columns.

    It is true for a file whose path lacks partition values, so that the error is raised when the file is read.
    """
    if not filters:
        return True
    try:
        values = partition_values(path, base, keys, default_name)
    except (ConnectorError, DataError):
        return True
    types = {f.name: f.type for f in keys}
    return all(column_may_match(_OneValue(values[f.column].as_py()), 1, f, types[f.column]) for f in filters)
