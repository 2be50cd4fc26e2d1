"""Whether two tables are the same piece of memory. Arrow data never changes, so while both are held, the same memory is the same rows."""

from __future__ import annotations

import pyarrow as pa

Identity = tuple[object, ...]


def identity_of(table: pa.Table) -> Identity:
    """Equal for tables over the same memory, as long as one of them is held.

    >>> table = pa.table({"a": [1, 2]})
    >>> identity_of(table) == identity_of(table.slice(0)), identity_of(table) == identity_of(table.slice(1))
    (True, False)
    """
    return tuple(tuple(_array(chunk) for chunk in column.chunks) for column in table.columns)


def _array(array: pa.Array) -> Identity:
    addresses = tuple(None if b is None else b.address for b in array.buffers())
    return (len(array), array.offset, addresses, *(_array(child) for child in _children(array)))


def _children(array: pa.Array) -> list[pa.Array]:
    """Parts that have an offset of their own."""
    kind = array.type
    if pa.types.is_struct(kind):
        return [array.field(i) for i in range(kind.num_fields)]
    if pa.types.is_dictionary(kind):
        return [array.dictionary]
    if pa.types.is_map(kind):
        return [array.keys, array.items]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [array.values]
    return []
