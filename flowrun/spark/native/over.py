# ruff: noqa: ARG001 - all translations have one signature
"""OVER aggregates as window functions of Spark."""

from __future__ import annotations

from decimal import Decimal

from flowrun.core.semantics import FrameUnit, TimeDomain
from flowrun.core.types import TypeRoot
from flowrun.plan.expressions import AggregateCall
from flowrun.plan.frames import frame_units
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import OverAggregate
from flowrun.spark.aggregates import POSITION_FUNCTIONS, over_text
from flowrun.spark.context import Context
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, SparkFrame, quoted
from flowrun.spark.native.ranking import order_text, order_texts, window_text
from flowrun.spark.times import millis_of
from flowrun.spark.translated import Inputs

_TIES = frozenset({"RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST"})
"""Functions that give rows which are equal in the order the same result."""


def translate_over(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The input columns, and then a window function for each call. Rows arrive at later nodes in the order of time."""
    assert isinstance(node, OverAggregate)
    frame = inputs.only
    window = _Window(node, frame)
    texts = [*frame.columns, *(window.call(c) for c in node.calls)]
    items = [f"{text} AS {quoted(name)}" for text, name in zip(texts, node.schema.names, strict=True)]
    if frame.event_time:
        items.append(f"{window.time or quoted(EVENT_TIME)} AS {quoted(EVENT_TIME)}")
    if frame.arrival:
        arrival = quoted(ARRIVAL) if window.time is None else f"concat(array({window.time}), {frame.arrival_array})"
        items.append(f"{arrival} AS {quoted(ARRIVAL)}")
    return SparkFrame(frame.data.selectExpr(*items), node.schema, frame.event_time, frame.arrival)


class _Window:
    """The order and the frame of a node's calls as Spark SQL.

    Append-only rows are ordered by event time, in ms as in the stream. By processing time they are in the order of arrival, and no two
    have the same time. Updated rows, which have no event time, may be ordered by any columns.

    Attributes:
        time: Spark SQL of the order of append-only rows by event time, a BIGINT in ms; else None.
    """

    def __init__(self, node: OverAggregate, frame: SparkFrame) -> None:
        self._columns = frame.columns
        self._partition = [frame.columns[k] for k in node.keys]
        self._arrival = quoted(ARRIVAL) if frame.arrival else None
        self._order: list[str] = []
        self._unit = node.frame.unit
        self._start, self._end = (
            _bound(node, node.frame.preceding, "PRECEDING"),
            _bound(node, node.frame.following, "FOLLOWING"),
        )
        self.time: str | None = None
        if node.domain is TimeDomain.PROCESSING:
            if self._unit is FrameUnit.RANGE:  # all rows come at one time
                self._unit, self._start = FrameUnit.ROWS, "UNBOUNDED PRECEDING"
            return
        self._order = order_texts(frame, node.order)
        if frame.event_time and _is_time(node) and not node.corrects:
            self.time = _millis(node, frame)
            self._order = [self.time]
        elif self._unit is FrameUnit.RANGE and _counts_time(node):
            self._order = [order_text(_millis(node, frame), node.order[0])]
        elif self._unit is FrameUnit.RANGE and _counts_numbers(node):
            column = frame.columns[node.order[0].column]
            self._order = [order_text(f"CAST({column} AS {_range_type(node)})", node.order[0])]

    def call(self, call: AggregateCall) -> str:
        """A call over the window. Rows that are equal in the order are in the order of arrival, unless they count together."""
        whole = self._order if self._arrival is None else [*self._order, self._arrival]
        if call.function in POSITION_FUNCTIONS:
            order = self._order if call.function in _TIES else whole
            return over_text(call, self._columns, window_text(self._partition, order))
        if self._unit is FrameUnit.ROWS:
            bounds = f"ROWS BETWEEN {self._start} AND {self._end}"
            return over_text(call, self._columns, window_text(self._partition, whole, bounds))
        bounds = f"RANGE BETWEEN {self._start} AND {self._end}"
        ties = None if self.time is None or self._arrival is None else f"{self.time}, {self._arrival}"
        return over_text(call, self._columns, window_text(self._partition, self._order, bounds), ties)


def _is_time(node: OverAggregate) -> bool:
    """Whether rows are ordered by time alone."""
    if len(node.order) != 1:
        return False
    (key,) = node.order
    return not key.descending and node.input.schema.types[key.column].is_timestamp


def _counts_time(node: OverAggregate) -> bool:
    """Whether a bound of RANGE is a time in ms."""
    return any(isinstance(bound, int) and bound != 0 for bound in (node.frame.preceding, node.frame.following))


def _bound(node: OverAggregate, amount: int | Decimal | None, side: str) -> str:
    """A bound of the frame: `amount` on this side of the current row; if it is negative, on the other side."""
    if amount is None:
        return f"UNBOUNDED {side}"
    if amount == 0:
        return "CURRENT ROW"
    type = node.input.schema.types[node.order[0].column] if node.order else None
    if isinstance(amount, Decimal) and type is not None and not type.is_approximate:
        scale = (type.scale or 0) if type.root is TypeRoot.DECIMAL else 0
        amount = Decimal(frame_units(amount, type)).scaleb(-scale)
    if amount < 0:
        return _bound(node, -amount, "FOLLOWING" if side == "PRECEDING" else "PRECEDING")
    if node.frame.unit is FrameUnit.ROWS:
        return f"{amount} {side}"
    if isinstance(amount, int):
        return f"{amount}L {side}"
    return f"CAST({amount:f} AS {_range_type(node)}) {side}"


def _counts_numbers(node: OverAggregate) -> bool:
    """Whether a bound of RANGE is a number."""
    return any(isinstance(bound, Decimal) and bound != 0 for bound in (node.frame.preceding, node.frame.following))


def _range_type(node: OverAggregate) -> str:
    """The Spark type of the bounds: one with room for numbers beyond the values of the order column."""
    type = node.input.schema.types[node.order[0].column]
    if type.is_approximate:
        return "DOUBLE"
    return f"DECIMAL(38, {type.scale or 0})" if type.root is TypeRoot.DECIMAL else "DECIMAL(38, 0)"


def _millis(node: OverAggregate, frame: SparkFrame) -> str:
    """Spark SQL of the first column of the order, as a BIGINT in ms."""
    column = node.order[0].column
    return millis_of(frame.columns[column], frame.schema.types[column])
