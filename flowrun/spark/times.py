"""Timestamps and milliseconds since the epoch as Spark SQL text. The session's time zone is UTC."""

from __future__ import annotations

from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import is_counted
from flowrun.spark.context import TimeRange
from flowrun.spark.frame import EVENT_TIME, SparkFrame, quoted


def millis_of(text: str, type: DataType) -> str:
    """BIGINT milliseconds since the epoch of a TIMESTAMP or TIMESTAMP_LTZ, rounded down as the stream does.

    >>> from flowrun.core.types import timestamp
    >>> millis_of("`ts`", timestamp(3))
    'unix_millis(CAST(`ts` AS TIMESTAMP))'
    """
    if is_counted(type):  # nanoseconds
        return f"(({text} - pmod({text}, 1000000L)) DIV 1000000L)"
    return f"unix_millis({text})" if type.root is TypeRoot.TIMESTAMP_LTZ else f"unix_millis(CAST({text} AS TIMESTAMP))"


def timestamp_of(text: str, type: DataType) -> str:
    """TIMESTAMP or TIMESTAMP_LTZ of BIGINT milliseconds since the epoch."""
    if is_counted(type):
        return f"(({text}) * 1000000L)"
    instant = f"timestamp_millis({text})"
    return instant if type.root is TypeRoot.TIMESTAMP_LTZ else f"CAST({instant} AS TIMESTAMP_NTZ)"


def within(frame: SparkFrame, emitted: TimeRange) -> SparkFrame:
    """The rows with event times of a range."""
    time = quoted(EVENT_TIME)
    if emitted.start is not None:
        frame = frame.where(f"{time} >= {emitted.start}")
    if emitted.stop is not None:
        frame = frame.where(f"{time} < {emitted.stop}")
    return frame
