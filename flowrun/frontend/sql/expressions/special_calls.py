"""Functions that are not functions.

COALESCE, IF, IFNULL and NULLIF bind to CASE, so that what they guard is not evaluated; TYPEOF and CURRENT_DATABASE to constants;
OBJECT_OF and OBJECT_UPDATE to ROWs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from flowrun.core.types import BOOLEAN, STRING, DataType, TypeRoot, row
from flowrun.errors import did_you_mean
from flowrun.frontend.sql.expressions.binder_core import BinderCore
from flowrun.frontend.sql.expressions.trees import may_be_null
from flowrun.plan.expressions import Cast, ColumnRef, Expression, FieldAccess, Literal

_LONGEST = 2**31 - 1
_WITHOUT_LENGTH = {TypeRoot.VARCHAR: f"VARCHAR({_LONGEST})", TypeRoot.VARBINARY: f"VARBINARY({_LONGEST})"}


def _count(binder: BinderCore, node: exp.Expression, least: int, most: int | None, usage: str) -> list[exp.Expression]:
    arguments: list[exp.Expression] = list(node.expressions)
    if len(arguments) < least or (most is not None and len(arguments) > most):
        expected = f"at least {least}" if most is None else str(least) if least == most else f"{least} to {most}"
        binder.fail(
            f"{str(node.this).upper()} takes {expected} arguments, {len(arguments)} given", node, f"usage: {usage}"
        )
    return arguments


def _coalesce(binder: BinderCore, node: exp.Expression) -> Expression:
    return _first_not_null(binder, node, _count(binder, node, 1, None, "COALESCE(value, …)"))


def _ifnull(binder: BinderCore, node: exp.Expression) -> Expression:
    return _first_not_null(binder, node, _count(binder, node, 2, 2, "IFNULL(value, replacement)"))


def _first_not_null(binder: BinderCore, node: exp.Expression, arguments: list[exp.Expression]) -> Expression:
    bound = binder.unify([binder.bind(a) for a in arguments], arguments, f"the arguments of {str(node.this).upper()}")
    if len(bound) == 1:
        return bound[0]
    present = [binder.apply("IS NOT NULL", (b,), (n,), node) for b, n in zip(bound[:-1], arguments, strict=False)]
    return binder.choice(present, bound, arguments, "the arguments")


def _if(binder: BinderCore, node: exp.Expression) -> Expression:
    condition, yes, no = _count(binder, node, 3, 3, "IF(condition, value, otherwise)")
    test = binder.boolean(condition, "the condition of IF")
    return binder.choice([test], [binder.bind(yes), binder.bind(no)], [yes, no], "the results of IF")


def _nullif(binder: BinderCore, node: exp.Expression) -> Expression:
    value, other = _count(binder, node, 2, 2, "NULLIF(value, other)")
    bound = binder.bind(value)
    same = binder.apply("=", (bound, binder.bind(other)), (value, other), node)
    return binder.choice([same], [Literal(bound.type, None), bound], [value, value], "the arguments of NULLIF")


def _typeof(binder: BinderCore, node: exp.Expression) -> Expression:
    usage = "TYPEOF(value[, force_serializable])"
    value, *more = _count(binder, node, 1, 2, usage)
    bound = binder.bind(value)
    full = binder.bind(more[0]) if more else Literal(BOOLEAN, False)
    if not isinstance(full, Literal) or not isinstance(full.value, bool):
        binder.fail("argument 2 of TYPEOF must be TRUE or FALSE", more[0], f"usage: {usage}")
    text = _full_name(bound.type) if full.value else str(bound.type)
    if bound.type.root is not TypeRoot.NULL and not may_be_null(bound, binder.scope.schema):
        text += " NOT NULL"
    named = Literal(STRING, text)
    if isinstance(bound, ColumnRef | Literal):
        return named
    # the value stays in the expression, as an aggregate in it groups the rows
    return binder.choice([binder.apply("IS NULL", (bound,), (value,), node)], [named, named], [node, node], "TYPEOF")


def _full_name(type: DataType) -> str:
    """The type as a catalog would keep it.

    >>> _full_name(DataType(TypeRoot.ARRAY, children=(STRING,)))
    'ARRAY<VARCHAR(2147483647)>'
    """
    match type.root:
        case TypeRoot.TIMESTAMP_LTZ:
            return f"TIMESTAMP({type.precision}) WITH LOCAL TIME ZONE"
        case TypeRoot.ARRAY | TypeRoot.MAP:
            return f"{type.root.value}<{', '.join(_full_name(c) for c in type.children)}>"
        case TypeRoot.ROW:
            fields = (f"{_quoted(n)} {_full_name(c)}" for n, c in zip(type.names, type.children, strict=True))
            return f"ROW<{', '.join(fields)}>"
        case root if root in _WITHOUT_LENGTH and type.length is None:
            return _WITHOUT_LENGTH[root]
        case _:
            return str(type)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _object_of(binder: BinderCore, node: exp.Expression) -> Expression:
    """A ROW of named values; the name of the class, which Flink keeps in the type, says nothing here."""
    usage = "OBJECT_OF(class name, key, value, …)"
    class_name, *members = _count(binder, node, 1, None, usage)
    _constant_text(binder, class_name, "the class name of OBJECT_OF", usage)
    named = _named_values(binder, node, members, usage)
    if not named:
        binder.fail("OBJECT_OF takes at least one key and value", node, f"usage: {usage}")
    return _row(binder, node, named)


def _object_update(binder: BinderCore, node: exp.Expression) -> Expression:
    """The ROW with other values in some of its fields; NULL of NULL."""
    usage = "OBJECT_UPDATE(object, key, value, …)"
    given, *members = _count(binder, node, 3, None, usage)
    bound = binder.bind(given)
    if bound.type.root is not TypeRoot.ROW:
        binder.fail(f"argument 1 of OBJECT_UPDATE must be a ROW, {bound.type} given", given, f"usage: {usage}")
    named = _named_values(binder, node, members, usage)
    unknown = next((name for name in named if name not in bound.type.names), None)
    if unknown is not None:
        binder.fail(f"{bound.type} has no field '{unknown}'", node, did_you_mean(unknown, bound.type.names))
    fields = zip(bound.type.names, bound.type.children, strict=True)
    made = _row(binder, node, {n: named.get(n, FieldAccess(t, bound, n)) for n, t in fields})
    missing = binder.apply("IS NULL", (bound,), (given,), node)
    return binder.choice([missing], [Literal(made.type, None), made], [node, node], "OBJECT_UPDATE")


def _named_values(
    binder: BinderCore, node: exp.Expression, members: list[exp.Expression], usage: str
) -> dict[str, Expression]:
    """The value of each key."""
    if len(members) % 2:
        binder.fail(f"{str(node.this).upper()}: the last key has no value", node, f"usage: {usage}")
    named: dict[str, Expression] = {}
    for key, value in zip(members[::2], members[1::2], strict=True):
        name = _constant_text(binder, key, f"a key of {str(node.this).upper()}", usage)
        if name in named:
            binder.fail(f"the key '{name}' is there twice", key)
        named[name] = binder.bind(value)
    return named


def _constant_text(binder: BinderCore, node: exp.Expression, what: str, usage: str) -> str:
    bound = binder.bind(node)
    if not isinstance(bound, Literal) or not isinstance(bound.value, str) or not bound.type.is_character:
        binder.fail(f"{what} must be a constant character string", node, f"usage: {usage}")
    return bound.value


def _row(binder: BinderCore, node: exp.Expression, fields: Mapping[str, Expression]) -> Expression:
    made = binder.apply("ROW", list(fields.values()), [node] * len(fields), node)
    return Cast(row(*zip(fields, made.type.children, strict=True)), made)


def _current_database(binder: BinderCore, node: exp.Expression) -> Expression:
    _count(binder, node, 0, 0, "CURRENT_DATABASE()")
    return Literal(STRING, binder.current_database)


def _current_watermark(binder: BinderCore, node: exp.Expression) -> Expression:
    binder.fail(
        "CURRENT_WATERMARK is not supported: expressions do not see the watermark of the step that they run in",
        node,
        "leave it out: windows, interval joins and temporal joins drop late rows themselves",
    )


def _source_watermark(binder: BinderCore, node: exp.Expression) -> Expression:
    binder.fail(
        "SOURCE_WATERMARK() is no value: it stands for the watermarks that the source sends",
        node,
        "use it alone, in CREATE TABLE: WATERMARK FOR ts AS SOURCE_WATERMARK()",
    )


SPECIAL_CALLS: Mapping[str, Callable[[BinderCore, exp.Expression], Expression]] = {
    "COALESCE": _coalesce,
    "IFNULL": _ifnull,
    "IF": _if,
    "NULLIF": _nullif,
    "TYPEOF": _typeof,
    "OBJECT_OF": _object_of,
    "OBJECT_UPDATE": _object_update,
    "CURRENT_DATABASE": _current_database,
    "CURRENT_WATERMARK": _current_watermark,
    "SOURCE_WATERMARK": _source_watermark,
}
"""Upper-case name → what binds a call of it."""
