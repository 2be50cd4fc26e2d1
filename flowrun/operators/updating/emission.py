"""Changes in batches of a bounded size whose pairs of −U and +U stay together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from flowrun.api.operator import Output
from flowrun.core.arrays import Kinds
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.operators.timed.event_rows import MAX_OUTPUT_ROWS

INSERT, BEFORE, AFTER, DELETE = (np.int8(k) for k in RowKind)


def emit_changes(output: Output, kinds: Kinds, rows: Callable[[int, int], RecordBatch]) -> None:
    """Send changes.

    Args:
        output: where to.
        kinds: of all changes, in order.
        rows: gives the changes from one position up to another, without kinds.
    """
    start, plain = 0, not kinds.any()
    while start < len(kinds):
        stop = min(start + MAX_OUTPUT_ROWS, len(kinds))
        if stop < len(kinds) and kinds[stop - 1] == BEFORE:
            stop += 1
        batch = rows(start, stop)
        marks = None if plain else pa.array(kinds[start:stop])
        output.emit(RecordBatch(batch.columns, batch.timestamps, marks))
        start = stop
