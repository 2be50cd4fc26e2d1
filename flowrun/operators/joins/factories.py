"""Specs of the joins; all positions are those of the inputs' columns."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import pyarrow as pa

from flowrun.api.functions import ColumnsFunction, PredicateFunction
from flowrun.api.lookup import LookupSource
from flowrun.api.operator import BatchForm, ChainingStrategy, OperatorSpec
from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.row_errors import FAIL, RowErrors
from flowrun.core.schema import Schema
from flowrun.core.semantics import JoinKind, TimeDomain
from flowrun.operators.joins.interval_side import MATCHED_COLUMN, TIME_COLUMN, side_schema
from flowrun.operators.joins.lookup_options import LookupSettings
from flowrun.operators.joins.regular_side import SideSpec
from flowrun.operators.joins.temporal_versions import DELETES_COLUMN, versions_schema
from flowrun.operators.keyed.row_store import ROW_COLUMN, row_store_schema
from flowrun.operators.ranking.row_runs import waiting_schema

LEFT, RIGHT = 0, 1
"""The inputs."""
TABLES = ("left", "right")
"""Names of the state tables of what is remembered of each."""
VERSIONS = "versions"
"""Name of the state table of a temporal join with the versions of each key."""
WAITING = "left"
"""Name of the one with rows that wait for the watermark."""
WAITING_COUNTERS = (TIME_COLUMN,)
_DEFAULTS = LookupSettings()


@record
class RegularJoinFactory(OperatorSpec):
    """Operators that join two inputs, each of which may be a changelog.

    Attributes:
        schemas: of the left and the right input.
        keys: positions of the key columns in each, of pairwise equal types; empty: all rows have one key.
        output_schema: left columns, then right columns; of semi and anti joins left columns only.
        null_safe: for each key whether NULL equals NULL; empty: for none.
        condition: what must hold besides, over left columns, then right columns.
        ttl_ms: rows of the left and of the right side are forgotten so long after they were written; 0: never.
    """

    schemas: tuple[Schema, Schema]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    output_schema: Schema
    kind: JoinKind = JoinKind.INNER
    null_safe: tuple[bool, ...] = ()
    condition: PredicateFunction | None = None
    ttl_ms: tuple[int, int] = (0, 0)
    name: str = "join"
    errors: RowErrors = FAIL

    chaining = ChainingStrategy.HEAD  # has two inputs: starts a chain
    batch_form = BatchForm.BY_KEYS
    uses_event_time = False

    @property
    def sides(self) -> tuple[SideSpec, SideSpec]:
        """What is remembered of each input."""
        keeps_left, keeps_right = self.kind.keeps
        keeps = keeps_left or self.kind is JoinKind.ANTI, keeps_right
        left, right = (
            SideSpec(
                schema=self.schemas[i],
                keys=self.keys[i],
                null_safe=self.null_safe or (False,) * len(self.keys[i]),
                counts=self.kind.counts[i],
                keeps=keeps[i],
                ttl_ms=self.ttl_ms[i],
            )
            for i in (LEFT, RIGHT)
        )
        return left, right

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Tables `left` and `right`: the rows that are remembered."""
        return {name: side.state_schema for name, side in zip(TABLES, self.sides, strict=True)}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """Table → column → what it holds."""
        left, right = self.sides
        return {"left": left.meanings("left", "right"), "right": right.meanings("right", "left")}


@record
class WindowJoinFactory(OperatorSpec):
    """Operators that join rows of equal windows.

    Attributes:
        schemas: of the left and the right input.
        keys: positions of the key columns in each, of pairwise equal types; empty: all rows have one key.
        windows: positions of the start and the end of the window in each.
        output_schema: left columns, then right columns; of semi and anti joins left columns only.
        condition: what must hold besides, over left columns, then right columns.
        time_zone: whose clocks the windows go by.
    """

    schemas: tuple[Schema, Schema]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    windows: tuple[tuple[int, int], tuple[int, int]]
    output_schema: Schema
    kind: JoinKind = JoinKind.INNER
    condition: PredicateFunction | None = None
    domain: TimeDomain = TimeDomain.EVENT
    name: str = "window join"
    errors: RowErrors = FAIL
    time_zone: str = UTC_ZONE

    chaining = ChainingStrategy.HEAD  # has two inputs: starts a chain
    batch_form = BatchForm.BY_KEYS

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Tables `left` and `right`: the rows of open windows."""
        return {name: waiting_schema(self.schemas[i], self.keys[i]) for i, name in enumerate(TABLES)}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """Table → column → what it holds."""
        return {name: {ROW_COLUMN: f"arrival number of a row of the {name} side"} for name in TABLES}


class OuterSides(Enum):
    """Which sides' rows come out without a match: (left, right)."""

    NONE = (False, False)
    LEFT = (True, False)
    RIGHT = (False, True)
    BOTH = (True, True)


