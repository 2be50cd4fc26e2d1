"""Reads values of an Avro type as a column of a SQL type: Avro's schema resolution, with the logical types of the writer's schema."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.formats.avro.decimals import decimal_column
from flowrun.connectors.formats.avro.lanes import Lanes
from flowrun.connectors.formats.avro.schema import AvroType, Kind
from flowrun.connectors.formats.avro.skipping import least_bytes, no_branch, skipper
from flowrun.core.arrays import Integers
from flowrun.core.types import MAX_DECIMAL_PRECISION, DataType, TypeRoot

Read = Callable[[Lanes], pa.Array]
"""Reads a value of each lane."""
Pass = Callable[[Lanes], None]
"""Goes behind a value of each lane."""


class MisfitError(ValueError):
    """Values of an Avro type are no values of a SQL type."""


def column_reader(given: AvroType, target: DataType) -> Read:
    """What reads values of the Avro type `given` as a column of type `target`.

    Raises:
        MisfitError: they are no values of that type.
    """
    if given.kind is Kind.UNION:
        return _union(given, target)
    if given.kind is Kind.NULL:
        return lambda lanes: pa.nulls(len(lanes), target.arrow)
    read = _READERS.get(target.root, _no_reader)(given, target)
    if read is None:
        raise MisfitError(f"expected {target}, got {given.text}")
    return read


def passer(given: AvroType) -> Pass:
    """What goes behind values of a type that nobody wants."""
    match given.kind:
        case Kind.NULL:
            return lambda _lanes: None
        case Kind.INT | Kind.LONG | Kind.ENUM:
            return lambda lanes: _done(lanes.long())
        case Kind.BYTES | Kind.STRING:
            return lambda lanes: _done(lanes.sized())
        case Kind.BOOLEAN:
            return lambda lanes: _done(lanes.fixed(1))
        case Kind.FLOAT:
            return lambda lanes: _done(lanes.fixed(4))
        case Kind.DOUBLE:
            return lambda lanes: _done(lanes.fixed(8))
        case Kind.FIXED:
            return lambda lanes: _done(lanes.fixed(given.size))
        case Kind.UNION if all(c.kind not in (Kind.ARRAY, Kind.MAP, Kind.RECORD, Kind.UNION) for c in given.children):
            return _union_passer([passer(child) for child in given.children])
        case _:
            skip = skipper(given)
            return lambda lanes: lanes.skip(skip)


def _done(_value: object) -> None:
    """The value is not wanted."""


# ---- unions


def _union(given: AvroType, target: DataType) -> Read:
    reads: list[Read | None] = []
    problem: MisfitError | None = None
    for branch in given.children:
        try:
            reads.append(column_reader(branch, target))
        except MisfitError as error:
            problem = error
            reads.append(None)
    if problem is not None and all(b.kind is Kind.NULL for b, r in zip(given.children, reads, strict=True) if r):
        raise problem
    passers = [passer(branch) for branch in given.children]
    nulls = [branch.kind is Kind.NULL for branch in given.children]

    def read(lanes: Lanes) -> pa.Array:
        branches = _branches(lanes, len(reads))
        first = int(branches[0]) if len(branches) else 0
        only = reads[first]
        if only is not None and (branches == first).all():
            return only(lanes)
        pieces: list[pa.Array] = [pa.nulls(1, target.arrow)]
        places = np.zeros(len(lanes), np.int64)
        count = 1
        for branch in np.unique(branches).tolist():
            if nulls[branch]:
                continue
            which = np.flatnonzero(branches == branch)
            some = lanes.some(which)
            read_branch = reads[branch]
            if read_branch is None:
                passers[branch](some)
                some.fail(np.ones(len(some), np.bool_), f"a {given.children[branch].text} is no {target}")
            else:
                pieces.append(read_branch(some))
                places[which] = np.arange(count, count + len(which))
                count += len(which)
            lanes.follow(which, some)
        return pa.concat_arrays(pieces).take(pa.array(places))

    return read


def _union_passer(passers: list[Pass]) -> Pass:
    def go(lanes: Lanes) -> None:
        branches = _branches(lanes, len(passers))
        for branch in np.unique(branches).tolist():
            which = np.flatnonzero(branches == branch)
            some = lanes.some(which)
            passers[branch](some)
            lanes.follow(which, some)

    return go


def _branches(lanes: Lanes, count: int) -> Integers:
    branches = lanes.long()
    wrong = (branches < 0) | (branches >= count)
    if wrong.any():
        lanes.fail(wrong, lambda lane: no_branch(int(branches[lane]), count))
        branches = np.where(wrong, 0, branches)
    return branches


# ---- single values


def _no_reader(_given: AvroType, _target: DataType) -> Read | None:
    return None


def _boolean(given: AvroType, _target: DataType) -> Read | None:
    return (lambda lanes: pa.array(lanes.boolean())) if given.kind is Kind.BOOLEAN else None


_RANGES = {
    TypeRoot.TINYINT: np.int8,
    TypeRoot.SMALLINT: np.int16,
    TypeRoot.INTEGER: np.int32,
    TypeRoot.BIGINT: np.int64,
    TypeRoot.DATE: np.int32,
}


def _integer(given: AvroType, target: DataType) -> Read | None:
    if given.kind not in (Kind.INT, Kind.LONG):
        return None
    if target.root is TypeRoot.DATE and given.logical not in ("date", ""):
        return None
    kind = _RANGES[target.root]
    arrow = target.arrow

    def read(lanes: Lanes) -> pa.Array:
        values = lanes.long()
        fitting = values.astype(kind)
        if kind is not np.int64 and (fitting != values).any():
            lanes.fail(fitting != values, lambda lane: f"{values[lane]} is no {target}")
        return pa.array(fitting).cast(arrow)

    return read


def _floating(given: AvroType, target: DataType) -> Read | None:
    wide = np.float64 if target.root is TypeRoot.DOUBLE else np.float32
    match given.kind:
        case Kind.INT | Kind.LONG:
            return lambda lanes: pa.array(lanes.long().astype(wide))
        case Kind.FLOAT:
            return lambda lanes: pa.array(lanes.bits(4).view("<f4").astype(wide, copy=False))
        case Kind.DOUBLE if target.root is TypeRoot.DOUBLE:
            return lambda lanes: pa.array(lanes.bits(8).view("<f8"))
        case _:
            return None


def _decimal(given: AvroType, target: DataType) -> Read | None:
    if given.kind in (Kind.INT, Kind.LONG) and not given.logical:
        wide = pa.decimal128(38, target.scale or 0)

        def read(lanes: Lanes) -> pa.Array:
            values = lanes.long()
            limit = 10 ** ((target.precision or 10) - (target.scale or 0))
            if limit <= np.iinfo(np.int64).max:
                wrong = (values >= limit) | (values <= -limit)
                lanes.fail(wrong, lambda lane: f"{values[lane]} is no {target}")
                values = np.where(wrong, 0, values)
            return pc.cast(pc.cast(pa.array(values), wide), target.arrow)

        return read
    if given.logical != "decimal" or given.scale > MAX_DECIMAL_PRECISION:
        return None
    size = given.size if given.kind is Kind.FIXED else None
    return lambda lanes: decimal_column(lanes, size, given.scale, target)


def _text(given: AvroType, _target: DataType) -> Read | None:
    match given.kind:
        case Kind.STRING | Kind.BYTES if given.logical != "decimal":
            return lambda lanes: lanes.text(*lanes.sized())
        case Kind.ENUM:
            symbols = pa.array([*given.symbols, ""], pa.string())
            return lambda lanes: symbols.take(pa.array(_symbols(lanes, len(given.symbols))))
        case Kind.FIXED if given.logical == "uuid":
            return _uuid
        case _:
            return None


def _symbols(lanes: Lanes, count: int) -> Integers:
    values = lanes.long()
    wrong = (values < 0) | (values >= count)
    lanes.fail(wrong, lambda lane: f"symbol {values[lane]} of an enum that has {count}")
    return np.where(wrong, count, values)


_HEX = np.frombuffer(b"".join(b"%02x" % i for i in range(256)), np.uint8).reshape(256, 2)
_UUID_PLACES = np.array([i for i in range(36) if i not in (8, 13, 18, 23)])


def _uuid(lanes: Lanes) -> pa.Array:
    start, length = lanes.fixed(16)
    start = np.where(length == 16, start, 0 if lanes.source.end >= 16 else lanes.source.end)
    digits = _HEX[lanes.source.bytes[start[:, None] + np.arange(16)]].reshape(len(start), 32)
    texts = np.full((len(start), 36), ord("-"), np.uint8)
    texts[:, _UUID_PLACES] = digits
    offsets = np.arange(0, 36 * len(start) + 1, 36, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(start), [None, pa.py_buffer(offsets), pa.py_buffer(texts)])


def _binary(given: AvroType, _target: DataType) -> Read | None:
    match given.kind:
        case Kind.BYTES | Kind.STRING:
            return lambda lanes: lanes.binary(*lanes.sized())
        case Kind.FIXED:
            return lambda lanes: lanes.binary(*lanes.fixed(given.size))
        case _:
            return None


# ---- times

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "millis": 10**3, "micros": 10**6, "nanos": 10**9}
_DAY_SECONDS = 86_400


def _time(given: AvroType, target: DataType) -> Read | None:
    if given.kind not in (Kind.INT, Kind.LONG) or given.logical not in ("", "time-millis", "time-micros"):
        return None
    unit = "micros" if given.logical == "time-micros" else "millis"
    last = _DAY_SECONDS * _PER_SECOND[unit]

    def read(lanes: Lanes) -> pa.Array:
        values = lanes.long()
        wrong = (values < 0) | (values >= last)
        lanes.fail(wrong, lambda lane: f"{values[lane]} {unit} are no time of a day")
        scaled = _scaled(np.where(wrong, 0, values), unit, target.arrow.unit)
        return pa.array(scaled.astype(np.int32) if target.arrow.bit_width == 32 else scaled).view(target.arrow)

    return read


def _timestamp(given: AvroType, target: DataType) -> Read | None:
    if given.kind is not Kind.LONG or (given.logical and "timestamp-" not in given.logical):
        return None
    unit = given.logical.rpartition("-")[2] or "millis"
    factor = _PER_SECOND[target.arrow.unit] // _PER_SECOND[unit]
    limit = np.iinfo(np.int64).max // max(factor, 1)

    def read(lanes: Lanes) -> pa.Array:
        values = lanes.long()
        if factor > 1:
            wrong = (values > limit) | (values < -limit)
            lanes.fail(wrong, lambda lane: f"{values[lane]} {unit} are no {target}")
            values = np.where(wrong, 0, values)
        return pa.array(_scaled(values, unit, target.arrow.unit)).view(target.arrow)

    return read


def _scaled(values: Integers, unit: str, target_unit: str) -> Integers:
    """The same times in another unit; what is finer is cut off, towards the past."""
    given, wanted = _PER_SECOND[unit], _PER_SECOND[target_unit]
    return values * (wanted // given) if wanted >= given else values // (given // wanted)


# ---- values made of others


def _array(given: AvroType, target: DataType) -> Read | None:
    if given.kind is not Kind.ARRAY:
        return None
    item = given.children[0]
    read_item = column_reader(item, target.children[0])
    skip, least = skipper(item), least_bytes(item)

    def read(lanes: Lanes) -> pa.Array:
        items, lengths = lanes.items(skip, least)
        return pa.ListArray.from_arrays(_offsets(lengths), read_item(items), type=target.arrow)

    return read


def _map(given: AvroType, target: DataType) -> Read | None:
    if given.kind is not Kind.MAP or not target.children[0].is_character:
        return None
    value = given.children[0]
    read_value = column_reader(value, target.children[1])
    entry = skipper(AvroType(Kind.RECORD, children=(AvroType(Kind.STRING), value)))

    def read(lanes: Lanes) -> pa.Array:
        items, lengths = lanes.items(entry, 1)
        keys = items.text(*items.sized())
        return pa.MapArray.from_arrays(_offsets(lengths), keys, read_value(items), type=target.arrow)

    return read


def _offsets(lengths: Integers) -> pa.Array:
    ends = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.array(ends)


def _row(given: AvroType, target: DataType) -> Read | None:
    if given.kind is not Kind.RECORD:
        return None
    steps = record_steps(given, target.names, target.children)
    fields = list(target.arrow)

    def read(lanes: Lanes) -> pa.Array:
        children = read_record(lanes, steps, target.children)
        if not children:
            return pa.array([{}] * len(lanes), target.arrow)
        return pa.StructArray.from_arrays(children, fields=fields)

    return read


Step = tuple[int, Read] | Pass
"""What is done with a field of a record: it becomes the column at an index, or is not wanted."""


def record_steps(given: AvroType, names: tuple[str, ...], types: tuple[DataType, ...]) -> list[Step]:
    """What is done with each field of the record type `given` to get columns of these names and types.

    Raises:
        MisfitError: a field does not fit; the message names it.
    """
    steps: list[Step] = []
    places = {name: i for i, name in enumerate(names)}
    for name, child in zip(given.names, given.children, strict=True):
        place = places.get(name)
        if place is None:
            steps.append(passer(child))
            continue
        try:
            steps.append((place, column_reader(child, types[place])))
        except MisfitError as error:
            raise MisfitError(f"field '{name}': {error}") from None
    return steps


def read_record(lanes: Lanes, steps: list[Step], types: tuple[DataType, ...]) -> list[pa.Array]:
    """The columns of a record; those that it has no field for are NULL."""
    columns: list[pa.Array | None] = [None] * len(types)
    for step in steps:
        if isinstance(step, tuple):
            columns[step[0]] = step[1](lanes)
        else:
            step(lanes)
    return [pa.nulls(len(lanes), t.arrow) if c is None else c for c, t in zip(columns, types, strict=True)]


_READERS: dict[TypeRoot, Callable[[AvroType, DataType], Read | None]] = {
    TypeRoot.BOOLEAN: _boolean,
    TypeRoot.TINYINT: _integer,
    TypeRoot.SMALLINT: _integer,
    TypeRoot.INTEGER: _integer,
    TypeRoot.BIGINT: _integer,
    TypeRoot.DATE: _integer,
    TypeRoot.FLOAT: _floating,
    TypeRoot.DOUBLE: _floating,
    TypeRoot.DECIMAL: _decimal,
    TypeRoot.CHAR: _text,
    TypeRoot.VARCHAR: _text,
    TypeRoot.BINARY: _binary,
    TypeRoot.VARBINARY: _binary,
    TypeRoot.TIME: _time,
    TypeRoot.TIMESTAMP: _timestamp,
    TypeRoot.TIMESTAMP_LTZ: _timestamp,
    TypeRoot.ARRAY: _array,
    TypeRoot.MAP: _map,
    TypeRoot.ROW: _row,
}
