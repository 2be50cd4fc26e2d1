"""Instants as the clocks of a zone show them, and back. Where the session has a zone, TIMESTAMP_LTZ means what it does by these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from flowrun.core.local_time import instants_of, last_instants, local_times, zone_id
from flowrun.core.types import STRING, DataType, TypeRoot, timestamp, timestamp_ltz
from flowrun.errors import DataError
from flowrun.functions.contract import Argument, Datum, ScalarFunction
from flowrun.functions.rules import Parameter, Rule
from flowrun.functions.vectors import any_null_constant, null_of


def _ltz(type: DataType) -> DataType | None:
    return type if type.root is TypeRoot.TIMESTAMP_LTZ else None


def _local(type: DataType) -> DataType | None:
    return type if type.root is TypeRoot.TIMESTAMP else None


def _text(type: DataType) -> DataType | None:
    return STRING if type.is_character else None


def _zone_problem(value: object) -> str | None:
    try:
        zone_id(str(value))
    except ValueError as error:
        return str(error)
    return None


_ZONE = Parameter("a time zone", _text, STRING, constant=True, check=_zone_problem)
_INSTANT = Parameter("a TIMESTAMP_LTZ", _ltz, timestamp_ltz(3))
_LOCAL = Parameter("a TIMESTAMP", _local, timestamp(3))

_Convert = Callable[[Datum, str], Datum]


def _as_local(arguments: Sequence[Argument]) -> DataType:
    return timestamp(arguments[0].type.precision or 0)


def _as_instant(arguments: Sequence[Argument]) -> DataType:
    return timestamp_ltz(arguments[0].type.precision or 0)


def _function(name: str, parameter: Parameter, convert: _Convert, doc: str) -> ScalarFunction:
    def kernel(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:  # noqa: ARG001 - kernels share one signature
        if any_null_constant(arguments):
            return null_of(result)
        try:
            return convert(arguments[0], zone_id(arguments[1].as_py()))
        except pa.ArrowInvalid as error:
            raise DataError(f"{name}: a time is too far from 1970 for the rules of time zones") from error

    usage = f"{name}({'instant' if parameter is _INSTANT else 'time'}, zone)"
    rule = Rule(usage, _as_local if parameter is _INSTANT else _as_instant, (parameter, _ZONE))
    return ScalarFunction(name, rule, kernel, usage, doc, fallible=True)


TO_LOCAL = "LOCAL_TIME_OF"
FROM_LOCAL = "INSTANT_OF"
LAST_INSTANT = "LAST_INSTANT_OF"

LOCAL_TIMES = (
    _function(TO_LOCAL, _INSTANT, local_times, "The TIMESTAMP that the clocks of a time zone show at an instant."),
    _function(
        FROM_LOCAL, _LOCAL, instants_of,
        "The instant of a zone's local time: the first of two; a skipped time counts from before the gap.",
    ),
    _function(
        LAST_INSTANT, _LOCAL, last_instants,
        "The last instant at which a zone's clocks show a local time or, where it is skipped, one before it.",
    ),
)  # fmt: skip
"""Functions between instants and local times; they are in no reference."""
