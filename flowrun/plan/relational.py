"""Nodes of the relational plan beyond windows over one stream: updating aggregates, OVER, ranking, and table functions.

SQL and YAML make them alike. Some (`Over`, `GroupAggregate` over window columns) are written first in a general form, as the query says
it; `flowrun.plan.recognition` then finds the special forms that keep less state: window aggregates, top-N and deduplication. Joins are
in `flowrun.plan.joins`. Semantics are Apache Flink's streaming SQL.
"""

from __future__ import annotations

from decimal import Decimal
from enum import Enum

from flowrun.core.local_time import UTC_ZONE
from flowrun.core.record import record
from flowrun.core.schema import Field, Schema
from flowrun.core.semantics import FrameUnit, RankFunction, SortKey, TimeDomain
from flowrun.core.types import timestamp
from flowrun.plan import description as describe
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.nodes import WINDOW_END, WINDOW_START, PlanNode
from flowrun.plan.windows import WindowSpec

WINDOW_TIME = "window_time"


# -- rows in, rows out ---------------------------------------------------------------------------------------------------------


@describe.node(final=True)
class Values(PlanNode):
    """Constant rows: `rows[i][j]` is the literal of row i, column j. Bounded; without event time."""

    rows: tuple[tuple[Expression, ...], ...] = describe.expressions()


@describe.node(output=(describe.Passed("input"),), rows=describe.Rows.EACH, row_by_row=True)
class AssignTime(PlanNode):
    """The same rows with the TIMESTAMP or TIMESTAMP_LTZ column `column` as their event time; watermarks pass as they are.

    Only over columns that are time attributes (see `flowrun.plan.traits`): no row may be later than the watermarks already say. In a
    batch, which has no watermarks, over any.
    """

    input: PlanNode = describe.input_node()
    column: int = describe.positions("input")

    @property
    def event_time(self) -> bool:
        return True


@describe.node(output=(describe.Each("projections", across=True),), rows=describe.Rows.REPEATED, row_by_row=True)
class Expand(PlanNode):
    """Every row once for each of `projections`, in that order (GROUPING SETS): one expression a column of `schema` in each."""

    input: PlanNode = describe.input_node()
    projections: tuple[tuple[Expression, ...], ...] = describe.expressions("input")


@describe.node(output=(describe.Passed("input"), describe.Added()), rows=describe.Rows.REPEATED, row_by_row=True)
class Unnest(PlanNode):
    """Every row once for each element of the ARRAY, MAP or MULTISET column `collection`: input columns, then the element's.

    An element of ROW type gives one column a field, a MAP two (key, value), anything else one; `ordinality` appends the 1-based
    position (INT). `outer`: a row whose collection is NULL or empty stays, with NULLs. Row kinds pass through. Without
    `keeps_collection` the collection itself comes out as NULL: repeating it for each of its elements costs the square of their number.
    """

    input: PlanNode = describe.input_node()
    collection: int = describe.positions("input")
    outer: bool = describe.parameter(default=False)
    ordinality: bool = describe.parameter(default=False)
    keeps_collection: bool = describe.parameter(default=True)


@describe.node(
    output=(describe.Passed("input"), describe.Added()),
    rows=describe.Rows.REPEATED,
    row_by_row=True,
    needs_all=True,
)
class TableFunctionCall(PlanNode):
    """Every row once for each row that a Python table function gives for it: input columns, then the function's.

    `function` is `module:name`, looked up in `search_path` first. `outer`: rows for which it gives nothing stay, with NULLs.
    """

    input: PlanNode = describe.input_node()
    function: str = describe.user_function()
    arguments: tuple[Expression, ...] = describe.expressions("input")
    outer: bool = describe.parameter(default=False)
    search_path: tuple[str, ...] = describe.parameter(default=())


@describe.node(output=(describe.Passed("input"), describe.Added()), rows=describe.Rows.REPEATED)
class WindowTableFunction(PlanNode):
    """Every row once for each window that it belongs to: input columns, then window_start, window_end (TIMESTAMP(3)) and window_time.

    window_time is window_end − 1 ms, of the type of the time column. Rows keep their event time.

    Attributes:
        time: position of the time attribute.
        keys: PARTITION BY of a SESSION window; aligned windows have none.
    """

    input: PlanNode = describe.input_node()
    window: WindowSpec = describe.parameter()
    time: int = describe.positions("input")
    domain: TimeDomain = describe.clock(default=TimeDomain.EVENT)
    keys: tuple[int, ...] = describe.positions("input", groups=True, default=())


