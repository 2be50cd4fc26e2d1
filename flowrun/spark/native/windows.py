# ruff: noqa: ARG001 - all translations have one signature
"""Windows: each row with the windows that it belongs to, and aggregates by key and window.

Bounds are BIGINTs in ms until the result: arithmetic replaces Spark's `window`, whose structs would be wide grouping keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.core.record import record
from flowrun.core.semantics import NullKeys
from flowrun.core.types import timestamp
from flowrun.errors import InternalError
from flowrun.functions.spark_text import quote_text
from flowrun.plan import windows
from flowrun.plan.nodes import PlanNode, WindowAggregate
from flowrun.plan.relational import WindowTableFunction
from flowrun.spark.context import Context
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, NotNative, SparkFrame, quoted
from flowrun.spark.native.groups import aggregate_items, grouped
from flowrun.spark.native.rows import check_event_time, check_zone, time_attribute
from flowrun.spark.times import timestamp_of
from flowrun.spark.translated import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIME, _AT, _EACH, _WINDOW, _END = (
    quoted(n) for n in (EVENT_TIME, "flowrun$at", "flowrun$each", "flowrun$window", "flowrun$end")
)
_BOUND = timestamp(3)
_BY_EVENT_TIME = "declare a watermark and use windows by event time"


@record
class _Aligned:
    """The windows of a row as Spark SQL. Each window is identified by one of its bounds, `_WINDOW`.

    Attributes:
        window: the bound, a BIGINT in ms, over the row's time `_AT` and, if the row has several windows, `_EACH`.
        start: the start of the window, over `_WINDOW`.
        end: the end of the window, over `_WINDOW`.
        each: an array, each element of which is `_EACH` of one window; None: a row has one window at most.
        condition: is true for the windows that the row is in; None: it is in all of them.
    """

    window: str
    start: str
    end: str
    each: str | None = None
    condition: str | None = None


def translate_window_function(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """Each row once for each of its windows. Rows keep their event time; those of sessions have the end of the session − 1 ms."""
    assert isinstance(node, WindowTableFunction)
    check_zone(windows.window_zone(node.window))
    check_event_time(node, node.domain, "cuts windows", _BY_EVENT_TIME)
    frame = inputs.only
    time = time_attribute(node, frame, node.time)
    hidden = list(frame.hidden)
    if isinstance(node.window, windows.SessionWindow):
        keys = [frame.columns[k] for k in node.keys]
        last = f"max({_AT}) OVER ({_partition([*keys, _WINDOW])})"
        data = _with_sessions(frame, keys, time, node.window.gap_ms).selectExpr("*", f"{last} AS {_END}")
        start, end = _WINDOW, f"{_END} + {node.window.gap_ms}L"
        hidden = [f"{end} - 1L AS {_TIME}"]
        if frame.arrival:  # rows of a session come out when it closes
            hidden.append(f"concat(array({_END}), {frame.arrival_array}) AS {quoted(ARRIVAL)}")
    else:
        aligned = _aligned(node.window)
        data, start, end = _with_windows(frame, aligned, time), aligned.start, aligned.end
    bounds = [timestamp_of(start, _BOUND), timestamp_of(end, _BOUND)]
    bounds.append(timestamp_of(f"{end} - 1L", node.schema.types[-1]))
    items = [f"{t} AS {quoted(n)}" for t, n in zip((*frame.columns, *bounds), node.schema.names, strict=True)]
    return replace(frame, data=data.selectExpr(*items, *hidden), schema=node.schema)


def translate_window_aggregate(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """One row for each key and window, whose event time is the end of the window − 1 ms.

    Raises:
        NotNative: the window counts rows, or has a trigger of its own.
        UnsupportedPlanError: the window uses processing time.
    """
    assert isinstance(node, WindowAggregate)
    if node.output_mode is not None:
        raise NotNative("Spark has no output modes of single windows")
    if node.trigger is not None or node.evictor is not None:
        raise NotNative("Spark has no triggers and evictors")
    if isinstance(node.window, windows.CountWindow | windows.GlobalWindow | windows.CustomWindow):
        raise NotNative("Spark has no windows that count rows, and none of users")
    check_zone(windows.window_zone(node.window))
    check_event_time(node, node.domain, "cuts windows", _BY_EVENT_TIME)
    frame = _without_null_keys(node, inputs.only)
    keys = [frame.columns[k] for k in node.keys]
    names = [quoted(n) for n in node.schema.names]
    aggregates = aggregate_items(frame, node.aggregates, node.schema.names[len(keys) + 2 :])
    if isinstance(node.window, windows.SessionWindow):
        data = _with_sessions(frame, keys, _TIME, node.window.gap_ms)
        aggregates.append(f"max({_AT}) AS {_END}")
        start, end = _WINDOW, f"{_END} + {node.window.gap_ms}L"
    else:
        aligned = _aligned(node.window)
        data, start, end = _with_windows(frame, aligned, _TIME), aligned.start, aligned.end
    result = grouped(data, [*(f"{k} AS {n}" for k, n in zip(keys, names, strict=False)), _WINDOW], aggregates)
    bounds = [f"{timestamp_of(t, _BOUND)} AS {n}" for t, n in zip((start, end), names[len(keys) :], strict=False)]
    items = [*names[: len(keys)], *bounds, *names[len(keys) + 2 :], f"{end} - 1L AS {_TIME}"]
    return SparkFrame(result.selectExpr(*items), node.schema, event_time=True)


def _without_null_keys(node: WindowAggregate, frame: SparkFrame) -> SparkFrame:
    """The rows that are grouped under the node's rule for NULL keys."""
    if node.null_keys is NullKeys.GROUP or not node.keys:
        return frame
    if node.null_keys is NullKeys.DROP:
        return frame.where(" AND ".join(f"{frame.columns[k]} IS NOT NULL" for k in node.keys))
    # In a projection: Spark tests the conditions of neighbouring filters in an order of its own, so as a condition this would fail on rows
    # that a filter before drops.
    texts = list(frame.columns)
    for key in node.keys:
        message = (
            f"key column '{frame.schema.names[key]}' is NULL; expected a value "
            "(filter such rows, fill them with COALESCE, or set null_keys to group or drop)"
        )
        texts[key] = f"coalesce({frame.columns[key]}, raise_error({quote_text(message)}))"
    return frame.project(texts, frame.schema)


