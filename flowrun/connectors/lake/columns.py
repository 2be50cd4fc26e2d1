"""Whether declared columns fit those of a lake table."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from flowrun.api.connector import TableDefinition
from flowrun.connectors.formats.arrow_fit import MisfitError, fit_column
from flowrun.core.schema import Schema
from flowrun.core.types import DataType
from flowrun.errors import OptionError, SetupError, did_you_mean


def check_read(what: str, table: pa.Schema, declared: Schema) -> None:
    """Whether the declared columns can be read.

    Args:
        what: the table, for messages.
        table: the columns that it has.
        declared: those that the user declared.

    Raises:
        SetupError: a column is missing, or has a type that the declared one cannot hold.
    """
    for field in declared:
        position = table.get_field_index(field.name)
        if position < 0:
            raise SetupError(
                f"{what} has no column '{field.name}'; its columns are {', '.join(table.names)}",
                hint=did_you_mean(field.name, table.names) or "declare the columns as the table has them",
            )
        try:
            fit_column(table.field(position).type, field.type)
        except MisfitError as error:
            raise SetupError(
                f"column '{field.name}' of {what}: {error}",
                hint=f"declare the column as the table has it, or read it under another type and CAST ({field.type})",
            ) from None


def check_written(
    what: str, table: pa.Schema, schema: Schema, arrow_type: Callable[[DataType], pa.DataType], *, whole_rows: bool
) -> None:
    """Whether rows of `schema` can be written.

    Args:
        what: the table, for messages.
        table: the columns that it has.
        schema: the columns of the rows.
        arrow_type: the Arrow type that the table has for a type.
        whole_rows: whether each column of the table must be among them, as rows replace others.

    Raises:
        SetupError: they cannot.
    """
    for field in schema:
        position = table.get_field_index(field.name)
        if position < 0:
            raise SetupError(
                f"{what} has no column '{field.name}'; its columns are {', '.join(table.names)}",
                hint=did_you_mean(field.name, table.names) or "declare the columns as the table has them",
            )
        given = table.field(position).type
        if not _same(given, arrow_type(field.type)):
            raise SetupError(
                f"column '{field.name}' of {what} is {given}, but {field.type} is written to it",
                hint="declare the column as the table has it, and CAST in the query",
            )
    for column in table:
        if column.name not in schema and (whole_rows or not column.nullable):
            reason = "rows are replaced as a whole" if column.nullable else "it is NOT NULL"
            raise SetupError(
                f"{what} has a column '{column.name}', which the sink does not write, but {reason}",
                hint="declare the column",
            )


def _same(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two Arrow types are the same, but for the names of what is in lists and maps, and large or small offsets."""
    types = pa.types
    if types.is_struct(given) and types.is_struct(wanted):
        names = [f.name for f in given]
        return names == [f.name for f in wanted] and all(
            _same(given.field(n).type, wanted.field(n).type) for n in names
        )
    if types.is_map(given) and types.is_map(wanted):
        return _same(given.key_type, wanted.key_type) and _same(given.item_type, wanted.item_type)
    if _is_list(given) and _is_list(wanted):
        return _same(given.value_type, wanted.value_type)
    text = types.is_string(wanted) and (types.is_large_string(given) or types.is_string_view(given))
    raw = types.is_binary(wanted) and (types.is_large_binary(given) or types.is_binary_view(given))
    return bool(given == wanted or text or raw)


def _is_list(given: pa.DataType) -> bool:
    return bool(pa.types.is_list(given) or pa.types.is_large_list(given))


def check_columns(table: TableDefinition, name: str, arrow_type: Callable[[DataType], pa.DataType]) -> None:
    """Whether a connector has types for all columns of a sink, and whether its partition columns are right.

    Raises:
        OptionError: it has none, or a partition column does not exist or cannot be one.
    """
    for field in table.schema:
        try:
            arrow_type(field.type)
        except ValueError as error:
            raise OptionError(
                "connector", f"connector '{name}' cannot write column '{field.name}': {error}", hint="CAST it"
            ) from None
    for key in table.partition_keys:
        if key not in table.schema:
            raise OptionError(
                "partition_keys",
                f"partition column '{key}' is no column of {table.name}",
                hint=did_you_mean(key, table.schema.names),
            )
        kind = table.schema.field(key).type
        if kind.is_nested or kind.is_binary or kind.is_approximate:
            raise OptionError("partition_keys", f"partition column '{key}' is {kind}, by which nothing is partitioned")
    if table.partition_keys and len(table.partition_keys) == len(table.schema):
        raise OptionError("partition_keys", "all columns are partition columns: nothing is left for the files")


def fitted(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of a data file, in its types; what is not among them is NULL."""
    arrays = []
    for field in schema:
        position = columns.schema.get_field_index(field.name)
        values = pa.nulls(columns.num_rows, field.type) if position < 0 else columns.column(position)
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
