"""Reads the fields of many messages at once, in step: see `avro.lanes`.

All messages stand at a field; its number says what is read, for all messages that have the same one at once. Messages of one writer mostly
have the same fields in the same order, so that there are few groups. What is odd (a message that is broken, a message field
that comes twice, groups, an unknown name of an enum) is noted as a failure of its record, which the library then reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.connectors.formats.avro.lanes import Lanes
from flowrun.connectors.formats.protobuf.fields import getter, is_repeated, kind_of
from flowrun.core.arrays import Bools, Integers
from flowrun.core.record import record
from flowrun.core.types import DataType, TypeRoot

_VARINT, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5
_FEW = 16
_ROUNDS = 256
"""After so many fields, messages of which there are only few left are given to the library: reading in step does not pay any more."""
_REQUIRED_LABEL = 2
_UINT32 = 0xFFFFFFFF
_WIRES = {1: _EIGHT_BYTES, 2: _FOUR_BYTES, 6: _EIGHT_BYTES, 7: _FOUR_BYTES, 15: _FOUR_BYTES, 16: _EIGHT_BYTES}
_WIRES |= {9: _SIZED, 11: _SIZED, 12: _SIZED}
"""`FieldDescriptor.type` → how its values stand in a message, if not as varints."""
_FLOAT, _DOUBLE, _UNSIGNED_32, _FIXED_32, _SIGNED_32, _SIGNED_64, _SFIXED_32 = 2, 1, 13, 7, 17, 18, 15
_INT_32, _BOOL, _ENUM, _UNSIGNED_64, _FIXED_64 = 5, 8, 14, 4, 6


class NotInStepError(ValueError):
    """Fields of this kind are not read in step."""


@record
class _Field:
    """One column: the field's wire tag, what is read where it is, and what stands where it is not."""

    name: str
    tag: int
    is_message: bool
    column: Callable[[Lanes, Integers, Integers], pa.Array]
    absent: pa.Array


class MessageReader:
    """Reads messages of one type as columns.

    Args:
        message: the class of the messages.
        names: the fields to read.
        types: the types of the columns; they fit.
        defaults: see `fields.getter`.

    Raises:
        NotInStepError: a column is of a kind that the library must read.
    """

    def __init__(self, message: Any, names: Sequence[str], types: Sequence[DataType], *, defaults: bool) -> None:
        descriptor = message.DESCRIPTOR
        check_in_step(descriptor, names)
        self._fields: list[_Field] = []
        for name, target in zip(names, types, strict=True):
            field = descriptor.fields_by_name[name]
            value = getter(field, target, defaults=defaults)(message())
            absent = pa.array([value], target.arrow)
            is_message = kind_of(field) == "MESSAGE"
            if is_message:
                column = _message_column(type(getattr(message(), name)), target, defaults)
            else:
                column = _column(field, target)
            self._fields.append(_Field(name, tag_of(field), is_message, column, absent))
        self._by_tag = {field.tag: i for i, field in enumerate(self._fields)}

    def read(self, lanes: Lanes) -> list[pa.Array]:
        """The columns of the messages at whose beginning the lanes stand."""
        rows = len(lanes)
        there = [np.zeros(rows, np.bool_) for _ in self._fields]
        values = [np.zeros(rows, np.int64) for _ in self._fields]
        sizes = [np.zeros(rows, np.int64) for _ in self._fields]
        rounds = 0
        while len(active := np.flatnonzero(lanes.position < lanes.stop)):
            some = lanes if len(active) == rows else lanes.some(active)
            rounds += 1
            if rounds > _ROUNDS and len(active) < _FEW:
                some.fail(np.ones(len(some), np.bool_), "it has many fields")
            else:
                tags = some.varint()
                some.fail((tags < 8) | (tags > _UINT32), "a field has no number")
                for tag in _different(tags):
                    which = np.flatnonzero(tags == tag)
                    part = some if len(which) == len(some) else some.some(which)
                    at = active[which]
                    index = self._by_tag.get(tag)
                    start, size = _value(part, tag & 7)
                    if index is not None:
                        if self._fields[index].is_message:
                            part.fail(there[index][at], "a message field comes twice")
                        there[index][at] = True
                        values[index][at], sizes[index][at] = start, size
                    if part is not some:
                        some.follow(which, part)
            if some is not lanes:
                lanes.follow(active, some)
        return [
            _placed(field, lanes, is_there, value, size)
            for field, is_there, value, size in zip(self._fields, there, values, sizes, strict=True)
        ]


def _different(tags: Integers) -> list[int]:
    """The values among the tags; mostly there is one."""
    if (tags == tags[0]).all():
        return [int(tags[0])]
    found: list[int] = np.unique(tags).tolist()
    return found


def _value(lanes: Lanes, wire: int) -> tuple[Integers, Integers]:
    """(the number, or where the bytes begin; how many bytes there are) of the field behind whose tag the lanes stand."""
    match wire:
        case 0:
            return lanes.varint(), np.zeros(len(lanes), np.int64)
        case 1 | 5:
            return lanes.fixed(8 if wire == _EIGHT_BYTES else 4)
        case 2:
            return lanes.taken(lanes.varint())
        case _:
            lanes.fail(np.ones(len(lanes), np.bool_), "it has groups")
            return np.zeros(len(lanes), np.int64), np.zeros(len(lanes), np.int64)


