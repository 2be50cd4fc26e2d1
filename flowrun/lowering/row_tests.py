"""The tests that rows must pass before an operator that could not leave out those that it fails on."""

from __future__ import annotations

from dataclasses import replace

from flowrun.core.schema import Field, Schema
from flowrun.lowering.aggregate_calls import user_aggregate
from flowrun.operators.row_tests import AggregateTest, ExpressionTest, RowTest
from flowrun.plan.compiled import Projection
from flowrun.plan.expressions import AggregateCall, Expression
from flowrun.plan.nodes import Calc, Required, Settings
from flowrun.plan.row_requirements import sink_check
from flowrun.plan.window_inputs import packed


def row_tests(node: Calc, required: Required, settings: Settings) -> tuple[RowTest, ...]:
    """The tests of a Calc; an aggregate is asked only of rows of which its arguments can be computed.

    Raises:
        OptionError: the options of the sink behind are wrong.
    """
    tests: list[RowTest] = []
    if required.evaluates:
        tests.append(ExpressionTest(_columns(required.evaluates), node.hints.name or "calc"))
    if required.folds:
        tests.append(_aggregate_test(required.folds))
    if required.writes is not None:
        tests.append(sink_check(*required.writes, settings, required.place))
    return tuple(tests)


def _aggregate_test(calls: tuple[AggregateCall, ...]) -> AggregateTest:
    arguments = [packed(call.arguments) for call in calls]
    filters = [call.filter for call in calls if call.filter is not None]
    position = len(arguments)
    aggregates = []
    for i, call in enumerate(calls):
        user = user_aggregate(replace(call, arguments=(arguments[i],)))
        aggregates.append((user, i, None if call.filter is None else position))
        position += call.filter is not None
    return AggregateTest(_columns((*arguments, *filters)), tuple(aggregates))


def _columns(expressions: tuple[Expression, ...]) -> Projection:
    fields = tuple(Field(f"${i}", expression.type) for i, expression in enumerate(expressions))
    return Projection(expressions, Schema(fields))
