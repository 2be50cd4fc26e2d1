"""State whose columns changed between two versions of a pipeline: what differs, and rows with added nullable columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from flowrun.errors import StateError


def differences(old: pa.Schema, new: pa.Schema) -> list[str]:
    """What keeps rows of `old` from being read as `new`, one sentence each; empty if they can be migrated.

    Added nullable columns (also fields inside a ROW, at any depth) and another order of columns are no differences.

    >>> differences(pa.schema([("n", pa.int64())]), pa.schema([("n", pa.int64()), ("sum", pa.int64())]))
    []
    >>> differences(pa.schema([("n", pa.int64())]), pa.schema([("n", pa.string())]))
    ["column 'n' was int64, is string now"]
    """
    return list(_field_differences("column", "", list(old), list(new)))


def migrate(table: pa.Table, new: pa.Schema) -> pa.Table:
    """The rows of `table` in the columns of `new`, in its order; what was not there is NULL. Zero-copy for equal schemas.

    Raises:
        StateError: more differs than that; lists the differences.
    """
    if table.schema.equals(new):
        return table.replace_schema_metadata(new.metadata)
    found = differences(table.schema, new)
    if found:
        raise StateError(
            "the state's columns do not fit the pipeline: " + "; ".join(found),
            hint="only nullable columns may be added; give the step a new uid to start it without its old state",
        )
    columns = [
        _migrated(table[f.name], f.type) if f.name in table.schema.names else pa.nulls(table.num_rows, f.type)
        for f in new
    ]
    return pa.Table.from_arrays([_chunked(c, f.type) for c, f in zip(columns, new, strict=True)], schema=new)


def _field_differences(what: str, path: str, old: list[pa.Field], new: list[pa.Field]) -> Iterator[str]:
    before = {f.name: f for f in old}
    after = {f.name: f for f in new}
    for names, when in ((([f.name for f in old]), "was"), ([f.name for f in new], "is now")):
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            yield f"{what} '{path}{twice[0]}' {when} there more than once"
            return
    for field in old:
        if field.name not in after:
            yield f"{what} '{path}{field.name}' {field.type} was removed"
    for field in new:
        if field.name in before:
            yield from _type_differences(what, path + field.name, before[field.name], field)
        elif not field.nullable:
            yield f"{what} '{path}{field.name}' {field.type} was added but may not be NULL"


def _type_differences(what: str, path: str, old: pa.Field, new: pa.Field) -> Iterator[str]:
    if old.nullable and not new.nullable:
        yield f"{what} '{path}' could be NULL, may not be any more"
    before, after = old.type, new.type
    if before.equals(after):
        return
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        yield from _field_differences("field", f"{path}.", list(before), list(after))
    elif _is_list(before) and _is_list(after) and before.id == after.id and _size(before) == _size(after):
        yield from _type_differences("element", f"{path}[]", before.value_field, after.value_field)
    elif pa.types.is_map(before) and pa.types.is_map(after):
        yield from _type_differences("key of", path, before.key_field, after.key_field)
        yield from _type_differences("value of", path, before.item_field, after.item_field)
    else:
        yield f"{what} '{path}' was {before}, is {after} now"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _size(kind: pa.DataType) -> int:
    return int(kind.list_size) if pa.types.is_fixed_size_list(kind) else -1


def _chunked(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.ChunkedArray:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column], kind)


def _migrated(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(kind):
        return column
    return pa.chunked_array([rebuilt(chunk, kind) for chunk in column.chunks], kind)


def rebuilt(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values as `kind`, which differs by added nullable fields of structs, or by NULL in place of another type, at any depth."""
    if array.type.equals(kind, check_metadata=True):
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array))
    if pa.types.is_struct(kind):
        return _migrated_struct(array, kind)
    if array.offset:  # Arrow builds no list with NULLs from offsets that do not start at 0
        array = array.take(pa.array(np.arange(len(array))))
    mask = array.is_null() if array.null_count else None
    if pa.types.is_map(kind):
        keys = rebuilt(array.keys, kind.key_type)
        items = rebuilt(array.items, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=mask)
    if pa.types.is_fixed_size_list(kind):
        inside = rebuilt(array.values, kind.value_type)
        return pa.FixedSizeListArray.from_arrays(inside, type=kind, mask=mask)
    lists = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return lists.from_arrays(array.offsets, rebuilt(array.values, kind.value_type), type=kind, mask=mask)


def _migrated_struct(array: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    present = {f.name for f in array.type}
    children = [
        # `field` gives the child without its parent's NULLs, which come back by the mask, but does heed the parent's offset
        rebuilt(array.field(f.name), f.type) if f.name in present else pa.nulls(len(array), f.type)
        for f in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null() if array.null_count else None)
