"""Columns as programs write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from flowrun.core.schema import Schema
from flowrun.core.type_parser import TypeTextError, parse_type
from flowrun.errors import PipelineError

SchemaLike: TypeAlias = Schema | pa.Schema | str
"""Columns of a stream: `"word STRING, count BIGINT"`, a schema, or an Arrow schema."""


def as_schema(given: SchemaLike, place: str) -> Schema:
    """The schema that is meant.

    Raises:
        PipelineError: the text is no list of columns, or an Arrow type has no SQL type; `place` begins the message.

    >>> str(as_schema("word STRING, count BIGINT", "map"))
    'word STRING, count BIGINT'
    """
    if isinstance(given, Schema):
        return given
    try:
        if isinstance(given, pa.Schema):
            return Schema.from_arrow(given)
        row = parse_type(f"ROW<{given}>")
        return Schema.from_pairs(zip(row.names, row.children, strict=True))
    except TypeTextError as error:
        raise PipelineError.of(
            f"{place}: '{given}' is no list of columns: {error}", "write names and types: word STRING, count BIGINT"
        ) from error
    except ValueError as error:
        raise PipelineError.of(f"{place}: {error}") from error


def table_of(rows: pa.Table | pa.RecordBatch | Sequence[Any], schema: SchemaLike | None, place: str) -> pa.RecordBatch:
    """A collection as one batch: rows as mappings, or single values, which become the column `value`.

    Raises:
        PipelineError: values do not fit the schema, or there is no schema and none can be found from the rows.
    """
    wanted = None if schema is None else as_schema(schema, place)
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if not isinstance(rows, pa.Table):
        rows = _of_python(list(rows), wanted, place)
    if wanted is None:
        wanted = as_schema(rows.schema, place)
    try:
        table = rows.select(wanted.names).cast(wanted.arrow).combine_chunks()
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise PipelineError.of(f"{place}: the rows do not have the columns ({wanted}): {error}") from error
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], wanted.arrow)


def _of_python(rows: list[Any], schema: Schema | None, place: str) -> pa.Table:
    if schema is None and not rows:
        raise PipelineError.of(f"{place}: a collection without rows does not say what its columns are", "give a schema")
    if not all(isinstance(row, Mapping) for row in rows):
        if any(isinstance(row, Mapping) for row in rows):
            raise PipelineError.of(f"{place}: some rows are mappings and some are not", "give all as mappings")
        name = "value" if schema is None else schema.names[0]
        rows = [{name: value} for value in rows]
    try:
        return pa.Table.from_pylist(rows, schema=None if schema is None else schema.arrow)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        expected = "have one type a column" if schema is None else f"fit the columns ({schema})"
        raise PipelineError.of(
            f"{place}: the rows do not {expected}: {error}", "give a schema, and values of its types"
        ) from error
