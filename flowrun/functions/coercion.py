"""Which SQL types meet in a common type, which convert silently, which need CAST, and what decimal arithmetic results in.

The rules are those of Apache Flink: its documentation "Data Types" (casting table), the least restrictive type of its SQL validator for
`common_type`, and `LogicalTypeMerging` for the precision and scale of decimal results. Everything here is a pure function of types.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowrun.core.types import (
    DOUBLE,
    FLOAT,
    MAX_DECIMAL_PRECISION,
    NULL,
    DataType,
    TypeRoot,
    decimal,
)

MIN_DECIMAL_SCALE = 6
"""Fractional digits that decimal arithmetic keeps when a result would need more than 38 digits."""

_INTEGER_ORDER = (TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER, TypeRoot.BIGINT)
_INTEGER_DIGITS = {TypeRoot.TINYINT: 3, TypeRoot.SMALLINT: 5, TypeRoot.INTEGER: 10, TypeRoot.BIGINT: 19}


def as_decimal(type: DataType) -> DataType:
    """The DECIMAL that holds every value of an exact numeric type.

    Raises:
        ValueError: the type is not exact.

    >>> from flowrun.core.types import BIGINT, INT
    >>> str(as_decimal(INT)), str(as_decimal(BIGINT))
    ('DECIMAL(10, 0)', 'DECIMAL(19, 0)')
    """
    if type.root is TypeRoot.DECIMAL:
        return type
    if type.root in _INTEGER_DIGITS:
        return decimal(_INTEGER_DIGITS[type.root], 0)
    raise ValueError(f"{type} is not an exact numeric type")


def _digits(type: DataType) -> tuple[int, int]:
    exact = as_decimal(type)
    assert exact.precision is not None
    assert exact.scale is not None
    return exact.precision, exact.scale


def adjusted_decimal(precision: int, scale: int) -> DataType:
    """DECIMAL(precision, scale), giving up fractional digits (down to 6) if more than 38 digits would be needed.

    >>> str(adjusted_decimal(40, 10)), str(adjusted_decimal(60, 10))
    ('DECIMAL(38, 8)', 'DECIMAL(38, 6)')
    """
    if precision <= MAX_DECIMAL_PRECISION:
        return decimal(precision, scale)
    whole = precision - scale
    return decimal(MAX_DECIMAL_PRECISION, max(MAX_DECIMAL_PRECISION - whole, min(scale, MIN_DECIMAL_SCALE)))


def decimal_add(left: DataType, right: DataType) -> DataType:
    """Type of the sum of two exact numerics of which at least one is DECIMAL.

    >>> from flowrun.core.types import INT
    >>> str(decimal_add(decimal(10, 2), INT))
    'DECIMAL(13, 2)'
    """
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    scale = max(s1, s2)
    return adjusted_decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)


def decimal_mul(left: DataType, right: DataType) -> DataType:
    """Type of the product of two exact numerics of which at least one is DECIMAL.

    >>> from flowrun.core.types import INT
    >>> str(decimal_mul(decimal(10, 2), INT))
    'DECIMAL(21, 2)'
    """
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    return adjusted_decimal(p1 + p2 + 1, s1 + s2)


def decimal_div(left: DataType, right: DataType) -> DataType:
    """Type of the quotient of two exact numerics of which at least one is DECIMAL.

    >>> str(decimal_div(decimal(10, 2), decimal(10, 2)))
    'DECIMAL(23, 13)'
    """
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    scale = max(MIN_DECIMAL_SCALE, s1 + p2 + 1)
    return adjusted_decimal(p1 - s1 + s2 + scale, scale)


def decimal_mod(left: DataType, right: DataType) -> DataType:
    """Type of the remainder of two exact numerics of which at least one is DECIMAL."""
    (p1, s1), (p2, s2) = _digits(left), _digits(right)
    scale = max(s1, s2)
    return adjusted_decimal(max(min(p1 - s1, p2 - s2) + scale, 1), scale)


def decimal_round(type: DataType, digits: int) -> DataType:
    """Type of ROUND(x, digits) for DECIMAL `type` and a constant number of digits.

    >>> str(decimal_round(decimal(10, 2), 1)), str(decimal_round(decimal(10, 2), -1))
    ('DECIMAL(10, 1)', 'DECIMAL(9, 0)')
    """
    precision, scale = _digits(type)
    if digits >= scale:
        return type
    if digits < 0:
        return decimal(min(MAX_DECIMAL_PRECISION, 1 + precision - scale), 0)
    return decimal(1 + precision - scale + digits, digits)


def common_type(types: Sequence[DataType]) -> DataType | None:
    """The narrowest type that every one of `types` converts to without loss of kind, or None if there is none.

    NULL joins anything. CHARs of different lengths join as VARCHAR, exact and approximate numbers as Flink does it: DECIMAL with
    FLOAT or DOUBLE gives DOUBLE, an integer with FLOAT gives FLOAT.

    >>> from flowrun.core.types import BIGINT, INT, char
    >>> str(common_type([INT, BIGINT])), str(common_type([char(7), char(2)])), common_type([INT, char(1)])
    ('BIGINT', 'VARCHAR(7)', None)
    """
    if not types:
        return None
    result = types[0]
    for other in types[1:]:
        merged = _merge(result, other)
        if merged is None:
            return None
        result = merged
    return result


def _merge(left: DataType, right: DataType) -> DataType | None:
    if left == right or right.root is TypeRoot.NULL:
        return left
    if left.root is TypeRoot.NULL:
        return right
    if left.is_numeric and right.is_numeric:
        return _merge_numeric(left, right)
    if left.is_character and right.is_character:
        return DataType(TypeRoot.VARCHAR, length=_longest(left, right))
    if left.is_binary and right.is_binary:
        return DataType(TypeRoot.VARBINARY, length=_longest(left, right))
    if left.is_temporal and right.is_temporal:
        return _merge_temporal(left, right)
    if left.root is right.root and left.is_nested and len(left.children) == len(right.children):
        children = tuple(_merge(a, b) for a, b in zip(left.children, right.children, strict=True))
        known = tuple(c for c in children if c is not None)
        return DataType(left.root, children=known, names=left.names) if len(known) == len(children) else None
    return None


def _longest(left: DataType, right: DataType) -> int | None:
    return None if left.length is None or right.length is None else max(left.length, right.length)


def _merge_numeric(left: DataType, right: DataType) -> DataType:
    if left.is_approximate or right.is_approximate:
        roots = {left.root, right.root}
        return DOUBLE if TypeRoot.DOUBLE in roots or TypeRoot.DECIMAL in roots else FLOAT
    if TypeRoot.DECIMAL in (left.root, right.root):
        (p1, s1), (p2, s2) = _digits(left), _digits(right)
        scale = max(s1, s2)
        whole = max(p1 - s1, p2 - s2)
        # as Flink does it: whole digits are never given up for fractional ones
        return decimal(min(whole + scale, MAX_DECIMAL_PRECISION), min(scale, MAX_DECIMAL_PRECISION - whole))
    return max(left, right, key=lambda t: _INTEGER_ORDER.index(t.root))


def _merge_temporal(left: DataType, right: DataType) -> DataType | None:
    roots = {left.root, right.root}
    precision = max(left.precision or 0, right.precision or 0)
    if TypeRoot.TIME in roots:
        return DataType(TypeRoot.TIME, precision=precision) if len(roots) == 1 else None
    root = TypeRoot.TIMESTAMP_LTZ if TypeRoot.TIMESTAMP_LTZ in roots else TypeRoot.TIMESTAMP
    return DataType(root, precision=precision)


_IMPLICIT: dict[TypeRoot, frozenset[TypeRoot]] = {
    TypeRoot.SMALLINT: frozenset({TypeRoot.TINYINT}),
    TypeRoot.INTEGER: frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT}),
    TypeRoot.BIGINT: frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INTEGER}),
    TypeRoot.DECIMAL: frozenset({*_INTEGER_ORDER, TypeRoot.FLOAT, TypeRoot.DOUBLE}),
    TypeRoot.FLOAT: frozenset({*_INTEGER_ORDER, TypeRoot.DECIMAL}),
    TypeRoot.DOUBLE: frozenset({*_INTEGER_ORDER, TypeRoot.DECIMAL, TypeRoot.FLOAT}),
    TypeRoot.VARCHAR: frozenset({TypeRoot.CHAR}),
    TypeRoot.CHAR: frozenset({TypeRoot.VARCHAR}),
    TypeRoot.VARBINARY: frozenset({TypeRoot.BINARY}),
    TypeRoot.BINARY: frozenset({TypeRoot.VARBINARY}),
    TypeRoot.DATE: frozenset({TypeRoot.TIMESTAMP}),
    TypeRoot.TIME: frozenset({TypeRoot.TIMESTAMP}),
    TypeRoot.TIMESTAMP: frozenset({TypeRoot.TIMESTAMP_LTZ, TypeRoot.DATE}),
    TypeRoot.TIMESTAMP_LTZ: frozenset({TypeRoot.TIMESTAMP, TypeRoot.DATE}),
}
_EXPLICIT: dict[TypeRoot, frozenset[TypeRoot]] = {}
_NUMBERS = (*_INTEGER_ORDER, TypeRoot.FLOAT, TypeRoot.DOUBLE, TypeRoot.DECIMAL)
_TEXT = (TypeRoot.CHAR, TypeRoot.VARCHAR)
_TIMES = (TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ)
for _root in _NUMBERS:
    _EXPLICIT[_root] = frozenset({*_NUMBERS, *_TEXT, TypeRoot.BOOLEAN})
_EXPLICIT[TypeRoot.INTEGER] |= {TypeRoot.INTERVAL_YEAR_MONTH}
_EXPLICIT[TypeRoot.BIGINT] |= {TypeRoot.INTERVAL_DAY_TIME, TypeRoot.INTERVAL_YEAR_MONTH}
_EXPLICIT[TypeRoot.BOOLEAN] = frozenset({*_TEXT, *_NUMBERS})
_EXPLICIT[TypeRoot.BINARY] = _EXPLICIT[TypeRoot.VARBINARY] = frozenset({*_TEXT, TypeRoot.BINARY, TypeRoot.VARBINARY})
_EXPLICIT[TypeRoot.DATE] = frozenset({*_TEXT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_EXPLICIT[TypeRoot.TIME] = frozenset({*_TEXT, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ})
_EXPLICIT[TypeRoot.TIMESTAMP] = _EXPLICIT[TypeRoot.TIMESTAMP_LTZ] = frozenset({*_TEXT, *_TIMES})


def implicitly_castable(source: DataType, target: DataType) -> bool:
    """Whether a value of `source` may be used where `target` is expected, as in INSERT; lengths and precisions may differ.

    >>> from flowrun.core.types import BIGINT, INT
    >>> implicitly_castable(INT, BIGINT), implicitly_castable(BIGINT, INT)
    (True, False)
    """
    return _castable(source, target, explicit=False)


def castable(source: DataType, target: DataType) -> bool:
    """Whether CAST(source AS target) exists at all; single values may still fail.

    >>> from flowrun.core.types import INT, STRING, timestamp
    >>> castable(STRING, INT), castable(INT, timestamp(3))
    (True, False)
    """
    return _castable(source, target, explicit=True)


def _castable(source: DataType, target: DataType, *, explicit: bool) -> bool:
    if source == target or source.root is TypeRoot.NULL:
        return True
    if target == NULL or TypeRoot.VARIANT in (source.root, target.root):
        return False
    if explicit and target.is_character:
        return True
    if source.is_nested and source.root is target.root:
        return len(source.children) == len(target.children) and all(
            _castable(s, t, explicit=explicit) for s, t in zip(source.children, target.children, strict=True)
        )
    if source.root is target.root:
        return True
    if source.root in _IMPLICIT.get(target.root, ()):
        return True
    return explicit and source.root in _EXPLICIT.get(target.root, ())
