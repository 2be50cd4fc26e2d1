"""Ends of OVER frames that count numbers: RANGE BETWEEN 5 PRECEDING AND 2.5 FOLLOWING."""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal

from flowrun.core.types import DataType, TypeRoot

MOST_DIGITS = 18
"""DECIMALs of more digits cannot be counted: they are kept as 64 bits."""


def can_be_counted(type: DataType) -> bool:
    """Whether RANGE can count so many units of an order of this type: any number but a DECIMAL of more than 18 digits.

    >>> from flowrun.core.types import INT, STRING, decimal
    >>> can_be_counted(INT), can_be_counted(decimal(20, 2)), can_be_counted(STRING)
    (True, False, False)
    """
    if type.root is TypeRoot.DECIMAL:
        return (type.precision or 0) <= MOST_DIGITS
    return type.is_integer or type.is_approximate


def frame_units(amount: Decimal, type: DataType) -> int:
    """An end of a frame as a number of the smallest units of an exact type: 2.5 of an INT reach as far as 2.

    >>> from flowrun.core.types import INT, decimal
    >>> frame_units(Decimal("2.5"), INT), frame_units(Decimal("2.5"), decimal(5, 2)), frame_units(Decimal("-2.5"), INT)
    (2, 250, -3)
    """
    scale = (type.scale or 0) if type.root is TypeRoot.DECIMAL else 0
    return int(amount.scaleb(scale).to_integral_value(ROUND_FLOOR))
