"""Messages become rows: the value's columns, those of the key, and metadata, decoded by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.connector import PushedFilter
from flowrun.api.format import BadRecord, DecodedRecords, ReadRequest, RecordChunk, RecordDecoder, lines_chunk
from flowrun.connectors.formats.records import batch_of, reject_nulls
from flowrun.connectors.kafka.layout import MessageLayout, RecordLayout
from flowrun.connectors.kafka.messages import Messages
from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema


@record
class BadMessage:
    """A message that is no row.

    Attributes:
        offset: of the message.
        reason: why it is none.
        raw: the bytes that cannot be read: its value, or its key.
        value: None if it has none; so is the key.
        timestamp_ms: ms since 1970; None if it has none.
        headers: names and values, in order.
    """

    offset: int
    reason: str
    raw: bytes
    value: bytes | None = None
    key: bytes | None = None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@record(eq=False)
class DecodedMessages:
    """What messages of one partition decoded to.

    Attributes:
        rows: the good rows, in the order of the messages.
        offsets: of each row the offset of its message, ascending.
        bad: messages that are no rows, ascending.
        next_offset: the offset behind all of the messages.
        tombstones: how many messages have no value, and therefore no row.
    """

    rows: RecordBatch
    offsets: Integers
    bad: tuple[BadMessage, ...]
    next_offset: int
    tombstones: int = 0


class MessageDecoder:
    """Decodes messages, in one thread.

    Args:
        schema: the columns of the rows.
        metadata: those of them that are metadata, each with its key.
        layout: where the others are.
        filters: hints for reading less.
        upsert: messages are upserts by key: one without a value deletes the row of its key. Else it is no row, unless the format says so.
    """

    def __init__(
        self,
        schema: Schema,
        metadata: Mapping[str, str],
        layout: MessageLayout,
        filters: tuple[PushedFilter, ...] = (),
        *,
        upsert: bool = False,
    ) -> None:
        self._schema = schema
        self._metadata = metadata
        self._upsert = upsert
        in_value = [n for n in schema.names if n in layout.value.columns]
        # A key is decoded if a column is nowhere else, or if rows may come of keys alone.
        key = layout.key
        from_key = (
            [] if key is None else [n for n in schema.names if n in key.columns and (upsert or n not in in_value)]
        )
        self._null_is_row = upsert or layout.value.format.null_is_no_message
        self._value_columns = schema.select(in_value)
        hints = () if upsert else tuple(f for f in filters if f.column in in_value)
        self._value = _decoder(layout.value, self._value_columns, hints)
        self._key_columns = schema.select(from_key)
        self._key = _decoder(key, self._key_columns, ()) if key is not None and from_key else None

    def decode(self, messages: Messages) -> DecodedMessages:
        """The rows of messages. Never raises because of the data."""
        values = messages.values()
        chunk, present = _chunk(values)
        missing = len(messages) - len(present)
        decoded = self._value.decode(chunk)
        bad = {int(present[b.index]): (b.reason, chunk.record(b.index)) for b in decoded.bad}
        at = present[decoded.records]
        columns = {n: decoded.columns.column(i) for i, n in enumerate(self._value_columns.names)}
        kinds = decoded.kinds
        gone = np.zeros(len(at), np.bool_)
        if missing and self._null_is_row:
            at, columns, gone = _with_missing(at, columns, np.setdiff1d(np.arange(len(messages)), present))
        if self._upsert:
            kinds = pa.array(np.where(gone, np.int8(RowKind.DELETE), np.int8(RowKind.UPDATE_AFTER)))
        if self._key is not None:
            at, columns, kinds = self._with_key(messages, at, columns, kinds, bad)
        for name, key in self._metadata.items():
            if name in self._schema:
                columns[name] = messages.metadata(key).take(pa.array(at))
        rows = batch_of([columns[n] for n in self._schema.names], self._schema, len(at))
        found = tuple(BadRecord(i, reason) for i, (reason, _) in sorted(bad.items()))
        whole = reject_nulls(DecodedRecords(rows, at, found, kinds), self._schema, upserts=self._upsert)
        return DecodedMessages(
            RecordBatch(whole.columns, row_kinds=whole.kinds),
            messages.offsets[whole.records],
            tuple(self._bad(messages, b, bad) for b in whole.bad),
            int(messages.offsets[-1]) + 1,
            0 if self._null_is_row else missing,
        )

    def _with_key(
        self,
        messages: Messages,
        at: Integers,
        columns: dict[str, pa.Array],
        kinds: pa.Int8Array | None,
        bad: dict[int, tuple[str, bytes]],
    ) -> tuple[Integers, dict[str, pa.Array], pa.Int8Array | None]:
        """The rows with the columns of the key. Where the value has a column of the key, too, the value's counts, but not of deletions."""
        chunk, present = _chunk(messages.keys())
        assert self._key is not None
        decoded = self._key.decode(chunk)
        for record_ in decoded.bad:
            bad.setdefault(int(present[record_.index]), (f"key: {record_.reason}", chunk.record(record_.index)))
        row_of = np.full(len(messages), -1, np.int64)
        row_of[present[decoded.records]] = np.arange(len(decoded.records))
        if self._upsert and len(decoded.records) < len(messages):
            for i in np.flatnonzero(row_of < 0).tolist():
                bad.setdefault(i, ("the message has no key, which upserts need", messages.messages[i].value() or b""))
        good = np.ones(len(messages), np.bool_)
        good[list(bad)] = False
        keep = good[at]
        if not keep.all():
            mask = pa.array(keep)
            at, columns = at[keep], {n: c.filter(mask) for n, c in columns.items()}
            kinds = None if kinds is None else kinds.filter(mask)
        rows = row_of[at]
        places = pa.array(rows, mask=rows < 0)
        of_key = {n: decoded.columns.column(i).take(places) for i, n in enumerate(self._key_columns.names)}
        if not self._upsert:
            return at, {**of_key, **columns}, kinds
        return at, {**columns, **{n: _first_valid(columns.get(n), c) for n, c in of_key.items()}}, kinds

    def _bad(self, messages: Messages, found: BadRecord, reasons: Mapping[int, tuple[str, bytes]]) -> BadMessage:
        message = messages.messages[found.index]
        _, raw = reasons.get(found.index, ("", None))
        value = message.value()
        kind, time = message.timestamp()
        return BadMessage(
            int(messages.offsets[found.index]),
            found.reason,
            (value or b"") if raw is None else raw,
            value,
            message.key(),
            None if kind == 0 else time,
            tuple(message.headers() or ()),
        )


