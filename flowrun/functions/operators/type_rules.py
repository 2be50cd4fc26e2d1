"""Type rules of the operators: what `+`, `=`, `||`, `LIKE`, `ARRAY[…]` take and give, as in Flink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowrun.core import types
from flowrun.errors import ExpressionError
from flowrun.functions.coercion import (
    as_decimal,
    common_type,
    decimal_add,
    decimal_div,
    decimal_mod,
    decimal_mul,
    implicitly_castable,
)
from flowrun.functions.contract import Argument, Signature, TypeRule

DecimalRule = Callable[[types.DataType, types.DataType], types.DataType]
_MS_PER_DAY = 86_400_000


def _types(arguments: Sequence[Argument]) -> str:
    return " and ".join(str(a.type) for a in arguments)


def _refuse(symbol: str, arguments: Sequence[Argument], hint: str | None = None) -> ExpressionError:
    return ExpressionError(f"operator {symbol} does not take {_types(arguments)}", hint=hint)


def _number_hint(arguments: Sequence[Argument]) -> str | None:
    if any(a.type.is_character for a in arguments) and any(a.type.is_numeric for a in arguments):
        return "text and numbers do not mix: CAST one of them, or use || to join text"
    return None


def _numeric_signature(symbol: str, arguments: Sequence[Argument], decimal_rule: DecimalRule) -> Signature:
    left, right = (a.type for a in arguments)
    if left.root is types.TypeRoot.NULL:
        left = right
    if right.root is types.TypeRoot.NULL:
        right = left
    if left.root is types.TypeRoot.NULL:
        left = right = types.INT
    if not (left.is_numeric and right.is_numeric):
        raise _refuse(symbol, arguments, _number_hint(arguments))
    common = common_type((left, right))
    assert common is not None
    if common.root is not types.TypeRoot.DECIMAL:
        return Signature((common, common), common)
    exact = (as_decimal(left), as_decimal(right))
    return Signature(exact, decimal_rule(*exact))


def addition(arguments: Sequence[Argument]) -> Signature:
    """Numbers; a point in time and an interval; two intervals of one kind."""
    temporal = _shift(arguments) or _shift(arguments[::-1])
    if temporal is not None:
        return (
            temporal
            if arguments[0].type == temporal.arguments[0]
            else Signature(temporal.arguments[::-1], temporal.result)
        )
    return _intervals(arguments) or _numeric_signature("+", arguments, decimal_add)


def subtraction(arguments: Sequence[Argument]) -> Signature:
    """Numbers; a point in time minus an interval or another point in time; two intervals of one kind."""
    left, right = (a.type for a in arguments)
    times = [t.root is types.TypeRoot.TIME for t in (left, right)]
    if left.is_temporal and right.is_temporal and (all(times) or not any(times)):
        return Signature((left, right), types.INTERVAL_DAY_TIME)
    return _shift(arguments) or _intervals(arguments) or _numeric_signature("-", arguments, decimal_add)


def _shift(arguments: Sequence[Argument]) -> Signature | None:
    point, interval = arguments[0].type, arguments[1].type
    if not (point.is_temporal and interval.is_interval):
        return None
    months = interval.root is types.TypeRoot.INTERVAL_YEAR_MONTH
    if point.root is types.TypeRoot.TIME and months:
        return None
    ms = arguments[1].literal if isinstance(arguments[1].literal, int) else 0
    if point.root is types.TypeRoot.DATE and not months and ms % _MS_PER_DAY:
        return Signature((types.DATE, interval), types.timestamp(3))
    if not months and ms % 1000 and point.root is not types.TypeRoot.DATE and (point.precision or 0) < 3:
        finer = types.DataType(point.root, precision=3)
        return Signature((finer, interval), finer)
    return Signature((point, interval), point)


def _intervals(arguments: Sequence[Argument]) -> Signature | None:
    left, right = (a.type for a in arguments)
    return Signature((left, right), left) if left.is_interval and left == right else None


def multiplication(arguments: Sequence[Argument]) -> Signature:
    """Numbers; an interval and a whole number."""
    left, right = (a.type for a in arguments)
    if left.is_interval and right.is_integer:
        return Signature((left, types.BIGINT if left.root is types.TypeRoot.INTERVAL_DAY_TIME else types.INT), left)
    if right.is_interval and left.is_integer:
        return Signature((types.BIGINT if right.root is types.TypeRoot.INTERVAL_DAY_TIME else types.INT, right), right)
    return _numeric_signature("*", arguments, decimal_mul)


def division(arguments: Sequence[Argument]) -> Signature:
    """Numbers; integers give an integer."""
    return _numeric_signature("/", arguments, decimal_div)


def modulo(arguments: Sequence[Argument]) -> Signature:
    """Numbers; of two integers the result has the second one's type."""
    left, right = (a.type for a in arguments)
    if left.is_integer and right.is_integer:
        return Signature((left, right), right)
    return _numeric_signature("%", arguments, decimal_mod)


