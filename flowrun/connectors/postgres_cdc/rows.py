"""Texts of PostgreSQL as columns of declared types."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.text_values import is_textual, parse_text
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Field, Schema
from flowrun.core.types import TypeRoot
from flowrun.errors import DataError, OptionError


def check_columns(schema: Schema) -> None:
    """Whether columns can be read. Raises OptionError for one that cannot."""
    for field in schema:
        if field.type.root not in (TypeRoot.VARBINARY, TypeRoot.BINARY) and not is_textual(field.type):
            raise OptionError(
                "connector",
                f"column '{field.name}' is {field.type}, which connector 'postgres-cdc' does not read",
                hint="declare it as STRING: arrays and composite values come as PostgreSQL writes them",
            )


def typed_rows(schema: Schema, columns: Sequence[pa.Array], table: str) -> pa.RecordBatch:
    """Columns of text as those of the schema.

    Args:
        schema: declared.
        columns: string or binary arrays, one a column.
        table: for messages.

    Raises:
        DataError: a value is not of the declared type.
    """
    arrays = [_typed(field, texts, table) for field, texts in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _typed(field: Field, texts: pa.Array, table: str) -> pa.Array:
    kind = field.type
    if kind.root in (TypeRoot.VARBINARY, TypeRoot.BINARY):
        return pa.array([None if v is None else bytes.fromhex(v[2:]) for v in _strings(texts).to_pylist()], kind.arrow)
    values = _strings(texts)
    if kind.root is TypeRoot.BOOLEAN:
        values = pc.if_else(pc.equal(values, "t"), "true", pc.if_else(pc.equal(values, "f"), "false", values))
    parsed = parse_text(values, kind)
    if parsed.bad:
        row, reason = next(iter(parsed.bad.items()))
        raise DataError(
            f"column '{field.name}' of table {table}: {reason}",
            row=row,
            hint="compare the declared types with those of the table",
        )
    return parsed.values if parsed.values.type == kind.arrow else parsed.values.cast(kind.arrow)


def _strings(texts: pa.Array) -> pa.Array:
    return texts if pa.types.is_string(texts.type) else texts.cast(pa.string())


def change_batch(
    schema: Schema, rows: Sequence[Sequence[bytes | None]], kinds: Sequence[int], table: str
) -> RecordBatch:
    """Changes, each the texts of its row in the order of the schema, as one batch. Raises DataError."""
    columns = [pa.array(values, pa.binary()) for values in zip(*rows, strict=True)]
    return RecordBatch(typed_rows(schema, columns, table), None, pa.array(np.array(kinds, np.int8), pa.int8()))
