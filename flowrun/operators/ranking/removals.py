"""Which remembered rows a batch takes back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.core.arrays import Bools, Integers
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.operators.keyed.row_store import RowStore
from flowrun.operators.updating.changes import added


@record
class Removals:
    """What a batch does to remembered rows.

    Attributes:
        adds: which rows of the batch are new and stay.
        numbers: remembered rows that go.
        rows: the row of the batch that took each of them back.
    """

    adds: Bools
    numbers: Integers
    rows: Integers


def find_removals(store: RowStore, batch: RecordBatch, schema: Schema) -> Removals:
    """What a batch adds to and takes from the rows of `store`, which finds rows by equality.

    Of equal rows the oldest goes. A row that came and went within the batch is in neither; a row that is taken back before it came,
    or never came, is left out: its removal has no effect, as in Apache Flink.
    """
    adds = added(batch)
    removing = np.flatnonzero(~adds)
    if not len(removing):
        return Removals(adds, removing, removing)
    found = store.find_equal(batch.columns.take(pa.array(removing)))
    missing = removing[found < 0]
    if len(missing) and adds.any():
        adds = _without_passing(batch, adds, missing, schema)
    return Removals(adds, found[found >= 0], removing[found >= 0])


def updated_rows(batch: RecordBatch, removals: Removals, added_rows: Integers) -> tuple[Integers, Integers]:
    """Which removals, and which of the added rows (positions in the batch, in order), are a −U and the +U behind it."""
    if batch.row_kinds is None or not len(removals.rows) or not len(added_rows):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    kinds = batch.row_kinds.to_numpy()
    following = removals.rows + 1
    at = np.minimum(np.searchsorted(added_rows, following), len(added_rows) - 1)
    is_update = (kinds[removals.rows] == RowKind.UPDATE_BEFORE) & (kinds[added_rows[at]] == RowKind.UPDATE_AFTER)
    pairs = np.flatnonzero(is_update & (added_rows[at] == following))
    return pairs, at[pairs]


def _without_passing(batch: RecordBatch, adds: Bools, removing: Integers, schema: Schema) -> Bools:
    """The additions that no later removal in the batch undoes."""
    coming = np.flatnonzero(adds)
    while len(removing):
        rows = batch.columns
        found = equal_rows(rows.take(pa.array(coming)), rows.take(pa.array(removing)), schema)
        undone = found >= 0
        early = undone & (coming[found] > removing)
        if not early.any():
            stay = adds.copy()
            stay[coming[found[undone]]] = False
            return stay
        # a removal before its row came took nothing: then the row is there for the next removal
        removing = np.delete(removing, np.flatnonzero(early)[0])
    return adds


def equal_rows(rows: pa.RecordBatch, wanted: pa.RecordBatch, schema: Schema) -> Integers:
    """For each wanted row the position of an equal one in `rows`, −1 if there is none left; each is given once, the first one first."""
    store = RowStore(schema, (), 1, by_row=True)
    store.append(rows)
    return store.find_equal(wanted)
