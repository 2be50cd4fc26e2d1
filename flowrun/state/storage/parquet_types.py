"""Arrow types that Parquet files do not give back as they were: what is written instead, and the way back."""

from __future__ import annotations

import pyarrow as pa

from flowrun.errors import StateError
from flowrun.state.schema_migration import rebuilt


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as they are written. Elements of type NULL become int8, as Arrow misreads lists of them (Arrow 26).

    >>> stored_schema(pa.schema([("x", pa.list_(pa.null())), ("y", pa.null())])).types
    [ListType(list<item: int8>), DataType(null)]
    """
    fields = [f if pa.types.is_null(f.type) else f.with_type(_stored(f.type)) for f in schema]
    return pa.schema(fields, schema.metadata)


def as_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows as read from Parquet in the types that they were written from: Parquet has no seconds, say, and no dictionaries of numbers.

    Raises:
        StateError: the metadata speak of other columns than the file has.
    """
    if rows.schema.equals(schema, check_metadata=True):
        return rows
    try:
        columns = [_cast(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)
    except (ValueError, pa.ArrowException) as error:  # a cast that Arrow does not know is no ValueError
        raise StateError(
            f"the columns {', '.join(rows.schema.names)} of a state file are not those of the metadata, "
            f"{', '.join(schema.names)}: {error}"
        ) from error


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind):
        return pa.int8()
    if not _holds_null(kind):
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_stored(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_stored(kind.item_type)))
    inner = kind.value_field.with_type(_stored(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(inner, kind.list_size)
    return pa.large_list(inner) if pa.types.is_large_list(kind) else pa.list_(inner)


def _holds_null(kind: pa.DataType) -> bool:
    return pa.types.is_null(kind) or any(_holds_null(kind.field(i).type) for i in range(kind.num_fields))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(
        kind, check_metadata=True
    ):  # else elements of lists may have another name, as Parquet has its own
        return column
    if _holds_null(kind):
        # first all other types, then the NULLs, which nothing can be cast to
        column = column.cast(_stored(kind))
        return pa.chunked_array([rebuilt(chunk, kind) for chunk in column.chunks], kind)
    if pa.types.is_dictionary(kind) and not pa.types.is_dictionary(column.type):
        column = column.cast(kind.value_type).dictionary_encode()
    return column.cast(kind)
