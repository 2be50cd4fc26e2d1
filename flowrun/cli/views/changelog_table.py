"""Shows the result of a SELECT: on a terminal as a table that follows the changes and stays at the end, else as JSON or CSV lines."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Self, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, Group, RenderableType
from rich.text import Text

from flowrun.api.changelog import ChangelogMode
from flowrun.api.format import ChangeEncoder
from flowrun.cli.views.figures import counted_text, duration_text, state_text
from flowrun.cli.views.in_place import InPlaceView
from flowrun.cli.views.live_view import STOPPING
from flowrun.cli.views.result_rows import ResultRows
from flowrun.connectors.formats.changes import inserts
from flowrun.connectors.formats.csv_encoder import CsvEncoder
from flowrun.connectors.formats.csv_format import FORMAT as CSV
from flowrun.connectors.formats.csv_options import csv_settings
from flowrun.connectors.formats.debezium_json import FORMAT as DEBEZIUM
from flowrun.connectors.formats.json_format import FORMAT as JSON
from flowrun.connectors.formats.registry import prefixed_options
from flowrun.connectors.live_rows import RowListener, listening
from flowrun.connectors.newest_rows import NewestRows
from flowrun.connectors.row_text import column_text
from flowrun.core.elements import RecordBatch, RowKind, removals
from flowrun.core.options import parse_options
from flowrun.core.provided import provides
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import NullOrder
from flowrun.core.types import STRING
from flowrun.plan.changelog import sink_mode
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Calc, Plan, PlanNode, Sink
from flowrun.plan.relational import Rank
from flowrun.plan.unique_keys import unique_keys
from flowrun.runtime.job_status import JobStatus

_FINAL_ROWS = 1000
"""How many rows of a longer result the last table shows; it says how many there are."""
_LEAST_ROWS = 5
_FRAME_LINES = 6
Order = tuple[tuple[int, bool, bool], ...]
"""Columns that a result is ordered by: (position, descending, NULLs first)."""


class ResultTable:
    """The rows of one result as they are now. `take` may be called by any thread.

    If rows may be updated or deleted, all rows of the result are kept; else only the last ones are kept, and all are counted.

    Args:
        name: the name of the result, which is shown if there are several results.
        schema: the columns of the result.
        updating: whether rows may be updated or deleted.
        order: the columns that the rows are shown in the order of; empty: the newest row comes first.
        final: whether each row that comes is a row of the final result: without `order` they are shown as they come.
        key: positions of columns that together differ in all rows; a row whose key was there before is shown in the same place. None: there
            are no such columns.
    """

    def __init__(
        self,
        name: str,
        schema: Schema,
        *,
        updating: bool,
        order: Order = (),
        final: bool = False,
        key: Sequence[int] | None = None,
    ) -> None:
        self.name = name
        self.schema = schema
        self._order = order
        self._key = None if key is None else tuple(key)
        self._places: dict[tuple[object, ...], int] = {}
        self._final = final
        self._updating = updating
        self._lock = threading.Lock()
        self._rows = NewestRows(schema.arrow, range(len(schema)))
        self._last: list[pa.RecordBatch] = []
        self._kept = 0
        self._count = 0
        self.changes = 0

    def take(self, batch: RecordBatch) -> None:
        """Apply the changes of a batch."""
        with self._lock:
            self.changes += batch.num_rows
            if self._updating:
                kinds = batch.row_kinds
                removes = None if kinds is None else removals(kinds)
                self._rows.add(batch.columns, removes)
                return
            self._count += batch.num_rows
            self._last.append(batch.columns)
            self._kept += batch.num_rows
            while self._kept - self._last[0].num_rows >= _FINAL_ROWS:
                self._kept -= self._last.pop(0).num_rows

    def shown(self, most: int) -> tuple[pa.RecordBatch, int]:
        """(the rows to show, in order and at most `most`; how many rows the result has)."""
        with self._lock:
            if self._updating:
                rows = self._rows.alive()
                count = rows.num_rows
            else:
                kept = self._last or [self._rows.alive()]
                rows, count = pa.concat_batches(kept), self._count
        if self._order:
            return self._sorted(rows).slice(0, most), count
        if self._final:
            return rows.slice(0, most), count
        if self._updating and self._key is not None and count <= _FINAL_ROWS:
            return self._in_place(rows).slice(0, most), count
        newest = np.arange(rows.num_rows)[::-1][:most]
        return rows.take(pa.array(newest)), count

    def _in_place(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the order in which their keys were first seen here."""
        if not self._key:
            return rows
        keys = list(zip(*(column_text(rows.column(k)).to_pylist() for k in self._key), strict=True))
        if len(self._places) > 10 * _FINAL_ROWS:  # most of these keys are not in the result any more
            here = set(keys)
            known = sorted((key for key in self._places if key in here), key=self._places.__getitem__)
            self._places = {key: number for number, key in enumerate(known)}
        for key in keys:
            self._places.setdefault(key, len(self._places))
        return rows.take(pa.array(np.argsort([self._places[key] for key in keys], kind="stable")))

    def _sorted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        positions = np.arange(rows.num_rows)
        for column, descending, nulls_first in reversed(self._order):
            order = pc.array_sort_indices(
                rows.column(column).take(pa.array(positions)),
                order="descending" if descending else "ascending",
                null_placement="at_start" if nulls_first else "at_end",
            )
            positions = positions[order.to_numpy()]
        return rows.take(pa.array(positions))

    def render(self, most: int, lines: int | None = None) -> RenderableType:
        """The result with at most `most` rows, on about so many lines; the line below says how many rows there are."""
        rows, count = self.shown(most)
        more = f", {rows.num_rows} of them shown" if rows.num_rows < count else ""
        texts = [column_text(column).to_pylist() for column in rows.columns]
        return Group(ResultRows(self.schema, texts, lines), Text(f"{counted_text(count, 'row')}{more}", style="dim"))


