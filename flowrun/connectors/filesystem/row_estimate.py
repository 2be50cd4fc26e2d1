"""Estimates how many rows files hold, from their sizes alone."""

from __future__ import annotations

from flowrun.connectors.filesystem.enumerator import found_files, is_wanted
from flowrun.connectors.filesystem.scan import FileScan
from flowrun.connectors.filesystem.table_path import compression_of
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot
from flowrun.errors import ConnectorError

_COMPRESSED = 5
"""How many bytes a byte of a compressed file stands for."""
_TEXT_BYTES = {
    TypeRoot.BOOLEAN: 5, TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 4, TypeRoot.INTEGER: 6, TypeRoot.BIGINT: 8, TypeRoot.FLOAT: 8,
    TypeRoot.DOUBLE: 10, TypeRoot.DECIMAL: 8, TypeRoot.DATE: 10, TypeRoot.TIME: 8, TypeRoot.TIMESTAMP: 23, TypeRoot.TIMESTAMP_LTZ: 24,
}  # fmt: skip
_STRING_BYTES = 16
_NESTED_BYTES = 60
_JSON_PUNCTUATION = 4
_BINARY = ("arrow", "avro", "orc", "parquet")
_BINARY_SHARE = 0.4
"""The size of values in formats that encode and compress them, as a share of their size as text."""


def estimated_rows(scan: FileScan) -> int | None:
    """The bytes of the files that a source would read now, divided by those of a row in its format.

    None: the files are not on the local disk, or cannot be listed.
    """
    if not scan.location.is_local:
        return None
    try:
        files = found_files(scan, may_be_missing=True)
    except ConnectorError:  # the run will report it
        return None
    total = sum(f.size * (_COMPRESSED if compression_of(f.path) else 1) for f in files if is_wanted(scan, f))
    return round(total / bytes_of_row(scan.format_name, scan.request.declared))


def bytes_of_row(format_name: str, columns: Schema) -> float:
    """About how many bytes a row takes in a file of a format.

    >>> from flowrun.core.types import BIGINT, STRING
    >>> bytes_of_row("csv", Schema.of(id=BIGINT, name=STRING)), bytes_of_row("json", Schema.of(id=BIGINT, name=STRING))
    (26.0, 40.0)
    """
    text = sum(_text_bytes(f.type) + 1 for f in columns)
    if format_name in _BINARY:
        return max(1.0, text * _BINARY_SHARE)
    if "json" in format_name:
        text += sum(len(f.name) + _JSON_PUNCTUATION for f in columns)
    return max(1.0, float(text))


def _text_bytes(type: DataType) -> int:
    if type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return min(type.length or _STRING_BYTES, _STRING_BYTES)
    if type.root in (TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.ROW):
        return _NESTED_BYTES
    return _TEXT_BYTES.get(type.root, _STRING_BYTES)
