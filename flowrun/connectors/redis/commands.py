"""Rows as commands of Redis, in the bytes of its protocol (RESP), made a column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.core.arrays import Bools

COMMANDS = pa.schema([("command", pa.binary()), ("answers", pa.int8())])
"""Of staged rows: for each row the bytes of its commands, and how many answers they have."""

_LINE = b"\r\n"


def _constant(text: bytes) -> pa.Scalar:
    return pa.scalar(text, pa.binary())


def _joined(*pieces: pa.Array | bytes) -> pa.Array:
    """The pieces of each row behind each other; NULL where one is NULL."""
    given = [_constant(p) if isinstance(p, bytes) else p for p in pieces]
    return pc.binary_join_element_wise(*given, _constant(b""))


def bulk(values: pa.Array) -> pa.Array:
    r"""Values as bulk strings: `$3⏎abc⏎`.

    >>> bulk(pa.array([b"abc", b""])).to_pylist()
    [b'$3\r\nabc\r\n', b'$0\r\n\r\n']
    """
    lengths = pc.cast(pc.cast(pc.binary_length(values), pa.string()), pa.binary())
    return _joined(b"$", lengths, _LINE, values, _LINE)


def word(text: bytes) -> bytes:
    r"""One bulk string.

    >>> word(b"SET")
    b'$3\r\nSET\r\n'
    """
    return b"$%d\r\n%s\r\n" % (len(text), text)


def command(*words: bytes) -> bytes:
    r"""One command.

    >>> command(b"GET", b"k")
    b'*2\r\n$3\r\nGET\r\n$1\r\nk\r\n'
    """
    return b"*%d\r\n" % len(words) + b"".join(map(word, words))


def commands_of(words: Sequence[bytes | pa.Array]) -> pa.Array:
    r"""A command for each row, of words that are the same in all rows and words that differ.

    >>> commands_of([b"DEL", pa.array([b"k"])]).to_pylist()
    [b'*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n']
    """
    pieces: list[bytes | pa.Array] = [b"*%d\r\n" % len(words)]
    for part in words:
        if isinstance(part, bytes):
            pieces.append(word(part))
        else:
            pieces.append(bulk(part))
    return _joined(*pieces)


def hash_commands(keys: pa.Array, fields: Sequence[tuple[bytes, pa.Array]]) -> pa.Array:
    """For each row DEL and HSET: the hash has then these fields and no other. NULL fields are left out, and so is HSET if all are NULL.

    Args:
        keys: binary.
        fields: name and values of each, binary.
    """
    given = [pc.is_valid(values).to_numpy(zero_copy_only=False) for _, values in fields]
    counts = reduce(np.add, [g.astype(np.int64) for g in given])
    length = pc.cast(pc.cast(pa.array(2 + 2 * counts), pa.string()), pa.binary())
    pieces = [pc.fill_null(_joined(word(name), bulk(values)), _constant(b"")) for name, values in fields]
    write = _joined(b"*", length, _LINE, word(b"HSET"), bulk(keys), *pieces)
    return _joined(commands_of([b"DEL", keys]), pc.if_else(pa.array(counts > 0), write, _constant(b"")))


def hash_answers(fields: Sequence[tuple[bytes, pa.Array]]) -> pa.Array:
    """How many commands `hash_commands` makes of each row."""
    some: Bools = reduce(np.logical_or, [pc.is_valid(v).to_numpy(zero_copy_only=False) for _, v in fields])
    return pa.array(1 + some.astype(np.int8), pa.int8())


def as_binary(values: pa.Array) -> pa.Array:
    """Text or bytes as binary, which share their buffers."""
    return values if pa.types.is_binary(values.type) else pc.cast(values, pa.binary())


def stream_commands(key: bytes, fields: Sequence[tuple[bytes, pa.Array]]) -> pa.Array:
    r"""XADD for each row, with its columns as fields. NULL fields are left out; a row of NULLs alone has its first field, empty.

    >>> stream_commands(b"s", [(b"f", pa.array([b"v"]))]).to_pylist()[0][:20]
    b'*5\r\n$4\r\nXADD\r\n$1\r\ns\r'
    """
    some = reduce(pc.or_, [pc.is_valid(values) for _, values in fields])
    first, values = fields[0]
    filled = [(first, pc.if_else(some, values, _constant(b""))), *fields[1:]]
    counts = reduce(np.add, [pc.is_valid(v).to_numpy(zero_copy_only=False).astype(np.int64) for _, v in filled])
    length = pc.cast(pc.cast(pa.array(3 + 2 * counts), pa.string()), pa.binary())
    pieces = [pc.fill_null(_joined(word(name), bulk(values)), _constant(b"")) for name, values in filled]
    return _joined(b"*", length, _LINE + word(b"XADD") + word(key) + word(b"*"), *pieces)
