"""Tables that stand for functions on rows: of `map` and `flat_map`, asynchronous ones, process functions and window functions.

All work on batches. What a call sends are lists of rows, one of the main output and one of each side output.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.async_function import AsyncBatchContext, AsyncFunction
from flowrun.api.broadcast_function import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from flowrun.api.co_process_function import CoProcessFunction, KeyedCoProcessFunction
from flowrun.api.keyed_state import ListColumn, list_state
from flowrun.api.process_function import BatchContext, KeyedBatchContext, KeyedProcessFunction, ProcessFunction
from flowrun.api.window_function import ProcessWindowFunction, WindowBatchContext
from flowrun.core.types import DataType
from flowrun.runners.pipeline_tests.call_tables import Calls, found_places, rows_of

Sent: TypeAlias = tuple[pa.RecordBatch, pa.Array]
"""Rows, and the position of each one's call."""


class RowTable:
    """What a table says of calls with rows.

    Args:
        calls: the table.
        columns: the columns of a row that count.

    Raises:
        PipelineError: the table says two things of one call.
    """

    def __init__(self, calls: Calls, columns: Sequence[str]) -> None:
        self._calls = calls
        self._columns = tuple(columns)
        self._places = calls.places

    def counting(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of a batch that count."""
        return batch.select(list(self._columns))

    def tuples(self, batch: pa.RecordBatch) -> Iterable[tuple[Any, ...]]:
        """A call for each row of a batch, with the values of the columns that count."""
        return rows_of(self.counting(batch).columns, batch.num_rows)

    def dicts(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """The rows of a batch, with the columns that count."""
        rows: list[dict[str, Any]] = self.counting(batch).to_pylist() if self._columns else [{}] * batch.num_rows
        return rows

    def answer(
        self, made: Iterable[Sequence[Any]], context: BatchContext | AsyncBatchContext | WindowBatchContext
    ) -> Sent:
        """What the function sends to its main output. What it sends to side outputs goes there.

        Args:
            made: the arguments of each call.
            context: of the calls.

        Raises:
            PipelineError: there is a call that the table does not have.
        """
        places = found_places(self._calls, self._places, made)
        for tag, lists in self._calls.sides.items():
            rows, parents = _sent(lists.take(places))
            if rows.num_rows:
                context.side_output(tag, rows, parents)
        return _sent(self._calls.results.take(places))


def _sent(lists: pa.ListArray) -> Sent:
    rows: pa.StructArray = lists.flatten()
    return pa.RecordBatch.from_arrays(rows.flatten(), names=rows.type.names), pc.list_parent_indices(lists)


class MapTable:
    """A function of `map` or `flat_map`."""

    def __init__(self, table: RowTable, *, flat: bool) -> None:
        self._table = table
        self._flat = flat

    def __call__(self, batch: pa.RecordBatch, context: BatchContext) -> Sent | pa.RecordBatch:
        """What the table says of each row."""
        sent = self._table.answer(self._table.tuples(batch), context)
        return sent if self._flat else sent[0]


class _OfTable:
    """A function that answers each row with what its table says."""

    table: ClassVar[RowTable]

    def process_batch(self, batch: pa.RecordBatch, context: BatchContext) -> Sent:
        """Rows come."""
        return self.table.answer(self.table.tuples(batch), context)


class _Process(_OfTable, ProcessFunction):
    pass


class _KeyedProcess(_OfTable, KeyedProcessFunction):
    pass


class _History(KeyedProcessFunction):
    """Answers each row by all rows of its key so far."""

    table: ClassVar[RowTable]
    earlier: ListColumn

    def process_batch(self, batch: pa.RecordBatch, context: KeyedBatchContext) -> Sent:
        """Rows come."""
        rows = self.table.dicts(batch)
        keys = context.key_index.tolist()
        earlier = self.earlier.get()
        histories = [kept or [] for kept in earlier.to_pylist()]
        sent = self.table.answer(_histories(histories, rows, keys), context)
        self.earlier.add(pa.array(rows, earlier.type.value_type))
        return sent


def _histories(histories: list[list[Any]], rows: list[Any], keys: list[int]) -> Iterator[tuple[list[Any]]]:
    for row, key in zip(rows, keys, strict=True):
        histories[key].append(row)
        yield (histories[key],)


class _Window(ProcessWindowFunction):
    """Answers each window by its rows, and by those of its bounds that the table has."""

    table: ClassVar[RowTable]
    bounds: ClassVar[tuple[int, ...]]

    def process_batch(self, windows: pa.RecordBatch, rows: pa.RecordBatch, context: WindowBatchContext) -> Sent:
        """Windows fire."""
        found, offsets = self.table.dicts(rows), context.offsets.tolist()
        bounds = rows_of([windows.columns[-2:][i] for i in self.bounds], windows.num_rows)
        made = ((found[start:end], *b) for start, end, b in zip(offsets, offsets[1:], bounds, strict=False))
        return self.table.answer(made, context)


class _Async(AsyncFunction):
    table: ClassVar[RowTable]

    async def async_invoke_batch(self, batch: pa.RecordBatch, context: AsyncBatchContext) -> Sent:
        """Rows come."""
        return self.table.answer(self.table.tuples(batch), context)


class _OfTwo:
    """A function that answers each row of either stream with what its table says."""

    table: ClassVar[RowTable]
    other: ClassVar[RowTable]

    def first(self, batch: pa.RecordBatch, context: BatchContext) -> Sent:
        """Rows of the first stream come."""
        return self.table.answer(((row, None) for row in self.table.dicts(batch)), context)

    def second(self, batch: pa.RecordBatch, context: BatchContext) -> Sent:
        """Rows of the other stream come."""
        return self.other.answer(((None, row) for row in self.other.dicts(batch)), context)


class _CoProcess(_OfTwo, CoProcessFunction):
    process_batch1, process_batch2 = _OfTwo.first, _OfTwo.second


class _KeyedCoProcess(_OfTwo, KeyedCoProcessFunction):
    process_batch1, process_batch2 = _OfTwo.first, _OfTwo.second


class _Broadcast(_OfTwo, BroadcastProcessFunction):
    process_batch, process_broadcast_batch = _OfTwo.first, _OfTwo.second


class _KeyedBroadcast(_OfTwo, KeyedBroadcastProcessFunction):
    process_batch, process_broadcast_batch = _OfTwo.first, _OfTwo.second


def async_class(table: RowTable) -> type[AsyncFunction]:
    """An asynchronous function: a call has a row's values."""
    return _of(_Async, table=table)


def process_class(table: RowTable, *, keyed: bool) -> type[ProcessFunction]:
    """A process function: a call has a row's values."""
    return _of(_KeyedProcess if keyed else _Process, table=table)


def history_class(table: RowTable, row: DataType) -> type[ProcessFunction]:
    """A process function: a call has the list of all rows of a key so far. `row`: the type of one, with the columns that count."""
    return _of(_History, table=table, earlier=list_state(row))


def window_class(table: RowTable, bounds: Sequence[int]) -> type[ProcessWindowFunction]:
    """A window function: a call has the list of a window's rows, and those of its bounds (0: start, 1: end) that are named."""
    return _of(_Window, table=table, bounds=tuple(bounds))


def co_process_class(table: RowTable, other: RowTable, *, keyed: bool, broadcast: bool) -> type[Any]:
    """A function of two streams: a call has a row of the first and None, or None and a row of the other."""
    if broadcast:
        return _of(_KeyedBroadcast if keyed else _Broadcast, table=table, other=other)
    return _of(_KeyedCoProcess if keyed else _CoProcess, table=table, other=other)


def _of(base: type[Any], **attributes: object) -> type[Any]:
    return type("Table", (base,), attributes)
