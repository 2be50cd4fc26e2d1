"""Java's `String.format` for SQL values: what PRINTF evaluates."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

_CONVERSION = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(]*)(\d+)?(?:\.(\d+))?([bBsScdoxXeEfgG%n])")


def java_format(pattern: str, values: Sequence[Any]) -> str | None:
    """`values` in a Java format string, or NULL if a conversion is unknown, lacks its value or does not fit it.

    Conversions b, s, c, d, o, x, e, f, g, % and n, with argument index, flags, width and precision
    (`java.util.Formatter`).

    >>> java_format("%s has %,d of %05.1f%%", ["u1", 1234567, 9.25])
    'u1 has 1,234,567 of 009.3%'
    >>> java_format("%2$s-%1$s", ["a", "b"]), java_format("%d", ["x"])
    ('b-a', None)
    """
    pieces: list[str] = []
    at = position = 0
    while (percent := pattern.find("%", at)) >= 0:
        match = _CONVERSION.match(pattern, percent)
        if match is None:
            return None
        pieces.append(pattern[at:percent])
        at = match.end()
        kind = match[5]
        if kind in "%n":
            pieces.append("%" if kind == "%" else "\n")
            continue
        index = int(match[1]) - 1 if match[1] else position
        position += match[1] is None
        if not 0 <= index < len(values):
            return None
        text = _convert(kind, values[index], match[2], match[4])
        if text is None:
            return None
        flags = match[2].replace("0", "") if values[index] is None else match[2]
        pieces.append(_padded(text, flags, int(match[3] or 0)))
    pieces.append(pattern[at:])
    return "".join(pieces)


def _convert(kind: str, value: Any, flags: str, precision: str | None) -> str | None:
    lower = kind.lower()
    if lower == "b":
        text = str(value if isinstance(value, bool) else value is not None).lower()
    elif value is None:
        text = "null"
    elif lower == "s":
        text = str(value).lower() if isinstance(value, bool) else str(value)
    elif lower == "c":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= sys.maxunicode:
            return None
        text = chr(value)
    else:
        return _number(kind, value, flags, precision)
    if precision is not None:
        text = text[: int(precision)]
    return text.upper() if kind.isupper() else text


def _number(kind: str, value: Any, flags: str, precision: str | None) -> str | None:
    lower = kind.lower()
    if isinstance(value, bool):
        return None
    if lower in "dox":
        if not isinstance(value, int):
            return None
        if lower != "d":
            digits = format(value & 0xFFFFFFFFFFFFFFFF if value < 0 else value, lower)
            return digits.upper() if kind == "X" else digits
        digits = f"{abs(value):,}" if "," in flags else str(abs(value))
    elif isinstance(value, float | Decimal):
        size = int(precision) if precision is not None else 6
        number = abs(Decimal(repr(value)) if isinstance(value, float) else value)
        if lower == "f":
            rounded = number.quantize(Decimal(1).scaleb(-size), "ROUND_HALF_UP", Context(prec=400 + size))
            digits = f"{rounded:,f}" if "," in flags else f"{rounded:f}"
        else:
            zeros = "#" if lower == "g" and size > 1 else ""  # %g keeps the zeros at its end
            digits = f"{float(number):{zeros}.{size}{lower}}"
        digits = digits.upper() if kind.isupper() else digits
    else:
        return None
    if value < 0:
        return f"({digits})" if "(" in flags else f"-{digits}"
    return "+" + digits if "+" in flags else " " + digits if " " in flags else digits


def _padded(text: str, flags: str, width: int) -> str:
    if "-" in flags:
        return text.ljust(width)
    return text.zfill(width) if "0" in flags else text.rjust(width)
