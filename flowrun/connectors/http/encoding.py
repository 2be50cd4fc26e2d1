"""Rows of a sink as what requests are made of: URL, payload, and the lane that keeps their order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.format import ChangeEncoder, RecordEncoder, RefusingEncoder
from flowrun.connectors.http.lanes import ANY_LANE
from flowrun.connectors.http.layout import BodyMode, DeleteMode, SinkLayout
from flowrun.connectors.newest_rows import content_hashes, key_numbers
from flowrun.core.arrays import Bools
from flowrun.core.elements import RecordBatch, RowKind, removals
from flowrun.core.provided import provides
from flowrun.errors import DataError

_COLUMNS = [("url", pa.string()), ("payload", pa.binary()), ("lane", pa.int32())]
"""NULL: the URL is the same for all rows; the row is deleted."""


class RowEncoder:
    """Makes rows of `schema` (`url`, `payload`, `lane`) of rows of the table. Its metadata tells the shape of requests.

    Args:
        layout: of the table.
    """

    def __init__(self, layout: SinkLayout) -> None:
        self._layout = layout
        self.schema = pa.schema(_COLUMNS, metadata=layout.shape.to_metadata())
        columns = layout.columns
        self._encoder: RecordEncoder = layout.record_format.create_encoder(columns, layout.options)
        self._keys = [columns.index(n) for n in layout.keys]
        self._required = [(columns.index(f.name), f.name) for f in columns if not f.nullable or f.name in layout.keys]
        self._in_url = [columns.index(n) for n in layout.url.columns]
        self._url_types = [columns.types[i] for i in self._in_url]
        self._upserts = bool(layout.keys) and not layout.record_format.changelog

    def encode(self, batch: RecordBatch) -> pa.RecordBatch:
        """What requests are made of, for each row that needs one, in order.

        Raises:
            DataError: a row cannot be written, is deleted where that has no meaning, or its URL would name something else.
        """
        rows, kinds = batch.columns, batch.row_kinds
        removes: Bools | None = None
        if self._upserts and kinds is not None:
            rows, removes = self._upserted(rows, kinds)
            kinds = None
        self._check(rows, removes)
        payloads = self._payloads(rows, kinds)
        if removes is not None and removes.any():
            payloads = pc.if_else(pa.array(removes), pa.scalar(None, pa.binary()), payloads)
        if self._in_url:
            urls = self._layout.url.urls([rows.column(i) for i in self._in_url], self._url_types)
        else:
            urls = pa.nulls(rows.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([urls, payloads, self._lanes(rows)], schema=self.schema)

    def _upserted(self, rows: pa.RecordBatch, kinds: pa.Int8Array) -> tuple[pa.RecordBatch, Bools]:
        """Rows without those that are only taken back because another of the same key follows, and which of them are deleted."""
        removes = removals(kinds)
        if not removes.any():
            return rows, removes
        numbers = key_numbers(rows.columns, self._keys)
        last = np.zeros(int(numbers.max()) + 1, np.int64)
        last[numbers] = np.arange(len(numbers))  # if a key occurs several times, the last assignment counts
        before = kinds.to_numpy(zero_copy_only=False) == RowKind.UPDATE_BEFORE
        dropped = before & (last[numbers] > np.arange(len(numbers)))
        if self._layout.deletes is DeleteMode.IGNORE:
            dropped |= removes
        elif self._layout.deletes is DeleteMode.FAIL and (removes & ~dropped).any():
            raise DataError(
                "the row is deleted, but the table says nothing of deleted rows",
                row=int(np.argmax(removes & ~dropped)),
                hint="'sink.delete.mode' = 'request' sends a request for it, 'ignore' leaves the row where it is",
            )
        kept = np.flatnonzero(~dropped)
        return rows.take(pa.array(kept)), removes[kept]

    def _payloads(self, rows: pa.RecordBatch, kinds: pa.Int8Array | None) -> pa.Array:
        if self._layout.shape.mode is BodyMode.LINES and provides(self._encoder, RefusingEncoder):
            self._encoder.check(rows)  # a message may hold what a line may not
        if provides(self._encoder, ChangeEncoder):
            changes = pa.array(np.zeros(rows.num_rows, np.int8)) if kinds is None else kinds
            found = self._encoder.encode_change_messages(rows, changes)
        else:
            found = self._encoder.encode_messages(rows)
        return pc.fill_null(found.cast(pa.binary()), pa.scalar(b"", pa.binary()))  # NULL is a deleted row

    def _lanes(self, rows: pa.RecordBatch) -> pa.Array:
        """A number for each key, so that rows of one key are never under way at the same time."""
        if not self._keys:
            return pa.array(np.full(rows.num_rows, ANY_LANE, np.int32))
        hashes = content_hashes([rows.column(i) for i in self._keys])
        return pa.array((hashes % np.uint64(self._layout.shape.lanes)).astype(np.int32))

    def _check(self, rows: pa.RecordBatch, removes: Bools | None) -> None:
        for place, name in self._required:
            column = rows.column(place)
            if not column.null_count:
                continue
            wrong = column.is_null().to_numpy(zero_copy_only=False)
            if removes is not None and place not in self._keys:
                wrong = wrong & ~removes
            if wrong.any():
                why = "in the PRIMARY KEY" if place in self._keys else "NOT NULL"
                raise DataError(f"column '{name}' is {why}, but the row has a NULL", row=int(np.argmax(wrong)))
