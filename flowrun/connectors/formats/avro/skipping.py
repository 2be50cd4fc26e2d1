"""Finds where values end, one after the other: for what stands behind each other with no length in front, as items of an array do."""

from __future__ import annotations

from collections.abc import Callable

from flowrun.connectors.formats.avro.schema import AvroType, Kind

Skip = Callable[[bytes, int, int], int]
"""(data, where a value begins, where its record ends) → where the value ends. It raises `BrokenRecordError`."""

_FEW = 1024
"""How many items that take no bytes an array may have, beside eight for each byte of its record."""
_MAX_RECURSION = 64
"""How deeply a value of a type that contains itself may be nested."""


class BrokenRecordError(ValueError):
    """The bytes of a record are no value of its schema."""


def read_long(data: bytes, position: int, stop: int) -> tuple[int, int]:
    """(an int or long, where it ends).

    >>> read_long(bytes([0x96, 0x01]), 0, 2)
    (75, 2)

    Raises:
        BrokenRecordError: it does not end before `stop`, or has more than 64 bits.
    """
    value = shift = 0
    while position < stop:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            break
    raise BrokenRecordError(CUT_OFF if position >= stop else NO_LONG)


CUT_OFF = "the record ends in the middle of a value"
NO_LONG = "a number has more than 64 bits"


def skipper(type: AvroType) -> Skip:
    """What finds the end of a value of a type."""
    return _Skippers().of(type)


def least_bytes(type: AvroType, depth: int = 0) -> int:
    """How many bytes a value takes at least: 0 or 1."""
    if type.kind is Kind.NULL or (type.kind is Kind.FIXED and not type.size):
        return 0
    if type.kind is Kind.RECORD:
        return int(depth < _MAX_RECURSION and any(least_bytes(child, depth + 1) for child in type.children))
    return 1


def checked_count(count: int, least: int, left: int) -> int:
    """The number of items that a block of an array announces, if so many may be there.

    Args:
        count: the number.
        least: the bytes that an item takes at least.
        left: the bytes that are left in the record.

    Raises:
        BrokenRecordError: there are too many.
    """
    if count * least > left or count > 8 * left + _FEW:
        raise BrokenRecordError(f"{count} items are announced, but {left} bytes are left")
    return count


class _Skippers:
    """Makes skippers; the records among them may contain themselves."""

    def __init__(self) -> None:
        self._records: dict[int, list[Skip]] = {}
        self._depth = 0

    def of(self, type: AvroType) -> Skip:
        match type.kind:
            case Kind.NULL:
                return lambda _data, position, _stop: position
            case Kind.BOOLEAN:
                return _fixed(1)
            case Kind.INT | Kind.LONG | Kind.ENUM:
                return _skip_long
            case Kind.FLOAT:
                return _fixed(4)
            case Kind.DOUBLE:
                return _fixed(8)
            case Kind.FIXED:
                return _fixed(type.size)
            case Kind.BYTES | Kind.STRING:
                return _skip_bytes
            case Kind.ARRAY:
                return _blocks(self.of(type.children[0]), least_bytes(type.children[0]))
            case Kind.MAP:
                value = self.of(type.children[0])
                return _blocks(lambda data, position, stop: value(data, _skip_bytes(data, position, stop), stop), 1)
            case Kind.UNION:
                return _union([self.of(child) for child in type.children])
            case Kind.RECORD:
                return self._record(type)

    def _record(self, type: AvroType) -> Skip:
        if id(type) in self._records:
            return self._deeper(self._records[id(type)])
        fields: list[Skip] = []
        self._records[id(type)] = fields
        fields += [self.of(child) for child in type.children]
        plain = [_plain_field(child) for child in type.children]

        def skip(data: bytes, position: int, stop: int) -> int:
            for field in fields:
                position = field(data, position, stop)
            return position

        known = [field for field in plain if field is not None]
        return _plain_record(known, skip) if len(known) == len(plain) else skip

    def _deeper(self, fields: list[Skip]) -> Skip:
        """Skips a record within a record of its own type."""

        def skip(data: bytes, position: int, stop: int) -> int:
            self._depth += 1
            try:
                if self._depth > _MAX_RECURSION:
                    raise BrokenRecordError(f"a type that contains itself is nested more than {_MAX_RECURSION} levels")
                for field in fields:
                    position = field(data, position, stop)
            finally:
                self._depth -= 1
            return position

        return skip


