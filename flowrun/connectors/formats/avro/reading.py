"""Decodes records of one writer's schema to rows of a table, all records of a chunk at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.format import BadRecord, DecodedRecords, RecordChunk
from flowrun.connectors.formats.avro.columns import MisfitError, read_record, record_steps
from flowrun.connectors.formats.avro.lanes import Lanes, Source
from flowrun.connectors.formats.avro.schema import AvroType, Kind
from flowrun.connectors.formats.records import batch_of, concat_decoded
from flowrun.core.arrays import Integers
from flowrun.core.schema import Schema

_PIECE_BYTES = 1 << 28
"""Chunks of more bytes are decoded in pieces: places in the data are 32-bit numbers."""
_PIECE_RECORDS = 1 << 14
"""How many records are decoded at a time: so many that the numbers of a column stay in the cache of a core."""


class AvroReader:
    """Decodes records that were written with one schema.

    Args:
        writer: that schema, a record or a union of null and a record.
        schema: the columns of the rows. A column that the writer's schema has no field for is NULL.

    Raises:
        MisfitError: a field does not fit its column.
    """

    def __init__(self, writer: AvroType, schema: Schema) -> None:
        self._schema = schema
        self._branches: tuple[AvroType, ...] | None = None
        if writer.kind is Kind.UNION:
            self._branches = writer.children
            writer = next((b for b in writer.children if b.kind is Kind.RECORD), writer)
        if writer.kind is not Kind.RECORD:
            raise MisfitError(f"the writer's schema is a {writer.text}, expected a record")
        self._writer = writer
        self._steps = record_steps(writer, schema.names, schema.types)

    def read(self, chunk: RecordChunk, skipped: int = 0, *, whole: bool = True) -> DecodedRecords:
        """The rows of a chunk.

        Args:
            chunk: the records.
            skipped: how many bytes stand before the Avro data of each record, which has at least so many.
            whole: whether each record must end where the data of the row ends.
        """
        pieces: list[tuple[int, DecodedRecords]] = []
        first = 0
        while first < len(chunk) or not pieces:
            stop = min(first + _PIECE_RECORDS, len(chunk))
            if stop > first + 1 and int(chunk.stops[stop - 1] - chunk.starts[first]) > _PIECE_BYTES:
                room = int(chunk.starts[first]) + _PIECE_BYTES
                stop = max(first + 1, int(np.searchsorted(chunk.stops[:stop], room, side="right")))
            pieces.append((first, self._piece(chunk.slice(first, stop), skipped, whole)))
            first = stop
        return concat_decoded(pieces, self._schema)

    def _piece(self, chunk: RecordChunk, skipped: int, whole: bool) -> DecodedRecords:
        rows = len(chunk)
        if not rows:
            return DecodedRecords(batch_of([], self._schema, 0), np.empty(0, np.int64))
        begin, end = int(chunk.starts[0]), int(chunk.stops[-1])
        source = Source(chunk.data.slice(begin, end - begin))
        records = np.arange(rows)
        lanes = Lanes(source, chunk.starts - begin + skipped, chunk.stops - begin, records)
        if self._branches is not None:
            self._to_the_record(lanes, self._branches)
        columns = read_record(lanes, self._steps, self._schema.types)
        left = lanes.stop - lanes.position
        if whole and (left > 0).any():
            lanes.fail(
                left > 0, lambda lane: f"{left[lane]} bytes are left behind the row: it was written with another schema"
            )
        batch = batch_of(columns, self._schema, rows)
        if not source.failures:
            return DecodedRecords(batch, records)
        good = np.ones(rows, np.bool_)
        good[list(source.failures)] = False
        bad = tuple(BadRecord(i, source.failures[i]) for i in sorted(source.failures))
        return DecodedRecords(batch.filter(pa.array(good)), records[good], bad)

    def _to_the_record(self, lanes: Lanes, branches: tuple[AvroType, ...]) -> None:
        """Go behind the number of the branch of the union that each record is; it must be that of the record."""
        found: Integers = lanes.long()
        wanted = branches.index(self._writer)
        lanes.fail(found != wanted, "the union is null or of another type, expected a record")
