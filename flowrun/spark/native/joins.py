# ruff: noqa: ARG001 - translations share one signature
"""Regular, window and interval joins as joins of DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowrun.core.semantics import JoinKind
from flowrun.plan.joins import IntervalJoin, Join, WindowJoin
from flowrun.plan.nodes import PlanNode
from flowrun.spark.context import Context
from flowrun.spark.frame import EVENT_TIME, SparkFrame, quoted
from flowrun.spark.native.rows import check_event_time, check_zone
from flowrun.spark.native.sides import HOW, Side, all_of, equalities, output_columns, residual, sides
from flowrun.spark.times import millis_of
from flowrun.spark.translated import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = (quoted("flowrun$left time"), quoted("flowrun$right time"))
_BUCKETS = (quoted("flowrun$left bucket"), quoted("flowrun$right bucket"))
_BUCKET_SPANS = 4
"""The width of a bucket in spans of the interval: a left row is in 1¼ buckets on average, and meets rows of five spans."""


def translate_join(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """A regular join. The result is the final table of the stream's changes."""
    assert isinstance(node, Join)
    left, right = sides(inputs.frames)
    conditions = [
        *equalities(left, right, node.left_keys, node.right_keys, node.null_safe),
        *residual(node.condition, left, right),
    ]
    joined = _joined(left.selected(), right.selected(), left, right, conditions, node.kind)
    return SparkFrame(joined.selectExpr(*output_columns(left, right, node.kind, node.schema)), node.schema)


def translate_window_join(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """A join of rows of equal windows and keys; a result's event time is the end of its window − 1 ms."""
    assert isinstance(node, WindowJoin)
    check_zone(node.time_zone)
    check_event_time(node, node.domain, "joins", "join by an event-time column")
    left, right = sides(inputs.frames)
    conditions = [
        *equalities(left, right, (*node.left_keys, *node.left_window), (*node.right_keys, *node.right_window)),
        *residual(node.condition, left, right),
    ]
    joined = _joined(left.selected(), right.selected(), left, right, conditions, node.kind)
    ends = [(left, node.left_window[1])] + ([] if node.kind.left_only else [(right, node.right_window[1])])
    millis = [millis_of(side.columns[end], side.frame.schema.types[end]) for side, end in ends]
    time = f"coalesce({', '.join(millis)}) - 1 AS {quoted(EVENT_TIME)}"
    columns = output_columns(left, right, node.kind, node.schema)
    return SparkFrame(joined.selectExpr(*columns, time), node.schema, event_time=True)


def translate_interval_join(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """A join of rows whose times lie near each other; a pair's event time is the later of the two.

    An inner join compares the rows of a key in buckets of time, because a key may have many rows over a long time, and to compare all pairs
    would take quadratic time. An outer join must see that a row has no match at all, and compares all rows of a key.
    """
    assert isinstance(node, IntervalJoin)
    check_event_time(node, node.domain, "joins", "join by an event-time column")
    left, right = sides(inputs.frames)
    times = [
        millis_of(quoted(side.frame.schema.names[at]), side.frame.schema.types[at])
        for side, at in ((left, node.left_time), (right, node.right_time))
    ]
    left_time, right_time = _TIMES
    conditions = [
        *equalities(left, right, node.left_keys, node.right_keys),
        f"{right_time} >= {left_time} + {node.lower_ms}",
        f"{right_time} <= {left_time} + {node.upper_ms}",
        *residual(node.condition, left, right),
    ]
    left_items = left.selected(f"{times[0]} AS {left_time}")
    right_items = right.selected(f"{times[1]} AS {right_time}")
    if node.kind is JoinKind.INNER:
        width = (node.upper_ms - node.lower_ms + 1) * _BUCKET_SPANS
        bucket, first, last = (
            f"CAST(floor(({times[side]} + {shift}) / {width}.0D) AS BIGINT)"
            for side, shift in ((1, 0), (0, node.lower_ms), (0, node.upper_ms))
        )
        left_items.append(f"explode(sequence({first}, {last})) AS {_BUCKETS[0]}")
        right_items.append(f"{bucket} AS {_BUCKETS[1]}")
        conditions.insert(0, " = ".join(_BUCKETS))
    joined = _joined(left_items, right_items, left, right, conditions, node.kind)
    time = f"greatest({left_time}, {right_time}) AS {quoted(EVENT_TIME)}"
    columns = output_columns(left, right, node.kind, node.schema)
    return SparkFrame(joined.selectExpr(*columns, time), node.schema, event_time=True)


def _joined(
    left_items: list[str], right_items: list[str], left: Side, right: Side, conditions: list[str], kind: JoinKind
) -> DataFrame:
    from pyspark.sql import functions

    one, other = left.frame.data.selectExpr(*left_items), right.frame.data.selectExpr(*right_items)
    return one.join(other, functions.expr(all_of(conditions)), HOW[kind])
