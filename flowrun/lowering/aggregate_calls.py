"""Aggregate calls of a prepared plan (see `window_inputs`) as operators take them: kernels bound to positions of columns."""

from __future__ import annotations

from dataclasses import replace

from flowrun.api.aggregate import AggregateKernel, BoundAggregate, UserAggregate
from flowrun.core.types import TypeRoot
from flowrun.errors import InternalError
from flowrun.functions.registry import aggregate
from flowrun.operators.aggregation.user_aggregates import user_kernel
from flowrun.plan.expressions import AggregateCall, ColumnRef, Expression
from flowrun.plan.folding import argument_of


def bound_aggregate(call: AggregateCall) -> BoundAggregate:
    """The aggregate of a call whose argument and filter are columns."""
    return BoundAggregate(
        name=call.name,
        kernel=aggregate_kernel(call),
        argument=column_position(call.arguments[0]) if call.arguments else None,
        filter=column_position(call.filter) if call.filter is not None else None,
        distinct=call.distinct,
        argument_text=call.argument_text,
        filter_text=call.filter_text,
    )


def aggregate_kernel(call: AggregateCall) -> AggregateKernel:
    """The aggregate for these argument types, as the binder resolved it."""
    if call.reference is not None:
        return user_kernel(user_aggregate(call))
    function = aggregate(call.function)
    if function is None:
        raise InternalError(f"the aggregate {call.function} is not registered")
    _, kernel = function.type_rule([argument_of(a) for a in call.arguments])
    # the call may be of a type that does not follow from its cast arguments: a variance of integers is an integer
    return kernel if kernel.result == call.type else replace(kernel, result=call.type)


def user_aggregate(call: AggregateCall) -> UserAggregate:
    """The user's aggregate of a prepared call: its only argument is a ROW of all, or a constant if it has none."""
    reference = call.reference
    assert reference is not None
    (packed,) = call.arguments
    return UserAggregate(
        call.function,
        reference.reference,
        reference.search_path,
        packed.type.children if packed.type.root is TypeRoot.ROW else (),
        call.type,
        reference.vectorised,
        reference.retractable,
        reference.accumulator,
    )


def column_position(expression: Expression) -> int:
    """The position of an expression that has been made a column."""
    if not isinstance(expression, ColumnRef):
        raise InternalError(f"the input of an aggregation was not prepared: {expression} is no column")
    return expression.index
