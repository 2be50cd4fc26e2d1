"""The `blackhole` connector: a sink that drops every row, for measuring a pipeline without its output."""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.api.changelog import ChangesTaken
from flowrun.api.connector import Connector, TableDefinition
from flowrun.api.sink import Committable, CommittedPiece, Committer, OutputNote, SinkWriter, ToldCommit, WriterContext
from flowrun.api.source import Delivery
from flowrun.connectors.stateless_sink import ImmediateWriter
from flowrun.core.elements import RecordBatch
from flowrun.core.options import Option, OptionType
from flowrun.core.record import record
from flowrun.core.schema import Schema

OPTIONS = (
    Option(
        "rows-per-second",
        OptionType.INT,
        "Accept at most so many rows a second in each subtask: a slow sink, to see back pressure.",
        minimum=1,
    ),
)


@record
class BlackholeSink:
    """Drops rows, at a given pace if one is set."""

    schema: Schema
    rows_per_second: int | None = None

    @property
    def delivery(self) -> Delivery:
        """At least once, which makes no difference: rows are dropped."""
        return Delivery.AT_LEAST_ONCE

    @property
    def changes_taken(self) -> ChangesTaken:
        """All changes, as they come."""
        return ChangesTaken.ALL

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one subtask."""
        return _BlackholeWriter(self.rows_per_second, context)

    def create_committer(self) -> Committer:
        """A committer without work: nothing is visible before a commit, and nothing after it."""
        return _NothingToCommit()


class _NothingToCommit:
    def commit(self, committables: Sequence[Committable]) -> None:
        """Nothing."""

    def abort(self, committables: Sequence[Committable]) -> None:
        """Nothing."""

    def committed(self, committables: Sequence[Committable]) -> Sequence[CommittedPiece]:
        """Nothing."""
        return ()

    def revert(self, committables: Sequence[Committable]) -> None:
        """Nothing."""

    def told(self) -> Sequence[ToldCommit]:
        """Nothing."""
        return ()

    def notes(self) -> Sequence[OutputNote]:
        """Nowhere."""
        return ()

    def leave_note(self, content: bytes) -> None:
        """Nowhere."""


class _BlackholeWriter(ImmediateWriter):
    def __init__(self, rows_per_second: int | None, context: WriterContext) -> None:
        self._rate = rows_per_second
        self._context = context
        self._due_ns = 0

    def write(self, batch: RecordBatch) -> None:
        """Drop the rows; with a rate, block as long as a sink of that speed would take."""
        if self._rate is None:
            return
        now = self._context.clock.monotonic_ns()
        self._due_ns = max(self._due_ns, now) + batch.num_rows * 1_000_000_000 // self._rate
        self._context.pause((self._due_ns - now) / 1e6)


def _create_sink(table: TableDefinition) -> BlackholeSink:
    rate = table.options.get("rows-per-second")
    return BlackholeSink(table.schema, None if rate is None else int(rate))


CONNECTOR = Connector(
    name="blackhole",
    summary="Drops every row; optionally slowly.",
    sink_options=OPTIONS,
    create_sink=_create_sink,
    sink_delivery=Delivery.AT_LEAST_ONCE,
)
