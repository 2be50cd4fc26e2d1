# ruff: noqa: ARG001 - kernels share one signature
"""Functions that read the clock: CURRENT_TIMESTAMP and its kin.

Kernels take no clock, so the one that they read is bound to the running thread: a task binds its own clock with `use_clock` around
its work; without that the machine's clock is read. The functions are not deterministic and are evaluated once a batch: all rows of a
batch see one time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import pyarrow as pa

from flowrun.core.clock import Clock, SystemClock
from flowrun.core.types import DATE, DataType, TypeRoot, time, timestamp, timestamp_ltz
from flowrun.functions.contract import Datum, ScalarFunction, ScalarKernel, SparkText
from flowrun.functions.rules import Rule
from flowrun.functions.spark_text import spark_type

_DAY_MS = 86_400_000
_MACHINE: Clock = SystemClock()
_CLOCK: ContextVar[Clock | None] = ContextVar("flowrun_functions_clock", default=None)


@contextmanager
def use_clock(clock: Clock) -> Iterator[None]:
    """Let the time functions read `clock` in this thread until the block ends.

    >>> from flowrun.core.clock import ManualClock
    >>> with use_clock(ManualClock(1_000)):
    ...     current_ms()
    1000
    """
    token = _CLOCK.set(clock)
    try:
        yield
    finally:
        _CLOCK.reset(token)


def current_ms() -> int:
    """Milliseconds since the epoch of the clock bound to this thread."""
    return (_CLOCK.get() or _MACHINE).now_ms()


def _instant(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return pa.scalar(current_ms(), pa.int64()).cast(result.arrow)


def _date(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    return pa.scalar(current_ms() // _DAY_MS, pa.int32()).cast(result.arrow)


def _time(arguments: Sequence[Datum], rows: int, result: DataType) -> Datum:
    seconds = current_ms() % _DAY_MS // 1000  # TIME(0): whole seconds
    return pa.scalar(seconds * 1000, pa.int32()).cast(result.arrow)


# Spark SQL text holds the time of the thread that renders it, so that a whole run sees one


def _now_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    instant = f"timestamp_millis({current_ms()}L)"
    return instant if result.root is TypeRoot.TIMESTAMP_LTZ else f"CAST({instant} AS TIMESTAMP_NTZ)"


def _today_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    return f"date_from_unix_date({current_ms() // _DAY_MS})"


def _clock_text(texts: Sequence[str], types: Sequence[DataType], result: DataType) -> str:
    return f"CAST(time_from_seconds({current_ms() % _DAY_MS // 1000}) AS {spark_type(result)})"


def _function(
    name: str, result: DataType, kernel: ScalarKernel, doc: str, spark: SparkText, *aliases: str
) -> ScalarFunction:
    return ScalarFunction(name, Rule(f"{name}()", result), kernel, name, doc, spark, aliases, deterministic=False)


CURRENT_TIMES = (
    _function(
        "CURRENT_TIMESTAMP", timestamp_ltz(3), _instant, "The current instant.", _now_text,
        "NOW", "CURRENT_ROW_TIMESTAMP",
    ),
    # of its own name: a column made of it is a processing-time attribute
    _function("PROCTIME", timestamp_ltz(3), _instant, "The current instant, as a processing-time attribute.", _now_text),
    _function(
        "LOCALTIMESTAMP", timestamp(3), _instant, "The current date and time of the session's zone (UTC).",
        _now_text,
    ),
    _function("CURRENT_DATE", DATE, _date, "The current date.", _today_text),
    _function("LOCALTIME", time(0), _time, "The current time of day.", _clock_text, "CURRENT_TIME"),
)  # fmt: skip
"""Functions that read the clock."""
