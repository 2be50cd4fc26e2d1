"""Recipes of the OVER operators: what lowering builds and a job graph carries.

All positions are those of the input's columns, of which the first `len(output_schema) - len(calls)` are sent; the others are arguments and
filters that were computed for the calls. Input must be partitioned by `keys`; without keys it must be one subtask. NULL is a key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from flowrun.api.aggregate import BoundAggregate
from flowrun.api.operator import BatchForm, OperatorSpec
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import FrameUnit, SortKey
from flowrun.core.types import BIGINT, TINYINT, decimal
from flowrun.operators.keyed.key_rows import WRITTEN
from flowrun.operators.keyed.row_store import ROW_COLUMN, row_store_schema
from flowrun.operators.over.calls import FrameCall, OverFrame, Place, PlaceCall
from flowrun.operators.ranking.factories import ROW_MEANINGS

ROWS = "rows"
"""Name of the state table of rows that wait, or that frames still need."""
WAITING = "waiting"
"""Name of the state table of rows that are sent at the end: no results have been sent for them."""
TIME = "__time"
"""State column: the row's place in time, ms."""
SENT = "__sent"
"""State column: 1 if the row was sent and is kept for later frames, 0 if it waits."""
EVENT_TIME = "__event_time"
"""State column over changes: event time of the row, ms; 0 if rows have none."""
PROGRESS = "progress"
"""Name of the state table with a row a partition."""
LAST = "__last"
"""State column: time of the last row that was sent, ms."""
COUNT = "__count"
"""State column: how many rows were sent."""
ORDERS = "__orders"
"""State column: how many different times those had."""
PROGRESS_COUNTERS = (LAST, COUNT, ORDERS)
_NO_NAME = re.compile(r"[^A-Za-z0-9]+")


@record(slots=False)
class OverFactory(OperatorSpec):
    """What both OVER operators have.

    Attributes:
        keys: columns whose values tell partitions apart.
        frame: what aggregates cover.
        calls: results, in the order of the output's last columns.
    """

    input_schema: Schema
    output_schema: Schema
    keys: tuple[int, ...]
    frame: OverFrame
    calls: tuple[FrameCall, ...]

    batch_form = BatchForm.BY_KEYS

    @cached_property
    def aggregates(self) -> tuple[BoundAggregate, ...]:
        """The calls that are aggregates."""
        return tuple(c for c in self.calls if isinstance(c, BoundAggregate))

    @cached_property
    def places(self) -> tuple[PlaceCall, ...]:
        """The calls that are not."""
        return tuple(c for c in self.calls if isinstance(c, PlaceCall))

    @cached_property
    def result_order(self) -> tuple[int, ...]:
        """For each call where its result is among those of the aggregates and then of the others."""
        ordered: list[FrameCall] = [*self.aggregates, *self.places]
        return tuple(next(i for i, c in enumerate(ordered) if c is call) for call in self.calls)


