"""The hybrid source: a picklable description of sources that are read in turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flowrun.api.changelog import ChangelogMode
from flowrun.api.connector import EventTime
from flowrun.api.source import (
    Boundedness,
    DeclaresSourceState,
    Delivery,
    JsonValue,
    KnowsRows,
    ReaderContext,
    SourceReader,
    SplitEnumerator,
)
from flowrun.connectors.hybrid.enumerator import HybridEnumerator
from flowrun.connectors.hybrid.parts import Part
from flowrun.connectors.hybrid.reader import HybridReader
from flowrun.core.clock import Clock
from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.core.shapes import MAX_INTEGER, Shape, anything, either, integer, listed, mapping, members, optional, text

_PROMISES = (Delivery.AT_MOST_ONCE, Delivery.AT_LEAST_ONCE, Delivery.EXACTLY_ONCE)
"""From the least to the most."""


@record(slots=False)
class HybridSource:
    """Reads several sources one after the other.

    Attributes:
        name: of the table, for messages.
        schema: the columns of the rows.
        parts: the sources in the order in which they are read; all but the last one end.
        event_time: of the rows, by which it is decided whose rows they are; None: each source gives all of its rows.
        changelog_mode: the changes that rows may be.
    """

    name: str
    schema: Schema
    parts: tuple[Part, ...]
    event_time: EventTime | None
    changelog_mode: ChangelogMode

    @property
    def boundedness(self) -> Boundedness:
        """That of the last source."""
        return self.parts[-1].source.boundedness

    @property
    def delivery(self) -> Delivery:
        """The least of what the sources promise."""
        return min((p.source.delivery for p in self.parts), key=_PROMISES.index)

    @property
    def in_process(self) -> bool:
        """Whether rows of a source live in this process, where no other one can read them."""
        return any(getattr(p.source, "in_process", False) for p in self.parts)

    def estimated_rows(self) -> int | None:
        """About how many rows all sources have; None: one of them does not know."""
        found = [p.source.estimated_rows() if isinstance(p.source, KnowsRows) else None for p in self.parts]
        return None if None in found else sum(n or 0 for n in found)

    @property
    def is_divided(self) -> bool:
        """Whether the switches have times."""
        return self.event_time is not None

    def before(self, until_ms: int) -> HybridSource:
        """The sources that have rows with an event time before `until_ms`; all of them if no switch has a time."""
        kept = tuple(p for p in self.parts if p.begin_ms is None or p.begin_ms < until_ms)
        return replace(self, parts=kept)

    @property
    def position_shape(self) -> Shape:
        """The name of a source, and a split of that source."""
        shapes = {p.identifier: _position_shape(p) for p in self.parts}

        def of_source(value: dict[str, Any]) -> Shape:
            position = shapes.get(str(value.get("source")), anything)
            return members({"source": text, "id": text, "position": position})

        return either(of_source)

    @property
    def enumerator_shape(self) -> Shape:
        """The sources that are not read to their end, in order, each with its beginning and the state of its enumerator."""
        shapes = {p.identifier: _enumerator_shape(p) for p in self.parts}

        def of_source(value: dict[str, Any]) -> Shape:
            state = shapes.get(str(value.get("source")), anything)
            return members({"source": text, "begin": optional(integer(-MAX_INTEGER)), "state": state})

        return members({"sources": listed(either(of_source))})

    def create_enumerator(self, parallelism: int, clock: Clock, restored: JsonValue = None) -> SplitEnumerator:
        """An enumerator, which lets all readers go on to the next source together."""
        return HybridEnumerator(self.name, self.parts, parallelism, clock, restored)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        """A reader, which has a reader of one source at a time."""
        return HybridReader(self.parts, self.event_time, self.schema.names, context)


def _position_shape(part: Part) -> Shape:
    source: object = part.source
    return source.position_shape if isinstance(source, DeclaresSourceState) else mapping(anything)


def _enumerator_shape(part: Part) -> Shape:
    source: object = part.source
    return source.enumerator_shape if isinstance(source, DeclaresSourceState) else anything
