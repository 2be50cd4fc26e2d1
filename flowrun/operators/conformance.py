"""Makes what user code returned fit the declared schema, or says which column does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from flowrun.core.schema import Field, Schema
from flowrun.errors import DataError, did_you_mean
from flowrun.operators.user_values import UNFIT, array_of


def as_record_batch(rows: Any, place: str) -> pa.RecordBatch:
    """What a function on batches gave, a batch or a table, as a batch.

    Raises:
        DataError: it gave something else; `place` begins the message.
    """
    if isinstance(rows, pa.Table):
        batches = rows.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], rows.schema)
    if not isinstance(rows, pa.RecordBatch):
        raise DataError(
            f"{place} must give rows as a pa.RecordBatch, or with parents as (pa.RecordBatch, parents), got {type(rows).__name__}",
            hint="build it with pa.record_batch({...})",
        )
    return rows


def conform(columns: pa.RecordBatch, schema: Schema, place: str) -> pa.RecordBatch:
    """The columns in the schema's order and types; types are cast only within a family and only if no value changes
    (but DOUBLE may round to FLOAT).

    Raises:
        DataError: a column is missing, is not declared, or has another type; `place` begins the message.
    """
    if columns.schema.equals(schema.arrow):
        return columns
    check_names(columns.schema.names, schema, place)
    arrays = [_cast(columns.column(columns.schema.get_field_index(f.name)), f, place) for f in schema]
    if not arrays:
        return columns
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def check_names(names: Iterable[str], schema: Schema, place: str) -> None:
    """Raise `DataError` unless the names are exactly the schema's, in any order."""
    given = list(names)
    twice = sorted({n for n in given if given.count(n) > 1})
    if twice:
        raise DataError(f"{place} returned the column {_quoted(twice)} more than once")
    missing = [n for n in schema.names if n not in given]
    extra = [n for n in given if n not in schema]
    if not missing and not extra:
        return
    problems = []
    if missing:
        problems.append(f"without the column {_quoted(missing)}")
    if extra:
        problems.append(f"with the undeclared column {_quoted(extra)}")
    hint = did_you_mean(extra[0], missing) if extra and missing else None
    raise DataError(
        f"{place} returned rows {' and '.join(problems)}; expected {', '.join(schema.names)}",
        hint=hint or "return exactly the declared columns, or change the step's schema",
    )


def values_to_columns(rows: Sequence[Sequence[Any]], schema: Schema, place: str) -> pa.RecordBatch:
    """A batch of rows given as sequences with one value a column.

    Raises:
        DataError: as `rows_to_columns`.
    """
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [_column(values, f, place) for values, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def check_row(row: Mapping[str, Any], schema: Schema, place: str, position: int | None) -> None:
    """Raise `DataError`, whose `row` is `position`, unless a row has exactly the schema's columns."""
    names = schema.names
    if len(row) == len(names) and all(n in row for n in names):
        return
    try:
        check_names(row, schema, place)
    except DataError as error:
        error.row = position
        raise


def rows_to_columns(rows: Sequence[Mapping[str, Any]], schema: Schema, place: str) -> pa.RecordBatch:
    """A batch of rows given as mappings that have exactly the schema's names.

    Raises:
        DataError: a value does not fit its column; names both, `row` is its position in `rows`.
    """
    arrays = [_column([row[f.name] for row in rows], f, place) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow)


def _column(values: Sequence[Any], field: Field, place: str) -> pa.Array:
    try:
        return array_of(values, field.type)
    except UNFIT:
        for row, value in enumerate(values):
            try:
                array_of([value], field.type)
            except UNFIT as error:
                raise DataError(
                    f"{place}: column '{field.name}' is {field.type}, got {value!r} of type {type(value).__name__}: {error}",
                    row=row,
                    hint=f"return a value that fits {field.type}, or change the column's type",
                ) from error
        raise


def _cast(column: pa.Array, field: Field, place: str) -> pa.Array:
    wanted = field.type.arrow
    if column.type.equals(wanted):
        return column
    message = f"{place}: column '{field.name}' is {field.type} (Arrow {wanted}), got Arrow {column.type}"
    hint = f"cast it in the function: column.cast(pa.{wanted}), or change the column's type"
    if not _one_family(column.type, wanted):
        raise DataError(message, hint=hint)
    try:
        return column.cast(wanted)
    except pa.ArrowException as error:
        raise DataError(f"{message} with values that do not fit: {error}", hint=hint) from error


def _one_family(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pt.is_null(given):
        return True
    if pt.is_dictionary(given):
        return _one_family(given.value_type, wanted)
    if pt.is_timestamp(given) and pt.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    return any(family(given) and family(wanted) for family in _FAMILIES)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind) or pt.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


_FAMILIES = (
    _is_number,
    _is_text,
    _is_bytes,
    _is_list,
    pt.is_date,
    pt.is_time,
    pt.is_duration,
    pt.is_struct,
    pt.is_map,
)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{n}'" for n in names)