def negation(arguments: Sequence[Argument]) -> Signature:
    """A number or an interval."""
    (argument,) = arguments
    type = types.INT if argument.type.root is types.TypeRoot.NULL else argument.type
    if not (type.is_numeric or type.is_interval):
        raise ExpressionError(f"unary minus does not take {type}")
    return Signature((type,), type)


def comparison(symbol: str, ordered: bool) -> TypeRule:
    """A rule that brings both sides to their common type; text meets dates and times by a cast of the text."""

    def rule(arguments: Sequence[Argument]) -> Signature:
        common = comparison_type([a.type for a in arguments])
        if common is None:
            raise _refuse(symbol, arguments, _number_hint(arguments) or "CAST one side to the other's type")
        if common.root is types.TypeRoot.MAP or (ordered and common.is_nested):
            raise _refuse(symbol, arguments, "MAP values do not compare" if common.root is types.TypeRoot.MAP else None)
        if common.root is types.TypeRoot.NULL:
            common = types.BOOLEAN
        return Signature((common, common), types.BOOLEAN)

    return rule


def comparison_type(compared: Sequence[types.DataType]) -> types.DataType | None:
    """The type in which values of the types `compared` are compared, or None.

    >>> from flowrun.core.types import char, timestamp
    >>> str(comparison_type([timestamp(3), char(10)]))
    'TIMESTAMP(3)'
    """
    temporal = [t for t in compared if t.is_temporal]
    if temporal and any(t.is_character for t in compared):
        if all(t.is_temporal or t.is_character or t.root is types.TypeRoot.NULL for t in compared):
            return common_type(temporal)
        return None
    common = common_type(compared)
    return types.STRING if common is not None and common.is_character else common


def truth(name: str, count: int = 1) -> TypeRule:
    """A rule for BOOLEAN operands."""

    def rule(arguments: Sequence[Argument]) -> Signature:
        for argument in arguments:
            if argument.type.root not in (types.TypeRoot.BOOLEAN, types.TypeRoot.NULL):
                raise ExpressionError(f"{name} takes a BOOLEAN, {argument.type} given", hint="compare it, e.g. x <> 0")
        return Signature((types.BOOLEAN,) * count, types.BOOLEAN)

    return rule


def null_test(arguments: Sequence[Argument]) -> Signature:
    """Anything."""
    return Signature((arguments[0].type,), types.BOOLEAN)


def concatenation(arguments: Sequence[Argument]) -> Signature:
    """Two texts or two binary strings; bounded lengths add up."""
    operand_types = [a.type for a in arguments]
    known = [t for t in operand_types if t.root is not types.TypeRoot.NULL]
    if not known:
        return Signature((types.STRING, types.STRING), types.STRING)
    if all(t.is_character for t in known):
        make = types.varchar
    elif all(t.is_binary for t in known):
        make = types.varbinary
    else:
        raise _refuse("||", arguments, "CAST the other side AS STRING")
    operand_types = [known[0] if t.root is types.TypeRoot.NULL else t for t in operand_types]
    lengths = [t.length for t in operand_types]
    if any(n is None for n in lengths):
        return Signature((make(), make()), make())
    total = sum(n for n in lengths if n is not None)
    fixed = all(t.root in (types.TypeRoot.CHAR, types.TypeRoot.BINARY) for t in operand_types)
    return Signature(
        tuple(operand_types), types.DataType(operand_types[0].root, length=total) if fixed else make(total)
    )


