"""Small stand-ins for operators, sources and sinks: graphs only carry them around."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flowrun.api.operator import ChainingStrategy, OutputTag
from flowrun.api.source import Boundedness, Delivery
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.graph import transformation as t
from flowrun.graph.partitioner import KeyGroupPartitioner, Partitioner

ROWS = Schema.of(user_id=STRING, amount=BIGINT)
LATE = OutputTag("late", ROWS)
BIG = OutputTag("big", ROWS)


@dataclass(frozen=True, slots=True)
class FakeFactory:
    what: str = "map"
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS

    def create(self) -> Any:
        raise AssertionError("graphs never create operators")


@dataclass(frozen=True, slots=True)
class FakeSource:
    schema: Schema = ROWS
    boundedness: Boundedness = Boundedness.BOUNDED
    delivery: Delivery = Delivery.EXACTLY_ONCE


@dataclass(frozen=True, slots=True)
class FakeSink:
    schema: Schema = ROWS
    delivery: Delivery = Delivery.EXACTLY_ONCE


def source(name: str = "source", *, unbounded: bool = False, schema: Schema = ROWS, **options: Any) -> Any:
    fake = FakeSource(schema, Boundedness.UNBOUNDED if unbounded else Boundedness.BOUNDED)
    factory = FakeFactory("source", ChainingStrategy.HEAD)
    return t.SourceTransformation(name=name, schema=schema, factory=factory, source=fake, **options)


def one(name: str, read: t.Transformation, **options: Any) -> t.OneInputTransformation:
    options.setdefault("factory", FakeFactory())
    return t.OneInputTransformation(name=name, schema=ROWS, input=read, **options)


def two(name: str, left: t.Transformation, right: t.Transformation, **options: Any) -> t.TwoInputTransformation:
    return t.TwoInputTransformation(
        name=name, schema=ROWS, left=left, right=right, factory=FakeFactory("join"), **options
    )


def many(name: str, *members: t.Transformation, **options: Any) -> t.MultiInputTransformation:
    return t.MultiInputTransformation(name=name, schema=ROWS, members=members, factory=FakeFactory("multi"), **options)


def sink(name: str, read: t.Transformation, **options: Any) -> t.SinkTransformation:
    return t.SinkTransformation(
        name=name, schema=ROWS, input=read, factory=FakeFactory("sink"), sink=FakeSink(), **options
    )


def union(*members: t.Transformation, name: str = "union") -> t.UnionTransformation:
    return t.UnionTransformation(name=name, schema=members[0].schema, members=members)


def side(read: t.Transformation, tag: OutputTag) -> t.SideOutputTransformation:
    return t.SideOutputTransformation(name=tag.name, schema=tag.schema, input=read, tag=tag)


def partition(read: t.Transformation, partitioner: Partitioner) -> t.PartitionTransformation:
    return t.PartitionTransformation(name="partition", schema=read.schema, input=read, partitioner=partitioner)


def keyed(read: t.Transformation, *keys: int) -> t.PartitionTransformation:
    return partition(read, KeyGroupPartitioner(keys or (0,)))
