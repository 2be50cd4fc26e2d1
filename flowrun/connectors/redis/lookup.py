"""Looks up values by their names: one round trip for all keys of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.connector import TableDefinition
from flowrun.api.format import ReadRequest, RecordDecoder, messages_chunk
from flowrun.api.lookup import FoundRows, Lookup, LookupContext
from flowrun.connectors.formats.text_values import parse_text
from flowrun.connectors.redis.commands import command, commands_of
from flowrun.connectors.redis.layout import RedisLayout, RedisType, layout_of
from flowrun.connectors.redis.server import RedisConnection, RedisServer, server_of
from flowrun.core.arrays import Integers
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError, DataError, OptionError


@record(slots=False)
class RedisLookupSource:
    """Strings or hashes that are asked for by name.

    Attributes:
        server: to ask.
        layout: how the table's rows are stored.
        schema: the columns of the rows that are found.
        keys: the columns that are asked by.
        skips_bad: whether a value that is no row of the table counts as not there.
    """

    server: RedisServer
    layout: RedisLayout
    schema: Schema
    keys: Schema
    skips_bad: bool

    def create_lookup(self, context: LookupContext) -> Lookup:
        """The lookup of one subtask, with a connection of its own."""
        return RedisLookup(self, context)


class RedisLookup:
    """One connection that asks. After a failure it is made anew at the next question."""

    def __init__(self, source: RedisLookupSource, context: LookupContext) -> None:
        self._source = source
        self._bad = context.metrics.counter("numRecordsInErrors")
        self._connection: RedisConnection | None = None
        layout = source.layout
        self._wanted = layout.values.select(n for n in layout.values.names if n in source.schema.names)
        self._order = [source.keys.names.index(n) for n in layout.keys.names]
        used = layout.record_format
        self._decoder: RecordDecoder | None = None
        if used is not None:
            self._decoder = used.create_decoder(ReadRequest(self._wanted, layout.values, layout.options))

    def open(self) -> None:
        """Connect; raises ConnectorError."""
        self._connection = self._source.server.connect()

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """The values with these names.

        Raises:
            ConnectorError: the server does not answer, or a value is of another type; the next call connects anew.
            DataError: a value is no row of the table.
        """
        if self._connection is None:
            self._connection = self._source.server.connect()
        names = self._source.layout.names([keys.column(i) for i in self._order])
        asked = np.flatnonzero(names.is_valid().to_numpy(zero_copy_only=False))
        try:
            probe, columns = self._found(self._connection, names.take(pa.array(asked)), asked)
        except ConnectorError:
            self.close()
            raise
        own = {
            n: keys.column(i).take(pa.array(probe))
            for n, i in zip(self._source.layout.keys.names, self._order, strict=True)
        }
        arrays = [own[f.name] if f.name in own else columns[f.name] for f in self._source.schema]
        return FoundRows(pa.RecordBatch.from_arrays(arrays, schema=self._source.schema.arrow), probe)

    def _found(
        self, connection: RedisConnection, names: pa.Array, asked: Integers
    ) -> tuple[Integers, dict[str, pa.Array]]:
        """For each row that was found the position of its key, and its columns by name."""
        if not len(names):
            return np.zeros(0, np.int64), {f.name: pa.array([], f.type.arrow) for f in self._wanted}
        if self._source.layout.type is RedisType.HASH:
            return self._hashes(connection, names, asked)
        (answers,) = connection.run([command(b"MGET", *names.to_pylist())], 1, "look up rows")
        payloads = pa.array(answers, pa.binary())
        there = np.flatnonzero(payloads.is_valid().to_numpy(zero_copy_only=False))
        payloads, asked = payloads.take(pa.array(there)), asked[there]
        if self._decoder is None:
            field = self._source.layout.values.fields[0]
            return asked, {field.name: self._typed(payloads, field.type, names, there)}
        decoded = self._decoder.decode(messages_chunk(payloads))
        for bad in decoded.bad:
            self._reject(names[int(there[bad.index])].as_py(), bad.reason)
        return asked[decoded.records], dict(zip(self._wanted.names, decoded.columns.columns, strict=True))

    def _hashes(
        self, connection: RedisConnection, names: pa.Array, asked: Integers
    ) -> tuple[Integers, dict[str, pa.Array]]:
        fields = [f.name.encode() for f in self._wanted] or [b""]
        read = pc.binary_join_element_wise(
            commands_of([b"EXISTS", names]), commands_of([b"HMGET", names, *fields]), pa.scalar(b"", pa.binary())
        )
        answers = connection.run([b"".join(read.to_pylist())], 2 * len(names), "look up rows")
        there = np.flatnonzero(np.array(answers[0::2], dtype=np.int64))
        rows = [answers[2 * i + 1] for i in there]
        columns = {}
        for place, field in enumerate(self._wanted):
            texts = pa.array([row[place] for row in rows], pa.binary())
            columns[field.name] = self._typed(texts, field.type, names, there)
        return asked[there], columns

    def _typed(self, values: pa.Array, kind: Any, names: pa.Array, there: Integers) -> pa.Array:
        if kind.is_binary:
            return values
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise DataError(f"a value on {self._source.server} is no text: {error}") from error
        parsed = parse_text(texts, kind)
        for row, reason in parsed.bad.items():
            self._reject(names[int(there[row])].as_py(), reason)
        return parsed.values.cast(kind.arrow)

    def _reject(self, name: bytes, reason: str) -> None:
        if not self._source.skips_bad:
            raise DataError(
                f"the value '{name.decode(errors='replace')}' on {self._source.server} is no row of the table: {reason}",
                hint="mend it, or set 'format.on-error' = 'skip' to take such values for NULL or for not there",
            )
        self._bad.inc(1)

    def close(self) -> None:
        """Disconnect; idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def create_lookup(table: TableDefinition, keys: tuple[str, ...]) -> RedisLookupSource:
    """The lookup of a table definition.

    Raises:
        OptionError: an option is wrong, or the table is asked by other columns than those of its key.
    """
    declared = table.declared or table.schema
    own = table.primary_key or keys
    if set(own) != set(keys):
        raise OptionError(
            "type",
            f"'{table.name}' is asked by {', '.join(keys)}, but its values are named by its PRIMARY KEY ({', '.join(own)})",
            hint="join by all columns of the PRIMARY KEY and by no other",
        )
    layout = layout_of(table, own, declared)
    if not layout.type.is_keyed:
        raise OptionError(
            "type", f"rows of a {layout.type.value} cannot be found by key", hint="use 'string' or 'hash'"
        )
    skips = table.options.get("format.on-error") == "skip"
    return RedisLookupSource(server_of(table.options), layout, table.schema, declared.select(keys), skips)
