"""Work on trees of typed expressions: looking for parts and replacing them, comparisons of bound values, and what may be NULL.

The trees may hold pending parts (`pending`), which work as all other nodes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from flowrun.core.schema import Schema
from flowrun.core.types import BOOLEAN
from flowrun.frontend.sql.expressions.pending import PendingOrder
from flowrun.functions.contract import Argument
from flowrun.functions.registry import scalar
from flowrun.plan.expressions import (
    AggregateCall,
    And,
    Call,
    Case,
    Cast,
    ColumnRef,
    Expression,
    FieldAccess,
    InList,
    Literal,
    Or,
)

_NEVER_NULL = frozenset((
    "IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NOT FALSE", "IS UNKNOWN", "IS NOT UNKNOWN",
    "IS DISTINCT FROM", "IS NOT DISTINCT FROM", "ROW", "ARRAY", "MAP", "CURRENT_TIMESTAMP", "PROCTIME", "CURRENT_DATE",
    "LOCALTIMESTAMP", "LOCALTIME",
))  # fmt: skip
_STRICT = frozenset(
    ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "NOT", "NEGATE", "||", "LIKE", "UPPER", "LOWER")
)
_Kind = TypeVar("_Kind", bound=Expression)


def rewrite(expression: Expression, rule: Callable[[Expression], Expression | None]) -> Expression:
    """The tree rebuilt from the top: what `rule` gives replaces a node whole; where it gives None, the node's children are rewritten."""
    replaced = rule(expression)
    return map_children(expression, lambda child: rewrite(child, rule)) if replaced is None else replaced


def map_children(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """The node with each expression that it holds changed, however deep it sits in tuples and calls."""
    changes: dict[str, Any] = {}
    for entry in fields(expression):
        old = getattr(expression, entry.name)
        new = _mapped(old, change)
        if new is not old:
            changes[entry.name] = new
    return replace(expression, **changes) if changes else expression


def _mapped(value: Any, change: Callable[[Expression], Expression]) -> Any:
    match value:
        case Expression():
            return change(value)
        case tuple():
            new = tuple(_mapped(v, change) for v in value)
            return value if all(a is b for a, b in zip(new, value, strict=True)) else new
        case AggregateCall():
            arguments, condition = _mapped(value.arguments, change), _mapped(value.filter, change)
            same = arguments is value.arguments and condition is value.filter
            return value if same else replace(value, arguments=arguments, filter=condition)
        case PendingOrder():
            by = change(value.expression)
            return value if by is value.expression else replace(value, expression=by)
        case _:
            return value


def find(expression: Expression, kind: type[_Kind]) -> Iterator[_Kind]:
    """All nodes of a kind in the tree, outermost first, left to right."""
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, kind):
            yield node
        stack.extend(reversed(node.children))


def has(expression: Expression, *kinds: type[Expression]) -> bool:
    """Whether a node of one of the kinds is in the tree."""
    return any(True for kind in kinds for _ in find(expression, kind))


def shifted(expression: Expression, by: int) -> Expression:
    """The expression with every column moved right by `by`."""
    return rewrite(expression, lambda e: ColumnRef(e.type, e.index + by, e.name) if isinstance(e, ColumnRef) else None)


def compare(symbol: str, left: Expression, right: Expression) -> Expression:
    """A comparison of two bound values, cast to the type in which they compare.

    Raises:
        ExpressionError: the types do not compare; without a place.
    """
    function = scalar(symbol)
    assert function is not None, symbol
    signature = function.type_rule([Argument(left.type), Argument(right.type)])
    cast = tuple(a if a.type == t else Cast(t, a) for a, t in zip((left, right), signature.arguments, strict=True))
    return Call(signature.result, symbol, cast)


def test(symbol: str, value: Expression) -> Expression:
    """A test like IS NULL of a bound value."""
    return Call(BOOLEAN, symbol, (value,))


def may_be_null(expression: Expression, schema: Schema) -> bool:
    """Whether a value over rows of `schema` may be NULL, as far as that is easily seen."""
    match expression:
        case ColumnRef(index=index):
            return schema.fields[index].nullable
        case Literal(value=value):
            return value is None
        case Call(function=name, arguments=arguments):
            if name in _NEVER_NULL:
                return False
            return name not in _STRICT or any(may_be_null(a, schema) for a in arguments)
        case And(operands=parts) | Or(operands=parts):
            return any(may_be_null(p, schema) for p in parts)
        case Case(branches=branches, otherwise=otherwise):
            # COALESCE(a, b) is CASE WHEN a IS NOT NULL THEN a ELSE b
            results = [r for c, r in branches if not (isinstance(c, Call) and c == Call(BOOLEAN, "IS NOT NULL", (r,)))]
            return any(may_be_null(r, schema) for r in (*results, otherwise))
        case Cast(operand=operand, safe=safe):
            return safe or may_be_null(operand, schema)
        case InList(operand=operand, values=values):
            return None in values or may_be_null(operand, schema)
        case FieldAccess():
            return True
        case _:
            return True
