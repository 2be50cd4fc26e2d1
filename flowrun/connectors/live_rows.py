"""Lets code in the same process listen to the rows of print sinks: the command line shows them as a table instead of lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from flowrun.core.elements import RecordBatch


class RowListener(Protocol):
    """Gets the rows of one sink, from the threads of its subtasks."""

    def take(self, batch: RecordBatch) -> None:
        """Take rows with their row kinds, which nobody may change. Several threads call this, and the sink waits until it returns."""
        ...


_listeners: dict[str, RowListener] = {}


@contextmanager
def listening(table: str, listener: RowListener) -> Iterator[None]:
    """A context in which the rows of the print sink called `table`, if it is `live`, go to `listener` and are not printed."""
    _listeners[table] = listener
    try:
        yield
    finally:
        _listeners.pop(table, None)


def listener_of(table: str) -> RowListener | None:
    """The listener to the sink of this name; None: there is none. Any thread may call it."""
    return _listeners.get(table)
