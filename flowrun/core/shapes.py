"""Shapes of JSON: what a document must look like before anything is made of it, declared as values.

A shape is a function that looks at a value and raises at the first place that is not as declared. docs/state-format.md describes the
metadata of checkpoints, `state/storage/metadata_shape.py` declares them; connectors declare what they keep in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Shape = Callable[[Any, str], None]
"""(value, its place in the document) → nothing.

Raises:
    ShapeError: it is not of this shape.
"""

MAX_INTEGER = 2**63 - 1


class ShapeError(ValueError):
    """Something in a document is not as declared: says where, what was expected and what is there."""

    def __init__(self, place: str, expected: str, got: object) -> None:
        super().__init__(f"{place or 'the document'} should be {expected}, not {_shown(got)}")


def _shown(value: object) -> str:
    match value:
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case str():
            return f"the text '{value[:40]}'" + ("…" if len(value) > 40 else "")
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case _:
            return str(value)[:40]


def anything(value: Any, place: str) -> None:
    """Whatever JSON can say."""


def text(value: Any, place: str) -> None:
    """A text."""
    if not isinstance(value, str):
        raise ShapeError(place, "a text", value)


def boolean(value: Any, place: str) -> None:
    """True or false."""
    if not isinstance(value, bool):
        raise ShapeError(place, "true or false", value)


def integer(least: int = 0, most: int = MAX_INTEGER) -> Shape:
    """A whole number within bounds, which are part of it."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ShapeError(place, f"a whole number from {least} to {most}", value)

    return check


def one_of(*known: str) -> Shape:
    """One of some texts."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, str) or value not in known:
            raise ShapeError(place, " or ".join(known), value)

    return check


def optional(shape: Shape) -> Shape:
    """Null, or what the shape says."""

    def check(value: Any, place: str) -> None:
        if value is not None:
            shape(value, place)

    return check


def listed(shape: Shape, length: int | None = None) -> Shape:
    """A list of one shape, of any or of one length."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            raise ShapeError(place, "a list" if length is None else f"a list of {length}", value)
        for position, one in enumerate(value):
            shape(one, f"{place}[{position}]")

    return check


def pair(first: Shape, second: Shape) -> Shape:
    """A list of two."""

    def check(value: Any, place: str) -> None:
        listed(anything, 2)(value, place)
        first(value[0], f"{place}[0]")
        second(value[1], f"{place}[1]")

    return check


def mapping(shape: Shape, *, keys: Callable[[str], bool] = lambda _: True, named: str = "a name") -> Shape:
    """Any names with values of one shape. `keys` says which names are possible, `named` what they are."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise ShapeError(place, "a mapping", value)
        for key, one in value.items():
            if not keys(key):
                raise ShapeError(f"a key of {place}", named, key)
            shape(one, f"{place}.{key}")

    return check


def members(shapes: Mapping[str, Shape], *, later: Mapping[str, Shape] | None = None, open_: bool = False) -> Shape:
    """A mapping with certain names.

    Args:
        shapes: names that must be there.
        later: names that older versions did not write.
        open_: whether names that nobody declared are possible.
    """
    known = {**shapes, **(later or {})}

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise ShapeError(place, "a mapping", value)
        for name in shapes:
            if name not in value:
                raise ShapeError(place, f"a mapping with '{name}'", value)
        for name, one in value.items():
            if name in known:
                known[name](one, f"{place}.{name}" if place else name)
            elif not open_:
                raise ShapeError(place, f"a mapping without '{name}'", value)

    return check


def either(choose: Callable[[dict[str, Any]], Shape]) -> Shape:
    """A mapping whose shape depends on what is in it."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise ShapeError(place, "a mapping", value)
        choose(value)(value, place)

    return check


def all_of(*shapes: Shape) -> Shape:
    """Every one of some shapes."""

    def check(value: Any, place: str) -> None:
        for shape in shapes:
            shape(value, place)

    return check