def pattern(name: str) -> TypeRule:
    """A rule for LIKE and SIMILAR TO: text, pattern and an optional constant escape character."""

    def rule(arguments: Sequence[Argument]) -> Signature:
        for argument in arguments:
            if not (argument.type.is_character or argument.type.root is types.TypeRoot.NULL):
                raise ExpressionError(f"{name} takes texts, {argument.type} given", hint="use CAST(… AS STRING)")
        if len(arguments) == 3:
            escape = arguments[2].literal
            if not isinstance(escape, str) or len(escape) != 1:
                raise ExpressionError("ESCAPE takes a text of one character")
        return Signature((types.STRING,) * len(arguments), types.BOOLEAN)

    return rule


def row_constructor(arguments: Sequence[Argument]) -> Signature:
    """Anything; fields are called EXPR$0, EXPR$1, …"""
    operand_types = tuple(types.STRING if a.type.root is types.TypeRoot.NULL else a.type for a in arguments)
    return Signature(operand_types, types.row(*((f"EXPR${i}", t) for i, t in enumerate(operand_types))))


def array_constructor(arguments: Sequence[Argument]) -> Signature:
    """Elements of one common type; at least one."""
    if not arguments:
        raise ExpressionError("ARRAY[…] needs at least one element", hint="CAST(NULL AS ARRAY<…>) gives a typed NULL")
    common = _shared("ARRAY", [a.type for a in arguments])
    return Signature((common,) * len(arguments), types.array(common))


def map_constructor(arguments: Sequence[Argument]) -> Signature:
    """Alternating keys and values, each of one common type."""
    if not arguments or len(arguments) % 2:
        raise ExpressionError("MAP[…] takes pairs of a key and a value", hint="write MAP['a', 1, 'b', 2]")
    key = _shared("MAP", [a.type for a in arguments[0::2]])
    value = _shared("MAP", [a.type for a in arguments[1::2]])
    return Signature((key, value) * (len(arguments) // 2), types.map_of(key, value))


def _shared(name: str, operand_types: Sequence[types.DataType]) -> types.DataType:
    common = common_type(operand_types)
    if common is None:
        given = ", ".join(dict.fromkeys(map(str, operand_types)))
        raise ExpressionError(f"{name}[…] takes values of one type, {given} given", hint="use CAST")
    return types.STRING if common.root is types.TypeRoot.NULL else common


def element_access(arguments: Sequence[Argument]) -> Signature:
    """An array and a whole number from 1, or a map and a key."""
    container, index = arguments
    if container.type.root is types.TypeRoot.ARRAY:
        if not (index.type.is_integer or index.type.root is types.TypeRoot.NULL):
            raise ExpressionError(f"an array is accessed by a whole number, {index.type} given")
        if isinstance(index.literal, int) and index.literal < 1:
            raise ExpressionError(f"array positions start at 1, got {index.literal}")
        return Signature((container.type, types.BIGINT), container.type.children[0])
    if container.type.root is types.TypeRoot.MAP:
        key, value = container.type.children
        if index.type.root is not types.TypeRoot.NULL and not implicitly_castable(index.type, key):
            raise ExpressionError(f"this map has keys of type {key}, {index.type} given", hint="use CAST")
        return Signature((container.type, key), value)
    hint = "a field of a ROW is written row.field" if container.type.root is types.TypeRoot.ROW else None
    raise ExpressionError(f"[…] takes an ARRAY or a MAP, {container.type} given", hint=hint)
