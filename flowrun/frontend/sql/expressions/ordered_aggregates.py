"""LISTAGG(…) WITHIN GROUP (ORDER BY …) and ARRAY_AGG(… ORDER BY …): rows of order and value are collected, and put in order at the end.

Collecting is exact over rows that are taken back, merges in windows and stands under OVER, and so does what is built on it.
"""

from __future__ import annotations

from sqlglot import exp

from flowrun.core.types import BOOLEAN, STRING
from flowrun.frontend.sql.expressions.aggregate_calls import typed_call, written_arguments
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.frontend.sql.expressions.derived_aggregates import Pending
from flowrun.frontend.sql.grammar.syntax import OrderItem
from flowrun.functions.aggregates.ordered_values import VALUES_IN_ORDER, directions_text
from flowrun.functions.registry import aggregate
from flowrun.plan.expressions import And, Expression, Literal
from flowrun.plan.folding import fold_constants

ORDERED = ("LISTAGG", "ARRAY_AGG")


def order_of(node: exp.Expression) -> tuple[OrderItem, ...]:
    """The ORDER BY that a call of an aggregate holds, or that WITHIN GROUP gives it."""
    found: tuple[OrderItem, ...] = node.meta.get("order", ())
    return found


def ordered_aggregate(
    rows: ExpressionBinder, node: exp.Expression, filter: Expression | None, pending: Pending
) -> Expression:
    """What a call with an order stands for.

    Args:
        rows: binds what stands inside the call.
        node: the call.
        filter: the bound condition of FILTER.
        pending: makes the reference to an aggregate's result.

    Raises:
        ExpressionError: an aggregate that takes no order, wrong arguments, or keys without an order; marks the place.
    """
    name = str(node.this).upper()
    order = order_of(node)
    if name not in ORDERED:
        rows.fail(f"the result of {name} does not depend on an order", node, "leave ORDER BY out")
    written, distinct = written_arguments(node)
    function = aggregate(name)
    assert function is not None
    given = [rows.bind(a) for a in written]
    checked = typed_call(rows, function, given, written, node, distinct=distinct)
    value = checked.arguments[0]
    directions = [(o.descending, o.nulls_first if o.nulls_first is not None else not o.descending) for o in order]
    if name == "LISTAGG":  # leaves NULL out
        known = rows.apply("IS NOT NULL", (value,), (node,), node)
        filter = known if filter is None else And((filter, known))
    keys = [rows.bind(o.expression) for o in order]
    for key, item in zip(keys, order, strict=True):
        if key.type.is_nested:
            rows.fail(f"{key.type} has no order", item.expression, "order by a value in it")
    collect = aggregate("ARRAY_AGG")
    assert collect is not None
    if distinct:
        if len(keys) != 1 or keys[0] != given[0]:
            rows.fail(
                f"{name}(DISTINCT …) can be ordered only by the value itself", order[0].expression,
                f"write ORDER BY {written[0].sql()}, or take distinct rows in a subquery in FROM",
            )  # fmt: skip
        call = typed_call(rows, collect, [value], written[:1], node, distinct=True, filter=filter)
        (down, first), nodes = directions[0], [node] * 3
        flags = [Literal(BOOLEAN, flag) for flag in (not down, first)]
        found = rows.apply("ARRAY_SORT", [pending(call), *flags], nodes, node)
    else:
        row = rows.apply("ROW", [*keys, value], [node] * (len(keys) + 1), node)
        call = typed_call(rows, collect, [row], [node], node, distinct=False, filter=filter)
        found = rows.apply(
            VALUES_IN_ORDER, [pending(call), Literal(STRING, directions_text(directions))], [node] * 2, node
        )
    if name == "ARRAY_AGG":
        return found
    separator: Expression = Literal(STRING, ",") if len(given) == 1 else fold_constants(given[1])
    return rows.apply("ARRAY_JOIN", [found, separator], [node] * 2, node)


def reject_order(rows: ExpressionBinder, node: exp.Expression) -> None:
    """Fail if a call that is no aggregate has an order."""
    order = order_of(node)
    if order:
        where = exp.Anonymous(this="ORDER BY")
        where.meta["span"] = (order[0].span[0], order[-1].span[1])
        rows.fail(
            f"ORDER BY stands only in aggregates, {node.this} is none", where, f"use it in {' or '.join(ORDERED)}"
        )


__all__ = ["order_of", "ordered_aggregate", "reject_order"]
