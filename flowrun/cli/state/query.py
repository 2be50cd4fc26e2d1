"""Writes the result of `flowrun state query` as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO

import click
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from flowrun.cli.views.tables import show_table, table_text

_BY_SUFFIX = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_SHOWN_ROWS = 1000


def query_format(given: str | None, file: Path | None) -> str:
    """The format to write: the given one, else the one that the file's name says, else `table`.

    Raises:
        click.BadParameter: Parquet is to be written but no file is named, or the folder of the file does not exist.
    """
    form = given or _BY_SUFFIX.get(file.suffix.lower() if file is not None else "", "table")
    if form == "parquet" and file is None:
        raise click.BadParameter("Parquet goes to a file: add -o FILE", param_hint="--format")
    if file is not None and not file.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder '{file.parent}'", param_hint="-o")
    return form


def write_result(rows: pa.Table, form: str, file: Path | None) -> None:
    """Write rows in the format `form` to a file; None: to standard output."""
    if form == "parquet" and file is not None:
        pq.write_table(rows, file)
        return
    if file is None and form == "table":
        shown = rows.slice(0, _SHOWN_ROWS)
        show_table(rows.schema.names, text_rows(shown), _numeric(rows.schema))
        if rows.num_rows > _SHOWN_ROWS:
            click.echo(f"… {rows.num_rows - _SHOWN_ROWS} more rows; --format csv or json has them all")
        return
    if file is not None:
        with file.open("wb") as stream:
            _write(rows, form, stream)
        return
    if sys.stdout.isatty():  # as text, from which `guarded_streams` removes control sequences
        written = io.BytesIO()
        _write(rows, form, written)
        sys.stdout.write(written.getvalue().decode())
        return
    _write(rows, form, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _write(rows: pa.Table, form: str, stream: IO[bytes]) -> None:
    if form == "csv":
        pacsv.write_csv(_flat(rows), stream)
    elif form == "json":
        stream.write(json.dumps(json_rows(rows), indent=2, ensure_ascii=False).encode() + b"\n")
    else:
        stream.write(table_text(rows.schema.names, text_rows(rows), _numeric(rows.schema)).encode() + b"\n")


def json_rows(rows: pa.Table) -> list[dict[str, object]]:
    """Rows as JSON objects: times in ISO 8601, decimals as text, bytes in base64, maps as lists of pairs."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]


def text_rows(rows: pa.Table) -> list[list[str]]:
    """Rows as text for people; NULL is `NULL`."""
    return [[_text(value) for value in row.values()] for row in rows.to_pylist()]


def _text(value: object) -> str:
    plain = _plain(value)
    if plain is None:
        return "NULL"
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, list | dict | bool) else str(plain)


def _plain(value: object) -> object:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _flat(rows: pa.Table) -> pa.Table:
    """The rows with nested columns as JSON text and bytes in base64, as CSV has neither."""
    columns = []
    for column in rows.columns:
        kind = column.type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            texts = (None if value is None else _text(value) for value in column.to_pylist())
            columns.append(pa.array(texts, pa.string()))
        else:
            columns.append(column)
    return pa.Table.from_arrays(columns, names=rows.schema.names)


def _numeric(schema: pa.Schema) -> frozenset[str]:
    return frozenset(_names_of_numbers(schema))


def _names_of_numbers(schema: pa.Schema) -> Iterable[str]:
    for field in schema:
        kind = field.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            yield field.name