def _with_missing(
    at: Integers, columns: dict[str, pa.Array], missing: Integers
) -> tuple[Integers, dict[str, pa.Array], Bools]:
    """The rows with one more for each message without a value (`missing`), whose columns are NULL, and which rows these are."""
    every = np.concatenate([at, missing])
    order = np.argsort(every, kind="stable")
    added: Bools = order >= len(at)
    places = pa.array(order, mask=added)  # of these there is nothing to take
    return every[order], {n: c.take(places) for n, c in columns.items()}, added


def _chunk(records: Sequence[bytes | None]) -> tuple[RecordChunk, Integers]:
    """The records that are there, one a line as decoders like them best, and their positions."""
    if None not in records:
        return lines_chunk(cast(Sequence[bytes], records)), np.arange(len(records))
    present = [i for i, record in enumerate(records) if record is not None]
    return lines_chunk([records[i] or b"" for i in present]), np.array(present, np.int64)


def _first_valid(value: pa.Array | None, key: pa.Array) -> pa.Array:
    return key if value is None else pc.coalesce(value, key)


def _decoder(layout: RecordLayout, columns: Schema, filters: tuple[PushedFilter, ...]) -> RecordDecoder:
    request = ReadRequest(layout.stored(columns), layout.stored(layout.columns), layout.options, filters)
    return layout.format.create_decoder(request)