# -- aligned windows -----------------------------------------------------------------------------------------------------------


def _with_windows(frame: SparkFrame, aligned: _Aligned, time: str) -> DataFrame:
    """Each row once for each of its windows, with `_WINDOW`."""
    data = frame.data.selectExpr("*", f"{time} AS {_AT}")
    if aligned.each is not None:
        data = data.selectExpr("*", f"explode({aligned.each}) AS {_EACH}")
    if aligned.condition is not None:
        data = data.where(aligned.condition)
    return data.selectExpr("*", f"{aligned.window} AS {_WINDOW}")


def _aligned(window: windows.WindowSpec) -> _Aligned:
    match window:
        case windows.TumblingWindow(size_ms=size, offset_ms=offset):
            return _Aligned(_floor(_AT, size, offset), _WINDOW, f"{_WINDOW} + {size}L")
        case windows.SlidingWindow(size_ms=size, slide_ms=slide, offset_ms=offset):
            last, end = _floor(_AT, slide, offset), f"{_WINDOW} + {size}L"
            if slide >= size:
                return _Aligned(last, _WINDOW, end, condition=f"{_AT} < {last} + {size}L")
            back = f"sequence(0L, {(size - 1) // slide * slide}L, {slide}L)"
            start = f"{last} - {_EACH}"
            return _Aligned(start, _WINDOW, end, back, f"{_AT} < {start} + {size}L" if size % slide else None)
        case windows.CumulativeWindow(size_ms=size, step_ms=step, offset_ms=offset):
            first = f"{_floor(_AT, step, offset)} + {step}L"
            ends = f"sequence({first}, {_floor(_AT, size, offset)} + {size}L, {step}L)"
            return _Aligned(_EACH, _floor(f"({_WINDOW} - 1L)", size, offset), _WINDOW, ends)
    raise InternalError(f"{window} is not aligned")


def _floor(time: str, size: int, offset: int) -> str:
    """The last multiple of `size` plus `offset` that is not after a time.

    >>> _floor("t", 10, 0), _floor("t", 10, 2)
    ('(t - pmod(t, 10L))', '(t - pmod((t - 2L), 10L))')
    """
    moved = time if offset == 0 else f"({time} - {offset}L)"
    return f"({time} - pmod({moved}, {size}L))"


# -- sessions ------------------------------------------------------------------------------------------------------------------


def _with_sessions(frame: SparkFrame, keys: Sequence[str], time: str, gap_ms: int) -> DataFrame:
    """Rows with their time `_AT`, and the start of their session as `_WINDOW`: the time of the last row after a gap."""
    ordered = f"{_partition(keys)} ORDER BY {_AT}"
    before = quoted("flowrun$before")
    data = frame.data.selectExpr("*", f"{time} AS {_AT}")
    data = data.selectExpr("*", f"lag({_AT}) OVER ({ordered}) AS {before}")
    begins = f"CASE WHEN {before} IS NULL OR {_AT} > {before} + {gap_ms}L THEN {_AT} END"
    return data.selectExpr("*", f"max({begins}) OVER ({ordered} ROWS UNBOUNDED PRECEDING) AS {_WINDOW}")


def _partition(keys: Sequence[str]) -> str:
    return f"PARTITION BY {', '.join(keys)}" if keys else ""
