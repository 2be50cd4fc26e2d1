"""JSON objects that say which change a row is: what the changelog formats on top of JSON have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowrun.api.format import BadRecord, DecodedRecords, Offsets
from flowrun.connectors.formats.json_encoder import MAX_ENCODED_BYTES, JsonEncoder, joined_bytes
from flowrun.connectors.formats.json_format import FORMAT as JSON
from flowrun.core.options import Option, Options
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, row

_SHARED = (
    "ignore-parse-errors",
    "timestamp-format.standard",
    "encode.ignore-null-fields",
    "encode.decimal-as-plain-number",
    "map-null-key.mode",
    "map-null-key.literal",
    "decode.json-parser.enabled",
)
SHARED_OPTIONS: tuple[Option, ...] = tuple(o for o in JSON.options if o.name in _SHARED)
"""Options that mean the same as those of the json format."""


@record
class Envelope:
    """The text around the object of a row: before and behind it, for rows that are added and for rows that are removed."""

    added: tuple[str, str]
    removed: tuple[str, str]


class EnvelopeEncoder:
    """Encodes each row as one JSON object that holds the row and its change.

    −U and −D become one kind of object, +I and +U the other: who reads them back sees the same table, though not which changes were
    updates.

    Args:
        rows: encodes the row itself.
        envelope: what is written around it.
    """

    def __init__(self, rows: JsonEncoder, envelope: Envelope) -> None:
        self._rows = rows
        self._envelope = envelope

    def header(self) -> bytes:
        """Nothing."""
        return b""

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """JSON lines of inserts."""
        return self.encode_changes(columns, inserts(columns.num_rows))

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """One JSON object an insert."""
        return self.encode_change_messages(columns, inserts(columns.num_rows))

    def encode_changes(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Buffer:
        """JSON lines."""
        if columns.nbytes > MAX_ENCODED_BYTES and columns.num_rows > 1:  # a string array holds less than 2 GiB
            middle = columns.num_rows // 2
            first = self.encode_changes(columns.slice(0, middle), kinds.slice(0, middle))
            return pa.py_buffer(
                b"".join(map(memoryview, (first, self.encode_changes(columns.slice(middle), kinds.slice(middle)))))
            )
        return joined_bytes(self._wrapped(columns, kinds, "\n"))

    def encode_change_messages(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Array:
        """One JSON object a change."""
        return self._wrapped(columns, kinds, "")

    def _wrapped(self, columns: pa.RecordBatch, kinds: pa.Int8Array, end: str) -> pa.Array:
        added, removed = self._envelope.added, self._envelope.removed
        remove = kinds.to_numpy(zero_copy_only=False) & 1
        if not remove.any():
            return self._rows.encode_messages(columns, added[0], added[1] + end)
        side = pa.array(remove)
        before = pa.array([added[0], removed[0]]).take(side)
        behind = pa.array([added[1] + end, removed[1] + end]).take(side)
        return self._rows.encode_messages(columns, before, behind)


def json_encoder(schema: Schema, options: Options, name: str) -> JsonEncoder:
    """The encoder of rows, with the options under the prefix `name`."""
    return JsonEncoder(
        schema,
        iso_timestamps=options.text(f"{name}.timestamp-format.standard") == "iso-8601",
        ignore_null_fields=options.flag(f"{name}.encode.ignore-null-fields"),
    )


def inserts(rows: int) -> pa.Int8Array:
    """Row kinds of `rows` inserts."""
    return pa.array(np.zeros(rows, np.int8))


def row_type(schema: Schema) -> DataType:
    """The ROW of a schema's columns.

    >>> from flowrun.core.types import BIGINT
    >>> str(row_type(Schema.of(id=BIGINT)))
    'ROW<id BIGINT>'
    """
    return row(*((f.name, f.type) for f in schema))


@record
class Changes:
    """Decoded changes: rows in two struct arrays, and for each row that comes out where it is.

    Attributes:
        before: rows as they were.
        after: rows as they are.
        from_after: whether a row that comes out is one of `after`.
        places: its position there.
        kinds: its `RowKind`.
        records: index of its record, ascending.
    """

    before: pa.StructArray
    after: pa.StructArray
    from_after: npt.NDArray[np.bool_]
    places: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.int8]
    records: Offsets

    def rows(self, schema: Schema, extra: Sequence[pa.Array], bad: Sequence[BadRecord]) -> DecodedRecords:
        """The rows with the columns of `schema`, of which the last are `extra` (one value a row that comes out)."""
        places = pa.array(self.places)
        if self.from_after.all():
            arrays = [c.take(places) for c in self.after.flatten()]
        else:
            shifted = pa.array(self.places + np.where(self.from_after, len(self.before), 0))
            pairs = zip(self.before.flatten(), self.after.flatten(), strict=True)
            arrays = [pa.concat_arrays(pair).take(shifted) for pair in pairs]
        columns = (
            pa.RecordBatch.from_arrays([*arrays, *extra], schema=schema.arrow)
            if schema.fields
            else pa.RecordBatch.from_struct_array(pa.array([{}] * len(self.places), pa.struct([])))
        )
        kinds = pa.array(self.kinds) if self.kinds.any() else None
        return DecodedRecords(columns, self.records, tuple(sorted(bad, key=lambda b: b.index)), kinds)
