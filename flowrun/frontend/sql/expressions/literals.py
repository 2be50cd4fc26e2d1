"""Literals of Flink SQL as typed values: numbers, texts, dates and times, intervals."""

from __future__ import annotations

import decimal
import math
import re
from datetime import UTC

import pyarrow as pa

from flowrun.core import types
from flowrun.errors import DataError
from flowrun.functions.casts.casts import read_array
from flowrun.plan.expressions import Literal
from flowrun.plan.folding import literal_value

_UNIT_MS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000}
_UNITS = ("DAY", "HOUR", "MINUTE", "SECOND")
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)
_WHOLE = re.compile(r"([+-]?)(\d+)")
_YEARS_MONTHS = re.compile(r"([+-]?)(\d+)-(\d{1,2})")
_FRACTION = re.compile(r"(\d+)(?:\.(\d{1,9}))?")


def number(text: str, *, negative: bool = False) -> Literal:
    """An unsigned number as written, or its negative: INT, BIGINT or DECIMAL by size, DOUBLE with an exponent.

    Raises:
        ValueError: no number, more than 38 digits, or an exponent that DOUBLE does not reach.

    >>> str(number("20").type), str(number("3000000000").type), str(number("1.50").type), str(number("1e3").type)
    ('INT', 'BIGINT', 'DECIMAL(3, 2)', 'DOUBLE')
    """
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"'{text}' is no number")
    sign = "-" if negative else ""
    if "e" in text.lower():
        approximate = float(sign + text)
        if math.isinf(approximate):
            raise ValueError(f"{text} is too large for DOUBLE")
        return Literal(types.DOUBLE, approximate)
    if "." in text and not text.endswith("."):
        whole, _, fraction = text.partition(".")
        digits = len(whole) + len(fraction)
        if digits > types.MAX_DECIMAL_PRECISION:
            raise ValueError(f"{text} has {digits} digits, at most {types.MAX_DECIMAL_PRECISION} are possible")
        return Literal(types.decimal(digits, len(fraction)), decimal.Decimal(sign + text))
    digits = len(text.rstrip(".").lstrip("0"))
    if digits > types.MAX_DECIMAL_PRECISION:
        raise ValueError(f"{text} has {digits} digits, at most {types.MAX_DECIMAL_PRECISION} are possible")
    value = int(sign + text.rstrip("."))
    if -(2**31) <= value < 2**31:
        return Literal(types.INT, value)
    if -(2**63) <= value < 2**63:
        return Literal(types.BIGINT, value)
    return Literal(types.decimal(digits, 0), decimal.Decimal(value))


def text(value: str) -> Literal:
    """A text: CHAR of its length."""
    return Literal(types.DataType(types.TypeRoot.CHAR, length=0) if not value else types.char(len(value)), value)


def unescaped(value: str, escape: str) -> str:
    r"""What stands in U&'…': `escape` and four hexadecimal digits are a UTF-16 unit, `escape` twice is itself.

    Raises:
        ValueError: something else follows `escape`, or half a character is left.

    >>> unescaped("#0041##b#d83d#de00", "#")
    'A#b😀'
    """
    first, *others = value.split(escape)
    pieces, following = [first], iter(others)
    for piece in following:
        if not piece:  # twice in a row
            pieces.append(escape + next(following, ""))
            continue
        if re.fullmatch("[0-9a-fA-F]{4}", piece[:4]) is None:
            raise ValueError(f"'{piece[:4]}' is not four hexadecimal digits")
        pieces.append(chr(int(piece[:4], 16)) + piece[4:])
    return "".join(pieces).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def temporal(keyword: str, value: str) -> Literal:
    """DATE '…', TIME '…', TIMESTAMP '…' or TIMESTAMP_LTZ '…'; as many fractional digits as are written.

    Raises:
        ValueError: not such a date or time.

    >>> str(temporal("TIMESTAMP", "2024-03-01 09:00:00.5").type)
    'TIMESTAMP(1)'
    """
    digits = min(len(value.strip().rstrip("Z").rpartition(".")[2]), 9) if "." in value else 0
    type = {
        "DATE": types.DATE,
        "TIME": types.time(digits),
        "TIMESTAMP": types.timestamp(digits),
        "TIMESTAMP_LTZ": types.timestamp_ltz(digits),
    }[keyword]
    try:
        parsed = read_array(pa.array([value]), type)
    except DataError:
        forms = {"DATE": "2024-03-01", "TIME": "10:00:00"}
        shape = forms.get(keyword, "2024-03-01 10:00:00.123")
        raise ValueError(f"'{value}' is no {keyword}; write it like {keyword} '{shape}'") from None
    result = literal_value(parsed[0], type)
    if type.root is types.TypeRoot.TIMESTAMP_LTZ and not isinstance(result, int):
        result = result.astimezone(UTC)
    return Literal(type, result)


