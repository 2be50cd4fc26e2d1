"""Coders: between values of one type and plain values, which msgpack has bytes for.

Plain values are None, bool, int of 64 bits, float, str, bytes, `Ext`, lists of them, and in JSON values dictionaries. A coder is
built once a type, from its annotation alone, and never trusts what it lifts: bytes come from other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from operator import index
from typing import Any, NoReturn

import numpy as np
from msgspec.msgpack import Ext

from flowrun.core.record import record

JSON_DEPTH = 128
"""How deep JSON values may be nested."""

_BIG_INT, _ODD_TEXT = 1, 2
"""Codes of `Ext`: an int of more than 64 bits, little-endian two's complement; a text with surrogates, as file names may have."""

_PAIRS = 0
"""The only key of a plain dictionary that stands for one whose keys msgpack cannot have: its value lists keys and values in turn."""


class Misfit(Exception):
    """A value is not what its type says. `place` is the way to it, innermost first; values themselves are never said."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.place: list[str] = []

    def at(self, step: str) -> None:
        """Note one step further out."""
        self.place.append(step)

    def __str__(self) -> str:
        where = "".join(reversed(self.place)).removeprefix(".")
        return f"{where}: {self.args[0]}" if where else str(self.args[0])


def expected(what: str, got: object) -> NoReturn:
    """Raise that a value is of another type."""
    raise Misfit(f"expected {what}, got {type(got).__name__}")


Convert = Callable[[Any], Any]


@record(eq=False)
class Coder:
    """How values of one type become plain and back.

    Attributes:
        name: of the type, for errors.
        lower: value → plain value.
        lift: plain value → value.
        matches: whether a value is of the type; unions ask.
        shapes: types of its plain values.
    """

    name: str
    lower: Convert
    lift: Convert
    matches: Callable[[Any], bool]
    shapes: frozenset[type]


def read_extension(code: int, data: memoryview) -> int | str:
    """What an `Ext` stands for; decoders call it.

    Raises:
        Misfit: the code is unknown, or the bytes are no text.
    """
    if code == _BIG_INT:
        return int.from_bytes(data, "little", signed=True)
    if code == _ODD_TEXT:
        try:
            return str(data, "utf-8", "surrogatepass")
        except UnicodeDecodeError:
            raise Misfit("a text is not UTF-8") from None
    raise Misfit(f"unknown extension {code}")


# ---- single values


def _lower_none(value: object) -> None:
    if value is not None:
        expected("None", value)


def _lower_bool(value: object) -> object:
    return value if isinstance(value, bool) else expected("bool", value)


def _lower_int(value: Any) -> object:
    if type(value) is not int:
        if isinstance(value, bool | float | str) or not hasattr(value, "__index__"):
            expected("int", value)
        value = index(value)  # of NumPy, of an IntEnum
    if -(2**63) <= value < 2**63:
        return value
    return Ext(_BIG_INT, value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _lower_float(value: object) -> object:
    if isinstance(value, float):
        return float(value)
    return _lower_int(value) if type(value) is int else expected("float", value)


def _lower_str(value: Any) -> object:
    if not isinstance(value, str):
        expected("str", value)
    if type(value) is not str:
        value = str.__str__(value)
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return Ext(_ODD_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _lower_bytes(value: object) -> object:
    return value if isinstance(value, bytes) else expected("bytes", value)


def _same(kind: type, *others: type) -> Convert:
    """A lift that checks and changes nothing."""
    kinds = (kind, *others)

    def lift(plain: object) -> object:
        return plain if type(plain) in kinds else expected(kind.__name__, plain)

    return lift


def _is(*kinds: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds)


_NOTHING = type(None)

SCALARS: Mapping[type, Coder] = {
    _NOTHING: Coder("None", _lower_none, _same(_NOTHING), _is(_NOTHING), frozenset({_NOTHING})),
    bool: Coder("bool", _lower_bool, _same(bool), _is(bool), frozenset({bool})),
    int: Coder("int", _lower_int, _same(int), _is(int, np.integer), frozenset({int})),
    float: Coder("float", _lower_float, _same(float, int), _is(float), frozenset({float, int})),
    str: Coder("str", _lower_str, _same(str), _is(str), frozenset({str})),
}
"""Coders whose plain values tell by their own type what they are."""

BYTES = Coder("bytes", _lower_bytes, _same(bytes), _is(bytes), frozenset({bytes}))


def enum_coder(kind: type[Enum]) -> Coder:
    """Members by name."""
    members = dict(kind.__members__)

    def lower(value: object) -> object:
        return value.name if isinstance(value, kind) and value.name in members else expected(kind.__name__, value)

    def lift(plain: object) -> object:
        found = members.get(plain) if isinstance(plain, str) else None
        if found is None:
            raise Misfit(
                f"unknown member of {kind.__name__}" if isinstance(plain, str) else f"expected {kind.__name__}"
            )
        return found

    return Coder(kind.__name__, lower, lift, _is(kind), frozenset({str}))


def literal_coder(choices: tuple[object, ...]) -> Coder:
    """Some strings, numbers or None, by value."""
    by_value = {(type(c), c): c for c in choices}
    name = " or ".join(map(repr, choices))

    def check(value: object) -> object:
        return value if matches(value) else expected(name, value)

    def matches(value: object) -> bool:
        return isinstance(value, str | int | bool | None) and (type(value), value) in by_value

    return Coder(name, check, check, matches, frozenset(map(type, choices)))


# ---- several values


def _items(plain: object, name: str) -> list[Any]:
    return plain if type(plain) is list else expected(name, plain)


def _each(convert: Convert, values: Any) -> list[Any]:
    """All items converted; an error names the position."""
    converted: list[Any] = []
    try:
        converted.extend(map(convert, values))
    except Misfit as misfit:
        misfit.at(f"[{len(converted)}]")
        raise
    return converted


def collection_coder(
    item: Coder, make: Callable[[list[Any]], Any], accepted: tuple[type, ...], *, distinct: bool = False
) -> Coder:
    """Any number of items of one type.

    Args:
        item: of an item.
        make: from a list, what values become in the other process.
        accepted: what values may be.
        distinct: whether no item may come twice.
    """
    name = f"{accepted[0].__name__} of {item.name}"
    plain_ints = item is SCALARS[int]

    def lower(value: Any) -> object:
        if not isinstance(value, accepted) or isinstance(value, str | bytes):
            expected(name, value)
        return _each(item.lower, value)

    def lift(plain: object) -> object:
        items = _items(plain, name)
        lifted = items if plain_ints and set(map(type, items)) <= {int} else _each(item.lift, items)
        made = make(lifted)
        if distinct and len(made) < len(lifted):
            raise Misfit(f"an item of a {name} comes twice")
        return made

    def matches(value: object) -> bool:
        return isinstance(value, accepted) and not isinstance(value, str | bytes)

    return Coder(name, lower, lift, matches, frozenset({list}))


def fixed_coder(items: Sequence[Coder]) -> Coder:
    """A tuple whose items have a type each."""
    name = f"tuple of {len(items)}"

    def convert(values: Any, converts: Sequence[Convert]) -> list[Any]:
        converted = []
        for position, (value, one) in enumerate(zip(values, converts, strict=True)):
            try:
                converted.append(one(value))
            except Misfit as misfit:
                misfit.at(f"[{position}]")
                raise
        return converted

    def lower(value: Any) -> object:
        if not isinstance(value, tuple) or len(value) != len(items):
            expected(name, value)
        return convert(value, [i.lower for i in items])

    def lift(plain: object) -> object:
        values = _items(plain, name)
        if len(values) != len(items):
            raise Misfit(f"expected {len(items)} items, got {len(values)}")
        return tuple(convert(values, [i.lift for i in items]))

    return Coder(name, lower, lift, _is(tuple), frozenset({list}))


def mapping_coder(key: Coder, value: Coder) -> Coder:
    """Keys and values in turn, in their order; arrives as a dictionary."""
    name = f"mapping of {key.name} to {value.name}"

    def lower(given: Any) -> object:
        if not isinstance(given, Mapping):
            expected(name, given)
        plain: list[Any] = []
        for k, v in given.items():
            try:
                plain += (key.lower(k), value.lower(v))
            except Misfit as misfit:
                misfit.at(f"[{len(plain) // 2}]")
                raise
        return plain

    def lift(plain: object) -> object:
        items = _items(plain, name)
        if len(items) % 2:
            raise Misfit("a key has no value")
        keys, values = _each(key.lift, items[::2]), _each(value.lift, items[1::2])
        try:
            made = dict(zip(keys, values, strict=True))
        except TypeError:
            raise Misfit("a key cannot be hashed") from None
        if len(made) < len(keys):
            raise Misfit("a key comes twice")
        return made

    return Coder(name, lower, lift, _is(Mapping), frozenset({list}))


def record_coder(
    kind: type, fields: Callable[[], tuple[tuple[str, Coder], ...]], keywords: frozenset[str] = frozenset()
) -> Coder:
    """The fields of a frozen dataclass in their order. Instances of subclasses are refused: they have other fields.

    Args:
        kind: the class.
        fields: name and coder of each parameter of its constructor; asked for at first use, so that types may contain themselves.
        keywords: those that are given by name.
    """
    name = kind.__name__

    def lower(value: object) -> object:
        if type(value) is not kind:
            expected(name, value)
        plain = []
        for attribute, coder in fields():
            try:
                plain.append(coder.lower(getattr(value, attribute)))
            except Misfit as misfit:
                misfit.at(f".{attribute}")
                raise
        return plain

    def lift(plain: object) -> object:
        items, known = _items(plain, name), fields()
        if len(items) != len(known):
            raise Misfit(f"{name} has {len(known)} fields, not {len(items)}")
        positional, named = [], {}
        for item, (attribute, coder) in zip(items, known, strict=True):
            try:
                value = coder.lift(item)
            except Misfit as misfit:
                misfit.at(f".{attribute}")
                raise
            if attribute in keywords:
                named[attribute] = value
            else:
                positional.append(value)
        try:
            return kind(*positional, **named)
        except Exception as error:  # it checks what it is given
            raise Misfit(f"{name} refuses its fields: {type(error).__name__}") from error

    return Coder(name, lower, lift, lambda value: type(value) is kind, frozenset({list}))


def union_coder(members: Sequence[Coder]) -> Coder:
    """One of several types. Scalars tell by themselves which they are; of the others a number goes ahead if there is a doubt."""
    scalars = {kind: coder for kind, coder in SCALARS.items() if coder in members}
    if float in scalars:
        scalars.setdefault(int, SCALARS[float])
    others = tuple(m for m in members if m not in SCALARS.values())
    tagged = len(others) > 1 or any(m.shapes & scalars.keys() for m in others)
    name = " or ".join(m.name for m in members)

    def lower(value: object) -> object:
        scalar = scalars.get(type(value))
        if scalar is not None:
            return scalar.lower(value)
        for number, member in enumerate(others):
            if member.matches(value):
                return [number, member.lower(value)] if tagged else member.lower(value)
        for coder in scalars.values():
            if coder.matches(value):  # of a subclass
                return coder.lower(value)
        return expected(name, value)

    def lift(plain: object) -> object:
        scalar = scalars.get(type(plain))
        if scalar is not None:
            return scalar.lift(plain)
        if not others:
            expected(name, plain)
        if not tagged:
            return others[0].lift(plain)
        items = _items(plain, name)
        if len(items) != 2 or type(items[0]) is not int or not 0 <= items[0] < len(others):
            raise Misfit(f"unknown tag: expected {name}")
        return others[items[0]].lift(items[1])

    shapes = frozenset(scalars) | (frozenset({list}) if tagged else frozenset().union(*(m.shapes for m in others)))
    return Coder(name, lower, lift, lambda value: any(m.matches(value) for m in members), shapes)


def converted_coder(kind: type, wire: Coder, to_wire: Convert, from_wire: Convert) -> Coder:
    """A type that travels as a value of another type.

    Args:
        kind: the type.
        wire: of the other type.
        to_wire: value → value of the other type.
        from_wire: the way back; raises `ValueError` for what cannot be right.
    """
    name = kind.__name__

    def lower(value: object) -> object:
        return wire.lower(to_wire(value)) if isinstance(value, kind) else expected(name, value)

    def lift(plain: object) -> object:
        try:
            value = from_wire(wire.lift(plain))
        except ValueError as error:
            raise Misfit(f"{name}: {error}") from error
        return value if isinstance(value, kind) else expected(name, value)

    return Coder(name, lower, lift, _is(kind), wire.shapes)


# ---- JSON


def _lower_json(value: Any, depth: int = 0) -> object:
    scalar = SCALARS.get(type(value))
    if scalar is not None:
        return scalar.lower(value)
    if depth >= JSON_DEPTH:
        raise Misfit(f"JSON is nested deeper than {JSON_DEPTH}")
    if isinstance(value, list | tuple):
        return _each(lambda item: _lower_json(item, depth + 1), value)
    if isinstance(value, Mapping):
        keys = _each(_lower_str, value)
        values = _each(lambda item: _lower_json(item, depth + 1), value.values())
        if Ext in map(type, keys):
            return {_PAIRS: [item for pair in zip(keys, values, strict=True) for item in pair]}
        return dict(zip(keys, values, strict=True))
    for coder in SCALARS.values():
        if coder.matches(value):  # of a subclass
            return coder.lower(value)
    return expected("a JSON value", value)


def _lift_json(plain: Any, depth: int = 0) -> object:
    if type(plain) in SCALARS:
        return plain
    if depth >= JSON_DEPTH:
        raise Misfit(f"JSON is nested deeper than {JSON_DEPTH}")
    if type(plain) is list:
        return _each(lambda item: _lift_json(item, depth + 1), plain)
    if type(plain) is not dict:
        expected("a JSON value", plain)
    if _PAIRS in plain:
        pairs = _items(plain[_PAIRS], "keys and values")
        if len(plain) > 1 or len(pairs) % 2:
            raise Misfit("a key has no value")
        keys, values = pairs[::2], pairs[1::2]
    else:
        keys, values = list(plain), list(plain.values())
    if any(type(key) is not str for key in keys):
        raise Misfit("a key of a JSON object is no text")
    made = dict(zip(keys, _each(lambda item: _lift_json(item, depth + 1), values), strict=True))
    if len(made) < len(keys):
        raise Misfit("a key comes twice")
    return made


def _is_json(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str | list | tuple | Mapping)


JSON = Coder("JSON value", _lower_json, _lift_json, _is_json, frozenset({*SCALARS, list, dict}))
