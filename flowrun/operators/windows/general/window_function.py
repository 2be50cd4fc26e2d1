"""Window functions: what users compute from all rows of a window at once."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from flowrun.operators.windows.general.trigger_contract import Window


class ProcessWindowFunction(Protocol):
    """Computes results from the rows of one key and window. Instances must pickle; one subtask calls one copy, in one thread."""

    def process(self, key: tuple[Any, ...], window: Window, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Result rows for a firing.

        Args:
            key: values of the key columns.
            window: its bounds in ms; the global window ends at `MAX_TIMESTAMP`.
            rows: the input's columns, in arrival order, at least one row.

        Returns:
            any number of rows with the output's columns after keys and bounds.
        """
        ...


@runtime_checkable
class OpensAndCloses(Protocol):
    """A function that acquires something: `open` is called once before all rows, `close` at the end."""

    def open(self) -> None: ...
    def close(self) -> None: ...
