"""State tables as they come back from a snapshot: checked against the columns and keys that an operator expects, in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from flowrun.api.state import OperatorSnapshot
from flowrun.errors import StateError
from flowrun.state.key_groups import key_groups_or_zero

RESTORED_ROWS = 1 << 20
"""How many rows are read back at a time: bounds what strings of one array may add up to."""
_CHECKED_ROWS = 1024


def restored_batches(name: str, table: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a restored state table, columns in the order of `schema`, in batches of at most `RESTORED_ROWS`.

    Raises:
        StateError: it has other columns.
    """
    if set(table.schema.names) != set(schema.names) or any(table.schema.field(f.name).type != f.type for f in schema):
        raise StateError(
            f"state table '{name}' of a window has the columns {_text(table.schema)}; expected {_text(schema)}",
            hint="the aggregates or keys changed since the snapshot; give the step another uid to start it empty",
        )
    if table.schema.names != schema.names:
        table = table.select(schema.names)
    for start in range(0, table.num_rows, RESTORED_ROWS):
        yield from table.slice(start, RESTORED_ROWS).combine_chunks().to_batches()


def check_keys(name: str, groups: pa.Array, keys: Sequence[pa.Array], max_parallelism: int) -> None:
    """Check on some rows that their key groups are those of their keys: equal columns do not mean equal keys.

    Raises:
        StateError: the table was written with other key columns, another order of them, or another maximum parallelism.
    """
    rows = min(len(groups), _CHECKED_ROWS)
    expected = key_groups_or_zero([k.slice(0, rows) for k in keys], rows, max_parallelism)
    if not np.array_equal(expected, groups.slice(0, rows).to_numpy()):
        raise StateError(
            f"state table '{name}' of a window was written with other keys (or another maximum parallelism than {max_parallelism})",
            hint="the keys changed since the snapshot; give the step another uid to start it empty",
        )


def restored_rows(
    name: str, snapshot: OperatorSnapshot, schema: pa.Schema, keys: int, max_parallelism: int
) -> pa.RecordBatch | None:
    """All rows of a restored state table of a window, whose first columns are the key group and `keys` key columns; None if it has none.

    Raises:
        StateError: it has other columns, or was written with other keys or another maximum parallelism.
    """
    table = snapshot.keyed.get(name)
    batches = [] if table is None else list(restored_batches(name, table, schema))
    for batch in batches:
        check_keys(name, batch.column(0), batch.columns[1 : 1 + keys], max_parallelism)
    return pa.concat_batches(batches) if batches else None


def _text(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema)
