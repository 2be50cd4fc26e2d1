"""The compiled reader of JSON records: it reads what is plainly right, and leaves every other record to the parsers behind it.

The library is written in C (`native/json_columns.c`) and built when flowrun is installed on a machine that has a C compiler. Where it is
missing, `JsonDecoder` does without: every result is the same, but comes later. `flowrun --version` says whether it is there.
docs/adr/044-a-compiled-first-reader-of-json.md says what it gains, and what else was tried.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from flowrun.api.format import RecordChunk
from flowrun.connectors.formats.native.build import LIBRARY, sources_number
from flowrun.connectors.formats.records import batch_of
from flowrun.connectors.formats.text_values import parse_whole
from flowrun.core.arrays import Bytes
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, TypeRoot

READ, BLANK, IN_DOUBT = 0, 1, 2
"""What becomes of a record."""
_TEXT = 2
"""Which of the three buffers of a node is its text; the others are its validity bits, and its values or offsets."""
_MAX_BYTES = (1 << 31) - 1
_KINDS = {
    TypeRoot.ROW: 0,
    TypeRoot.ARRAY: 1,
    TypeRoot.CHAR: 2,
    TypeRoot.VARCHAR: 2,
    TypeRoot.BINARY: 2,
    TypeRoot.VARBINARY: 2,
    TypeRoot.TIME: 2,
    TypeRoot.BOOLEAN: 3,
    TypeRoot.TINYINT: 4,
    TypeRoot.SMALLINT: 5,
    TypeRoot.INTEGER: 6,
    TypeRoot.BIGINT: 7,
    TypeRoot.FLOAT: 8,
    TypeRoot.DOUBLE: 9,
    TypeRoot.DATE: 10,
    TypeRoot.TIMESTAMP: 11,
    TypeRoot.TIMESTAMP_LTZ: 11,
    TypeRoot.DECIMAL: 12,
}
"""The kinds of nodes, by the numbers that json_columns.c has for them. BINARY and TIME are read as text, which a kernel parses."""
_PARSED = {TypeRoot.BINARY, TypeRoot.VARBINARY, TypeRoot.TIME}
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_ODD_NAME = re.compile(r'[\x00-\x1f"\\]')
"""What is escaped where it is part of a name in JSON."""


class NotCompiledError(Exception):
    """The compiled reader cannot be used; the message says why."""


@record
class _Node:
    """A column, or a part of a nested one.

    Attributes:
        name: the field of a row that it is; empty for the elements of a list.
        type: its type; None: the record itself.
        last: the node behind its last descendant.
    """

    name: str
    type: DataType | None
    last: int

    def numbers(self) -> tuple[int, int, int, int]:
        """(kind, precision, scale, last), as the library takes them."""
        if self.type is None:
            return 0, 0, 0, self.last
        precision, scale = self.type.precision or 0, self.type.scale or 0
        if self.type.root in (TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
            scale = _UNIT_DIGITS[self.type.arrow.unit]
        return _KINDS[self.type.root], precision, scale, self.last


@cache
def library(path: Path = LIBRARY) -> ctypes.CDLL:
    """The library, loaded.

    Raises:
        NotCompiledError: it is not there, or is not the one of this version.
    """
    if not path.exists():
        raise NotCompiledError("was not built: there was no C compiler when flowrun was installed")
    try:
        loaded = ctypes.CDLL(str(path))
        number = loaded.flowrun_json_sources()
    except (OSError, AttributeError) as error:
        raise NotCompiledError(f"cannot be loaded: {error}") from None
    if number != sources_number():
        raise NotCompiledError("was built from another version of its sources")
    pointer, integer, long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    loaded.flowrun_json_open.restype = pointer
    loaded.flowrun_json_open.argtypes = [integer, pointer, ctypes.c_char_p, pointer, integer]
    loaded.flowrun_json_read.restype = long
    loaded.flowrun_json_read.argtypes = [pointer, pointer, long, pointer, pointer, long, pointer]
    loaded.flowrun_json_sizes.restype = None
    loaded.flowrun_json_sizes.argtypes = [pointer, long, pointer, pointer]
    loaded.flowrun_json_take.restype = None
    loaded.flowrun_json_take.argtypes = [pointer, pointer, pointer, pointer]
    loaded.flowrun_json_close.restype = None
    loaded.flowrun_json_close.argtypes = [pointer]
    return loaded


def reader_text() -> str:
    """Which reader of JSON comes first, and what to do if it is not the compiled one, in words for users."""
    try:
        library()
    except NotCompiledError as error:
        return f"pyarrow's; the compiled one, five times as fast, {error}; install gcc or clang, then flowrun again"
    return "compiled"


def compiled_reader(schema: Schema, *, all_fields: bool = False) -> CompiledReader | None:
    """A reader of records with these columns; None: there is no library, or it has no form for a type (MAP) or a name (with a quote).

    Args:
        schema: the columns to give.
        all_fields: whether a record that lacks one of them is in doubt.
    """
    nodes = [_Node("", None, 0)]
    for field in schema:
        _append(nodes, field.name, field.type)
    nodes[0] = _Node("", None, len(nodes))
    if not all(n.type is None or n.type.root in _KINDS for n in nodes) or any(_ODD_NAME.search(n.name) for n in nodes):
        return None
    try:
        return CompiledReader(library(), schema, nodes, all_fields=all_fields)
    except NotCompiledError:
        return None


def _append(nodes: list[_Node], name: str, kind: DataType) -> None:
    index = len(nodes)
    nodes.append(_Node(name, kind, 0))
    names = kind.names if kind.root is TypeRoot.ROW else ("",) * len(kind.children)
    for child_name, child in zip(names, kind.children, strict=True):
        _append(nodes, child_name, child)
    nodes[index] = _Node(name, kind, len(nodes))


class CompiledReader:
    """Reads records as columns, in one thread; the interpreter's lock is not held meanwhile.

    Args:
        loaded: the library.
        schema: the columns to give.
        nodes: the record, its columns and their parts, in preorder.
        all_fields: whether a record that lacks a column is in doubt.
    """

    def __init__(self, loaded: ctypes.CDLL, schema: Schema, nodes: Sequence[_Node], *, all_fields: bool) -> None:
        self._library = loaded
        self._schema = schema
        self._nodes = nodes
        names = [n.name.encode() for n in nodes]
        numbers = np.array([n.numbers() for n in nodes], np.int32)
        ends = np.cumsum([len(n) for n in names]).astype(np.int32)
        self._handle = loaded.flowrun_json_open(
            len(nodes), numbers.ctypes.data, b"".join(names), ends.ctypes.data, all_fields
        )
        if not self._handle:
            raise MemoryError("no memory for a reader of JSON")
        self._close: Callable[[int], None] = loaded.flowrun_json_close

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._close(self._handle)

    def read(self, chunk: RecordChunk) -> tuple[pa.RecordBatch, Bytes] | None:
        """(a row for each record that was read, for each record what became of it); None: the chunk is too large.

        Raises:
            OddTextError: a text of some record is no value of its type.
        """
        if len(chunk.data) > _MAX_BYTES:
            return None
        starts, stops = (np.ascontiguousarray(o, np.int64) for o in (chunk.starts, chunk.stops))
        statuses = np.empty(len(chunk), np.uint8)
        rows = self._library.flowrun_json_read(
            self._handle,
            chunk.data.address,
            len(chunk.data),
            starts.ctypes.data,
            stops.ctypes.data,
            len(chunk),
            statuses.ctypes.data,
        )
        if rows < 0:
            raise MemoryError("no memory for the columns of a block of JSON")
        return batch_of(self._columns(rows), self._schema, rows), statuses

    def _columns(self, rows: int) -> list[pa.Array]:
        """The first rows that the library holds, copied."""
        count = len(self._nodes)
        lengths, sizes = np.empty(count, np.int64), np.empty((count, 3), np.int64)
        self._library.flowrun_json_sizes(self._handle, rows, lengths.ctypes.data, sizes.ctypes.data)
        buffers = [
            [pa.allocate_buffer(s) if s or i == _TEXT else None for i, s in enumerate(three)]
            for three in sizes.tolist()
        ]
        targets = np.array([[0 if b is None else b.address for b in three] for three in buffers], np.uint64)
        self._library.flowrun_json_take(self._handle, lengths.ctypes.data, sizes.ctypes.data, targets.ctypes.data)
        return [self._array(i, lengths.tolist(), buffers) for i in self._children(0)]

    def _children(self, index: int) -> list[int]:
        found = []
        child = index + 1
        while child < self._nodes[index].last:
            found.append(child)
            child = self._nodes[child].last
        return found

    def _array(self, index: int, lengths: list[int], buffers: list[list[pa.Buffer | None]]) -> pa.Array:
        target = self._nodes[index].type
        assert target is not None
        valid, values, text = buffers[index]
        nulls = 0 if valid is None else -1
        if target.root in (TypeRoot.ROW, TypeRoot.ARRAY):
            own = [valid] if target.root is TypeRoot.ROW else [valid, values]
            children = [self._array(i, lengths, buffers) for i in self._children(index)]
            return pa.Array.from_buffers(target.arrow, lengths[index], own, nulls, children=children)
        if _KINDS[target.root] != _KINDS[TypeRoot.VARCHAR]:
            return pa.Array.from_buffers(target.arrow, lengths[index], [valid, values], nulls)
        texts = pa.Array.from_buffers(pa.string(), lengths[index], [valid, values, text], nulls)
        return parse_whole(texts, target) if target.root in _PARSED else texts
