"""Reads a table of a database: bounded, in splits that are read by one query each, with columns and rows left out by the server.

A split is a range of the table's storage, or of the values of `scan.partition.column`. Its position says behind which place its reader
has come; rows that nobody changes keep their places, so what is read once is not read again after a failure. Each query sees the table
as it is when the query begins: rows that change meanwhile are read before or after their change.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa

from flowrun.api.connector import PushedFilter
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    SourceReader,
    Split,
    SplitEnumerator,
    split_list,
)
from flowrun.api.source_function import SourceContext
from flowrun.connectors.jdbc.dialects import dialect_of
from flowrun.connectors.jdbc.fitting import fitted, selection_of
from flowrun.connectors.jdbc.quoting import identifier
from flowrun.connectors.jdbc.relation import Access, Dialect, MisfitError, Piece, ReadSession, Relation, Scan
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.connectors.source_function_reader import SourceFunctionReader
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import Shape, integer, members, optional, text
from flowrun.errors import ConnectorError

_SPLITS_A_SUBTASK = 4
_LEAST = -(2**63)
_POSITION = members(
    {
        "relation": text,
        "by_place": integer(0, 1),
        "lower": optional(integer(_LEAST)),
        "upper": optional(integer(_LEAST)),
        "values": integer(0, 1),
        "after": optional(integer(_LEAST)),
        "rows": integer(),
    }
)


@record
class PartitionScan:
    """`scan.partition.*`: ranges of the values of a column, both bounds included; rows outside are not read, as in Flink.

    Flink also leaves out what is between the whole numbers at which one range ends and the next begins; here the former reads it.

    >>> PartitionScan("id", 3, 1, 10).ranges
    [(1, 4), (5, 7), (8, 10)]
    """

    column: str
    number: int
    lower: int
    upper: int

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The ranges, as Flink's `JdbcNumericBetweenParametersProvider` cuts them."""
        values = self.upper - self.lower + 1
        number = min(self.number, values)
        size = math.ceil(values / number)
        larger = values - (size - 1) * number
        found, start = [], self.lower
        for i in range(number):
            end = start + size - (1 if i < larger else 2)
            found.append((start, end))
            start = end + 1
        return found


@record(slots=False)
class JdbcSource:
    """Reads the columns of `schema` from a table.

    Attributes:
        access: the table.
        schema: the columns to read.
        declared: all columns of the table, for filters.
        filters: conditions on rows that are needed.
        partition: how the table is cut; None: by its storage.
    """

    access: Access
    schema: Schema
    declared: Schema
    filters: tuple[PushedFilter, ...] = ()
    partition: PartitionScan | None = None

    @property
    def boundedness(self) -> Boundedness:
        """Bounded: what is in the table."""
        return Boundedness.BOUNDED

    @property
    def delivery(self) -> Delivery:
        """Exactly once: reading goes on behind the place of the last row."""
        return Delivery.EXACTLY_ONCE

    @property
    def dialect(self) -> Dialect:
        """Of the database."""
        return dialect_of(self.access.address.scheme)

    @property
    def in_process_remedy(self) -> str:
        """What lets it be read in several processes."""
        return (
            f"if nobody writes to it, say that: 'url' = 'jdbc:{self.access.address.scheme}:path;access_mode=READ_ONLY'"
        )

    @property
    def in_process(self) -> bool:
        """Whether the database is open in one process at a time."""
        return self.dialect.in_process(self.access)

    @property
    def position_shape(self) -> Shape:
        """A range of storage or values, and the last place that was read."""
        return _POSITION

    @property
    def enumerator_shape(self) -> Shape:
        """The splits that were not handed out."""
        return split_list(_POSITION)

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator, which looks at the table when it starts."""
        return JdbcEnumerator(self, parallelism, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader that runs the query of each split in a thread."""
        return JdbcReader(self, context)


