"""Programs run on the embedded runner and give the right rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from test_datastream import CLICKS, TOTAL, by_length, double, is_big

from flowrun.api.connector import TableDefinition
from flowrun.api.operator import OutputTag
from flowrun.api.process_function import KeyedProcessFunction, value_state
from flowrun.connectors import memory
from flowrun.connectors.datagen import CONNECTOR as DATAGEN
from flowrun.core.options import parse_options
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.datastream import ColumnValue, DataStream, StreamExecutionEnvironment
from flowrun.errors import PipelineError
from flowrun.operators.timed.assigners import TumblingSlices
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.runners.embedded import run_embedded
from flowrun.testing import rows_of

NUMBERS = Schema.of(n=BIGINT)


def clicks(count: int) -> list[pa.RecordBatch]:
    return [
        pa.record_batch(
            {
                "user": pa.array([f"user {'x' * (i % 5)}" for i in range(start, start + 10)]),
                "amount": pa.array(range(start, start + 10), pa.int64()),
                "ts": pa.array(range(start * 100, (start + 10) * 100, 100), pa.timestamp("ms")),
            }
        )
        for start in range(0, count, 10)
    ]


def expected_totals(count: int, size_ms: int) -> Counter[tuple[Any, ...]]:
    totals: Counter[tuple[str, int]] = Counter()
    for batch in clicks(count):
        columns = batch.set_column(2, "ts", batch.column("ts").cast(pa.int64()))
        for user, amount, millis in rows_of(columns):
            totals[user, millis // size_ms * size_ms] += amount
    return Counter((user, start, start + size_ms, total) for (user, start), total in totals.items())


def taken(table: str) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    for batch in memory.take(table):
        columns = batch.columns
        for index, field in enumerate(columns.schema):
            if pa.types.is_timestamp(field.type):
                columns = columns.set_column(index, field.name, columns.column(index).cast(pa.int64()))
        rows.update(rows_of(columns))
    return rows


@pytest.fixture(autouse=True)
def clean_memory() -> Any:
    memory.clear()
    yield
    memory.clear()


def program(parallelism: int, **options: Any) -> tuple[StreamExecutionEnvironment, DataStream]:
    memory.put("clicks", clicks(200)[::2], clicks(200)[1::2])
    env = StreamExecutionEnvironment("clicks", parallelism=parallelism, **options)
    # One subtask reads the two partitions one after the other: without this delay the second would be late.
    strategy = WatermarkStrategy.bounded(1_000_000, ColumnValue("ts"))
    return env, env.from_source(memory.MemorySource("clicks", CLICKS), name="clicks", watermarks=strategy)


@pytest.mark.parametrize("local_aggregation", [True, False])
@pytest.mark.parametrize("chaining", [True, False])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_keyed_window_gives_the_same_rows_however_it_is_run(
    parallelism: int, chaining: bool, local_aggregation: bool
) -> None:
    env, stream = program(parallelism, chaining=chaining, local_aggregation=local_aggregation)
    result = stream.key_by("user").window(TumblingSlices(1000)).aggregate(TOTAL)
    result.sink_to(memory.MemorySink("totals", result.schema))
    env.execute(run_embedded)
    assert taken("totals") == expected_totals(200, 1000)


def test_every_partitioning_keeps_every_row() -> None:
    env, stream = program(2)
    mapped = stream.map_batches(double, CLICKS)
    ways = {
        "rebalance": mapped.rebalance(),
        "rescale": mapped.rescale(),
        "shuffle": mapped.shuffle(),
        "global": mapped.global_(),
        "custom": mapped.partition_custom(lambda key, subtasks: len(key) % subtasks, "user"),
        "custom by batch": mapped.partition_custom_batches(by_length),
        "keyed": mapped.key_by("user"),
    }
    for name, way in ways.items():
        way.sink_to(memory.MemorySink(name, CLICKS), name=name).set_parallelism(3)
    mapped.broadcast().sink_to(memory.MemorySink("broadcast", CLICKS), name="broadcast").set_parallelism(3)
    env.execute(run_embedded)
    once = Counter(row for batch in clicks(200) for row in rows_of(double(batch).select(["user", "amount"])))
    for name in ways:
        assert Counter({row[:2]: n for row, n in taken(name).items()}) == once, name
    assert Counter({row[:2]: n for row, n in taken("broadcast").items()}) == Counter(
        {r: 3 * n for r, n in once.items()}
    )


class Ranks(KeyedProcessFunction):
    """The how manieth click of its user each one is; every `every`th goes to `some`, too."""

    count = value_state("BIGINT")

    def __init__(self, every: int = 1000) -> None:
        self.every = every

    def process_batch(self, batch: pa.RecordBatch, context: Any) -> Any:
        before = self.count.numpy(default=0)
        self.count.update(before + np.bincount(context.key_index, minlength=context.num_keys))
        ranks = pa.record_batch({"n": before[context.key_index] + context.occurrences + 1})
        chosen = np.flatnonzero(ranks.column("n").to_numpy() % self.every == 0)
        context.side_output("some", ranks.take(pa.array(chosen)), chosen)
        return ranks


@pytest.mark.parametrize("way", ["object", "class", "reference"])
def test_process_functions_over_keys(way: str) -> None:
    env, stream = program(2)
    function: Any = {"object": Ranks(7), "class": Ranks, "reference": f"{__name__}:Ranks"}[way]
    arguments = None if way == "object" else {"every": 7}
    ranked = stream.key_by("user").process(
        function, NUMBERS, name="ranks", side_outputs=[OutputTag("some", NUMBERS)], arguments=arguments
    )
    ranked.sink_to(memory.MemorySink("ranks", NUMBERS))
    ranked.get_side_output("some").sink_to(memory.MemorySink("some", NUMBERS), name="some")
    env.execute(run_embedded)
    expected = Counter((rank,) for user in range(5) for rank in range(1, 41))
    assert taken("ranks") == expected
    assert taken("some") == Counter({(n,): c for (n,), c in expected.items() if n % 7 == 0})


def test_process_functions_are_checked_when_the_program_is_built() -> None:
    _, stream = program(1)
    with pytest.raises(PipelineError, match="is a KeyedProcessFunction, but its input has no keys"):
        stream.process(Ranks())
    with pytest.raises(PipelineError, match="given together with arguments"):
        stream.key_by("user").process(Ranks(), arguments={"every": 2})


class Waits(KeyedProcessFunction):
    """How long a timer for 100 ms after each row waited, ms."""

    def process_element(self, row: Any, context: Any) -> None:
        context.register_event_time_timer(context.timestamp + 100)

    def on_timer(self, timestamp: int, context: Any) -> Any:
        yield {"n": context.processing_time - timestamp}


def test_timers_of_ingestion_time_are_due_before_another_row_comes() -> None:
    options, _ = parse_options(DATAGEN.source_options, {"number-of-rows": 2, "rows-per-second": 1}, "datagen")
    assert DATAGEN.create_source is not None
    source = DATAGEN.create_source(TableDefinition("seconds", NUMBERS, options))
    env = StreamExecutionEnvironment("waits")
    waits = env.from_source(source, watermarks=WatermarkStrategy.ingestion()).key_by("n").process(Waits, NUMBERS)
    waits.sink_to(memory.MemorySink("waits", NUMBERS))
    env.execute(run_embedded)
    waited = [n for (n,) in taken("waits").elements()]
    assert len(waited) == 2
    assert any(0 <= n < 800 for n in waited), "the second row comes 900 ms after the first timer is due"


def test_union_and_split_and_side_outputs() -> None:
    env, stream = program(2)
    split = stream.union(stream.map_batches(double, CLICKS)).split_batches({"big": is_big})
    split.get_side_output("big").sink_to(memory.MemorySink("big", CLICKS), name="big")
    split.sink_to(memory.MemorySink("small", CLICKS), name="small")
    env.execute(run_embedded)
    amounts = Counter([*range(200), *range(0, 400, 2)])
    assert Counter(r[1] for r in taken("big").elements()) == Counter({a: n for a, n in amounts.items() if a > 10})
    assert Counter(r[1] for r in taken("small").elements()) == Counter({a: n for a, n in amounts.items() if a <= 10})


def halve(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": pc.divide(batch.column("n"), 2)})


def is_positive(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.greater(batch.column("n"), 0)


def test_an_iteration_goes_round_until_nothing_comes_back() -> None:
    """Each number is halved until it is zero."""
    memory.put("numbers", [pa.record_batch({"n": pa.array([5, 8, 1], pa.int64())})])
    env = StreamExecutionEnvironment("halving", parallelism=2)
    loop = env.from_source(memory.MemorySource("numbers", NUMBERS)).iterate(wait_ms=1500)
    halved = loop.map_batches(halve, NUMBERS, name="halve")
    loop.close_with(halved.filter_batches(is_positive))
    halved.sink_to(memory.MemorySink("halves", NUMBERS))
    env.execute(run_embedded)
    assert taken("halves") == Counter([(2,), (1,), (0,), (4,), (2,), (1,), (0,), (0,)])


@pytest.mark.parametrize("local_aggregation", [True, False])
def test_a_window_over_all_rows_is_one_group(local_aggregation: bool) -> None:
    env, stream = program(2, local_aggregation=local_aggregation)
    result = stream.window_all(TumblingSlices(5000)).aggregate(TOTAL)
    result.sink_to(memory.MemorySink("totals", result.schema))
    env.execute(run_embedded)
    assert taken("totals") == {(n * 5000, n * 5000 + 5000, sum(range(n * 50, n * 50 + 50))): 1 for n in range(4)}


def test_rows_that_come_after_their_window_go_to_the_late_output() -> None:
    env, _ = program(1)
    times = [100, 5000, 200]
    batch = clicks(10)[0].slice(0, 3).set_column(2, "ts", pa.array(times, pa.timestamp("ms")))
    memory.put("late clicks", [batch])
    source = memory.MemorySource("late clicks", CLICKS)
    stream = env.from_source(source, watermarks=WatermarkStrategy.bounded(0, ColumnValue("ts")))
    result = stream.key_by("user").window(TumblingSlices(1000)).side_output_late_data("late").aggregate(TOTAL)
    result.sink_to(memory.MemorySink("totals", result.schema), name="totals")
    result.get_side_output("late").sink_to(memory.MemorySink("late", CLICKS), name="late")
    env.execute(run_embedded)
    assert taken("totals") == {("user ", 0, 1000, 0): 1, ("user x", 5000, 6000, 1): 1}
    assert taken("late") == {("user xx", 2, 200): 1}
