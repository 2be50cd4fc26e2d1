"""Values as Arrow gives and takes them, and as annotations say: dicts and dataclasses, `NamedTuple`s, dicts of pairs."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from flowrun.api.annotations import bare, row_fields
from flowrun.core.types import DataType, TypeRoot

Convert: TypeAlias = Callable[[Any], Any]
"""One value as another; never called with None."""


def as_annotated(annotation: Any) -> Convert | None:
    """Makes what an annotation says of the values that Arrow gives: records of dicts, dicts of pairs, in lists too; None: they are that.

    >>> as_annotated(dict[str, int])([("a", 1)]), as_annotated(list[int])
    ({'a': 1}, None)
    """
    kind = bare(annotation)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, Sequence, tuple) and inner:
        element = guarded(as_annotated(inner[0]))
        if origin is tuple:
            return lambda values: tuple(values if element is None else map(element, values))
        return None if element is None else lambda values: list(map(element, values))
    if origin in (dict, Mapping) and inner:
        key, value = (guarded(as_annotated(i)) or same for i in inner)
        if key is same and value is same:
            return dict
        return lambda pairs: {key(k): value(v) for k, v in pairs}
    fields = row_fields(kind)
    return None if fields is None else _record_maker(kind, fields)


def same(value: Any) -> Any:
    """The value as it is."""
    return value


def _record_maker(kind: Any, fields: Mapping[str, Any]) -> Convert:
    inside = {name: made for name, a in fields.items() if (made := guarded(as_annotated(a))) is not None}

    def converted(values: Mapping[str, Any]) -> dict[str, Any]:
        return {n: inside[n](values[n]) if n in inside else values[n] for n in fields if n in values}

    if typing.is_typeddict(kind):
        return converted if inside else same
    return lambda values: kind(**converted(values))


def guarded(convert: Convert | None) -> Convert | None:
    """The conversion for values that may be None."""
    return None if convert is None else lambda value: None if value is None else convert(value)


def as_storable(type: DataType) -> Convert | None:
    """Makes what Arrow takes for a type of what functions give: dicts of records and of tuples, pairs of dicts; None: it takes all.

    >>> from flowrun.core.types import BIGINT, row
    >>> as_storable(row(("a", BIGINT), ("b", BIGINT)))((1, 2))
    {'a': 1, 'b': 2}
    """
    if type.root is TypeRoot.ARRAY:
        element = guarded(as_storable(type.children[0]))
        return None if element is None else lambda values: [element(v) for v in values]
    if type.root is TypeRoot.MAP:
        key, value = (guarded(as_storable(c)) or same for c in type.children)
        return lambda given: [(key(k), value(v)) for k, v in (given.items() if isinstance(given, Mapping) else given)]
    if type.root is TypeRoot.ROW:
        inside = [guarded(as_storable(c)) for c in type.children]
        return lambda given: _row_document(given, type.names, inside)
    return None


def _row_document(given: Any, names: Sequence[str], inside: Sequence[Convert | None]) -> Any:
    values = fields_of(given, names)
    if values is None:
        return given
    return {
        n: values[n] if convert is None else convert(values[n])
        for n, convert in zip(names, inside, strict=True)
        if n in values
    } | {n: v for n, v in values.items() if n not in names}


def is_record(given: Any) -> bool:
    """Whether a value is an instance of a dataclass or `NamedTuple`.

    >>> is_record((1, 2))
    False
    """
    if isinstance(given, tuple):
        return hasattr(given, "_asdict")
    return dataclasses.is_dataclass(given) and not isinstance(given, type)


def fields_of(given: Any, names: Sequence[str]) -> Mapping[str, Any] | None:
    """A row by the names of its columns: a dict, a dataclass, a `NamedTuple`, or a tuple of as many values; None: it is nothing of these.

    >>> fields_of((1, 2), ("a", "b")), fields_of((1, 2), ("a",))
    ({'a': 1, 'b': 2}, None)
    """
    if isinstance(given, Mapping):
        return given
    if isinstance(given, tuple):
        if hasattr(given, "_asdict"):
            found: Mapping[str, Any] = given._asdict()
            return found
        return dict(zip(names, given, strict=True)) if len(given) == len(names) else None
    if is_record(given):
        return {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
    return None
