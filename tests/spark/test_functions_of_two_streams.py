"""Functions of two streams inside Spark tasks give what the stream gives, where that does not depend on how the streams are mixed."""

from __future__ import annotations

import datetime as dt
import random
from typing import TYPE_CHECKING, Any

import pytest

from flowrun.plan.co_process import CoProcess
from flowrun.plan.nodes import walk_plan
from tests.spark.plans import assert_same_plan, yaml_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEAD = """
name: both
settings: {functions: [tests], parallelism: 2}
sources:
  orders: &source
    connector: memory
    table: orders
    schema: {k: STRING, id: BIGINT, ts: TIMESTAMP(3)}
    watermark: {column: ts, delay: 5s}
  rates:
    <<: *source
    table: rates
    schema: {k: STRING, rate: BIGINT, ts: TIMESTAMP(3)}
steps:
"""
PRICED = """
  both:
    from: orders
    key_by: k
    null_keys: group
    connect: rates
    process:
      function: tests.end_to_end.co_functions:FUNCTION
      schema: {k: STRING, id: BIGINT, rate: BIGINT}
      side_outputs: {unpriced: {k: STRING, id: BIGINT, rate: BIGINT}}
sinks:
  out: {from: both, connector: blackhole}
  unpriced: {from: unpriced, connector: blackhole}
"""
TAGGED = """
  both:
    from: orders
    connect: rates
    process: {function: "tests.end_to_end.co_functions:Tagged", schema: {k: STRING, n: BIGINT, stream: STRING}}
sinks:
  out: {from: both, connector: blackhole}
"""
Rows = list[tuple[Any, ...]]


def rows(seed: int) -> dict[str, Rows]:
    """Orders and rates that are not late; rates of a key have times of their own."""
    chance = random.Random(seed)

    def time(second: float) -> dt.datetime:
        return dt.datetime(2024, 1, 1, 0, 1) + dt.timedelta(seconds=second)

    orders = [(chance.choice(["a", "b", "c", None]), i, time(i - chance.randrange(5))) for i in range(60)]
    rates = [(chance.choice(["a", "b", None]), i, time(4 * i + 7 - chance.randrange(4))) for i in range(14)]
    return {"orders": orders, "rates": rates}


@pytest.mark.parametrize("function", ["Priced", "PricedBatches"])
def test_with_keys(spark: SparkSession, function: str) -> None:
    text = HEAD + PRICED.replace("FUNCTION", function)
    if function == "PricedBatches":
        text = text.replace("  unpriced: {from: unpriced, connector: blackhole}\n", "")
    plan = yaml_plan(text, rows(1))
    results = assert_same_plan(spark, plan, hosted=["CoProcess"])
    assert all(results)


def test_without_keys(spark: SparkSession) -> None:
    plan = yaml_plan(HEAD + TAGGED, rows(2))
    assert any(isinstance(node, CoProcess) for node in walk_plan(plan))
    (result,) = assert_same_plan(spark, plan, hosted=["CoProcess"])
    assert sum(result.values()) == 74
