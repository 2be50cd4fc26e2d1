"""Tables that a test fills while the pipeline runs, as sources: with the columns, the boundedness and the changes of those they replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from flowrun.api.changelog import ChangelogMode, mode_of_source
from flowrun.api.source import (
    Boundedness,
    Delivery,
    JsonValue,
    ReaderContext,
    Source,
    SourceOutput,
    SourceReader,
    Split,
    SplitEnumerator,
)
from flowrun.connectors.held_rows import HeldElement, HeldRowsReader
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.core.clock import Clock
from flowrun.core.elements import IDLE, Watermark, WatermarkStatus
from flowrun.core.record import record
from flowrun.core.schema import Schema


class GivenTable:
    """Rows, watermarks and idleness of one source, in the order in which they were given.

    Attributes:
        name: of the source.
        schema: the columns that rows may have: all that the table declares.
        elements: what was given so far.
        ended: whether nothing more comes.
    """

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema
        self.elements: list[HeldElement] = []
        self.ended = False
        self._listeners: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Forget everything: another run begins."""
        self.elements, self.ended, self._listeners = [], False, []

    def give(self, *elements: HeldElement) -> None:
        """Add to what is there, and tell readers."""
        self.elements += elements
        self._tell()

    def end(self) -> None:
        """Nothing more comes."""
        self.ended = True
        self._tell()

    def forget_readers(self) -> None:
        """The job that read it is gone."""
        self._listeners = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a reader be told from now on."""
        self._listeners.append(listener)

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


@record
class GivenSource:
    """Reads a given table as if it were the table that it stands for.

    Attributes:
        table: what was given.
        schema: the columns that are read.
        boundedness: as that of the source it stands for.
        changelog_mode: the same.
    """

    table: GivenTable
    schema: Schema
    boundedness: Boundedness = Boundedness.UNBOUNDED
    changelog_mode: ChangelogMode = ChangelogMode.APPEND
    delivery: Delivery = field(default=Delivery.EXACTLY_ONCE, init=False)

    @classmethod
    def in_place_of(cls, source: Source, table: GivenTable) -> GivenSource:
        """A source like another one, over given rows."""
        return cls(table, source.schema, source.boundedness, mode_of_source(source))

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """It hands out the one split: the order of the rows is that in which they were given."""
        return ListedSplitEnumerator([Split(self.table.name, {})], restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader that goes on when more is given."""
        self.table.listen(context.notify_available)
        return _GivenReader(self, context)


class _GivenReader(HeldRowsReader):
    def __init__(self, source: GivenSource, context: ReaderContext) -> None:
        table = source.table
        super().__init__(source.schema, lambda _: table.elements, context, grows=lambda: not table.ended)

    def _say(self, element: Watermark | WatermarkStatus, split_id: str, output: SourceOutput) -> None:
        """What a test says of event time counts, whatever the table's own strategy is."""
        if isinstance(element, Watermark):
            output.advance(element.timestamp, split_id)
        elif element == IDLE:
            output.mark_idle(split_id)
