"""Queries of a script → plan nodes: the entry point.

The nodes are the general ones that say what the query says; `flowrun.plan.recognition` turns them into the special forms.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.record import record
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.catalog import Catalog
from flowrun.frontend.sql.grammar.queries import parse_query
from flowrun.frontend.sql.grammar.syntax import Ordered, QuerySyntax, Select, ValuesRows, WithQuery
from flowrun.frontend.sql.queries.binder import QueryBinder
from flowrun.frontend.sql.queries.bound_queries import FailedError
from flowrun.frontend.sql.queries.statement_context import QueryContext
from flowrun.frontend.sql.spans import FlinkSyntaxError, SeveralErrors, Span, span_of
from flowrun.plan.nodes import PlanNode


@record
class BoundQuery:
    """A query as plan nodes.

    Attributes:
        node: gives the rows; its schema is the query's columns under unique names.
        names: the columns as the query names them, which may repeat.
        places: where in the script the expression of each column stands; None where that cannot be said.
    """

    node: PlanNode
    names: tuple[str, ...]
    places: tuple[Span | None, ...]


def bind_query(text: str, offset: int, catalog: Catalog, context: QueryContext) -> BoundQuery:
    """The plan of a query.

    Args:
        text: the query's text, without a semicolon at its end.
        offset: where it begins in the script, in code points.
        catalog: tables, views and functions that it may name.
        context: the statement around it.

    Raises:
        SeveralErrors: everything found wrong, with places in the script.
    """
    try:
        syntax = parse_query(text)
    except FlinkSyntaxError as error:
        start = error.offset + offset
        raise SeveralErrors(
            [ExpressionError(error.message, offset=start, length=error.length, hint=error.hint)]
        ) from None
    except RecursionError:
        raise SeveralErrors([_too_deep(offset)]) from None
    binder = QueryBinder(text, offset, catalog, context)
    try:
        bound = binder.bind(syntax, binder.root)
    except FailedError:
        raise SeveralErrors(_in_order(binder.context.errors, offset)) from None
    except ExpressionError as error:
        raise SeveralErrors(_in_order([*binder.context.errors, error], offset)) from error
    except RecursionError:
        raise SeveralErrors([_too_deep(offset)]) from None
    if binder.context.errors:
        raise SeveralErrors(_in_order(binder.context.errors, offset))
    return BoundQuery(bound.node, bound.names, _places(syntax, len(bound.names), offset))


def syntax_error(text: str) -> ExpressionError | None:
    """What keeps a text from being a query, with a place in it; None if it is one. Names and types are not looked at.

    >>> str(syntax_error("SELECT a +"))
    'expected an expression, got the end'
    """
    try:
        parse_query(text)
    except FlinkSyntaxError as error:
        return error
    except RecursionError:
        return _too_deep(0)
    return None


def _places(syntax: QuerySyntax, width: int, offset: int) -> tuple[Span | None, ...]:
    while isinstance(syntax, Ordered | WithQuery):
        syntax = syntax.query
    found: list[Span | None] = []
    match syntax:
        case Select(items=items):
            stars = [i for i, item in enumerate(items) if item.star]
            found += [item.span if item.expression is None else span_of(item.expression) for item in items]
            if len(stars) == 1:  # the star stands for all columns that the other items do not give
                found[stars[0] : stars[0] + 1] = [found[stars[0]]] * (width - len(items) + 1)
        case ValuesRows(rows=(row,)):
            found += [span_of(value) for value in row]
    if len(found) != width:
        return (None,) * width
    return tuple(None if place is None else (place[0] + offset, place[1] + offset) for place in found)


def _in_order(errors: Sequence[ExpressionError], offset: int) -> list[ExpressionError]:
    moved = [
        ExpressionError(e.message, offset=e.offset + offset, length=e.length, hint=e.hint)
        for e in sorted(errors, key=lambda e: e.offset)
    ]
    unique: dict[tuple[str, int], ExpressionError] = {(e.message, e.offset): e for e in moved}
    return list(unique.values())


def _too_deep(offset: int) -> ExpressionError:
    return ExpressionError("the query is nested too deeply", offset=offset, hint="split it with CREATE VIEW")


__all__ = ["BoundQuery", "bind_query", "syntax_error"]
