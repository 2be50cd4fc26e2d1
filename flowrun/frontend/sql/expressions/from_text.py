"""Expressions from text: the entry points of binding, used by YAML pipelines and by SQL.

Errors are `ExpressionError`s whose offset and length count code points in the text at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from sqlglot import exp

from flowrun.core.schema import Schema
from flowrun.core.types import BOOLEAN, DataType, TypeRoot
from flowrun.errors import ExpressionError
from flowrun.frontend.sql.expressions.binder import ExpressionBinder, dotted_parts
from flowrun.frontend.sql.expressions.scope import Scope
from flowrun.frontend.sql.grammar.expressions import parse_text
from flowrun.frontend.sql.places import FlinkSyntaxError
from flowrun.functions.coercion import implicitly_castable
from flowrun.plan.expressions import ColumnRef, Expression, FieldAccess

__all__ = [
    "ListedExpressionError",
    "bind_expression",
    "bind_predicate",
    "bind_projection",
    "bind_projections",
]

Named = tuple[str, Expression]
_Binder = TypeVar("_Binder", bound=ExpressionBinder)


class ListedExpressionError(ExpressionError):
    """An expression of a list is wrong. `index` says which; offset and length count inside that text."""

    def __init__(self, error: ExpressionError, index: int) -> None:
        super().__init__(error.message, offset=error.offset, length=error.length, hint=error.hint)
        self.index = index


def bind_expression(text: str, schema: Schema, *, expected: DataType | None = None) -> Expression:
    """The typed tree of an expression over rows of `schema`.

    Args:
        text: a SQL expression.
        schema: the columns it may read; names are case-sensitive.
        expected: type that the result must convert to implicitly, and is converted to.

    Raises:
        ExpressionError: syntax, an unknown name or wrong types; marks the place and names near matches.

    >>> from flowrun.core.types import INT
    >>> str(bind_expression("a * 2 + 1", Schema.of(a=INT)))
    '((a * 2) + 1)'
    """
    node = _parsed(text)
    binder = ExpressionBinder(Scope(schema))
    bound = _bound(binder, node)
    if expected is None or bound.type == expected:
        return bound
    if not implicitly_castable(bound.type, expected):
        hint = f"write CAST({text.strip()} AS {expected})" if len(text) < 60 else f"CAST it to {expected}"
        binder.fail(f"expected {expected}, this is {bound.type}", node, hint)
    return binder.cast(bound, expected, node)


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


def bind_projection(text: str, schema: Schema) -> tuple[Named, ...]:
    """Names and typed trees of one entry of a select list: `*`, `row.*`, `column`, `expression AS name`.

    Raises:
        ExpressionError: see `bind_expression`; also if an expression has no name.
    """
    node = _parsed(text, projection=True)
    binder = ExpressionBinder(Scope(schema))
    if isinstance(node, exp.Star):
        return tuple((f.name, ColumnRef(f.type, i, f.name)) for i, f in enumerate(schema))
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return _expanded(binder, node)
    name, inner = _name(node)
    bound = _bound(binder, inner)
    if name is None:
        name = _own_name(bound)
    if name is None:
        binder.fail("the column needs a name", node, f"write {text.strip()} AS some_name")
    if bound.type.root is TypeRoot.NULL:
        binder.fail("NULL alone has no type", node, "write CAST(NULL AS some type)")
    return ((name, bound),)


def bind_projections(texts: Sequence[str], schema: Schema) -> tuple[Named, ...]:
    """Names and typed trees of a select list; names are unique.

    Raises:
        ListedExpressionError: an entry is wrong, or a name occurs twice; `index` is the entry's position.

    >>> from flowrun.core.types import INT
    >>> [(n, str(e)) for n, e in bind_projections(["*", "a + 1 AS b"], Schema.of(a=INT))]
    [('a', 'a'), ('b', '(a + 1)')]
    """
    found: list[Named] = []
    for index, text in enumerate(texts):
        try:
            entries = bind_projection(text, schema)
        except ExpressionError as error:
            raise ListedExpressionError(error, index) from error
        _reject_repeated(found, entries, text, index)
        found += entries
    return tuple(found)


def _parsed(text: str, *, projection: bool = False) -> exp.Expression:
    try:
        return parse_text(text, projection=projection)
    except FlinkSyntaxError as error:
        raise ExpressionError(error.message, offset=error.start, length=error.length) from None
    except RecursionError:
        raise ExpressionError("the expression is nested too deeply", length=max(1, len(text))) from None


def _bound(binder: ExpressionBinder, node: exp.Expression) -> Expression:
    try:
        return binder.bind(node)
    except RecursionError:
        raise ExpressionError("the expression is nested too deeply") from None


def _name(node: exp.Expression) -> tuple[str | None, exp.Expression]:
    return (node.alias, node.this) if isinstance(node, exp.Alias) else (None, node)


def _own_name(expression: Expression) -> str | None:
    return expression.name if isinstance(expression, ColumnRef | FieldAccess) else None


def _expanded(binder: ExpressionBinder, node: exp.Expression) -> tuple[Named, ...]:
    names = tuple(p.name for p in dotted_parts(node)[:-1])
    row = (
        binder.column(exp.column(names[-1], *reversed(names[:-1])))
        if len(names) > 1
        else binder.column(exp.Column(this=dotted_parts(node)[0]))
    )
    if row.type.root is not TypeRoot.ROW:
        binder.fail(f"{row} is {row.type}, only a ROW has fields to expand", node)
    return tuple((n, FieldAccess(t, row, n)) for n, t in zip(row.type.names, row.type.children, strict=True))


def _reject_repeated(found: Sequence[Named], entries: Sequence[Named], text: str, index: int) -> None:
    known = {n for n, _ in found}
    for name, _ in entries:
        if name in known:
            repeated = ExpressionError(
                f"column '{name}' occurs more than once", length=max(1, len(text)), hint="give it another name with AS"
            )
            raise ListedExpressionError(repeated, index)
