"""The common part of changelog formats on top of JSON, whose objects say which change a row is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.format import BadRecord, DecodedRecords, Offsets, ReadRequest, RecordDecoder, RecordFormat
from flowrun.connectors.formats.framing import at_any_line, framer_for_lines
from flowrun.connectors.formats.json_encoder import MAX_ENCODED_BYTES, JsonEncoder, joined_bytes
from flowrun.connectors.formats.json_format import FORMAT as JSON
from flowrun.connectors.formats.json_format import check_map_keys
from flowrun.core.arrays import Bools, Int32s, Integers, Kinds
from flowrun.core.elements import RowKind
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
"""Options that have the same meaning as those of the json format."""


@record
class Envelope:
    """The texts before and behind the object of a row, for rows that are added and for rows that are removed."""

    added: tuple[str, str]
    removed: tuple[str, str]


class EnvelopeEncoder:
    """Encodes each row as one JSON object that holds the row and its change.

    −U and −D become one kind of object, +I and +U the other: a reader gets the same table, but does not know which changes were updates.

    Args:
        rows: encodes the row itself.
        envelope: the texts that are written around it.
    """

    def __init__(self, rows: JsonEncoder, envelope: Envelope) -> None:
        self._rows = rows
        self._envelope = envelope

    def header(self) -> bytes:
        """Empty: JSON has no header."""
        return b""

    def encode(self, columns: pa.RecordBatch) -> pa.Buffer:
        """All rows as JSON lines that say that they are inserts."""
        return self.encode_changes(columns, inserts(columns.num_rows))

    def encode_messages(self, columns: pa.RecordBatch) -> pa.Array:
        """A JSON object for each row, which says that it is an insert."""
        return self.encode_change_messages(columns, inserts(columns.num_rows))

    def encode_changes(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Buffer:
        """All changes as JSON lines."""
        if columns.nbytes > MAX_ENCODED_BYTES and columns.num_rows > 1:  # a string array holds less than 2 GiB
            middle = columns.num_rows // 2
            first = self.encode_changes(columns.slice(0, middle), kinds.slice(0, middle))
            return pa.py_buffer(
                b"".join(map(memoryview, (first, self.encode_changes(columns.slice(middle), kinds.slice(middle)))))
            )
        return joined_bytes(self._wrapped(columns, kinds, "\n"))

    def encode_change_messages(self, columns: pa.RecordBatch, kinds: pa.Int8Array) -> pa.Array:
        """A JSON object for each change."""
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
    """The encoder of the rows of the format `name`, whose options have that prefix."""
    return JsonEncoder(
        schema,
        iso_timestamps=options.text(f"{name}.timestamp-format.standard") == "iso-8601",
        ignore_null_fields=options.flag(f"{name}.encode.ignore-null-fields"),
    )


def inserts(rows: int) -> pa.Int8Array:
    """The row kinds of `rows` inserts."""
    return pa.array(np.zeros(rows, np.int8))


def row_type(schema: Schema) -> DataType:
    """The ROW of a schema's columns.

    >>> from flowrun.core.types import BIGINT
    >>> str(row_type(Schema.of(id=BIGINT)))
    'ROW<id BIGINT>'
    """
    return row(*((f.name, f.type) for f in schema))


def codes_of(column: pa.Array, known: pa.Array) -> Int32s:
    """The position of each value among the known ones; −1 for NULL and for other values.

    >>> codes_of(pa.array(["d", None, "x", "c"]), pa.array(["c", "d"])).tolist()
    [1, -1, -1, 0]
    """
    codes: Int32s = pc.fill_null(pc.index_in(column, known), -1).to_numpy(zero_copy_only=False)
    return codes


@record
class ChangeRows:
    """The rows that changes become: an insert or delete is one row, an update two, the row before it and the row after it.

    Attributes:
        changes: for each row the position of its change, ascending.
        after_update: for each row whether it is the second row of an update.
        kinds: for each row its `RowKind`.
    """

    changes: Integers
    after_update: Bools
    kinds: Kinds


def change_rows(updates: Bools, deletes: Bools) -> ChangeRows:
    """The rows of changes: for each change `updates` and `deletes` say whether it is one; else it is an insert.

    >>> rows = change_rows(np.array([False, True, False]), np.array([False, False, True]))
    >>> rows.changes.tolist(), [RowKind(k).name for k in rows.kinds]
    ([0, 1, 1, 2], ['INSERT', 'UPDATE_BEFORE', 'UPDATE_AFTER', 'DELETE'])
    """
    changes = np.repeat(np.arange(len(updates)), np.where(updates, 2, 1))
    after_update = np.zeros(len(changes), np.bool_)
    after_update[1:] = changes[1:] == changes[:-1]
    kinds = np.full(len(changes), RowKind.INSERT, np.int8)
    kinds[deletes[changes]] = RowKind.DELETE
    kinds[updates[changes]] = RowKind.UPDATE_BEFORE
    kinds[after_update] = RowKind.UPDATE_AFTER
    return ChangeRows(changes, after_update, kinds)


@record
class Changes:
    """Decoded changes: the rows of two struct arrays, and which of them come out in which order.

    Attributes:
        before: the rows as they were before their changes.
        after: the rows as they are after their changes.
        from_after: for each row that comes out whether it is one of `after`; else it is one of `before`.
        positions: for each row that comes out its position in that array.
        kinds: for each row that comes out its `RowKind`.
        records: for each row that comes out the index of its record, ascending.
    """

    before: pa.StructArray
    after: pa.StructArray
    from_after: Bools
    positions: Integers
    kinds: Kinds
    records: Offsets

    def rows(self, schema: Schema, extra: Sequence[pa.Array], bad: Sequence[BadRecord]) -> DecodedRecords:
        """The rows that come out, with the columns of `schema`. Its last columns are `extra`, which have a value for each of these rows."""
        positions = pa.array(self.positions)
        if self.from_after.all():
            arrays = [c.take(positions) for c in self.after.flatten()]
        else:
            shifted = pa.array(self.positions + np.where(self.from_after, len(self.before), 0))
            pairs = zip(self.before.flatten(), self.after.flatten(), strict=True)
            arrays = [pa.concat_arrays(pair).take(shifted) for pair in pairs]
        columns = (
            pa.RecordBatch.from_arrays([*arrays, *extra], schema=schema.arrow)
            if schema.fields
            else pa.RecordBatch.from_struct_array(pa.array([{}] * len(self.positions), pa.struct([])))
        )
        kinds = pa.array(self.kinds) if self.kinds.any() else None
        return DecodedRecords(columns, self.records, tuple(sorted(bad, key=lambda b: b.index)), kinds)


def check_columns(schema: Schema) -> None:
    """Check that JSON can hold the columns.

    Raises:
        OptionError: the keys of a MAP cannot be names of fields.
    """
    for field in schema:
        check_map_keys(field.name, field.type)


def change_format(
    name: str,
    summary: str,
    *,
    options: tuple[Option, ...],
    check: Callable[[Schema, Options], None],
    create_decoder: Callable[[ReadRequest], RecordDecoder],
    create_encoder: Callable[[Schema, Options], EnvelopeEncoder],
    upserts: Callable[[Options], bool] | None = None,
) -> RecordFormat:
    """A changelog format on top of JSON; the arguments are those of `RecordFormat`."""
    return RecordFormat(
        name=name,
        summary=summary,
        extension="json",
        options=(*SHARED_OPTIONS, *options),
        check=check,
        create_decoder=create_decoder,
        create_encoder=create_encoder,
        create_framer=framer_for_lines,
        splittable=at_any_line,
        changelog=True,
        upserts=upserts,
    )