_NUMBER, _SIZED = -1, -2
_PLAIN = {
    Kind.NULL: 0,
    Kind.BOOLEAN: 1,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
    Kind.INT: _NUMBER,
    Kind.LONG: _NUMBER,
    Kind.ENUM: _NUMBER,
    Kind.BYTES: _SIZED,
    Kind.STRING: _SIZED,
}


def _plain_field(type: AvroType) -> tuple[int, int, int] | None:
    """(the byte that says NULL, the one that says that there is a value, how to find its end) of a field; None: it is not that simple.

    The first two are -1 if it is no union. The third is the bytes that a value takes, or `_NUMBER` or `_SIZED`.
    """
    if type.kind is Kind.UNION and len(type.children) == 2:
        null = next((i for i, child in enumerate(type.children) if child.kind is Kind.NULL), None)
        inner = None if null is None else _plain_field(type.children[1 - null])
        return None if null is None or inner is None or inner[0] >= 0 else (2 * null, 2 - 2 * null, inner[2])
    size = type.size if type.kind is Kind.FIXED else _PLAIN.get(type.kind)
    return None if size is None else (-1, -1, size)


def _plain_record(fields: list[tuple[int, int, int]], exactly: Skip) -> Skip:
    """Skips records of simple fields in one loop, three times as fast; what is odd is left to `exactly`."""

    def skip(data: bytes, position: int, stop: int) -> int:
        begin = position
        try:
            for null, present, size in fields:
                if null >= 0:
                    branch = data[position]
                    position += 1
                    if branch == null:
                        continue
                    if branch != present:
                        return exactly(data, begin, stop)
                if size >= 0:
                    position += size
                elif size == _NUMBER:
                    while data[position] > 0x7F:
                        position += 1
                    position += 1
                else:
                    length = data[position]
                    if length > 0x7F or length & 1:
                        position = _skip_bytes(data, position, stop)
                    else:
                        position += 1 + (length >> 1)
        except IndexError:
            return exactly(data, begin, stop)
        return position if position <= stop else exactly(data, begin, stop)

    return skip


def _fixed(size: int) -> Skip:
    def skip(_data: bytes, position: int, stop: int) -> int:
        if position + size > stop:
            raise BrokenRecordError(CUT_OFF)
        return position + size

    return skip


def _skip_long(data: bytes, position: int, stop: int) -> int:
    if position < stop and data[position] < 0x80:
        return position + 1
    _, position = read_long(data, position, stop)
    return position


def _skip_bytes(data: bytes, position: int, stop: int) -> int:
    if position < stop and data[position] < 0x80:
        length, position = (data[position] >> 1) ^ -(data[position] & 1), position + 1
    else:
        length, position = read_long(data, position, stop)
    if not 0 <= length <= stop - position:
        raise BrokenRecordError(CUT_OFF if length > 0 else f"a length is {length}")
    return position + length


def _union(branches: list[Skip]) -> Skip:
    by_byte = {2 * i: branch for i, branch in enumerate(branches[:64])}  # numbers of one byte

    def skip(data: bytes, position: int, stop: int) -> int:
        known = by_byte.get(data[position]) if position < stop else None
        if known is not None:
            return known(data, position + 1, stop)
        branch, position = read_long(data, position, stop)
        if not 0 <= branch < len(branches):
            raise BrokenRecordError(no_branch(branch, len(branches)))
        return branches[branch](data, position, stop)

    return skip


def no_branch(branch: int, branches: int) -> str:
    """What is wrong with a union whose value says that it is of a branch that there is not."""
    return f"branch {branch} of a union that has {branches}"


def _blocks(item: Skip, least: int) -> Skip:
    def skip(data: bytes, position: int, stop: int) -> int:
        while True:
            count, position = read_long(data, position, stop)
            if count == 0:
                return position
            if count < 0:  # the bytes that the block takes follow
                size, position = read_long(data, position, stop)
                if not 0 <= size <= stop - position:
                    raise BrokenRecordError(CUT_OFF)
                position += size
                continue
            for _ in range(checked_count(count, least, stop - position)):
                position = item(data, position, stop)

    return skip


def item_starts(data: bytes, position: int, stop: int, item: Skip, least: int, starts: list[int]) -> int:
    """Where an array or map ends; the positions at which its items begin are appended to `starts`.

    Raises:
        BrokenRecordError: it does not end before `stop`.
    """
    while True:
        count, position = read_long(data, position, stop)
        if count == 0:
            return position
        if count < 0:
            _, position = read_long(data, position, stop)
            count = -count
        for _ in range(checked_count(count, least, stop - position)):
            starts.append(position)
            position = item(data, position, stop)
