"""Converts between timestamps and ms since the epoch in Spark SQL text. The session's time zone is UTC."""

from __future__ import annotations

from flowrun.core.types import DataType, TypeRoot
from flowrun.functions.spark_text import is_counted
from flowrun.spark.context import TimeRange
from flowrun.spark.frame import EVENT_TIME, SparkFrame, quoted


def millis_of(text: str, type: DataType) -> str:
    """Spark SQL of a TIMESTAMP or TIMESTAMP_LTZ as a BIGINT in ms since the epoch, rounded down as in the stream.

    >>> from flowrun.core.types import timestamp
    >>> millis_of("`ts`", timestamp(3))
    'unix_millis(CAST(`ts` AS TIMESTAMP))'
    """
    if is_counted(type):  # nanoseconds
        return f"(({text} - pmod({text}, 1000000L)) DIV 1000000L)"
    return f"unix_millis({text})" if type.root is TypeRoot.TIMESTAMP_LTZ else f"unix_millis(CAST({text} AS TIMESTAMP))"


def timestamp_of(text: str, type: DataType) -> str:
    """Spark SQL of a BIGINT in ms since the epoch as a TIMESTAMP or TIMESTAMP_LTZ."""
    if is_counted(type):
        return f"(({text}) * 1000000L)"
    instant = f"timestamp_millis({text})"
    return instant if type.root is TypeRoot.TIMESTAMP_LTZ else f"CAST({instant} AS TIMESTAMP_NTZ)"


def within(frame: SparkFrame, emitted: TimeRange) -> SparkFrame:
    """The rows of a frame whose event times lie in a range."""
    time = quoted(EVENT_TIME)
    if emitted.start is not None:
        frame = frame.where(f"{time} >= {emitted.start}")
    if emitted.stop is not None:
        frame = frame.where(f"{time} < {emitted.stop}")
    return frame