class JdbcEnumerator(ListedSplitEnumerator):
    """Cuts the table into splits when it starts, if it does not go on from a snapshot."""

    def __init__(self, source: JdbcSource, parallelism: int, restored: JsonValue) -> None:
        super().__init__((), restored)
        self._source = source
        self._parallelism = parallelism
        self._is_new = restored is None

    def start(self) -> None:
        """Look at the table.

        Raises:
            ConnectorError: the database cannot be reached, there is no such table, or it is not as declared.
        """
        if not self._is_new:
            return
        self._is_new = False
        source = self._source
        relation = source.dialect.describe(source.access)
        selection_of(source.dialect, relation, source.schema.fields)  # what cannot be read is said before anything is
        self._splits.extend(_splits(source, relation, self._parallelism))


def _splits(source: JdbcSource, relation: Relation, parallelism: int) -> Iterator[Split]:
    number = 0
    for piece in relation.pieces:
        for lower, upper, values in _ranges(source.partition, piece, parallelism):
            position: dict[str, JsonValue] = {
                "relation": piece.relation,
                "by_place": int(piece.by_place),
                "lower": lower,
                "upper": upper,
                "values": int(values),
                "after": None,
                "rows": 0,
            }
            yield Split(f"{source.access.table}-{number}", position)
            number += 1


def _ranges(
    partition: PartitionScan | None, piece: Piece, parallelism: int
) -> Iterator[tuple[int | None, int | None, bool]]:
    """(lower, upper, whether these are values of the partition column). The first and the last range of storage are open: tables grow."""
    if partition is not None:
        yield from ((lower, upper, True) for lower, upper in partition.ranges)
        return
    if not piece.by_place:
        yield None, None, False
        return
    most, least = math.ceil(piece.units / piece.units_a_split), piece.units // piece.least_units
    wanted = max(most, min(parallelism * _SPLITS_A_SUBTASK, least), 1)
    step = max(1, math.ceil(piece.units / wanted))
    bounds = [*range(piece.first_unit + step, piece.first_unit + piece.units, step)]
    yield from ((lower, upper, False) for lower, upper in zip([None, *bounds], [*bounds, None], strict=True))


class _Connections:
    """The connections of a reader, which its splits use one after the other: making one takes longer than many a query."""

    def __init__(self, source: JdbcSource) -> None:
        self._source = source
        self._idle: list[ReadSession] = []
        self._relation: Relation | None = None
        self._lock = threading.Lock()

    def take(self) -> ReadSession:
        """One that nobody uses. Raises ConnectorError."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._source.dialect.open_reader(self._source.access, in_order=True)

    def relation(self, session: ReadSession) -> Relation:
        """The table, as it was when the first split was read. Raises ConnectorError."""
        if self._relation is None:
            self._relation = session.describe()
        return self._relation

    def give_back(self, session: ReadSession) -> None:
        """Keep a connection on which nothing is under way."""
        with self._lock:
            self._idle.append(session)

    def close(self) -> None:
        """Close those that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()


class JdbcReader(SourceFunctionReader):
    """Runs the query of each split."""

    def __init__(self, source: JdbcSource, context: ReaderContext) -> None:
        self._connections = _Connections(source)
        super().__init__(context, lambda split: SplitQuery(source, self._connections, split, context.batch_rows))

    def close(self) -> None:
        """End what is under way, and disconnect."""
        super().close()
        self._connections.close()


