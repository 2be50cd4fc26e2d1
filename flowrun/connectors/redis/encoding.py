"""Rows of a sink as commands."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.format import RecordEncoder
from flowrun.connectors.redis.commands import (
    COMMANDS,
    commands_of,
    hash_answers,
    hash_commands,
    stream_commands,
)
from flowrun.connectors.redis.layout import RedisLayout, RedisType
from flowrun.core.elements import RecordBatch, removals
from flowrun.core.schema import Schema
from flowrun.errors import DataError

_ADD = {RedisType.LIST: b"RPUSH", RedisType.SET: b"SADD"}


class CommandEncoder:
    """Makes commands of rows, with the columns of `COMMANDS`.

    Args:
        layout: where rows go.
        schema: the columns of the rows.
        ttl_ms: after which the value of a key goes; None: never.
    """

    def __init__(self, layout: RedisLayout, schema: Schema, ttl_ms: int | None) -> None:
        self._layout = layout
        self._keys = [schema.index(n) for n in layout.keys.names]
        self._values = [schema.index(n) for n in layout.values.names]
        self._required = [(schema.index(f.name), f.name) for f in schema if not f.nullable]
        self._ttl = None if ttl_ms is None else b"%d" % ttl_ms
        used = layout.record_format
        self._encoder: RecordEncoder | None = None
        if used is not None:
            self._encoder = used.create_encoder(layout.values, layout.options)

    def encode(self, batch: RecordBatch) -> pa.RecordBatch:
        """The commands of each row.

        Raises:
            DataError: a key or NOT NULL column has a NULL, or the format cannot write a value.
        """
        rows = batch.columns
        removes = None
        if batch.row_kinds is not None:
            removes = pa.array(removals(batch.row_kinds))
        self._check(rows, removes)
        values = rows.select(self._values)
        kind = self._layout.type
        if not kind.is_keyed:
            written, answers = self._added(values), pa.array(np.ones(rows.num_rows, np.int8))
            return pa.RecordBatch.from_arrays([written, answers], schema=COMMANDS)
        names = self._layout.names([rows.column(i) for i in self._keys])
        if kind is RedisType.STRING:
            written, answers = self._set(names, values), pa.array(np.ones(rows.num_rows, np.int8))
        else:
            fields = self._layout.fields(values)
            written, answers = hash_commands(names, fields), hash_answers(fields)
            if self._ttl is not None:
                expire = commands_of([b"PEXPIRE", names, self._ttl])
                written = pc.binary_join_element_wise(written, expire, pa.scalar(b"", pa.binary()))
                answers = pc.add(answers, pa.scalar(1, pa.int8()))
        if removes is not None:
            written = pc.if_else(removes, commands_of([b"DEL", names]), written)
            answers = pc.if_else(removes, pa.scalar(1, pa.int8()), answers)
        return pa.RecordBatch.from_arrays([written, answers], schema=COMMANDS)

    def _set(self, names: pa.Array, values: pa.RecordBatch) -> pa.Array:
        words = [b"SET", names, self._layout.payloads(values, self._encoder)]
        return commands_of(words if self._ttl is None else [*words, b"PX", self._ttl])

    def _added(self, values: pa.RecordBatch) -> pa.Array:
        key = self._layout.key.encode()
        if self._layout.type is RedisType.STREAM:
            return stream_commands(key, self._layout.fields(values))
        return commands_of([_ADD[self._layout.type], key, self._layout.payloads(values, self._encoder)])

    def _check(self, rows: pa.RecordBatch, removes: pa.BooleanArray | None) -> None:
        keys = set(self._keys)
        named = [(i, rows.schema.names[i]) for i in self._keys]
        for place, name in {*named, *self._required}:
            column = rows.column(place)
            if not column.null_count:
                continue
            wrong = column.is_null()
            if removes is not None and place not in keys:
                wrong = pc.and_not(wrong, removes)
            row = wrong.index(True).as_py()
            if row >= 0:
                raise DataError(
                    f"column '{name}' is {'in the key' if place in keys else 'NOT NULL'}, but the row has a NULL",
                    row=row,
                )
