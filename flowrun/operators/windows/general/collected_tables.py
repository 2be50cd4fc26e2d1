"""The state table of windows that only collect rows: `rows`, as the general operator writes it; nothing else is remembered of a window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from flowrun.core.record import record
from flowrun.operators.keyed.key_slots import KeyList
from flowrun.operators.keyed.row_log import RowLog
from flowrun.operators.windows.general.window_rows import WindowRows
from flowrun.state.key_groups import key_groups_or_zero


@record
class CollectedView:
    """The rows of windows at one moment. Immutable: another thread writes them.

    Attributes:
        schema: of the table.
        parts: which rows are in which windows.
        windows: (key, start, end) of each window by number.
        rows: by position.
    """

    schema: pa.Schema
    max_parallelism: int
    parts: Sequence[WindowRows]
    windows: KeyList
    rows: RowLog

    def tables(self, name: str) -> dict[str, pa.Table]:
        """The table under its name."""
        numbers = np.concatenate([p.windows for p in self.parts])
        positions = np.concatenate([p.rows for p in self.parts])
        leading = self.windows.keys_of(numbers)
        groups = key_groups_or_zero(leading[:-2], len(numbers), self.max_parallelism)
        columns = [pa.array(groups), *leading, pa.array(positions), *self.rows.take(positions).columns]
        return {name: pa.Table.from_arrays(columns, schema=self.schema)}
