"""Tables and views of the catalog as queries read them."""

from __future__ import annotations

import re
from dataclasses import replace

from flowrun.errors import ExpressionError
from flowrun.frontend.sql.catalog import CatalogTable, CatalogView, UnresolvedNameError
from flowrun.frontend.sql.grammar.syntax import NamedTable
from flowrun.frontend.sql.queries.binding_context import BindingContext
from flowrun.frontend.sql.queries.bound_queries import Bound
from flowrun.frontend.sql.spans import error_at
from flowrun.plan.nodes import PlanNode

_OPTIONS = re.compile(r"OPTIONS\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"\s*'((?:[^']|'')*)'\s*=\s*'((?:[^']|'')*)'\s*(?:,|$)")


def relation_named(context: BindingContext, table: NamedTable) -> CatalogTable | CatalogView:
    """The table or view that a query names.

    Raises:
        ExpressionError: there is none.
        NoticedError: it is in a catalog that failed before.
    """
    try:
        return context.catalog.relation(context.catalog.path([p.text for p in table.parts]))
    except UnresolvedNameError as problem:
        raise problem.at([p.span for p in table.parts]) from None


def read_table(context: BindingContext, table: NamedTable) -> Bound:
    """The rows of a table or view.

    Raises:
        ExpressionError: no such table, or it cannot be read.
        NoticedError: it is in a catalog that failed before.
    """
    known = relation_named(context, table)
    if isinstance(known, CatalogView):
        _warn(context, table, table.hints)
        return Bound(known.node, known.node.schema.names)
    node = _scan(context, known, table)
    return Bound(node, node.schema.names)


def _scan(context: BindingContext, known: CatalogTable, table: NamedTable) -> PlanNode:
    others = []
    for hint in table.hints:
        options = _OPTIONS.fullmatch(hint)
        if options is None:
            others.append(hint)
        else:
            reference = replace(known.reference, options={**known.reference.options, **_options(options[1], table)})
            known = replace(known, reference=reference, scan=None)
    _warn(context, table, tuple(others))
    span = table.parts[-1].span
    try:
        return context.statement.scan(known, (span[0] + context.offset, span[1] + context.offset))
    except ExpressionError as error:
        # it counts in the whole script, as all errors of the query will in the end
        offset = error.offset - context.offset
        raise ExpressionError(error.message, offset=offset, length=error.length, hint=error.hint) from error


def _options(text: str, table: NamedTable) -> dict[str, str]:
    found: dict[str, str] = {}
    place = 0
    while place < len(text.rstrip()):
        match = _OPTION.match(text, place)
        if match is None:
            raise error_at("the OPTIONS hint is not understood", table.span, "write /*+ OPTIONS('key' = 'value', …) */")
        found[match[1].replace("''", "'")] = match[2].replace("''", "'")
        place = match.end()
    return found


def _warn(context: BindingContext, table: NamedTable, hints: tuple[str, ...]) -> None:
    for hint in hints:
        context.statement.diagnostics.warning(
            f"the hint {hint} has no effect", context.nodes.locate(table.span), hint="leave it out"
        )
