"""Rows between stages as DataFrames: what leaves a stage, how it is distributed to the next one, and in which order it arrives there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from flowrun.core.record import record
from flowrun.core.schema import Schema
from flowrun.spark.frame import ARRIVAL, EVENT_TIME, SparkFrame, quoted
from flowrun.spark.frame import KIND as CHANGE
from flowrun.spark.hosted import wire
from flowrun.spark.hosted.task import Stage, stage_function
from flowrun.spark.piping import Pipe
from flowrun.state.key_groups import hashable_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@record(eq=False)
class Flow:
    """Rows on their way to a vertex: `TARGET`, `ORDER`, `SEQUENCE`, `TIME`, `KIND` and the struct `ROW` of `schema`.

    Attributes:
        numbered: whether `SEQUENCE` is the order in which rows were sent.
        timed: whether `ORDER` may contain times.
        arrived: whether `SEQUENCE` is the order of arrival of a native node's rows, an ARRAY<BIGINT>.
    """

    data: DataFrame
    schema: Schema
    numbered: bool
    timed: bool
    arrived: bool = False


class Sorting(Enum):
    """In which order rows come to a stage."""

    NONE = "none"
    TIME = "time"
    """By event time, then in the order in which they were sent: nothing is late."""
    SENT = "sent"
    """In the order in which they were sent, or arrived."""


Spreading: TypeAlias = tuple[int, ...] | None
"""The columns by whose values the rows of an input are dealt out to partitions: `BY_ROW`, by all that have a hash; `TO_ALL`, not at all."""
BY_ROW: Spreading = ()
TO_ALL: Spreading = None


@record
class Exchange:
    """How rows are distributed to the partitions of the next stage.

    Attributes:
        partitions: how many partitions there are.
        keys: for each input the positions of its key columns, or what stands for them; None: rows have their target in `TARGET`.
    """

    partitions: int
    keys: tuple[Spreading, ...] | None = None


def flow_of(frame: SparkFrame) -> Flow:
    """The rows of a native node."""
    columns = ", ".join(f"'{n}', {c}" for n, c in zip(wire.field_names(frame.schema), frame.columns, strict=True))
    time = quoted(EVENT_TIME) if frame.event_time else "CAST(NULL AS BIGINT)"
    arrival = frame.arrival_array if frame.arrival else "CAST(NULL AS BIGINT)"
    kind = quoted(CHANGE) if CHANGE in frame.data.columns else "CAST(NULL AS TINYINT)"
    data = frame.data.selectExpr(
        f"CAST(NULL AS INT) AS {wire.TARGET}",
        f"{time} AS {wire.ORDER}",
        f"{arrival} AS {wire.SEQUENCE}",
        f"{time} AS {wire.TIME}",
        f"{kind} AS {wire.KIND}",
        f"named_struct({columns}) AS {wire.ROW}",
    )
    return Flow(data, frame.schema, frame.arrival, frame.event_time, frame.arrival)


def destination_flow(stage: DataFrame, destination: int, schema: Schema, *, only: bool) -> Flow:
    """The rows that a stage sends to one of its destinations; `only` says that it has no other."""
    rows = stage if only else stage.where(f"{wire.EDGE} = {destination}")
    data = rows.selectExpr(
        wire.TARGET, wire.ORDER, wire.SEQUENCE, wire.TIME, wire.KIND, f"{wire.row_column(destination)} AS {wire.ROW}"
    )
    return Flow(data, schema, numbered=True, timed=True)


def stage_input(flows: Sequence[tuple[int, Flow]], exchange: Exchange | None, sorting: Sorting) -> DataFrame:
    """The rows of all inputs in the form that a stage takes.

    Args:
        flows: (the number of an input, its rows); an input may have several flows, which have the same columns.
        exchange: how rows are distributed; None: they stay in their partitions.
        sorting: the order of rows in each partition.
    """
    from pyspark.sql import functions as f

    schemas = input_schemas(flows)
    arrived = any(flow.arrived for _, flow in flows)
    parts = [_as_input(number, flow, schemas, exchange, arrived=arrived) for number, flow in flows]
    data = reduce(lambda left, right: left.unionByName(right), parts)
    if exchange is not None:
        data = (
            data.repartition(1) if exchange.partitions == 1 else data.repartitionById(exchange.partitions, wire.TARGET)
        )
    if sorting is not Sorting.NONE:
        keys: list[Column] = []
        if sorting is Sorting.TIME and any(flow.timed for _, flow in flows):
            keys.append(f.col(wire.ORDER).asc_nulls_first())
        if any(flow.numbered for _, flow in flows):
            keys += [f.col(wire.SEQUENCE), f.col(wire.INPUT)]
        if keys:
            data = data.sortWithinPartitions(*keys)
    rows = [wire.row_column(i) for i in range(len(schemas))]
    return data.select(wire.INPUT, wire.ORDER, wire.TIME, wire.KIND, *rows)


def input_schemas(flows: Sequence[tuple[int, Flow]]) -> tuple[Schema, ...]:
    """The columns of each input."""
    by_number = {number: flow.schema for number, flow in flows}
    return tuple(by_number[i] for i in sorted(by_number))


def run_on(data: DataFrame, stage: Stage) -> DataFrame:
    """The rows that a stage gives for its input."""
    destinations = [destination.schema for destination in stage.destinations]
    return data.mapInArrow(stage_function(stage), wire.stage_type(destinations))


def run_plainly(frame: SparkFrame, stage: Stage) -> SparkFrame:
    """The rows that a plain stage (see `Stage.plain`) gives. Rows stay in their partitions, and in Python if they are there."""
    pipe, function, timed = frame.pipe, stage_function(stage), stage.timed
    if pipe is None:
        columns = [f"{c} AS {n}" for n, c in zip(wire.field_names(frame.schema), frame.columns, strict=True)]
        times = [f"{quoted(EVENT_TIME)} AS {wire.TIME}"] if frame.event_time else []
        source = frame.data.selectExpr(*columns, *times)
    else:
        source, function = pipe.source, pipe.then(function, len(frame.schema) + frame.event_time)
    schema = stage.destinations[0].schema
    named = [f"{c} AS {quoted(n)}" for c, n in zip(wire.field_names(schema), schema.names, strict=True)]
    hidden = [f"{wire.TIME} AS {quoted(EVENT_TIME)}"] if timed else []
    rows = source.mapInArrow(function, wire.plain_type(schema, timed=timed)).selectExpr(*named, *hidden)
    return SparkFrame(rows, schema, timed, made_by=Pipe(source, function, rows))


def frame_of(flow: Flow, *, event_time: bool, arrival: bool) -> SparkFrame:
    """Rows that are final as a frame; with `arrival` in the order in which they were sent."""
    named = [
        f"{wire.ROW}.{c} AS {quoted(n)}" for c, n in zip(wire.field_names(flow.schema), flow.schema.names, strict=True)
    ]
    hidden = [f"{wire.TIME} AS {quoted(EVENT_TIME)}"] if event_time else []
    if arrival:
        hidden.append(f"{wire.SEQUENCE} AS {quoted(ARRIVAL)}")
    return SparkFrame(flow.data.selectExpr(*named, *hidden), flow.schema, event_time, arrival)


def changes_of_flow(flow: Flow, *, event_time: bool) -> SparkFrame:
    """Rows as the changes that they are (`CHANGE`), in the order in which they were sent."""
    named = [
        f"{wire.ROW}.{c} AS {quoted(n)}" for c, n in zip(wire.field_names(flow.schema), flow.schema.names, strict=True)
    ]
    hidden = [f"{wire.TIME} AS {quoted(EVENT_TIME)}"] if event_time else []
    hidden += [
        f"{wire.SEQUENCE} AS {quoted(ARRIVAL)}",
        f"coalesce({wire.KIND}, CAST(0 AS TINYINT)) AS {quoted(CHANGE)}",
    ]
    return SparkFrame(flow.data.selectExpr(*named, *hidden), flow.schema, event_time, arrival=True)


def in_order_of_arrival(flow: Flow, partitions: int) -> Flow:
    """The same rows in consecutive partitions, each of which is sorted: if they are numbered, the numbers keep their order."""
    data = flow.data.repartitionByRange(partitions, wire.SEQUENCE).sortWithinPartitions(wire.SEQUENCE)
    return replace(flow, data=data)


def renumbered_by_time(flow: Flow, partitions: int) -> Flow:
    """The same rows, numbered in the order of their event times, then in that in which they were sent."""
    from pyspark.sql import functions as f

    ranged = flow.data.repartitionByRange(partitions, wire.TIME, wire.SEQUENCE).sortWithinPartitions(
        wire.TIME, wire.SEQUENCE
    )
    return replace(flow, data=ranged.withColumn(wire.SEQUENCE, f.monotonically_increasing_id()))


def _target(schema: Schema, spreading: Spreading, partitions: int) -> Column:
    """The partition of a row, or all of them, one row each."""
    from pyspark.sql import functions as f

    if spreading is TO_ALL:
        return f.explode(f.sequence(f.lit(0), f.lit(partitions - 1)))
    names = wire.field_names(schema)
    columns = spreading or hashable_columns(schema.arrow)
    if not columns:
        return f.lit(0)
    return f.pmod(f.hash(*(f.col(f"{wire.ROW}.{names[k]}") for k in columns)), f.lit(partitions))


def _as_input(
    number: int, flow: Flow, schemas: Sequence[Schema], exchange: Exchange | None, *, arrived: bool
) -> DataFrame:
    from pyspark.sql import functions as f

    target, sequence = f.col(wire.TARGET).cast("int"), f.col(wire.SEQUENCE)
    if arrived and not flow.arrived:
        sequence = f.array(sequence) if flow.numbered else f.lit(None).cast("array<bigint>")
    if exchange is not None and exchange.keys is not None and exchange.partitions > 1:
        target = _target(flow.schema, exchange.keys[number], exchange.partitions)
    rows = [
        (f.col(wire.ROW) if i == number else f.lit(None).cast(wire.row_type(schema))).alias(wire.row_column(i))
        for i, schema in enumerate(schemas)
    ]
    return flow.data.select(
        f.lit(number).alias(wire.INPUT),
        target.alias(wire.TARGET),
        wire.ORDER,
        sequence.alias(wire.SEQUENCE),
        wire.TIME,
        wire.KIND,
        *rows,
    )