@record(slots=False)
class AppendOverFactory(OverFactory):
    """OVER over rows that only come, in order of time.

    Attributes:
        time: the event-time column; None: processing time.

    Raises:
        ValueError: a call needs rows that have not come.
    """

    time: int | None = None

    def __post_init__(self) -> None:
        for call in self.calls:
            if isinstance(call, PlaceCall) and call.place.looks_ahead:
                raise ValueError(f"{call.place.value} needs rows that have not come")

    @property
    def keeps_all(self) -> bool:
        """Whether all rows are needed: by frames without a bound and aggregates that need their values."""
        return self.frame.preceding is None and any(a.kernel.collect is not None for a in self.aggregates)

    @property
    def carries(self) -> bool:
        """Whether what the past amounts to is kept in place of its rows."""
        return self.frame.preceding is None and not self.keeps_all

    @property
    def kept_rows(self) -> int:
        """How many of the last rows of each partition later frames, LAG, or the rule for late rows may need."""
        back = [c.offset for c in self.places if c.place is Place.LAG]
        if self.frame.preceding is not None:
            back.append(1)
            if self.frame.unit is FrameUnit.ROWS:
                back.append(int(self.frame.preceding))
        return max(back, default=0)

    @cached_property
    def progress_columns(self) -> Schema | None:
        """Keys and accumulators of what the past amounts to; None: only rows are kept."""
        counted = any(c.place is not Place.LAG for c in self.places)
        if self.keeps_all or not (self.carries or counted):
            return None
        fields = [Field(f"k{i}", self.input_schema.types[k]) for i, k in enumerate(self.keys)]
        for aggregate in self.aggregates if self.carries else ():
            for accumulator in aggregate.kernel.accumulators:
                kind = accumulator.type
                if accumulator.partial == "sum" and not kind.is_approximate:
                    kind = BIGINT if kind.is_integer else decimal(38, kind.scale or 0)
                fields.append(Field(_unlike(f"{aggregate.name}_{accumulator.name}", fields), kind))
        return Schema(tuple(fields) or (Field("nothing", TINYINT),))

    @property
    def distinct_places(self) -> tuple[int, ...]:
        """Which aggregates must know the values that they have seen."""
        if not self.carries:
            return ()
        return tuple(i for i, a in enumerate(self.aggregates) if a.distinct)

    def distinct_table(self, place: int) -> str:
        """Name of the state table of the values that an aggregate has seen."""
        own = _NO_NAME.sub("_", self.aggregates[place].name).lower()
        same = [p for p in self.distinct_places if _NO_NAME.sub("_", self.aggregates[p].name).lower() == own]
        return f"distinct_{own}" if len(same) == 1 else f"distinct_{own}_{place}"

    def distinct_columns(self, place: int) -> Schema:
        """Its columns: keys, value."""
        argument = self.aggregates[place].argument
        assert argument is not None
        keys = [Field(f"k{i}", self.input_schema.types[k]) for i, k in enumerate(self.keys)]
        return Schema((*keys, Field("value", self.input_schema.types[argument])))

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Rows that wait or are still needed; what the past amounts to."""
        schemas = {ROWS: row_store_schema(self.input_schema, self.keys, (TIME, SENT))}
        keys = range(len(self.keys))
        if self.progress_columns is not None:
            schemas[PROGRESS] = row_store_schema(self.progress_columns, keys, PROGRESS_COUNTERS)
        for place in self.distinct_places:
            schemas[self.distinct_table(place)] = row_store_schema(self.distinct_columns(place), keys)
        return schemas

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state tables hold."""
        clock = "processing time" if self.time is None else self.input_schema.names[self.time]
        meanings: dict[str, dict[str, str]] = {
            ROWS: {
                ROW_COLUMN: "arrival number",
                TIME: f"{clock}, ms since the epoch",
                SENT: "1: sent, kept for later frames; 0: waits for the watermark",
            }
        }
        if self.progress_columns is not None:
            names = iter(self.progress_columns.names[len(self.keys) :])
            held = {
                ROW_COLUMN: "arrival number",
                LAST: f"{clock} of the last row that was sent, ms since the epoch",
                COUNT: "rows that were sent",
                ORDERS: f"different values of {clock} of those",
            }
            for aggregate in self.aggregates if self.carries else ():
                for accumulator in aggregate.kernel.accumulators:
                    held[next(names)] = f"{accumulator.name} of {self._text(aggregate)}"
            meanings[PROGRESS] = held
        for place in self.distinct_places:
            meanings[self.distinct_table(place)] = {
                ROW_COLUMN: "arrival number",
                "value": f"values seen by {self._text(self.aggregates[place])}",
            }
        return meanings

    def _text(self, aggregate: BoundAggregate) -> str:
        names = self.input_schema.names
        argument = aggregate.argument_text or ("*" if aggregate.argument is None else names[aggregate.argument])
        distinct = "DISTINCT " if aggregate.distinct else ""
        where = ""
        if aggregate.filter is not None:
            where = f" FILTER (WHERE {aggregate.filter_text or names[aggregate.filter]})"
        return f"{aggregate.kernel.function}({distinct}{argument}){where}"


@record(slots=False)
class ChangelogOverFactory(OverFactory):
    """OVER over rows that change: results are corrected.

    Attributes:
        order: of the rows of a partition. RANGE with a bound counts in units of its first column.
        ttl_ms: how long a partition is kept that gets no rows, ms of processing time; 0: for ever.
        at_end: nothing is sent until the input has ended, and then every row once.
    """

    order: tuple[SortKey, ...] = ()
    ttl_ms: int = 0
    at_end: bool = False

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """All rows."""
        return {self._table: row_store_schema(self.input_schema, self.keys, (WRITTEN, EVENT_TIME))}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What the columns of the state table hold."""
        return {self._table: {**ROW_MEANINGS, EVENT_TIME: "event time of the row, ms since the epoch"}}

    @property
    def _table(self) -> str:
        """Rows that wait are not those of which results have been sent: state of the one is none of the other."""
        return WAITING if self.at_end else ROWS


def _unlike(name: str, fields: Sequence[Field]) -> str:
    taken = {f.name for f in fields}
    while name in taken:
        name += "_"
    return name
