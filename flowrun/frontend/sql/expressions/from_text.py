"""Expressions of YAML documents that are no part of a query, from text: event times, watermarks, conditions of branches.

Errors are `ExpressionError`s whose offset and length count code points in the text at hand.
"""

from __future__ import annotations

from sqlglot import exp

from flowrun.core.schema import Schema
from flowrun.core.types import BOOLEAN, TypeRoot
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.expressions.binder import ExpressionBinder
from flowrun.frontend.sql.expressions.scope import Scope
from flowrun.frontend.sql.grammar.expressions import parse_text
from flowrun.frontend.sql.spans import FlinkSyntaxError
from flowrun.plan.expressions import Expression


def bind_expression(text: str, schema: Schema) -> Expression:
    """The typed tree of an expression over rows of `schema`.

    Args:
        text: a SQL expression.
        schema: the columns it may read; names are case-sensitive.

    Raises:
        ExpressionError: syntax, an unknown name or wrong types; marks the place and names near matches.

    >>> from flowrun.core.types import INT
    >>> str(bind_expression("a * 2 + 1", Schema.of(a=INT)))
    '((a * 2) + 1)'
    """
    return _bound(ExpressionBinder(Scope(schema)), _parsed(text))


def bind_predicate(text: str, schema: Schema) -> Expression:
    """The typed tree of a condition over rows of `schema`.

    Raises:
        ExpressionError: see `bind_expression`; also if the result is not BOOLEAN.
    """
    node = _parsed(text)
    binder = ExpressionBinder(Scope(schema))
    bound = _bound(binder, node)
    if bound.type.root not in (TypeRoot.BOOLEAN, TypeRoot.NULL):
        binder.fail(
            f"a condition must be BOOLEAN, this is {bound.type}", node, "compare it, e.g. x <> 0 or x IS NOT NULL"
        )
    return binder.cast(bound, BOOLEAN, node)


def _parsed(text: str) -> exp.Expression:
    try:
        return parse_text(text)
    except FlinkSyntaxError as error:
        raise ExpressionError(error.message, offset=error.offset, length=error.length) from None
    except RecursionError:
        raise ExpressionError("the expression is nested too deeply", length=max(1, len(text))) from None


def _bound(binder: ExpressionBinder, node: exp.Expression) -> Expression:
    try:
        return binder.bind(node)
    except RecursionError:
        raise ExpressionError("the expression is nested too deeply") from None