class ResultView(InPlaceView):
    """Shows results on standard output while their job runs; when the job ends it prints them whole, and they stay.

    It is a `View` of the job: the last line says in which state the job is.
    """

    shows_stopping = True

    def __init__(self, tables: Sequence[ResultTable], console: Console | None = None) -> None:
        self._tables = tables
        super().__init__(console or Console(file=sys.stdout))
        self._listening = ExitStack()

    def __enter__(self) -> Self:
        for table in self._tables:
            self._listening.enter_context(listening(table.name, table))
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._listening.close()
        self._console.print(self._group(_FINAL_ROWS, None))

    def update(self, status: JobStatus, *, stopping: bool = False) -> None:
        """Show the present rows; `stopping` says that the user asked for the end."""
        room = self._console.height // max(1, len(self._tables)) - _FRAME_LINES
        changes = sum(t.changes for t in self._tables)
        doing = STOPPING if stopping and not status.state.is_terminal else state_text(status.state)
        state = f"{doing}  {duration_text(status.running_ms)}  {counted_text(changes, 'change')}"
        most = max(_LEAST_ROWS, room)
        self._live.update(Group(self._group(most, most), Text(state, style="dim")))

    def _group(self, most: int, lines: int | None) -> RenderableType:
        shown: list[RenderableType] = []
        for table in self._tables:
            if len(self._tables) > 1:
                shown.append(Text(table.name, style="bold"))
            shown.append(table.render(most, lines))
        return Group(*shown)