# -- aggregates ----------------------------------------------------------------------------------------------------------------


@describe.node(output=(describe.Taken("keys"), describe.Each("aggregates")))
class GroupAggregate(PlanNode):
    """Groups by `keys` without end and keeps each group's result up to date: keys, then aggregates. NULL is a key like any other.

    Emits +I for a new group, a −U/+U pair when its result changed, −D when its last row was retracted. Without keys there is one
    group, whose result appears with the first row, as in Flink. Without aggregates: DISTINCT.
    """

    input: PlanNode = describe.input_node()
    keys: tuple[int, ...] = describe.positions("input", groups=True)
    aggregates: tuple[AggregateCall, ...] = describe.parts("input")

    @property
    def event_time(self) -> bool:
        return False


@record
class Frame:
    """Which rows OVER covers: from `preceding` before the current one to `following` behind it; None: from the first, to the last.

    They count rows (ROWS), ms (RANGE over times) or units of the order (RANGE over numbers: a Decimal). Below 0 they are on the other
    side of the current row. RANGE includes rows of equal order.
    """

    unit: FrameUnit
    preceding: int | Decimal | None = None
    following: int | Decimal | None = 0

    @property
    def runs(self) -> bool:
        """Whether it ends at the current row, and so is known when that has come."""
        return self.following == 0 and (self.preceding is None or self.preceding >= 0)

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole partition, whatever the order."""
        return self.preceding is None and self.following is None

    @property
    def looks_ahead(self) -> bool:
        """Whether it has rows behind the current one."""
        return self.following is None or self.following > 0


describe.describe_part(
    SortKey, column=describe.positions(), descending=describe.parameter(), nulls=describe.parameter()
)


@describe.part
class OverCall:
    """One OVER call as the query says it. `call.function` is an aggregate, or ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, NTILE, …"""

    call: AggregateCall = describe.parts()
    partition: tuple[int, ...] = describe.positions()
    order: tuple[SortKey, ...] = describe.parts()
    frame: Frame | None = describe.parameter()


@describe.node(output=(describe.Passed("input"), describe.Each("calls", least=1)), rows=describe.Rows.EACH)
class Over(PlanNode):
    """Input columns, then one column an OVER call: the form in which queries are written. Recognition turns it into `OverAggregate`
    or, with the condition above it, into `Rank`, `Deduplicate` or their window forms.
    """

    input: PlanNode = describe.input_node()
    calls: tuple[OverCall, ...] = describe.parts("input")


@describe.node(
    output=(describe.Passed("input"), describe.Each("calls", least=1)),
    rows=describe.Rows.EACH,
    keeps_rows=True,
)
class OverAggregate(PlanNode):
    """Input columns, then one column a call, computed over `frame` of the rows of the same `keys` in order of `order`.

    With an append-only input `order` is one time attribute, rows come out when the watermark passes them (event time) or at once
    (processing time), and late rows are dropped and counted, as in Flink. Over a changelog, or in order of columns that are no time, the
    operator corrects what it sent; `order` may then be any columns, or none. Rows with equal order come in arrival order (ROWS) or
    count together (RANGE).

    Attributes:
        corrects: later rows change what was computed, by the order or by what is called, so that it is corrected even if the input
            has come to be append-only, as a GROUP BY whose aggregates nobody reads does.
        at_end: the frame is the whole partition and the input ends: every row is sent once, when it has, and none is taken back.
    """

    input: PlanNode = describe.input_node()
    keys: tuple[int, ...] = describe.positions("input", groups=True)
    order: tuple[SortKey, ...] = describe.parts("input")
    domain: TimeDomain = describe.clock()
    frame: Frame = describe.parameter()
    calls: tuple[AggregateCall, ...] = describe.parts("input")
    corrects: bool = describe.parameter(default=False)
    at_end: bool = describe.parameter(default=False)


# -- ranking -------------------------------------------------------------------------------------------------------------------


LAST_RANK = 1 << 60
"""The last rank of a top-N without a limit (OFFSET alone), which only a batch can answer."""


@describe.node(output=(describe.Passed("input"), describe.Added()), rows=describe.Rows.SOME, keeps_rows=True)
class Rank(PlanNode):
    """The rows of each partition whose rank is in `first` ≤ rank ≤ `last`, kept up to date (top-N). With `rank_column` the rank
    (BIGINT) follows the input columns. Without `partition` there is one; ORDER BY … LIMIT is that too. Ties come in arrival order.
    Without `order` (LIMIT alone) rows are ranked in arrival order.
    """

    input: PlanNode = describe.input_node()
    partition: tuple[int, ...] = describe.positions("input", groups=True)
    order: tuple[SortKey, ...] = describe.parts("input")
    function: RankFunction = describe.parameter()
    first: int = describe.parameter()
    last: int = describe.parameter()
    rank_column: bool = describe.parameter()

    @property
    def event_time(self) -> bool:
        return False


class Keep(Enum):
    """Which of the rows of a key deduplication keeps."""

    FIRST = "first"
    LAST = "last"


@describe.node(
    output=(describe.Passed("input"), describe.Added()),
    rows=describe.Rows.SOME,
    keeps_rows=True,
    inserts_only=describe.InsertsOnly(
        "deduplication by a time attribute", hint="rank by another column with ROW_NUMBER()"
    ),
)
class Deduplicate(PlanNode):
    """One row a key: the first or last by time attribute `time`. Schema is the input's (with `rank_column` a BIGINT 1 follows).

    Keeping the first never updates: by event time a row is sent when the watermark has reached it, and late rows are dropped. Keeping
    the last does. Of rows with equal time, FIRST keeps the one that came first, LAST the one that came last, as in Flink.
    """

    input: PlanNode = describe.input_node()
    keys: tuple[int, ...] = describe.positions("input", groups=True)
    time: int = describe.positions("input")
    keep: Keep = describe.parameter()
    domain: TimeDomain = describe.clock()
    rank_column: bool = describe.parameter(default=False)


@describe.node(
    output=(describe.Passed("input"), describe.Added()),
    rows=describe.Rows.SOME,
    keeps_rows=True,
    final=True,
    inserts_only=describe.InsertsOnly("a window top-N", hint="rank without the window's bounds in PARTITION BY"),
)
class WindowRank(PlanNode):
    """`Rank` within windows: emitted once, as inserts, when the window closes. `window` are the positions of start and end.

    Window deduplication is this with `first` = `last` = 1 and the time attribute as order. With `newest_of_equals`, of rows that are
    equal in the order the one that came last counts first: which is what keeping the last by time means. Event time of the output:
    window_end − 1.
    """

    input: PlanNode = describe.input_node()
    window: tuple[int, int] = describe.positions("input", groups=True)
    partition: tuple[int, ...] = describe.positions("input", groups=True)
    order: tuple[SortKey, ...] = describe.parts("input")
    function: RankFunction = describe.parameter()
    first: int = describe.parameter()
    last: int = describe.parameter()
    rank_column: bool = describe.parameter()
    domain: TimeDomain = describe.clock(default=TimeDomain.EVENT)
    newest_of_equals: bool = describe.parameter(default=False)
    time_zone: str = describe.parameter(default=UTC_ZONE)


@describe.node(
    output=(describe.Passed("input"),),
    rows=describe.Rows.EACH,
    row_by_row=True,
    keeps_rows=True,
    final=True,
    inserts_only=describe.InsertsOnly(
        "ORDER BY a time attribute", hint="add a LIMIT, or leave the order to the reader"
    ),
)
class TemporalSort(PlanNode):
    """All rows in order of a time attribute ascending, then of the other keys. Rows come out when the watermark passes them.

    `optional`: it stands in a view, so that its readers do not rely on it. An order that does not begin with a time attribute is left out
    then, and an error else.
    """

    input: PlanNode = describe.input_node()
    order: tuple[SortKey, ...] = describe.parts("input")
    domain: TimeDomain = describe.clock()
    optional: bool = describe.parameter(default=False)


def window_columns(schema: Schema, time: int) -> Schema:
    """Output columns of a `WindowTableFunction` over rows of `schema` with the time attribute at position `time`."""
    bounds = (
        Field(WINDOW_START, timestamp(3)),
        Field(WINDOW_END, timestamp(3)),
        Field(WINDOW_TIME, schema.types[time]),
    )
    taken = set(schema.names)
    unique = []
    for bound in bounds:
        name = bound.name
        while name in taken:
            name += "0"
        taken.add(name)
        unique.append(Field(name, bound.type))
    return Schema((*schema.fields, *unique))
