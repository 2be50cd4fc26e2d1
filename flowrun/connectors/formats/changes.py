"""What changelog formats decode changes to: the rows of each change, as they were before it and as they are after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.format import BadRecord, DecodedRecords, Offsets
from flowrun.core.arrays import Bools, Int32s, Integers, Kinds
from flowrun.core.elements import RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.types import DataType, row


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


@record
class ImageOperations:
    """The operations of events that hold the row before a change and the row after it.

    Attributes:
        event: what such an event is called in messages.
        field: the field that says which operation it is.
        inserts: the values of that field for rows that are added.
        update: its value for updates.
        delete: its value for deletes.
        hint: what to do if events come without the row before.
    """

    event: str
    field: str
    inserts: tuple[str, ...]
    update: str
    delete: str
    hint: str

    def rows(
        self,
        schema: Schema,
        decoded: DecodedRecords,
        before: pa.StructArray,
        after: pa.StructArray,
        operation: pa.Array,
        *,
        upserts: bool = False,
    ) -> DecodedRecords:
        """The rows of events.

        Args:
            schema: the columns of the rows.
            decoded: the events.
            before: for each event the row before the change, or NULL.
            after: for each event the row after the change, or NULL.
            operation: for each event the value of the field that says which operation it is.
            upserts: whether changes are upserts: an update is one row, and the row before it need not be there.
        """
        codes = codes_of(operation, pa.array([*self.inserts, self.update, self.delete]))
        update, delete = len(self.inserts), len(self.inserts) + 1
        needs_before = codes == delete if upserts else codes >= update
        no_before = before.is_null().to_numpy(zero_copy_only=False) & needs_before
        no_after = after.is_null().to_numpy(zero_copy_only=False) & (codes <= update)
        wrong = no_before | no_after | (codes < 0)
        bad = list(decoded.bad)
        bad += (
            BadRecord(int(decoded.records[i]), self._what_is_wrong(operation[i].as_py(), bool(no_before[i])))
            for i in np.flatnonzero(wrong).tolist()
        )
        good = np.flatnonzero(~wrong)
        codes = codes[good]
        if upserts:
            kinds = np.full(len(codes), RowKind.INSERT, np.int8)
            kinds[codes == update] = RowKind.UPDATE_AFTER
            kinds[codes == delete] = RowKind.DELETE
            changes = Changes(before, after, codes < delete, good, kinds, decoded.records[good])
            return changes.rows(schema, (), bad)
        rows = change_rows(codes == update, codes == delete)
        positions, from_after = good[rows.changes], rows.after_update | (codes < update)[rows.changes]
        changes = Changes(before, after, from_after, positions, rows.kinds, decoded.records[positions])
        return changes.rows(schema, (), bad)

    def _what_is_wrong(self, operation: str | None, no_before: bool) -> str:
        if operation is None:
            return f'the field "{self.field}" is missing: this is no {self.event}'
        known = (*self.inserts, self.update, self.delete)
        if operation not in known:
            expected = f"{', '.join(known[:-1])} or {known[-1]}"
            return f'unknown operation "{self.field}": {operation!r}, expected {expected}'
        if no_before:
            kind = "an update" if operation == self.update else "a delete"
            return f'the field "before" of {kind} is null; {self.hint}'
        return f'the field "after" of operation {operation!r} is null'


def rows_before_updates(
    old: pa.StructArray, new: pa.StructArray, nulled: Mapping[str, Sequence[int]]
) -> pa.StructArray:
    """The rows as they were before updates whose events hold the old values of those fields only that changed.

    Args:
        old: the old values; NULL for a field that did not change.
        new: the rows after the updates.
        nulled: the name of a field → the positions of the rows whose old value was NULL: the event says null.
    """
    if not len(old) or not old.type.num_fields:
        return old
    children = []
    for field, was, now in zip(old.type, old.flatten(), new.flatten(), strict=True):
        same = was.is_null().to_numpy(zero_copy_only=False)
        for position in nulled.get(field.name, ()):
            same[position] = False
        children.append(pc.if_else(pa.array(same), now, was) if same.any() else was)
    return pa.StructArray.from_arrays(children, fields=list(old.type))
