"""Fits the Arrow columns of a file to a table's types: which types may differ, and the kernel that converts them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.text_values import floor_to_unit
from flowrun.core.arrays import decoded
from flowrun.core.types import DataType, TypeRoot

Fit = Callable[[pa.Array], pa.Array]


class MisfitError(ValueError):
    """A type of the file cannot hold values of the table's type."""


def fit_column(given: pa.DataType, target: DataType) -> Fit | None:
    """The kernel that converts a file's Arrow type to `target`; None if they are equal.

    Integers may have another width and decimals another precision (each value is checked); text may be large, a view or dictionary
    encoded; timestamps may have another unit (finer ones are floored), and may or may not be marked as UTC.

    Raises:
        MisfitError: the types differ in another way.
    """
    arrow = target.arrow
    if given == arrow:
        return None
    if pa.types.is_dictionary(given):
        inner = fit_column(given.value_type, target)
        return decoded if inner is None else (lambda a: inner(decoded(a)))
    if target.root is TypeRoot.ROW:
        return _fit_row(given, target)
    if target.root is TypeRoot.ARRAY:
        return _fit_array(given, target)
    if target.root is TypeRoot.MAP:
        return _fit_map(given, target)
    if target.is_timestamp and pa.types.is_timestamp(given):
        return _fit_timestamp(given, arrow)
    if target.root is TypeRoot.DECIMAL and pa.types.is_integer(given):
        wide = pa.decimal128(38, target.scale or 0)  # a direct cast requires room for every integer of the given width
        return lambda a: pc.cast(pc.cast(a, wide), arrow)
    if _may_cast(given, target):
        return lambda a: pc.cast(a, arrow)
    raise MisfitError(f"expected {target}, got {given}")


def needed_leaves(path: str, given: pa.DataType, target: DataType) -> tuple[pa.DataType, tuple[str, ...]]:
    """(the part of a file's nested type that `target` needs, the dotted paths of the leaves to read for it).

    >>> from flowrun.core.types import BIGINT, row
    >>> given = pa.struct([("a", pa.int64()), ("b", pa.string())])
    >>> needed_leaves("r", given, row(("a", BIGINT)))
    (StructType(struct<a: int64>), ('r.a',))
    """
    if target.root is not TypeRoot.ROW or not pa.types.is_struct(given):
        return given, (path,)
    wanted = dict(zip(target.names, target.children, strict=True))
    kept = [field for field in given if field.name in wanted]
    if not kept:  # something must be read to know which rows are NULL
        return given, (path,)
    parts = [needed_leaves(f"{path}.{field.name}", field.type, wanted[field.name]) for field in kept]
    fields = [field.with_type(kind) for field, (kind, _) in zip(kept, parts, strict=True)]
    return pa.struct(fields), tuple(leaf for _, leaves in parts for leaf in leaves)


def _may_cast(given: pa.DataType, target: DataType) -> bool:
    types = pa.types
    text: bool = types.is_string(given) or types.is_large_string(given) or types.is_string_view(given)
    raw: bool = types.is_binary(given) or types.is_large_binary(given) or types.is_fixed_size_binary(given)
    raw = raw or types.is_binary_view(given)
    match target.root:
        case TypeRoot.CHAR | TypeRoot.VARCHAR | TypeRoot.BINARY | TypeRoot.VARBINARY:
            return text or raw
        case TypeRoot.DOUBLE:
            return bool(types.is_floating(given))
        case TypeRoot.FLOAT:
            return bool(types.is_float16(given) or types.is_float32(given))
        case TypeRoot.DECIMAL:
            return bool(types.is_decimal(given)) and abs(given.scale) <= given.precision  # pyarrow crashes at others
        case TypeRoot.DATE:
            return bool(types.is_date(given))
        case TypeRoot.TIME:
            return bool(types.is_time(given))
        case TypeRoot.NULL:
            return False
        case _:
            return bool(types.is_null(given) or (target.is_integer and types.is_integer(given)))


def _fit_timestamp(given: pa.DataType, arrow: pa.DataType) -> Fit:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
    if per_second[given.unit] >= per_second[arrow.unit]:
        return lambda a: floor_to_unit(a, arrow)
    plain = pa.timestamp(arrow.unit)
    return lambda a: pc.cast(a.view(pa.timestamp(given.unit)), plain).view(arrow)


def _fit_row(given: pa.DataType, target: DataType) -> Fit:
    if not pa.types.is_struct(given):
        raise MisfitError(f"expected {target}, got {given}")
    positions = [given.get_field_index(n) for n in target.names]
    fits: list[Fit | None] = []
    for name, position, child in zip(target.names, positions, target.children, strict=True):
        try:
            fits.append(None if position < 0 else fit_column(given.field(position).type, child))
        except MisfitError as error:
            raise MisfitError(f"field '{name}': {error}") from None
    fields = list(target.arrow)

    def fit(column: pa.Array) -> pa.Array:
        children = []
        for position, child, field in zip(positions, fits, fields, strict=True):
            if position < 0:
                children.append(pa.nulls(len(column), field.type))
            else:
                values = column.field(position)
                children.append(values if child is None else child(values))
        return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null())

    return fit


def _fit_array(given: pa.DataType, target: DataType) -> Fit:
    types = pa.types
    if not (types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given)):
        raise MisfitError(f"expected {target}, got {given}")
    element = fit_column(given.value_type, target.children[0])
    plain = pa.list_(given.value_type)

    def fit(column: pa.Array) -> pa.Array:
        lists = column if types.is_list(given) else pc.cast(column, plain)
        lists = lists.take(pa.array(range(len(lists)))) if lists.offset and lists.null_count else lists
        values = lists.values if element is None else element(lists.values)
        mask = lists.is_null() if lists.null_count else None
        return pa.ListArray.from_arrays(lists.offsets, values, type=target.arrow, mask=mask)

    return fit


def _fit_map(given: pa.DataType, target: DataType) -> Fit:
    if not pa.types.is_map(given):
        raise MisfitError(f"expected {target}, got {given}")
    key = fit_column(given.key_type, target.children[0])
    item = fit_column(given.item_type, target.children[1])

    def fit(column: pa.Array) -> pa.Array:
        keys = column.keys if key is None else key(column.keys)
        items = column.items if item is None else item(column.items)
        offsets = column.offsets
        if column.null_count:
            ends = offsets.to_numpy(zero_copy_only=False)
            missing = [*column.is_null().to_pylist(), False]
            offsets = pa.array([None if m else int(e) for m, e in zip(missing, ends, strict=True)], pa.int32())
        return pa.MapArray.from_arrays(offsets, keys, items, type=target.arrow)

    return fit
