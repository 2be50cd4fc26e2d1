"""The `print` connector: rows as text on standard output or standard error, for looking at a stream."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from flowrun.api.connector import Connector, TableDefinition
from flowrun.api.sink import SinkWriter, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.row_text import render_rows
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.elements import RecordBatch
from flowrun.core.options import Option, OptionType
from flowrun.core.schema import Schema
from flowrun.errors import ConnectorError

OPTIONS = (
    Option("print-identifier", OptionType.STRING, "Text before each row, to tell several print sinks apart."),
    Option("standard-error", OptionType.BOOLEAN, "Print to standard error instead of standard output.", default=False),
)


@dataclass(frozen=True, slots=True)
class PrintSink:
    """Prints each row as `identifier:subtask> +I[…]`; prefix and subtask are left out when they say nothing."""

    schema: Schema
    identifier: str
    standard_error: bool

    @property
    def delivery(self) -> Delivery:
        """Rows printed before a failure are printed again after it."""
        return Delivery.AT_LEAST_ONCE

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        parts = [self.identifier] if self.identifier else []
        if context.parallelism > 1:
            parts.append(str(context.subtask + 1))
        return _PrintWriter(":".join(parts) + "> " if parts else "", self.standard_error)

    def create_committer(self) -> None:
        """Nothing to commit."""


class _PrintWriter(ImmediateWriter):
    def __init__(self, prefix: str, standard_error: bool) -> None:
        self._prefix = prefix
        self._standard_error = standard_error

    def write(self, batch: RecordBatch) -> None:
        """Print the rows with one write, so that lines of subtasks do not mix."""
        lines = render_rows(batch).to_pylist()
        text = self._prefix + ("\n" + self._prefix).join(lines) + "\n"
        # looked up at each write: a live view replaces the streams while it is shown
        stream = sys.stderr if self._standard_error else sys.stdout
        try:
            stream.write(text)
            stream.flush()
        except OSError as error:
            raise ConnectorError(
                f"print: cannot write to standard {'error' if self._standard_error else 'output'}: {error}"
            ) from error


def _create_sink(table: TableDefinition) -> PrintSink:
    identifier = table.options.get("print-identifier")
    return PrintSink(table.schema, "" if identifier is None else str(identifier), table.options.flag("standard-error"))


CONNECTOR = Connector(
    name="print",
    summary="Rows as text on the terminal.",
    sink_options=OPTIONS,
    create_sink=_create_sink,
    sink_delivery=Delivery.AT_LEAST_ONCE,
    notes="Prints the change kind too: +I insert, -U/+U update, -D delete.",
)
