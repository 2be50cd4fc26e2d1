"""Queries of a script → plan nodes: the entry point of everything in the modules `select_*` (grammar) and `query_*` (binding).

The nodes are the general ones that say what the query says; `flowrun.plan.recognition` turns them into the special forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowrun.errors import ExpressionError
from flowrun.frontend.sql import binding_calls as _binding_calls  # registers COALESCE, IF, …
from flowrun.frontend.sql.catalog import Catalog
from flowrun.frontend.sql.dialect import FlinkSyntaxError
from flowrun.frontend.sql.query_binder import QueryBinder
from flowrun.frontend.sql.query_context import QueryContext
from flowrun.frontend.sql.query_results import FailedError
from flowrun.frontend.sql.select_parser import parse_query
from flowrun.plan.nodes import PlanNode

assert _binding_calls is not None


class QueryErrors(ExpressionError):
    """A query is wrong in one place or several. `errors` are in the order of the text; offsets count in the whole script."""

    def __init__(self, errors: Sequence[ExpressionError]) -> None:
        self.errors = tuple(errors)
        first = self.errors[0]
        super().__init__(first.message, offset=first.offset, length=first.length, hint=first.hint)


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A query as plan nodes.

    Attributes:
        node: gives the rows; its schema is the query's columns under unique names.
        names: the columns as the query names them, which may repeat.
    """

    node: PlanNode
    names: tuple[str, ...]


def bind_query(text: str, offset: int, catalog: Catalog, context: QueryContext) -> BoundQuery:
    """The plan of a query.

    Args:
        text: the query's text, without a semicolon at its end.
        offset: where it begins in the script, in code points.
        catalog: tables, views and functions that it may name.
        context: the statement around it.

    Raises:
        QueryErrors: everything found wrong, with places in the script.
    """
    try:
        syntax = parse_query(text)
    except FlinkSyntaxError as error:
        start = error.start + offset
        raise QueryErrors(
            [ExpressionError(error.message, offset=start, length=error.length, hint=error.hint)]
        ) from None
    except RecursionError:
        raise QueryErrors([_too_deep(offset)]) from None
    binder = QueryBinder(text, offset, catalog, context)
    try:
        bound = binder.bind(syntax, binder.root)
    except FailedError:
        raise QueryErrors(_in_order(binder.errors, offset)) from None
    except ExpressionError as error:
        raise QueryErrors(_in_order([*binder.errors, error], offset)) from error
    except RecursionError:
        raise QueryErrors([_too_deep(offset)]) from None
    if binder.errors:
        raise QueryErrors(_in_order(binder.errors, offset))
    return BoundQuery(bound.node, bound.names)


def _in_order(errors: Sequence[ExpressionError], offset: int) -> list[ExpressionError]:
    moved = [
        ExpressionError(e.message, offset=e.offset + offset, length=e.length, hint=e.hint)
        for e in sorted(errors, key=lambda e: e.offset)
    ]
    unique: dict[tuple[str, int], ExpressionError] = {(e.message, e.offset): e for e in moved}
    return list(unique.values())


def _too_deep(offset: int) -> ExpressionError:
    return ExpressionError("the query is nested too deeply", offset=offset, hint="split it with CREATE VIEW")


__all__ = ["BoundQuery", "QueryErrors", "bind_query"]
