"""Rows of print sinks for somebody in the same process: the command line shows them as a table instead of lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from flowrun.core.elements import RecordBatch


class RowListener(Protocol):
    """Gets the rows of one sink, from the threads of its subtasks."""

    def take(self, batch: RecordBatch) -> None:
        """Rows and their kinds; immutable. Must be thread-safe, and quick: the sink waits for it."""
        ...


_listeners: dict[str, RowListener] = {}


@contextmanager
def listening(table: str, listener: RowListener) -> Iterator[None]:
    """Rows of the print sink called `table`, if it is `live`, go to `listener` and are not printed meanwhile."""
    _listeners[table] = listener
    try:
        yield
    finally:
        _listeners.pop(table, None)


def listener_of(table: str) -> RowListener | None:
    """Who listens to a table, if anyone. Thread-safe."""
    return _listeners.get(table)
