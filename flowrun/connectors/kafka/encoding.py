"""Rows become messages: key, value and what else a message has, encoded by batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.format import ChangeEncoder, RecordEncoder
from flowrun.connectors.kafka.layout import MessageLayout
from flowrun.connectors.newest_rows import key_numbers
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, removals
from flowrun.core.provided import provides
from flowrun.core.schema import Schema
from flowrun.core.types import BYTES, STRING, DataType, map_of, timestamp_ltz
from flowrun.errors import DataError

MESSAGES = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.int64()),
        ("headers", pa.map_(pa.string(), pa.binary())),
    ]
)
"""Encoded messages. NULL: the sink's topic; the client chooses the partition; no key; no value (a tombstone); now; no headers."""

WRITABLE: tuple[tuple[str, DataType], ...] = (
    ("topic", STRING),
    ("timestamp", timestamp_ltz(3)),
    ("headers", map_of(STRING, BYTES)),
)
"""What a row can say of its message, with the keys and types of Apache Flink."""


class MessageEncoder:
    """Encodes rows, in one thread.

    Args:
        schema: the columns of the rows.
        metadata: those of them that say something of the message, each with its key in `WRITABLE`.
        layout: where the others go.
        topics: that rows may name, if they name their topics.
        pattern: instead: what matches the whole names of those that they may name.
        upsert: rows are upserts by the message's key: a deleted row is a message without value.
    """

    def __init__(
        self,
        schema: Schema,
        metadata: Mapping[str, str],
        layout: MessageLayout,
        topics: tuple[str, ...],
        pattern: str | None = None,
        *,
        upsert: bool = False,
    ) -> None:
        self._upsert = upsert
        self._topics = topics
        self._pattern = None if pattern is None else re.compile(pattern)
        self._value: RecordEncoder = layout.value.format.create_encoder(layout.value.columns, layout.value.options)
        self._value_columns = list(layout.value.columns.names)
        key = layout.key
        self._key: RecordEncoder | None = None
        self._key_columns: list[str] = []
        if key is not None:
            self._key = key.format.create_encoder(key.stored(key.columns), key.options)
            self._key_columns = list(key.columns.names)
            self._stored_keys = list(key.stored(key.columns).names)
        self._metadata = {key: name for name, key in metadata.items()}
        self._keyed = [schema.index(n) for n in self._key_columns]
        self._required = [f.name for f in schema if not f.nullable]

    def encode(self, batch: RecordBatch) -> pa.RecordBatch:
        """One message a row, with the columns of `MESSAGES`; of upserts the last one of each key.

        Raises:
            DataError: a row cannot be written.
        """
        rows, kinds = batch.columns, batch.row_kinds
        if self._upsert:
            last = last_of_each_key(rows, self._keyed)
            if len(last) < rows.num_rows:
                places = pa.array(last)
                rows, kinds = rows.take(places), None if kinds is None else kinds.take(places)
        removes = None if kinds is None else removals(kinds)
        self._check(rows, removes)
        count = rows.num_rows
        found: dict[str, pa.Array] = {f.name: pa.nulls(count, f.type) for f in MESSAGES}
        found["value"] = self._values(rows, kinds, removes)
        if self._key is not None:
            columns = rows.select(self._key_columns).rename_columns(self._stored_keys)
            found["key"] = _binary(self._key.encode_messages(columns))
        for key, name in self._metadata.items():
            found[key] = self._of_message(key, rows.column(name))
        return pa.RecordBatch.from_arrays([found[f.name] for f in MESSAGES], schema=MESSAGES)

    def _values(self, rows: pa.RecordBatch, kinds: pa.Int8Array | None, removes: Bools | None) -> pa.Array:
        columns = rows.select(self._value_columns)
        if self._upsert:
            values = _binary(self._value.encode_messages(columns))
            if removes is None or not removes.any():
                return values
            return pc.if_else(pa.array(removes), pa.scalar(None, pa.binary()), values)
        if provides(self._value, ChangeEncoder):
            changes = pa.array(np.zeros(rows.num_rows, np.int8)) if kinds is None else kinds
            return _binary(self._value.encode_change_messages(columns, changes))
        return _binary(self._value.encode_messages(columns))

    def _of_message(self, key: str, column: pa.Array) -> pa.Array:
        if key == "timestamp":
            return _times(column)
        if key == "topic":
            self._check_topics(column)
        return column.cast(MESSAGES.field(key).type)

    def _check_topics(self, column: pa.StringArray) -> None:
        if self._pattern is None:
            known, expected = pc.is_in(column, pa.array(self._topics)), f"one of {', '.join(self._topics)}"
        else:
            names = column.dictionary_encode()
            matching = [name for name in names.dictionary.to_pylist() if self._pattern.fullmatch(name)]
            known, expected = pc.is_in(column, pa.array(matching, pa.string())), f"matched by '{self._pattern.pattern}'"
        known = pc.if_else(column.is_valid(), known, len(self._topics) == 1)
        row = known.index(False).as_py()
        if row >= 0:
            name = column[row].as_py()
            raise DataError(
                "the row names no topic" if name is None else f"the row names topic '{name}', which is not {expected}",
                row=row,
            )

    def _check(self, rows: pa.RecordBatch, removes: Bools | None) -> None:
        for name in self._required:
            column = rows.column(name)
            if column.null_count:
                wrong = column.is_null().to_numpy(zero_copy_only=False)
                if removes is not None and self._upsert and name not in self._key_columns:
                    wrong = wrong & ~removes
                if wrong.any():
                    raise DataError(f"column '{name}' is NOT NULL, but the row has a NULL", row=int(np.argmax(wrong)))


def _times(column: pa.TimestampArray) -> pa.Int64Array:
    """The times of messages in ms. To the client library 0 means now, and to Kafka -1 means that there is none."""
    times = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    row = pc.fill_null(pc.less_equal(times, 0), False).index(True).as_py()
    if row >= 0:
        raise DataError(
            f"the time of a message must be later than 1970-01-01 00:00:00 UTC, but the row says {column[row].as_py()}",
            row=row,
        )
    return times


def last_of_each_key(rows: pa.RecordBatch, keys: list[int]) -> Integers:
    """Ascending positions of the last row of each key.

    >>> last_of_each_key(pa.record_batch({"k": [1, 2, 1]}), [0]).tolist()
    [1, 2]
    """
    numbers = key_numbers(rows.columns, keys)
    last = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    last[numbers] = np.arange(len(numbers))  # if a key occurs several times, the last assignment counts
    return cast(Integers, np.sort(last))


def _binary(payloads: pa.Array) -> pa.Array:
    return payloads if pa.types.is_binary(payloads.type) else payloads.cast(pa.binary())
