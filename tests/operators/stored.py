"""Snapshots as a checkpoint keeps them: segments are made, and files keep no order of rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from flowrun.api.state import DELETED_COLUMN, KEY_GROUP_COLUMN, OperatorSnapshot, SegmentedTable
from flowrun.testing.harness import OperatorHarness


def taken(harness: OperatorHarness, checkpoint_id: int = 1) -> OperatorSnapshot:
    """The snapshot as the operator gives it: nothing is made of its segments yet."""
    harness.operator.prepare_snapshot(checkpoint_id)
    snapshot: OperatorSnapshot = harness.operator.snapshot_state(checkpoint_id)
    return snapshot


def stored(snapshot: OperatorSnapshot, seed: int = 0) -> OperatorSnapshot:
    """The snapshot as it is read back: all keyed tables whole, their rows in some other order."""
    random = np.random.default_rng(seed)
    keyed = {**snapshot.keyed, **{name: whole(table) for name, table in snapshot.segmented.items()}}
    shuffled = {n: t.take(pa.array(random.permutation(t.num_rows))) for n, t in keyed.items()}
    return OperatorSnapshot(shuffled, snapshot.operator)


def whole(table: SegmentedTable) -> pa.Table:
    """What is restored of a table; every segment must have the schema of the table."""
    rows = [segment.rows() for segment in table.segments]
    assert all(r.schema.equals(table.schema) for r in rows)
    if table.key is None:
        return pa.concat_tables([table.schema.empty_table(), *rows])
    newest: dict[tuple[object, ...], dict[str, object]] = {}
    for segment in rows:
        for row in segment.to_pylist():
            newest[tuple(repr(row[name]) for name in (KEY_GROUP_COLUMN, *table.key))] = row
    live = [{n: v for n, v in row.items() if n != DELETED_COLUMN} for row in newest.values() if not row[DELETED_COLUMN]]
    return pa.Table.from_pylist(live, schema=table.schema.remove(len(table.schema) - 1))
