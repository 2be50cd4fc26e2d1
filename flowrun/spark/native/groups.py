"""Group aggregates as aggregates of the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowrun.plan.expressions import AggregateCall
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import GroupAggregate
from flowrun.spark.aggregates import aggregate_text
from flowrun.spark.context import Context
from flowrun.spark.frame import ARRIVAL, SparkFrame, quoted
from flowrun.spark.translated import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = quoted("flowrun$rows")


def translate_group_aggregate(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """One row for each group. Without keys there is one group; in a backfill it has no row if there are no rows, as in a stream."""
    assert isinstance(node, GroupAggregate)
    frame = inputs.only
    keys = [f"{frame.columns[k]} AS {quoted(n)}" for k, n in zip(node.keys, node.schema.names, strict=False)]
    aggregates = aggregate_items(frame, node.aggregates, node.schema.names[len(node.keys) :])
    if keys or context.settings.is_batch:
        return SparkFrame(grouped(frame.data, keys, aggregates), node.schema)
    counted = grouped(frame.data, (), [*aggregates, f"count(1) AS {_ROWS}"]).where(f"{_ROWS} > 0")
    return SparkFrame(counted.drop("flowrun$rows"), node.schema)


def aggregate_items(frame: SparkFrame, calls: Sequence[AggregateCall], names: Sequence[str]) -> list[str]:
    """The results of aggregate calls over rows of a frame, under their names."""
    order = quoted(ARRIVAL) if frame.arrival else None
    return [f"{aggregate_text(c, frame.columns, order)} AS {quoted(n)}" for c, n in zip(calls, names, strict=True)]


def grouped(data: DataFrame, keys: Sequence[str], aggregates: Sequence[str]) -> DataFrame:
    """One row for each group: `keys` and `aggregates` are Spark SQL texts with names. Without aggregates it is the distinct keys."""
    from pyspark.sql import functions

    if not aggregates:
        return data.selectExpr(*keys).distinct()
    return data.groupBy(*(functions.expr(k) for k in keys)).agg(*(functions.expr(a) for a in aggregates))
