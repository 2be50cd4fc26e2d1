"""DuckDB's SQL for nested values that are compared: maps in an order, and floating numbers apart from what holds them."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.core.types import DataType, TypeRoot, array, row

_Made = Callable[[str, DataType], str]
_FLOATING = frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE})


def holds(type: DataType, roots: frozenset[TypeRoot] = _FLOATING) -> bool:
    """Whether a type is, or somewhere in it has, one of the given kind.

    >>> from flowrun.core.types import BIGINT, DOUBLE
    >>> holds(array(row(("a", DOUBLE)))), holds(array(BIGINT))
    (True, False)
    """
    return type.root in roots or any(holds(child, roots) for child in type.children)


def without_maps(type: DataType) -> DataType:
    """The type of `sorted_entries`.

    >>> from flowrun.core.types import BIGINT, DOUBLE, map_of
    >>> str(without_maps(map_of(BIGINT, DOUBLE)))
    'ARRAY<ROW<key BIGINT, value DOUBLE>>'
    """
    children = tuple(without_maps(child) for child in type.children)
    match type.root:
        case TypeRoot.MAP:
            return array(row(("key", children[0]), ("value", children[1])))
        case TypeRoot.ARRAY:
            return array(*children)
        case TypeRoot.ROW:
            return row(*zip(type.names, children, strict=True))
        case _:
            return type


def sorted_entries(value: str, type: DataType) -> str:
    """The value with maps as lists of their entries, sorted."""
    if not holds(type, frozenset({TypeRoot.MAP})):
        return value
    if type.root is TypeRoot.MAP:
        entry = row(("key", type.children[0]), ("value", type.children[1]))
        return _each(f"list_sort(map_entries({value}))", entry, sorted_entries)
    return _inside(value, type, sorted_entries)


def shape(value: str, type: DataType) -> str:
    """The value with 0 for each floating number. Both functions want values without maps."""
    if type.root in _FLOATING:
        return f"CASE WHEN {value} IS NOT NULL THEN 0 END"
    return _inside(value, type, shape) if holds(type) else value


def numbers(value: str, type: DataType) -> str:
    """All its floating numbers, as a list of DOUBLE: of values of one shape as many."""
    if type.root in _FLOATING:
        return f"[CAST({value} AS DOUBLE)]"
    if type.root is TypeRoot.ARRAY:
        return f"coalesce(flatten({_each(value, type.children[0], numbers)}), CAST([] AS DOUBLE[]))"
    return " || ".join(numbers(field, child) for field, child in _fields(value, type) if holds(child))


def _inside(value: str, type: DataType, made: _Made) -> str:
    """An array or row with something else made of each of its members."""
    if type.root is TypeRoot.ARRAY:
        return _each(value, type.children[0], made)
    fields = ", ".join(f"f{i} := {made(field, child)}" for i, (field, child) in enumerate(_fields(value, type)))
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({fields}) END"


def _each(value: str, element: DataType, made: _Made) -> str:
    return f"list_transform({value}, lambda x: {made('x', element)})"


def _fields(value: str, type: DataType) -> list[tuple[str, DataType]]:
    return [(f"struct_extract_at({value}, {i})", child) for i, child in enumerate(type.children, 1)]
