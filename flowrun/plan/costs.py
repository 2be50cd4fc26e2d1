"""Which expressions cost so much more than a comparison that rows are better selected first."""

from __future__ import annotations

from flowrun.plan.expressions import Call, Expression

_COSTLY = ("LIKE", "SIMILAR TO", "SPLIT_INDEX", "DATE_FORMAT", "PARSE_URL", "URL_DECODE", "URL_ENCODE", "MD5", "SHA2")
_COSTLY_KINDS = ("REGEXP", "JSON_")


def is_costly_call(expression: Expression) -> bool:
    """Whether the expression itself, apart from its arguments, takes some hundred nanoseconds a row or more.

    >>> from flowrun.core.types import BOOLEAN
    >>> is_costly_call(Call(BOOLEAN, "REGEXP", ())), is_costly_call(Call(BOOLEAN, "=", ()))
    (True, False)
    """
    if not isinstance(expression, Call):
        return False
    return expression.function in _COSTLY or expression.function.startswith(_COSTLY_KINDS)
