"""Asynchronous functions in programs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.async_function import AsyncFunction, AsyncRetryStrategy
from flowrun.api.operator import OutputTag
from flowrun.connectors import memory
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.datastream import AsyncDataStream, DataStream, StreamExecutionEnvironment
from flowrun.errors import JobFailedError, PipelineError
from flowrun.graph.job_graph import JobSettings
from flowrun.graph.stream_graph import ExecutionMode
from flowrun.runners.embedded import run_embedded

N = Schema.of(n=BIGINT)
ROWS = 300


class Times(AsyncFunction):
    """Multiplies, later for some rows than for others; tells of every tenth beside."""

    def __init__(self, factor: int = 2) -> None:
        self.factor = factor

    async def async_invoke(self, row: dict[str, Any], context: Any) -> dict[str, Any]:
        await asyncio.sleep(row["n"] * 7 % 5 / 10_000)
        if row["n"] % 10 == 0:
            context.side_output("tenth", row)
        return {"n": row["n"] * self.factor}


class Stubborn(AsyncFunction):
    """Gives nothing at first."""

    async def async_invoke(self, row: dict[str, Any], context: Any) -> list[dict[str, Any]]:
        return [] if context.attempt < 3 else [row]


class Late(AsyncFunction):
    async def async_invoke(self, row: dict[str, Any], context: Any) -> dict[str, Any]:
        await asyncio.sleep(60 if row["n"] == 5 else 0)
        return row


class Patient(Late):
    def timeout(self, row: dict[str, Any], context: Any) -> dict[str, Any]:
        return {"n": -row["n"]}


@pytest.fixture(autouse=True)
def numbers() -> Iterator[None]:
    memory.clear()
    memory.put("numbers", [pa.record_batch({"n": pa.array(range(ROWS), pa.int64())})])
    yield
    memory.clear()


def program(rows: int = ROWS, **options: Any) -> tuple[StreamExecutionEnvironment, DataStream]:
    memory.clear()
    memory.put("numbers", [pa.record_batch({"n": pa.array(range(rows), pa.int64())})])
    environment = StreamExecutionEnvironment("asking", **options)
    return environment, environment.from_source(memory.MemorySource("numbers", N), name="numbers")


def run(environment: StreamExecutionEnvironment, stream: DataStream, table: str = "out") -> list[int]:
    stream.sink_to(memory.MemorySink(table, stream.schema), name=table)
    environment.execute(run_embedded)
    return taken(table)


def taken(table: str) -> list[int]:
    return [n for batch in memory.take(table) for n in batch.columns.column("n").to_pylist()]


@pytest.mark.parametrize("batch_rows", [1, 7, 131_072])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_each_row_is_asked_for_in_order_or_not(batch_rows: int, parallelism: int) -> None:
    options = {"parallelism": parallelism, "job": JobSettings(batch_rows=batch_rows)}
    tenth = OutputTag("tenth", N)
    environment, stream = program(**options)
    asked = AsyncDataStream.ordered_wait(stream, Times(3), N, 10_000, 20, side_outputs=[tenth])
    asked.get_side_output("tenth").sink_to(memory.MemorySink("tenth", N), name="tenth")
    found = run(environment, asked)
    assert (found if parallelism == 1 else sorted(found)) == [3 * n for n in range(ROWS)]
    assert sorted(taken("tenth")) == list(range(0, ROWS, 10))
    environment, stream = program(**options)
    asked = AsyncDataStream.unordered_wait(
        stream.rebalance(), Times, "n BIGINT", arguments={"factor": 5}, side_outputs=[tenth]
    )
    assert sorted(run(environment, asked)) == [5 * n for n in range(ROWS)]


def test_a_retry_strategy_takes_functions_that_no_module_names() -> None:
    environment, stream = program()
    retry = AsyncRetryStrategy.fixed_delay(2, 1, result_predicate=lambda rows: not rows)
    assert run(environment, AsyncDataStream.ordered_wait(stream, Stubborn(), retry=retry)) == list(range(ROWS))


def test_time_limits_and_rows_that_are_left_out() -> None:
    environment, stream = program(10)
    assert run(environment, AsyncDataStream.ordered_wait(stream, Patient(), timeout_ms=50)) == [
        0,
        1,
        2,
        3,
        4,
        -5,
        6,
        7,
        8,
        9,
    ]
    environment, stream = program(10)
    late = AsyncDataStream.ordered_wait(stream, Late(), timeout_ms=50, name="late").on_error("skip")
    assert run(environment, late) == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    environment, stream = program(10)
    with pytest.raises(JobFailedError, match=r"gave nothing within 50 ms; the row is \{n: 5\}"):
        run(environment, AsyncDataStream.ordered_wait(stream, Late(), timeout_ms=50))


@pytest.mark.parametrize("mode", list(ExecutionMode))
def test_keyed_streams_and_bounded_jobs_ask_too(mode: ExecutionMode) -> None:
    environment, stream = program(50, parallelism=2, mode=mode)
    asked = AsyncDataStream.unordered_wait(stream.key_by("n"), Times(3), side_outputs=[OutputTag("tenth", N)])
    assert sorted(run(environment, asked)) == [3 * n for n in range(50)]


def sorted_out(row: dict[str, Any], context: Any) -> dict[str, Any]:
    if row["n"] >= 3:
        context.side_output("great", row)
    return row


def test_functions_of_map_send_to_side_outputs() -> None:
    great = OutputTag("great", N)
    environment, stream = program(5)
    mapped = stream.map(sorted_out, side_outputs=[great])
    mapped.get_side_output(great).sink_to(memory.MemorySink("great", N), name="great")
    assert run(environment, mapped) == [0, 1, 2, 3, 4]
    assert taken("great") == [3, 4]
    with pytest.raises(PipelineError, match="no second parameter 'context'"):
        stream.flat_map(lambda row: [row], side_outputs=[great])


def test_what_cannot_be_is_refused_where_it_is_said() -> None:
    _, stream = program()
    with pytest.raises(PipelineError, match="capacity is 0"):
        AsyncDataStream.ordered_wait(stream, Times(), capacity=0)
    with pytest.raises(PipelineError, match="timeout is -1 ms"):
        AsyncDataStream.ordered_wait(stream, Times(), timeout_ms=-1)
    with pytest.raises(PipelineError, match="at least once, not 0 times"):
        AsyncRetryStrategy.fixed_delay(0, 10)
    with pytest.raises(PipelineError, match=r"extends flowrun\.api\.async_function\.AsyncFunction"):
        AsyncDataStream.ordered_wait(stream, 5)  # type: ignore[arg-type]
