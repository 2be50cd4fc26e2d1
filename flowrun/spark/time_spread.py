"""Computes how far the values of a time column may lie from the event times of the rows."""

from __future__ import annotations

from flowrun.core.record import record
from flowrun.plan.expressions import Cast, ColumnRef
from flowrun.plan.joins import IntervalJoin, LookupJoin
from flowrun.plan.nodes import Calc, PlanNode, Split
from flowrun.plan.relational import Deduplicate, TemporalSort, Unnest, WindowTableFunction
from flowrun.plan.traits import TraitIndex
from flowrun.plan.windows import CumulativeWindow, SlidingWindow, TumblingWindow

_OF_ONE_TIME = (Split, Unnest, LookupJoin, TemporalSort, Deduplicate, WindowTableFunction)
"""Nodes whose rows begin with the columns of the row that they come from, and have its event time."""


@record
class Spread:
    """A column's values lie between event time − `before_ms` and event time + `after_ms`."""

    before_ms: int = 0
    after_ms: int = 0


def spread(node: PlanNode, column: int, traits: TraitIndex) -> Spread | None:
    """How far the values of a column may lie from the event times; None: there is no bound."""
    while True:
        trait = traits[node].columns[column]
        if trait is not None and trait.current:
            return Spread()
        if trait is not None and trait.window is not None:
            return _window_spread(node, traits)
        match node:
            case Calc():
                found = _column_of(node, column)
                if found is None:
                    return None
                node, column = node.input, found
            case IntervalJoin() if column == node.left_time:
                return Spread(before_ms=max(node.upper_ms, 0))
            case IntervalJoin() if column == len(node.left.schema) + node.right_time:
                return Spread(before_ms=max(-node.lower_ms, 0))
            case _ if isinstance(node, _OF_ONE_TIME) and column < len(node.inputs[0].schema):
                node = node.inputs[0]
            case _:
                return None


def window_function(node: PlanNode) -> WindowTableFunction | None:
    """The node that gave the rows their window; None: it is not known."""
    while not isinstance(node, WindowTableFunction):
        if not isinstance(node, (Calc, *_OF_ONE_TIME)):
            return None
        node = node.inputs[0]
    return node


def _window_spread(node: PlanNode, traits: TraitIndex) -> Spread | None:
    """How far the last ms of the rows' windows may lie from the event times; None: there is no bound."""
    function = window_function(node)
    if function is None or not isinstance(function.window, TumblingWindow | SlidingWindow | CumulativeWindow):
        return None
    time = spread(function.input, function.time, traits)
    return None if time is None else Spread(time.before_ms, time.after_ms + function.window.size_ms - 1)


def _column_of(node: Calc, column: int) -> int | None:
    """The input column that a column of a projection passes on; None: it is computed."""
    expression = node.projections[column]
    if isinstance(expression, Cast) and expression.type == expression.operand.type:
        expression = expression.operand
    return expression.index if isinstance(expression, ColumnRef) else None