def interval(value: str, unit: str) -> Literal:
    """INTERVAL 'value' unit, where unit is one like SECOND or a range like DAY TO SECOND.

    Raises:
        ValueError: value and unit do not go together, or no interval is that long.

    >>> interval("1:30", "HOUR TO MINUTE").value, interval("-2", "YEAR").value, interval("0.25", "SECOND").value
    (5400000, -24, 250)
    """
    first, last = _units(unit)
    if counts_months(unit):
        return Literal(types.INTERVAL_YEAR_MONTH, _bounded(_months(value, first, last), 31, value, unit))
    if first == "WEEK":
        return Literal(types.INTERVAL_DAY_TIME, _bounded(7 * _milliseconds(value, "DAY", ""), 63, value, unit))
    return Literal(types.INTERVAL_DAY_TIME, _bounded(_milliseconds(value, first, last), 63, value, unit))


def counts_months(unit: str) -> bool:
    """Whether an interval in a unit or range is one of months; it is one of milliseconds else.

    Raises:
        ValueError: there is no such unit or range.

    >>> counts_months("YEAR TO MONTH"), counts_months("DAY TO SECOND")
    (True, False)
    """
    first, last = _units(unit)
    if first in ("YEAR", "MONTH", "QUARTER"):
        return True
    if (first != "WEEK" or last) and (first not in _UNITS or (last and last not in _UNITS[_UNITS.index(first) + 1 :])):
        raise ValueError(
            f"'{unit}' is no interval unit; known: YEAR, MONTH, DAY, HOUR, MINUTE, SECOND and ranges like DAY TO SECOND"
        )
    return False


def _units(unit: str) -> tuple[str, str]:
    first, _, last = unit.partition(" TO ")
    return first.removesuffix("S"), last.removesuffix("S")


def _bounded(length: int, bits: int, value: str, unit: str) -> int:
    if abs(length) >= 1 << bits:
        raise ValueError(f"INTERVAL '{value}' {unit} is longer than intervals can be")
    return length


def _months(value: str, first: str, last: str) -> int:
    if last:
        match = _YEARS_MONTHS.fullmatch(value.strip())
        if match is None or first != "YEAR" or last != "MONTH" or int(match[3]) > 11:
            raise ValueError(f"'{value}' is no YEAR TO MONTH interval; write it like '1-6'")
        months = int(match[2]) * 12 + int(match[3])
        return -months if match[1] == "-" else months
    match = _WHOLE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"'{value}' is no whole number of {first} units")
    return int(match[1] + match[2]) * {"YEAR": 12, "QUARTER": 3, "MONTH": 1}[first]


def _milliseconds(value: str, first: str, last: str) -> int:
    stripped = value.strip()
    sign = -1 if stripped.startswith("-") else 1
    body = stripped.lstrip("+-").strip()
    units = _UNITS[_UNITS.index(first) : _UNITS.index(last or first) + 1]
    parts = re.split(r"[ :]+", body) if last else [body]
    shape = {"DAY": "d", "HOUR": "h", "MINUTE": "m", "SECOND": "s"}
    if len(parts) != len(units):
        expected = ":".join(shape[u] for u in units).replace("d:", "d ")
        raise ValueError(f"'{value}' is no {first}{' TO ' + last if last else ''} interval; write it like '{expected}'")
    total = 0
    for part, unit in zip(parts, units, strict=True):
        match = _FRACTION.fullmatch(part)
        if match is None or (match[2] is not None and unit != "SECOND"):
            raise ValueError(
                f"'{value}' is no {first}{' TO ' + last if last else ''} interval: '{part}' is no number of {unit}s"
            )
        fraction = (match[2] or "").ljust(3, "0")
        if fraction[3:].strip("0"):
            raise ValueError(f"'{value}' is finer than a millisecond, the finest an interval holds")
        total += int(match[1]) * _UNIT_MS[unit] + (int(fraction[:3]) if match[2] else 0)
    return sign * total