@record
class IntervalJoinFactory(OperatorSpec):
    """Operators that join rows of two inputs within an interval.

    Attributes:
        schemas: of the left and the right input.
        keys: positions of the key columns in each, of pairwise equal types; empty: all rows have one key.
        times: position of the time column in each; ignored in processing time.
        lower_ms: right time − left time is at least this.
        upper_ms: and at most this.
        output_schema: left columns, then right columns.
        condition: over those.
    """

    schemas: tuple[Schema, Schema]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    times: tuple[int, int]
    lower_ms: int
    upper_ms: int
    output_schema: Schema
    outer: OuterSides = OuterSides.NONE
    condition: PredicateFunction | None = None
    domain: TimeDomain = TimeDomain.EVENT
    name: str = "interval join"
    errors: RowErrors = FAIL

    chaining = ChainingStrategy.HEAD  # has two inputs: starts a chain
    batch_form = BatchForm.BY_KEYS

    @property
    def output_delay_ms(self) -> int:
        """By how much the watermark is held back, ms."""
        if self.domain is TimeDomain.PROCESSING or self.lower_ms > self.upper_ms:
            return 0
        # An outer row may come out when the watermark is one past the last row that it could match.
        return max(self.upper_ms, -self.lower_ms) + (self.outer is not OuterSides.NONE)

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Tables `left` and `right`: the rows that are remembered."""
        return {name: side_schema(self.schemas[i], self.keys[i]) for i, name in enumerate(TABLES)}

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What columns of these tables hold."""
        texts = {
            ROW_COLUMN: "order of arrival",
            TIME_COLUMN: "time by which the row is joined, ms since the epoch",
            MATCHED_COLUMN: "1: was joined, 0: was not",
        }
        return dict.fromkeys(TABLES, texts)


@record
class TemporalJoinFactory(OperatorSpec):
    """Operators that join left rows with versions of their keys.

    Attributes:
        schemas: of the left and the right input.
        keys: positions of the key columns in each, of pairwise equal types.
        left_time: position of the left time column.
        right_time: position of the right one; None in processing time.
        output_schema: left columns, then right columns.
        outer: whether left rows without version, or whose version fails the condition, come out with NULLs.
        condition: over left columns, then right columns.
    """

    schemas: tuple[Schema, Schema]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    left_time: int
    right_time: int | None
    output_schema: Schema
    outer: bool = False
    condition: PredicateFunction | None = None
    domain: TimeDomain = TimeDomain.EVENT
    name: str = "temporal join"
    errors: RowErrors = FAIL

    chaining = ChainingStrategy.HEAD  # has two inputs: starts a chain
    batch_form = BatchForm.BY_KEYS

    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """Tables `versions`, and in event time `left`: rows that wait for the watermark."""
        schemas = {VERSIONS: versions_schema(self.schemas[RIGHT], self.keys[RIGHT])}
        if self.domain is TimeDomain.EVENT:
            schemas[WAITING] = row_store_schema(self.schemas[LEFT], self.keys[LEFT], WAITING_COUNTERS)
        return schemas

    def state_meanings(self) -> Mapping[str, Mapping[str, str]]:
        """What columns of these tables hold."""
        order = {ROW_COLUMN: "order of arrival"}
        since = {
            TIME_COLUMN: "since when the row holds, ms since the epoch",
            DELETES_COLUMN: "1: the key has no row since",
        }
        meanings = {VERSIONS: order | (since if self.domain is TimeDomain.EVENT else {})}
        if self.domain is TimeDomain.EVENT:
            meanings[WAITING] = order | {TIME_COLUMN: "time of the row, ms since the epoch"}
        return meanings


@record
class LookupJoinFactory(OperatorSpec):
    """Operators that join rows with those of an outside table.

    Attributes:
        source: the table.
        keys: input rows → values to ask by, in the order and of the types of `source.keys`.
        projection: found rows → the columns that are wanted.
        output_schema: input columns, then projected ones.
        table: name, for messages.
        outer: whether input rows that find nothing come out with NULLs.
        condition: over the columns of the output.
        settings: caching, retries, concurrency.
    """

    source: LookupSource
    keys: ColumnsFunction
    projection: ColumnsFunction
    output_schema: Schema
    table: str
    outer: bool = False
    condition: PredicateFunction | None = None
    settings: LookupSettings = _DEFAULTS
    name: str = "lookup join"
    errors: RowErrors = FAIL