class RowPrinter:
    """Prints rows as JSON or CSV lines as they come.

    If the result is updated, each line says what kind of change it is: JSON in the form of debezium-json, CSV in a first column `op`.

    Args:
        schema: the columns of the rows.
        form: `json` or `csv`.
        updating: whether rows may be updated or deleted.
        stream: where to print; None: on standard output.

    Raises:
        OptionError: CSV has no form for a column; raised when the printer is made.
    """

    def __init__(self, schema: Schema, form: str, *, updating: bool, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._updating = updating
        self._form = form
        self._lock = threading.Lock()
        if form == "csv":
            options, _ = parse_options(prefixed_options("csv"), {"csv.header": "true"}, "csv")
            columns = (Field("op", STRING), *schema.fields) if updating else schema.fields
            CSV.check(schema, options)
            self._csv = CsvEncoder(Schema(columns), csv_settings(options))
            self._write(self._csv.header())
        else:
            used = DEBEZIUM if updating else JSON
            options, _ = parse_options(prefixed_options(used.name), {}, used.name)
            self._json = used.create_encoder(schema, options)

    def take(self, batch: RecordBatch) -> None:
        """Print the rows of a batch, which stay together even if several threads print."""
        kinds = inserts(batch.num_rows) if batch.row_kinds is None else batch.row_kinds
        if self._form == "csv":
            columns = batch.columns
            if self._updating:
                symbols = pa.array([k.symbol for k in RowKind]).take(kinds)
                columns = pa.RecordBatch.from_arrays([symbols, *columns.columns], names=["op", *columns.schema.names])
            self._write(self._csv.encode(columns))
        elif provides(self._json, ChangeEncoder):
            self._write(self._json.encode_changes(batch.columns, kinds))
        else:
            self._write(self._json.encode(batch.columns))

    def _write(self, data: bytes | pa.Buffer) -> None:
        with self._lock:
            self._stream.write(bytes(memoryview(data)).decode())
            self._stream.flush()


def live_sinks(plan: Plan) -> tuple[Sink, ...]:
    """The sinks whose rows are to be shown live: those of SELECTs without INSERT."""
    return tuple(s for s in plan.sinks if s.table.connector == "print" and _is_on(s.table.options.get("live")))


def _is_on(value: object) -> bool:
    return str(value).lower() == "true"


def result_view(plan: Plan, console: Console | None = None) -> ResultView | None:
    """The view of a plan's results (`live_sinks`); None: it has none.

    Args:
        plan: an optimised plan, in which a `Rank` says the order of a result with LIMIT.
        console: where to draw; None: on standard output.
    """
    tables = result_tables(plan)
    return ResultView(tables, console) if tables else None


def result_tables(plan: Plan) -> list[ResultTable]:
    """An empty table for each of a plan's results (`live_sinks`)."""
    return [
        ResultTable(
            s.table.name,
            s.schema,
            updating=sink_mode(plan, s) is not ChangelogMode.APPEND,
            order=display_order(s),
            key=min((tuple(sorted(k)) for k in unique_keys(s.input)), key=len, default=None),
        )
        for s in live_sinks(plan)
    ]


@contextmanager
def printed_results(plan: Plan, form: str, *, final: bool = False) -> Iterator[None]:
    """Print the rows of a plan's `live_sinks` as lines of `json` or `csv` while the context is open.

    `final` says that the rows are those of final results, which do not change any more.
    """
    with ExitStack() as stack:
        for sink in live_sinks(plan):
            updating = not final and sink_mode(plan, sink) is not ChangelogMode.APPEND
            printer: RowListener = RowPrinter(sink.schema, form, updating=updating)
            stack.enter_context(listening(sink.table.name, printer))
        yield


@contextmanager
def final_results(plan: Plan, console: Console | None = None) -> Iterator[None]:
    """Print the rows of a plan's `live_sinks`, which do not change any more, as tables when the context closes."""
    tables = [
        ResultTable(s.table.name, s.schema, updating=False, order=display_order(s), final=True)
        for s in live_sinks(plan)
    ]
    with ExitStack() as stack:
        for table in tables:
            stack.enter_context(listening(table.name, table))
        yield
    console = console or Console(file=sys.stdout)
    for table in tables:
        if len(tables) > 1:
            console.print(Text(table.name, style="bold"))
        console.print(table.render(_FINAL_ROWS))


def display_order(sink: Sink) -> Order:
    """The columns that a result is ordered by, if it ends in ORDER BY … LIMIT whose columns it shows; else nothing."""
    node: PlanNode = sink.input
    columns: list[int | None] = list(range(len(sink.schema)))
    while isinstance(node, Calc):
        projections = node.projections
        found = [None if c is None else projections[c] for c in columns]
        columns = [p.index if isinstance(p, ColumnRef) else None for p in found]
        node = node.input
    if not isinstance(node, Rank) or node.partition:
        return ()
    order: list[tuple[int, bool, bool]] = []
    for key in node.order:
        if key.column not in columns:
            break
        order.append((columns.index(key.column), key.descending, key.nulls is NullOrder.FIRST))
    return tuple(order)
