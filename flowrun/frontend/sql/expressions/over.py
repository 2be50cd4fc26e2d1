"""OVER calls: which functions may have OVER, their types, and the window that a clause or a WINDOW name describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NoReturn

from sqlglot import exp

from flowrun.core.foreign_names import function_hint
from flowrun.core.semantics import FrameUnit, NullOrder
from flowrun.core.types import BIGINT, DOUBLE, INT, DataType, TypeRoot
from flowrun.errors import did_you_mean
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.frontend.sql.expressions.derived_aggregates import is_derived_aggregate, is_json_aggregate
from flowrun.frontend.sql.expressions.pending import PendingOrder, PendingOver
from flowrun.frontend.sql.expressions.query_aggregates import QueryAggregates
from flowrun.frontend.sql.grammar.syntax import FrameBound, FrameClause, Name, OrderItem, OverClause
from flowrun.frontend.sql.spans import error_at, span_of
from flowrun.functions.coercion import common_type
from flowrun.functions.registry import aggregate, aggregate_names
from flowrun.plan.expressions import AggregateCall, Expression, Literal
from flowrun.plan.folding import fold_constants
from flowrun.plan.frames import MOST_DIGITS, can_be_counted
from flowrun.plan.relational import Frame

_RANKS = {"ROW_NUMBER": BIGINT, "RANK": BIGINT, "DENSE_RANK": BIGINT, "PERCENT_RANK": DOUBLE, "CUME_DIST": DOUBLE}
_OTHERS = ("LAG", "LEAD", "NTILE")
OVER_FUNCTIONS: dict[str, DataType | None] = {**_RANKS, **dict.fromkeys(_OTHERS), "NTILE": BIGINT}
"""Functions that exist only with OVER, and the types of their results; None: that of the argument."""


def is_over_function(name: str) -> bool:
    """Whether a function exists only with OVER."""
    return name.upper() in _RANKS or name.upper() in _OTHERS


class OverBinder:
    """Binds a call with OVER: `rows` what stands inside it; `windows` are those that WINDOW names."""

    def __init__(self, rows: ExpressionBinder, windows: Mapping[str, OverClause], aggregates: QueryAggregates) -> None:
        self._rows = rows
        self._windows = windows
        self._aggregates = aggregates

    def call(self, node: exp.Expression) -> Expression:
        """The pending OVER call.

        Raises:
            ExpressionError: no such function or window, or a frame that a stream cannot have; marks the place.
        """
        clause: OverClause = self._resolved(node.meta["over"])
        call, condition = node.this, None
        if isinstance(call, exp.Filter):
            call, condition = call.this, call.expression.this
        if not isinstance(call, exp.Anonymous):
            self._rows.fail("OVER follows only a function", node)
        name = str(call.this).upper()
        partition = tuple(self._rows.bind(p) for p in clause.partition)
        order = tuple(self.order(o) for o in clause.order)
        framed = name not in _RANKS and name not in _OTHERS
        if framed:
            self._check_aggregate(name, call)
        elif not order:
            raise error_at(
                f"{name} OVER needs ORDER BY",
                clause.span,
                "order by a time attribute, or by any columns to rank them: OVER (PARTITION BY … ORDER BY ts)",
            )
        if not framed and clause.frame is not None:
            unit = clause.frame.unit.value.upper()
            raise error_at(f"{name} takes no frame", clause.frame.span, f"leave out {unit} …")
        frame = self._frame(clause.frame, order) if framed else None

        def pending(bound: AggregateCall) -> Expression:
            return PendingOver(bound.type, bound, partition, order, frame, span_of(node))

        if framed:
            return self._aggregates.result(call, condition, self._rows, pending, is_over=True)
        return pending(self._function(name, call, condition))

    def order(self, item: OrderItem) -> PendingOrder:
        """An entry of an order, with Flink's default for NULLs: NULL is the least value."""
        return PendingOrder(self._rows.bind(item.expression), item.descending, null_order(item))

    # -- functions -----------------------------------------------------------------------------------------------------------

    def _function(self, name: str, call: exp.Expression, condition: exp.Expression | None) -> AggregateCall:
        if condition is not None:
            self._rows.fail("FILTER (WHERE …) follows only aggregates", call)
        if name in _RANKS:
            if call.expressions:
                self._rows.fail(f"{name} takes no arguments", call, f"write {name}() OVER (…)")
            return AggregateCall(name, (), _RANKS[name], "")
        return self._ntile(call) if name == "NTILE" else self._shift(name, call)

    def _check_aggregate(self, name: str, call: exp.Expression) -> None:
        if is_json_aggregate(name):
            self._rows.fail(f"{name} cannot have OVER", call, "use ARRAY_AGG(…) OVER (…)")
        if is_derived_aggregate(name):
            return
        if aggregate(name) is None and not self._aggregates.is_users(name):
            known = {*aggregate_names(), *_RANKS, *_OTHERS}
            self._rows.fail(f"'{call.this}' is no aggregate or OVER function", call, function_hint(name, known))

    def _ntile(self, call: exp.Expression) -> AggregateCall:
        if len(call.expressions) != 1:
            self._rows.fail("NTILE takes 1 argument", call, "usage: NTILE(4) OVER (…)")
        buckets = self._constant(call.expressions[0], "the number of buckets of NTILE", least=1)
        return AggregateCall("NTILE", (Literal(INT, buckets),), BIGINT, "")

    def _shift(self, name: str, call: exp.Expression) -> AggregateCall:
        given = list(call.expressions)
        if not 1 <= len(given) <= 3:
            self._rows.fail(
                f"{name} takes 1 to 3 arguments, {len(given)} given", call, f"usage: {name}(value[, offset[, default]])"
            )
        value = self._rows.bind(given[0])
        offset = self._constant(given[1], f"the offset of {name}", least=0) if len(given) > 1 else 1
        default: Expression = Literal(value.type, None)
        if len(given) > 2:
            default = self._rows.bind(given[2])
            type = common_type((value.type, default.type))
            if type is None:
                self._rows.fail(
                    f"the default of {name} is {default.type}, the value {value.type}", given[2], "CAST one of them"
                )
            value, default = self._rows.cast(value, type, given[0]), self._rows.cast(default, type, given[2])
        return AggregateCall(name, (value, Literal(INT, offset), default), value.type, "")

    def _constant(self, node: exp.Expression, what: str, *, least: int) -> int:
        value = fold_constants(self._rows.bind(node))
        if not isinstance(value, Literal) or not value.type.is_integer or value.value is None or value.value < least:
            self._rows.fail(f"{what} must be a whole number from {least}", node)
        return int(value.value)

    # -- windows -------------------------------------------------------------------------------------------------------------

    def _resolved(self, clause: OverClause, seen: tuple[str, ...] = ()) -> OverClause:
        if clause.base is None:
            return clause
        base = self._windows.get(clause.base.text)
        if base is None or clause.base.text in seen:
            self._unknown_window(clause.base)
        known = self._resolved(base, (*seen, clause.base.text))
        if clause.partition or (clause.order and known.order) or (clause.frame and known.frame):
            raise error_at(
                f"the window '{clause.base.text}' already says this",
                clause.span,
                "a window that extends another adds only ORDER BY or a frame that the other lacks",
            )
        return OverClause(clause.span, None, known.partition, clause.order or known.order, clause.frame or known.frame)

    def _unknown_window(self, name: Name) -> NoReturn:
        hint = did_you_mean(name.text, self._windows) or "describe it: WINDOW w AS (PARTITION BY … ORDER BY …)"
        raise error_at(f"window '{name.text}' does not exist", name.span, hint)

    def _frame(self, frame: FrameClause | None, order: Sequence[PendingOrder]) -> Frame:
        if frame is None:
            return Frame(
                FrameUnit.RANGE
            )  # the standard's default: up to the current row and those that are equal to it
        if frame.start.unbounded and frame.start.following:
            raise error_at(
                "a frame cannot begin behind the last row", frame.start.span, "begin it with UNBOUNDED PRECEDING"
            )
        if frame.end.unbounded and not frame.end.following:
            raise error_at(
                "a frame cannot end before the first row",
                frame.end.span,
                "end it with CURRENT ROW or UNBOUNDED FOLLOWING",
            )
        start, end = (self._offset(frame, bound, order) for bound in (frame.start, frame.end))
        if start is not None and end is not None and start > end:
            raise error_at(
                "the frame ends before it begins", frame.span, "write BETWEEN the earlier end AND the later one"
            )
        return Frame(frame.unit, None if start is None else -start, end)

    def _offset(self, frame: FrameClause, bound: FrameBound, order: Sequence[PendingOrder]) -> int | Decimal | None:
        """How far an end is behind the current row, below 0 before it; None: without a bound."""
        if bound.unbounded:
            return None
        if bound.amount is None:
            return 0
        value = fold_constants(self._rows.bind(bound.amount))
        known = isinstance(value, Literal) and value.value is not None
        side = "FOLLOWING" if bound.following else "PRECEDING"
        if frame.unit is FrameUnit.ROWS:
            if not (known and value.type.is_integer):
                hint = f"write ROWS BETWEEN 10 {side} AND …"
                raise error_at(f"ROWS counts rows: expected a whole number, this is {value.type}", bound.span, hint)
        else:
            self._check_range(value if known else None, value.type, bound, order)
        assert isinstance(value, Literal)
        if value.value < 0:
            other = "PRECEDING" if bound.following else "FOLLOWING"
            raise error_at(
                f"the end of a frame is so much {side} or {other}, not less than nothing",
                bound.span,
                "leave out the minus sign",
            )
        numbers = frame.unit is FrameUnit.RANGE and value.type.is_numeric
        amount = Decimal(str(value.value)) if numbers else int(value.value)
        return amount if bound.following else -amount

    def _check_range(
        self, value: Expression | None, given: DataType, bound: FrameBound, order: Sequence[PendingOrder]
    ) -> None:
        """Raise ExpressionError unless the order is one column that can be counted in what is given."""
        if len(order) != 1:
            hint = "write ROWS, or order by the one column that is counted"
            raise error_at(f"RANGE counts units of one ORDER BY column, there are {len(order)}", bound.span, hint)
        type = order[0].expression.type
        if type.is_numeric:
            if value is None or not given.is_numeric:
                raise error_at(
                    f"RANGE over {type} needs a number, this is {given}",
                    bound.span,
                    "write RANGE BETWEEN 10 PRECEDING AND …",
                )
            if not can_be_counted(type):
                hint = f"CAST it to DECIMAL({MOST_DIGITS}, …) or DOUBLE in ORDER BY"
                raise error_at(
                    f"RANGE cannot count units of {type}, which has more than {MOST_DIGITS} digits", bound.span, hint
                )
        elif value is None or given.root is not TypeRoot.INTERVAL_DAY_TIME:
            hint = "write RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW"
            raise error_at(f"RANGE needs an interval of days to seconds, this is {given}", bound.span, hint)


def null_order(item: OrderItem) -> NullOrder:
    """Where an entry of ORDER BY puts NULLs: as it says, else as the least value."""
    first = item.nulls_first if item.nulls_first is not None else not item.descending
    return NullOrder.FIRST if first else NullOrder.LAST