def _placed(field: _Field, lanes: Lanes, there: Bools, value: Integers, size: Integers) -> pa.Array:
    """The column of a field: what was read where it is there, and the other value elsewhere."""
    if there.all() and len(there):
        return field.column(lanes, value, size)
    which = np.flatnonzero(there)
    some = lanes.some(which)
    found = field.column(some, value[which], size[which])
    lanes.follow(which, some)
    places = np.zeros(len(there), np.int64)
    places[which] = np.arange(1, len(which) + 1)
    return pa.concat_arrays([field.absent, found]).take(pa.array(places))


def _message_column(message: Any, type: DataType, defaults: bool) -> Callable[[Lanes, Integers, Integers], pa.Array]:
    reader = MessageReader(message, type.names, type.children, defaults=defaults)
    fields = list(type.arrow)

    def column(lanes: Lanes, start: Integers, size: Integers) -> pa.Array:
        inner = Lanes(lanes.source, start, start + size, lanes.record)
        children = reader.read(inner)
        return (
            pa.StructArray.from_arrays(children, fields=fields) if children else pa.array([{}] * len(lanes), type.arrow)
        )

    return column


def _column(field: Any, type: DataType) -> Callable[[Lanes, Integers, Integers], pa.Array]:
    kind = kind_of(field)
    arrow = type.arrow
    match kind:
        case "STRING":
            return lambda lanes, start, size: lanes.text(start, size)
        case "BYTES":
            return lambda lanes, start, size: lanes.binary(start, size)
        case "FLOAT" | "DOUBLE":
            wide = np.float64 if type.root is TypeRoot.DOUBLE else np.float32
            return lambda lanes, start, _: pa.array(_bits(lanes, start, field.type).astype(wide, copy=False))
        case "BOOL":
            return lambda _lanes, value, _: pa.array(value != 0)
        case "ENUM" if type.is_character:
            numbers = pa.array([v.number for v in field.enum_type.values], pa.int64())
            names = pa.array([v.name for v in field.enum_type.values], pa.string())

            def enum(lanes: Lanes, value: Integers, _size: Integers) -> pa.Array:
                places = pa.compute.index_in(pa.array(value.astype(np.int32).astype(np.int64)), numbers)
                if places.null_count:
                    lanes.fail(places.is_null().to_numpy(zero_copy_only=False), "the enum has no such value")
                return names.take(places.fill_null(0))

            return enum
        case _:
            known = {v.number for v in field.enum_type.values} if kind == "ENUM" else None

            def number(lanes: Lanes, value: Integers, _size: Integers) -> pa.Array:
                numbers = _integers(lanes, value, field.type)
                narrow = numbers.astype(arrow.to_pandas_dtype())
                lanes.fail(narrow != numbers, f"no {type}")
                if known is not None:
                    lanes.fail(~np.isin(numbers, list(known)), "the enum has no such value")
                return pa.array(narrow, arrow)

            return number


def _bits(lanes: Lanes, start: Integers, type: int) -> Any:
    if type == _DOUBLE:
        return lanes.source.words[start].view("<f8")
    return lanes.source.halves[start].view("<f4")


def _integers(lanes: Lanes, value: Integers, type: int) -> Integers:
    """The numbers that were read, as their type says; of unsigned ones of 64 bits those that are too large are failures."""
    wire = _WIRES.get(type, _VARINT)
    if wire == _EIGHT_BYTES:
        value = lanes.source.words[value].view(np.int64)
    elif wire == _FOUR_BYTES:
        value = lanes.source.halves[value].astype(np.int64)
    if type in (_UNSIGNED_64, _FIXED_64):
        lanes.fail(value < 0, "too large")
        return value
    if type == _SIGNED_64:
        return ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
    if type == _SIGNED_32:
        low = value & _UINT32
        return (low >> 1) ^ -(low & 1)
    if type in (_INT_32, _ENUM, _SFIXED_32):
        return value.astype(np.int32).astype(np.int64)
    if type in (_UNSIGNED_32, _FIXED_32):
        return value & _UINT32
    return value


def tag_of(field: Any) -> int:
    """What stands before a value of a field: its number, and how the value stands there."""
    return int(field.number << 3 | _WIRES.get(field.type, _VARINT))


def check_in_step(descriptor: Any, names: Sequence[str]) -> None:
    """Check that fields of a message can be read and written in step.

    Raises:
        NotInStepError: one is a list or map, or one of several of which a message has one; or messages have fields that are required.
    """
    _check_no_required(descriptor, set())
    for name in names:
        field = descriptor.fields_by_name[name]
        oneof = field.containing_oneof
        if is_repeated(field) or (oneof is not None and len(oneof.fields) > 1):
            raise NotInStepError(name)


def _check_no_required(descriptor: Any, seen: set[str]) -> None:
    """Messages that lack a required field are broken, which only the library sees."""
    if descriptor.full_name in seen:
        return
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        required = getattr(field, "is_required", None)
        if required or (required is None and field.label == _REQUIRED_LABEL):
            raise NotInStepError(field.name)
        if field.message_type is not None:
            _check_no_required(field.message_type, seen)