class SplitQuery:
    """Reads one split: a source function, which runs in a thread of its own."""

    def __init__(self, source: JdbcSource, connections: _Connections, split: Split, batch_rows: int) -> None:
        self._source = source
        self._connections = connections
        self._split = split
        self._batch_rows = batch_rows
        self._lock = threading.Lock()
        self._session: ReadSession | None = None
        self._cancelled = False

    def run(self, context: SourceContext) -> None:
        """Send the rows behind the split's position.

        Raises:
            ConnectorError: the database failed, or the rows of the split come in no order that can be gone on with.
            DataError: a value is not as declared.
        """
        session = self._connections.take()
        with self._lock:
            self._session = session
            is_cancelled = self._cancelled
        try:
            if not is_cancelled:
                self._send(session, context)
        except BaseException:
            session.close()
            raise
        with self._lock:
            self._session = None
            is_cancelled = self._cancelled
        if is_cancelled:
            session.close()
        else:
            self._connections.give_back(session)

    def _send(self, session: ReadSession, context: SourceContext) -> None:
        position = dict(self._split.position)
        relation = self._connections.relation(session)
        if not position["by_place"] and position["rows"]:
            raise ConnectorError(
                f"reading {relation.name} cannot go on in its middle: its rows have no places that stay the same",
                retryable=False,
                hint="read the tables behind it, or take no checkpoints while it is read",
            )
        scan = self._scan(relation, position)
        for rows, places in _cut(self._fitted(session.scan(scan), scan, relation), self._batch_rows):
            position |= {
                "after": None if places is None else int(places[-1]),
                "rows": cast(int, position["rows"]) + rows.num_rows,
            }
            context.collect(rows, position=dict(position))

    def cancel(self) -> None:
        """End the query, if it has not ended."""
        with self._lock:
            self._cancelled = True
            session = self._session
        if session is not None:
            session.cancel()

    def _scan(self, relation: Relation, position: Mapping[str, Any]) -> Scan:
        source, dialect = self._source, self._source.dialect
        conditions: list[str | None] = [self._between(relation, position)] if position["values"] else []
        for pushed in source.filters:
            column = relation.column(pushed.column)
            conditions.append(dialect.condition(column, source.declared.field(pushed.column).type, pushed))
        of_storage = not position["values"] and bool(position["by_place"])
        return Scan(
            position["relation"],
            selection_of(dialect, relation, source.schema.fields),
            relation.place if position["by_place"] else "",
            position["lower"] if of_storage else None,
            position["upper"] if of_storage else None,
            position["after"],
            tuple(c for c in conditions if c is not None),
        )

    def _between(self, relation: Relation, position: Mapping[str, Any]) -> str:
        dialect, partition = self._source.dialect, self._source.partition
        assert partition is not None
        column = relation.column(partition.column)
        is_last = position["upper"] == partition.upper
        try:
            lower = dialect.bound(column, position["lower"])
            upper = dialect.bound(
                column, position["upper"] + (0 if is_last else 1)
            )  # what is between two ranges is read, too
        except MisfitError:
            raise ConnectorError(
                f"'scan.partition.column' is '{partition.column}', whose type {column.shown} is not cut into ranges",
                retryable=False,
                hint="choose a column of numbers, dates or timestamps, or leave 'scan.partition.*' out",
            ) from None
        name = identifier(column.name)
        return f"{name} >= {lower} AND {name} {'<=' if is_last else '<'} {upper}"

    def _fitted(
        self, batches: Iterator[pa.RecordBatch], scan: Scan, relation: Relation
    ) -> Iterator[tuple[pa.RecordBatch, Any]]:
        schema = self._source.schema
        for batch in batches:
            columns = batch.columns
            places = self._source.dialect.places_of(columns[0]).to_numpy() if scan.place else None
            values = columns[1:] if scan.place else columns
            if not len(schema):
                yield _no_columns(batch.num_rows), places
                continue
            arrays = fitted(values, scan.selection, relation)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema.arrow), places


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))


def _cut(batches: Iterator[tuple[pa.RecordBatch, Any]], size: int) -> Iterator[tuple[pa.RecordBatch, Any]]:
    """The same rows in batches of exactly `size`, but for the last one.

    Raises:
        ConnectorError: places do not rise.
    """
    rest: pa.RecordBatch | None = None
    rest_places: Any = None
    for given, given_places in batches:
        rows, places = given, given_places
        if rest is not None and rest.num_rows:
            rows = pa.concat_batches([rest, given])
            places = None if places is None else np.concatenate([rest_places, places])
        if places is not None and len(places) > 1 and not (np.diff(places) > 0).all():
            raise ConnectorError("the database gives rows in another order than that of their places", retryable=True)
        whole = rows.num_rows - rows.num_rows % size
        for start in range(0, whole, size):
            yield rows.slice(start, size), None if places is None else places[start : start + size]
        rest, rest_places = rows.slice(whole), None if places is None else places[whole:]
    if rest is not None and rest.num_rows:
        yield rest, rest_places
