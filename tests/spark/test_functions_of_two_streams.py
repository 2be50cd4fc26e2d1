"""Functions of two streams inside Spark tasks give what the stream gives, where that does not depend on how the streams are mixed."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowrun.plan.co_process import CoProcess
from flowrun.plan.nodes import walk_plan
from flowrun.plan.rewrites.traversal import with_sinks
from flowrun.runners.compile import compile_pipeline
from flowrun.runners.embedded import JobStateOptions, run_embedded
from flowrun.runners.spark import run_batch
from flowrun.spark.arrow import from_spark
from flowrun.spark.savepoint import leave_savepoint
from flowrun.spark.session import SparkOptions
from tests.end_to_end.running import bag, letters_in
from tests.end_to_end.test_connected_steps import PIPELINE, priced, run, step, values, write_inputs
from tests.spark.plans import assert_same_plan, translate_shuffled, yaml_plan

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
BY_ALL = PRICED.replace("connect: rates", "broadcast: {with: rates, states: rates}")
TOLD = """
  both:
    from: orders
    broadcast: {with: named}
    process:
      function: tests.end_to_end.co_functions:Told
      schema: {k: STRING, id: BIGINT}
      side_outputs: {told: {k: STRING, id: BIGINT}}
  named: {from: rates, select: [k AS name, rate]}
sinks:
  out: {from: both, connector: blackhole}
  told: {from: told, connector: blackhole}
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
    """Orders and rates that are not late; each rate has a time of its own."""
    chance = random.Random(seed)

    def time(second: float) -> dt.datetime:
        return dt.datetime(2024, 1, 1, 0, 1) + dt.timedelta(seconds=second)

    orders = [(chance.choice(["a", "b", "c", None]), i, time(i - chance.randrange(5))) for i in range(60)]
    rates = [(chance.choice(["a", "b", None]), i, time(4 * i + 7 - chance.randrange(4))) for i in range(14)]
    return {"orders": orders, "rates": rates}


@pytest.mark.parametrize("function", ["Priced", "PricedBatches", "PricedByAll", "PricedByAllBatches"])
def test_with_keys(spark: SparkSession, function: str) -> None:
    text = HEAD + (BY_ALL if "ByAll" in function else PRICED).replace("FUNCTION", function)
    if function.endswith("Batches"):
        text = text.replace("  unpriced: {from: unpriced, connector: blackhole}\n", "")
    plan = yaml_plan(text, rows(1))
    results = assert_same_plan(spark, plan, hosted=["CoProcess"])
    assert all(results)


def test_without_keys(spark: SparkSession) -> None:
    plan = yaml_plan(HEAD + TAGGED, rows(2))
    assert any(isinstance(node, CoProcess) for node in walk_plan(plan))
    (result,) = assert_same_plan(spark, plan, hosted=["CoProcess"])
    assert sum(result.values()) == 74


@pytest.mark.parametrize("alone", [False, True])
def test_a_broadcast_stream_reaches_all_partitions_and_the_other_rows_one(spark: SparkSession, alone: bool) -> None:
    text = HEAD + (TOLD.replace("  both:\n", "  both:\n    parallelism: 1\n", 1) if alone else TOLD)
    plan = yaml_plan(text, rows(3))
    main = with_sinks(plan, plan.sinks[:1])
    (result,) = assert_same_plan(spark, main, hosted=["CoProcess"])
    assert sum(result.values()) == 60
    made = translate_shuffled(spark, plan)[id(plan.sinks[0].input)]
    partitions = 1 if alone else int(spark.conf.get("spark.sql.shuffle.partitions") or "")
    told = {row["id"]: row["count"] for row in made.sides["told"].data.groupBy("id").count().collect()}
    assert told == dict.fromkeys(range(1, 15), partitions)
    dealt = made.main.data.rdd.glom().map(len).collect()
    assert sum(1 for n in dealt if n) == partitions


@pytest.mark.parametrize("function", ["Priced", "PricedByAll"])
def test_dead_letters_are_those_of_the_stream(spark: SparkSession, tmp_path: Path, function: str) -> None:
    write_inputs(tmp_path, 9)
    steps = step(function, "fail", bad=17)
    wanted = run(tmp_path, steps, on_error="dead-letter", parallelism=2)
    letters = bag(letters_in(tmp_path / "dead"))
    for folder in ("out", "dead"):
        (tmp_path / folder).rename(tmp_path / f"{folder} of the stream")
    run_batch(compile_pipeline(tmp_path / "pipeline.yaml", {}, {"settings.mode": "batch"}), SparkOptions())
    assert values(tmp_path / "out") == wanted
    assert bag(letters_in(tmp_path / "dead")) == letters
    assert letters


@pytest.mark.parametrize("function", ["Priced", "PricedByAll", "PricedByAllBatches"])
def test_a_backfill_leaves_its_state_to_the_stream(spark: SparkSession, tmp_path: Path, function: str) -> None:
    orders, rates = write_inputs(tmp_path, 4)
    steps = step(function)
    if function.endswith("Batches"):
        steps = steps.replace("with: {bad: -1}", "").replace("side_outputs", "#")
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(folder=tmp_path, steps=steps, on_error="fail"))
    middle = dt.datetime(2024, 3, 1, 10, 0, 6, 500_000, dt.UTC)
    handed = compile_pipeline(path, {}, {"settings.parallelism": "2"})
    over = leave_savepoint(
        handed, spark, int(middle.timestamp() * 1000), str(tmp_path / "savepoints"), now_ms=1_800_000_000_000
    )
    ((_, frame),) = over.outputs
    table = from_spark(frame.data.select("k", "id", "rate"), frame.schema)
    before = Counter(tuple(row.values()) for row in table.to_pylist())
    state = JobStateOptions(str(tmp_path / "state"), restore_from=over.finish().path)
    run_embedded(compile_pipeline(path, {}, {"settings.parallelism": "3"}).job_graph, state=state)
    after = values(tmp_path / "out")
    assert before
    assert after
    assert before + after == priced(orders, rates, nulls=True, by_all=function != "Priced")[0]
