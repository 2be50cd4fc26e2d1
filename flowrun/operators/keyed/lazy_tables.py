"""State tables that are computed when they are written, from what was captured when the snapshot was taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from flowrun.api.state import SegmentedTable, StateSegment

MakeTables = Callable[[], Mapping[str, pa.Table]]


class _Made:
    """Tables that are made together, when the first one is asked for; each is let go of when it has been handed over."""

    def __init__(self, make: MakeTables) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._tables: dict[str, pa.Table] = {}

    def take(self, name: str) -> pa.Table:
        """The table; asked for again, it is made again."""
        with self._lock:
            if name not in self._tables:
                self._tables = dict(self._make())
            return self._tables.pop(name)


def lazy_tables(schemas: Mapping[str, pa.Schema], make: MakeTables) -> Mapping[str, SegmentedTable]:
    """One segment a table: written whole with each checkpoint.

    Args:
        schemas: of all tables.
        make: computes them, on another thread: it may only touch what does not change.
    """
    made = _Made(make)
    return {name: SegmentedTable(s, (StateSegment(partial(made.take, name)),)) for name, s in schemas.items()}


def no_tables(schemas: Mapping[str, pa.Schema]) -> Mapping[str, SegmentedTable]:
    """The same tables without rows."""
    return {name: SegmentedTable(schema, ()) for name, schema in schemas.items()}


class UnchangedTables:
    """Gives the tables of the last snapshot again while the state is what it was: nothing is written then."""

    def __init__(self) -> None:
        self._version: object = None
        self._tables: Mapping[str, SegmentedTable] | None = None

    def get(self, version: object, capture: Callable[[], Mapping[str, SegmentedTable]]) -> Mapping[str, SegmentedTable]:
        """The tables of this version; `capture` is called if it is another one than before."""
        if self._tables is None or version != self._version:
            self._version, self._tables = version, capture()
        return self._tables
