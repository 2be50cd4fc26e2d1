"""The sources of a hybrid one, and how splits of them are splits of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.connector import EventTime
from flowrun.api.source import JsonValue, Source, Split
from flowrun.core.elements import RecordBatch, timestamps_from_column
from flowrun.core.record import record


@record
class Part:
    """One of the sources.

    Attributes:
        identifier: the user's name of it.
        source: what is read.
        begin_ms: event time of its rows; those before it belong to the source before. None: no row is left out.
        end_ms: those with this event time or a later one belong to the source behind. None: no row is left out.
    """

    identifier: str
    source: Source
    begin_ms: int | None = None
    end_ms: int | None = None

    def wrap(self, split: Split) -> Split:
        """A split of its source as one of the hybrid source."""
        position: dict[str, JsonValue] = {
            "source": self.identifier, "id": split.split_id, "position": dict(split.position),
        }  # fmt: skip
        return Split(self.split_id(split.split_id), position)

    def split_id(self, inner: str) -> str:
        """What the split of its source is called.

        >>> Part("live", object()).split_id("orders-0")
        'live:orders-0'
        """
        return f"{self.identifier}:{inner}"


def identifier_of(split: Split) -> str:
    """The name of the source that a split is of."""
    return cast(str, split.position["source"])


def unwrap(split: Split) -> Split:
    """The split as its source knows it."""
    position = split.position
    return Split(cast(str, position["id"]), cast("dict[str, JsonValue]", position["position"]))


SWITCH = "switch"
"""The split id of `End`s, and of a reader that waits between two sources."""


@record
class End:
    """What an enumerator tells a reader in the place of a split: there are no more splits of a source. A reader that has read those that it
    has to their end asks for a split again.

    Attributes:
        source: the name of the source.
        subtask: who is told.
    """

    source: str
    subtask: int

    @property
    def split(self) -> Split:
        """It as a split, which no snapshot of a reader holds."""
        return Split(SWITCH, {"source": self.source, "subtask": self.subtask})

    @staticmethod
    def of(split: Split) -> End | None:
        """The end that a split stands for; None: it is a split.

        >>> End.of(End("history", 0).split)
        End(source='history', subtask=0)
        """
        if split.split_id != SWITCH:
            return None
        return End(cast(str, split.position["source"]), cast(int, split.position["subtask"]))


def rows_of_part(
    part: Part, event_time: EventTime | None, names: Sequence[str], left_out: Callable[[int], None]
) -> Callable[[RecordBatch], RecordBatch]:
    """(rows of a part's source, with all that event time is computed from) → those that are the part's, with the columns `names`.

    Rows without event time stay: whoever gives rows their event time says what becomes of those.

    Args:
        part: whose rows.
        event_time: of the table; None: no row is left out.
        names: of the columns that remain.
        left_out: is told how many rows another source gives.
    """
    kernel = None if event_time is None else event_time.value.compile()
    columns = () if event_time is None else event_time.columns

    def chosen(rows: RecordBatch) -> RecordBatch:
        if kernel is not None:
            times = timestamps_from_column(kernel(rows.columns.select(columns)))
            mask = _within(times, part)
            missing = rows.num_rows - int(pc.sum(mask).as_py() or 0)
            if missing:
                left_out(missing)
                rows = rows.filter(mask)
        if rows.columns.schema.names != list(names):
            rows = rows.with_columns(rows.columns.select(names))
        return rows

    return chosen


def _within(times: pa.Int64Array, part: Part) -> pa.BooleanArray:
    """Which event times, in ms, are those of a part; NULL is."""
    if part.begin_ms is None:
        mask = pc.less(times, part.end_ms)
    elif part.end_ms is None:
        mask = pc.greater_equal(times, part.begin_ms)
    else:
        mask = pc.and_(pc.greater_equal(times, part.begin_ms), pc.less(times, part.end_ms))
    return pc.fill_null(mask, True)
