# ruff: noqa: ARG001 - all translations have one signature
"""Top-N, deduplication, top-N of windows, and sorting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from flowrun.core.semantics import NullOrder, RankFunction, SortKey, TimeDomain
from flowrun.plan.nodes import PlanNode
from flowrun.plan.relational import Deduplicate, Keep, Rank, TemporalSort, WindowRank
from flowrun.spark.context import Context
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, SparkFrame, quoted
from flowrun.spark.native.rows import check_zone
from flowrun.spark.times import millis_of
from flowrun.spark.translated import Inputs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RANK = quoted("flowrun$rank")
_LARGEST_LIMIT = 2**31 - 1


def translate_rank(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The rows of each partition whose rank is within the bounds.

    Without partitions ROW_NUMBER is ORDER BY … LIMIT: each task keeps its first rows, instead of one task that sorts all of them.
    """
    assert isinstance(node, Rank)
    frame = inputs.only
    if not node.partition and node.function is RankFunction.ROW_NUMBER:
        data = _sorted(frame, node.order)
        if not node.rank_column:
            return SparkFrame(_limited(data, node.first, node.last).selectExpr(*frame.columns), node.schema)
        frame = replace(frame, data=_limited(data, 1, node.last))
    partition = [frame.columns[k] for k in node.partition]
    ranked = _ranked(frame, node, partition, order_texts(frame, node.order), arrival_texts(frame))
    return SparkFrame(ranked.selectExpr(*_output(node)), node.schema)


def translate_window_rank(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The rows of each partition of each window whose rank is within the bounds; their event time is the end of the window − 1 ms."""
    assert isinstance(node, WindowRank)
    check_zone(node.time_zone)
    frame = inputs.only
    start, end = node.window
    partition = [frame.columns[k] for k in (*node.partition, start, end)]
    ties = arrival_texts(frame, descending=node.newest_of_equals)
    ranked = _ranked(frame, node, partition, order_texts(frame, node.order), ties)
    made = SparkFrame(ranked.selectExpr(*_output(node)), node.schema)
    if not node.event_time:
        return made
    return made.with_time(f"{millis_of(made.columns[end], node.schema.types[end])} - 1")


def _ranked(
    frame: SparkFrame, node: Rank | WindowRank, partition: Sequence[str], order: Sequence[str], ties: Sequence[str]
) -> DataFrame:
    """Rows within the node's bounds, with `_RANK`. It is an INT, because Spark then drops rows beyond the last rank before the shuffle."""
    if node.function is RankFunction.ROW_NUMBER:
        order = [*order, *ties]
    window = window_text(partition, order)
    ranked = frame.data.selectExpr("*", f"{node.function.value.lower()}() OVER ({window}) AS {_RANK}")
    if node.last <= _LARGEST_LIMIT:
        ranked = ranked.where(f"{_RANK} <= {node.last}")
    return ranked.where(f"{_RANK} >= {node.first}") if node.first > 1 else ranked


def _output(node: Rank | WindowRank) -> list[str]:
    """The columns of the node, from those of its input and `_RANK`."""
    columns = [quoted(name) for name in node.input.schema.names]
    if node.rank_column:
        columns.append(f"CAST({_RANK} AS BIGINT) AS {quoted(node.schema.names[-1])}")
    return columns


def _limited(data: DataFrame, first: int, last: int) -> DataFrame:
    """Rows `first` to `last` of sorted rows."""
    if first > 1:
        data = data.offset(first - 1)
    wanted = last - first + 1
    return data.limit(wanted) if wanted <= _LARGEST_LIMIT else data


def translate_deduplicate(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """The first or last row of each key."""
    assert isinstance(node, Deduplicate)
    frame = inputs.only
    last = node.keep is Keep.LAST
    by_time = node.domain is TimeDomain.EVENT
    order = order_texts(frame, [SortKey(node.time, descending=last)]) if by_time else []
    window = window_text([frame.columns[k] for k in node.keys], [*order, *arrival_texts(frame, descending=last)])
    numbered = frame.data.selectExpr("*", f"row_number() OVER ({window}) AS {_RANK}").where(f"{_RANK} = 1")
    columns = [*frame.columns, *([f"1L AS {quoted(node.schema.names[-1])}"] if node.rank_column else [])]
    time = [quoted(EVENT_TIME)] if frame.event_time else []
    return SparkFrame(numbered.selectExpr(*columns, *time), node.schema, event_time=frame.event_time)


def translate_temporal_sort(node: PlanNode, inputs: Inputs, context: Context) -> SparkFrame:
    """All rows in order. By processing time they come in the order of arrival, but for the other keys."""
    assert isinstance(node, TemporalSort)
    frame = inputs.only
    order = node.order[1:] if node.domain is TimeDomain.PROCESSING else node.order
    return replace(frame, data=_sorted(frame, order), schema=node.schema)


def order_texts(frame: SparkFrame, order: Sequence[SortKey]) -> list[str]:
    """Sort keys as Spark SQL. NaN is above all numbers there too, and −0.0 equals 0.0."""
    return [order_text(frame.columns[k.column], k) for k in order]


def order_text(text: str, key: SortKey) -> str:
    """A value with its direction and its place of NULLs, as a sort key says.

    >>> order_text("`v`", SortKey(0, descending=True))
    '`v` DESC NULLS FIRST'
    """
    return f"{text} {'DESC' if key.descending else 'ASC'} NULLS {key.nulls.name}"


def arrival_texts(frame: SparkFrame, *, descending: bool = False) -> list[str]:
    """The sort key of the order of arrival, if the frame has it: it orders rows that are equal otherwise."""
    return [f"{quoted(ARRIVAL)} {'DESC' if descending else 'ASC'}"] if frame.arrival else []


def window_text(partition: Sequence[str], order: Sequence[str], bounds: str = "") -> str:
    """The text between the parentheses of OVER (…). Rows without an order are in any order.

    >>> window_text(["`k`"], ["`t` ASC"], "ROWS UNBOUNDED PRECEDING"), window_text([], [])
    ('PARTITION BY `k` ORDER BY `t` ASC ROWS UNBOUNDED PRECEDING', 'ORDER BY 0')
    """
    order = order or ["0"]
    parts = [f"PARTITION BY {', '.join(partition)}" if partition else "", f"ORDER BY {', '.join(order)}", bounds]
    return " ".join(p for p in parts if p)


def _sorted(frame: SparkFrame, order: Sequence[SortKey]) -> DataFrame:
    """All rows in order; equal ones in the order in which they arrived."""
    from pyspark.sql import functions

    columns = []
    for key in order:
        column = functions.expr(frame.columns[key.column])
        first = key.nulls is NullOrder.FIRST
        if key.descending:
            columns.append(column.desc_nulls_first() if first else column.desc_nulls_last())
        else:
            columns.append(column.asc_nulls_first() if first else column.asc_nulls_last())
    if frame.arrival:
        columns.append(functions.col(quoted(ARRIVAL)).asc())
    return frame.data.sort(*columns) if columns else frame.data
