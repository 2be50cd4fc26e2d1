"""The `print` connector: it prints rows as text on standard output or standard error, to look at a stream."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

from flowrun.api.changelog import ChangesTaken
from flowrun.api.connector import Connector, TableDefinition
from flowrun.api.sink import SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.live_rows import listener_of
from flowrun.connectors.newest_rows import key_numbers
from flowrun.connectors.row_text import render_rows
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.elements import RecordBatch, RowKind
from flowrun.core.options import Option, OptionType
from flowrun.core.printable import printable
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError

OPTIONS = (
    Option("print-identifier", OptionType.STRING, "Text before each row, to tell several print sinks apart."),
    Option("standard-error", OptionType.BOOLEAN, "Print to standard error instead of standard output.", default=False),
    Option(
        "live",
        OptionType.BOOLEAN,
        "On a terminal show the rows as a table that is kept up to date; what a SELECT without INSERT does.",
        default=False,
    ),
)


@record
class PrintSink:
    """Prints each row as `identifier:subtask> +I[…]`; without an identifier, or with one subtask, that part is left out.

    With a primary key an update is one line, +U: the −U of the same key just before it is left out.
    """

    schema: Schema
    identifier: str
    standard_error: bool
    primary_key: tuple[str, ...] = ()
    live_name: str | None = None

    @property
    def delivery(self) -> Delivery:
        """At least once: rows that were printed before a failure are printed again after it."""
        return Delivery.AT_LEAST_ONCE

    @property
    def in_process(self) -> bool:
        """Standard output is this process's own."""
        return True

    @property
    def changes_taken(self) -> ChangesTaken:
        """All changes, as they come."""
        return ChangesTaken.ALL

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        parts = [self.identifier] if self.identifier else []
        if context.parallelism > 1:
            parts.append(str(context.subtask + 1))
        return _PrintWriter(self, ":".join(parts) + "> " if parts else "")

    def create_committer(self) -> None:
        """Nothing to commit."""


class _PrintWriter(ImmediateWriter):
    def __init__(self, sink: PrintSink, prefix: str) -> None:
        self._sink = sink
        self._prefix = prefix
        self._standard_error = sink.standard_error

    def write(self, batch: RecordBatch) -> None:
        """Print the rows with one write, so that lines of subtasks do not mix; or hand them to the listener of a live sink."""
        listener = None if self._sink.live_name is None else listener_of(self._sink.live_name)
        if listener is not None:
            listener.take(batch)
            return
        if self._sink.primary_key and batch.row_kinds is not None:
            batch = without_old_versions(batch, self._sink.primary_key)
        lines = render_rows(batch).to_pylist()
        text = self._prefix + ("\n" + self._prefix).join(lines) + "\n"
        # the stream is looked up at each write, because a live view replaces it while it is shown
        stream = sys.stderr if self._standard_error else sys.stdout
        try:
            stream.write(printable(text) if stream.isatty() else text)
            stream.flush()
        except OSError as error:
            raise ConnectorError(
                f"print: cannot write to standard {'error' if self._standard_error else 'output'}: {error}"
            ) from error


def _create_sink(table: TableDefinition) -> PrintSink:
    identifier = table.options.get("print-identifier")
    return PrintSink(
        schema=table.schema,
        identifier="" if identifier is None else str(identifier),
        standard_error=table.options.flag("standard-error"),
        primary_key=table.primary_key,
        live_name=table.name if table.options.flag("live") else None,
    )


def without_old_versions(batch: RecordBatch, key: tuple[str, ...]) -> RecordBatch:
    """The changes without those −U rows that are followed by a +U row of the same key."""
    assert batch.row_kinds is not None
    kinds = batch.row_kinds.to_numpy(zero_copy_only=False)
    replaced = np.zeros(len(kinds), np.bool_)
    replaced[:-1] = (kinds[:-1] == RowKind.UPDATE_BEFORE) & (kinds[1:] == RowKind.UPDATE_AFTER)
    if replaced.any():
        keys = key_numbers([batch.columns.column(k) for k in key], range(len(key)))
        replaced[:-1] &= keys[:-1] == keys[1:]
    return batch.filter(pa.array(~replaced))


CONNECTOR = Connector(
    name="print",
    summary="Rows as text on the terminal.",
    sink_options=OPTIONS,
    create_sink=_create_sink,
    sink_delivery=Delivery.AT_LEAST_ONCE,
    notes="Prints the change kind too: +I insert, -U/+U update, -D delete. Times and NULL are written as in SQL "
    "(`2024-03-01 10:00:00.000`), not as Java writes them, which is what Flink prints (`2024-03-01T10:00`, `null`).",
)
