"""Timers, times to live and ingestion time: processing time never goes back, and follows the machine's clock when that jumps ahead.

Timers fire when they are due whether rows come or not: while no source has any, between the rows of a slow one, and while what is behind
the timers' operator has no room.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from runtime_fakes import until

from flowrun.api.async_function import AsyncContext, AsyncFunction, AsyncRetryStrategy
from flowrun.api.process_function import KeyedProcessContext, KeyedProcessFunction, ValueState, value_state
from flowrun.api.source_function import SourceContext
from flowrun.connectors import memory
from flowrun.core.clock import SystemClock
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT, STRING
from flowrun.datastream import (
    AsyncDataStream,
    DataStream,
    ProcessingTimeSessionWindows,
    StreamExecutionEnvironment,
)
from flowrun.graph.job_graph import JobSettings
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.runners.embedded import LocalJob, start_embedded

STEP_MS = 5_000
HOUR_MS = 3_600_000
NUMBERS = Schema.of(n=BIGINT)
TOLD = Schema.of(n=BIGINT, due=BIGINT, at=BIGINT)


class Signals:
    """What the functions of a test and the test tell each other."""

    def __init__(self) -> None:
        self.fired = threading.Semaphore(0)
        self.gate = threading.Event()


SIGNALS = Signals()


class SteppedClock(SystemClock):
    """The machine's clock, which somebody sets."""

    offset_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.offset_ms


class Alarms(KeyedProcessFunction):
    """Tells of each timer when it was due, and when it fired; a row sets one `wait_ms` ahead."""

    def __init__(self, wait_ms: int) -> None:
        self.wait_ms = wait_ms

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> None:
        context.register_processing_time_timer(context.processing_time + self.wait_ms)

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> Mapping[str, int]:
        return {"n": context.current_key[0], "due": timestamp, "at": context.processing_time}


class Remembers(KeyedProcessFunction):
    """Tells of each row whether its key is remembered."""

    seen: ValueState[int] = value_state("BIGINT", ttl=60_000)

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> Mapping[str, int]:
        known = self.seen.value() is not None
        self.seen.update(1)
        return {"n": row["n"], "due": int(known), "at": context.processing_time}


@pytest.fixture(autouse=True)
def clean_memory() -> Iterator[None]:
    memory.clear()
    SIGNALS.fired, SIGNALS.gate = threading.Semaphore(0), threading.Event()
    yield
    memory.clear()


def numbers(
    parallelism: int, rows: int, per_second: int, **options: Any
) -> tuple[StreamExecutionEnvironment, DataStream]:
    env = StreamExecutionEnvironment("timed", parallelism=parallelism)
    fields = {"fields.n.kind": "sequence", "fields.n.start": 0, "fields.n.end": rows - 1}
    given = {"number-of-rows": rows, "rows-per-second": per_second, **fields}
    return env, env.from_connector("datagen", NUMBERS, given, name="numbers", **options)


def start(env: StreamExecutionEnvironment, told: DataStream, clock: SteppedClock, schema: Schema = TOLD) -> LocalJob:
    told.sink_to(memory.MemorySink("told", schema))
    return start_embedded(env.job_graph(), clock=clock)


def taken() -> list[dict[str, int]]:
    return [row for batch in memory.take("told") for row in batch.columns.to_pylist()]


def when_some_are_there(job: LocalJob, rows: int) -> None:
    """Wait until a part of the rows has come out."""
    until(lambda: sum(v.records_in for v in job.status().vertices) >= rows)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_timers_fire_when_due_though_the_clock_is_set_back(parallelism: int) -> None:
    clock = SteppedClock()
    env, stream = numbers(parallelism, 600, 1_000)
    job = start(env, stream.key_by("n").process(Alarms(20), TOLD), clock)
    when_some_are_there(job, 200)
    clock.offset_ms -= STEP_MS
    job.wait()
    told = taken()
    assert sorted(row["n"] for row in told) == list(range(600))
    waited = [row["at"] - row["due"] for row in told]
    assert max(waited) < STEP_MS, "none is late by the step"
    assert sum(w >= 0 for w in waited) > 300, "most fire in time, not at the end"
    if parallelism == 1:
        assert [row["at"] for row in told] == sorted(row["at"] for row in told)


def test_timers_fire_without_rows_when_the_clock_jumps_ahead() -> None:
    clock = SteppedClock()
    env, stream = numbers(1, 1_000_000, 2)
    job = start(env, stream.key_by("n").process(Alarms(HOUR_MS // 2), TOLD), clock)
    until(
        lambda: any(v.records_in > 1 for v in job.status().vertices if v.name != "numbers")
    )  # the first row has a timer
    clock.offset_ms += HOUR_MS
    told: list[dict[str, int]] = []
    until(lambda: told.extend(taken()) or told)
    job.cancel()
    job.wait()
    assert told[0]["n"] == 0
    assert 0 <= told[0]["at"] - told[0]["due"] < HOUR_MS


@pytest.mark.parametrize(("step_ms", "forgotten"), [(-HOUR_MS, 0), (-STEP_MS, 0), (HOUR_MS, 1)])
def test_state_lives_as_long_as_it_should(step_ms: int, forgotten: int) -> None:
    """An hour back neither keeps it for an hour more nor ends it; an hour ahead ends it once."""
    clock = SteppedClock()
    env, stream = numbers(1, 300, 1_000)
    told = stream.map(lambda row: {"n": 0}, NUMBERS).key_by("n").process(Remembers(), TOLD)
    job = start(env, told, clock)
    when_some_are_there(job, 100)
    clock.offset_ms += step_ms
    job.wait()
    rows = taken()
    assert len(rows) == 300
    assert sum(row["due"] == 0 for row in rows) == 1 + forgotten
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)


@pytest.mark.parametrize("step_ms", [-STEP_MS, HOUR_MS])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_no_row_is_late_by_ingestion_time(step_ms: int, parallelism: int) -> None:
    clock = SteppedClock()
    env, stream = numbers(parallelism, 600, 1_000, watermarks=WatermarkStrategy.ingestion())
    counted = stream.key_by("n").time_window(20).count()
    job = start(env, counted, clock, counted.schema)
    when_some_are_there(job, 200)
    clock.offset_ms += step_ms
    job.wait()
    assert sorted(row["n"] for row in taken()) == list(range(600))


def test_ingestion_time_goes_on_while_the_clock_is_behind() -> None:
    clock = SteppedClock()
    env, stream = numbers(1, 1_000_000, 1, watermarks=WatermarkStrategy.ingestion())
    counted = stream.key_by("n").time_window(20).count()
    job = start(env, counted, clock, counted.schema)
    until(lambda: any(v.records_in for v in job.status().vertices))
    clock.offset_ms -= HOUR_MS
    told: list[dict[str, int]] = []
    until(lambda: told.extend(taken()) or told)
    job.cancel()
    job.wait()
    assert told[0]["n"] == 0, "the first window fires, though no row comes and the clock is an hour behind"


def test_a_window_fires_though_its_source_has_nothing_to_read() -> None:
    clock = SteppedClock()
    env, stream = numbers(1, 1_000_000, 1)
    counted = stream.window_all(ProcessingTimeSessionWindows.with_gap(20)).sum("n", name="n")
    job = start(env, counted, clock, counted.schema)
    until(lambda: any(v.records_out for v in job.status().vertices))
    clock.offset_ms -= HOUR_MS
    told: list[dict[str, int]] = []
    until(lambda: told.extend(taken()) or told)
    job.cancel()
    job.wait()
    assert told[0]["n"] == 0


class Ticks(KeyedProcessFunction):
    """Passes rows on; the key 0 has a timer that sets itself again, and tells each time."""

    def process_element(self, row: Mapping[str, Any], context: KeyedProcessContext) -> Mapping[str, Any]:
        if row["n"] == 0:
            context.register_processing_time_timer(context.processing_time + 5)
        return row

    def on_timer(self, timestamp: int, context: KeyedProcessContext) -> None:
        SIGNALS.fired.release()
        context.register_processing_time_timer(context.processing_time + 5)


def wait_at_the_gate(row: Mapping[str, Any]) -> Mapping[str, Any]:
    SIGNALS.gate.wait()
    return {"n": row["n"]}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_timers_fire_while_a_function_behind_them_takes_nothing(parallelism: int) -> None:
    wide = Schema.of(n=BIGINT, text=STRING)
    env = StreamExecutionEnvironment("timed", parallelism=parallelism, job=JobSettings(batch_rows=64))
    fields = {"fields.n.kind": "sequence", "fields.n.start": 0, "fields.n.end": 10_000_000, "fields.text.length": 4_000}
    stream = env.from_connector("datagen", wide, {"rows-per-second": 10_000_000, **fields}, name="numbers")
    ticked = stream.key_by("n").process(Ticks, wide)
    ticked.rebalance().map(wait_at_the_gate, NUMBERS).sink_to(memory.MemorySink("told", NUMBERS))
    job = start_embedded(env.job_graph())
    sent = -1

    def stands_still() -> bool:
        nonlocal sent
        before, sent = sent, sum(v.records_out for v in job.status().vertices)
        return before == sent and all(v.back_pressured_ms_per_s > 0 for v in job.status().vertices[:2])

    try:
        for _ in range(50):  # what fits before the gate may still be on its way to it
            until(stands_still)
            while SIGNALS.fired.acquire(blocking=False):
                pass
            for _ in range(20):
                assert SIGNALS.fired.acquire(timeout=10), "timers wait for the function behind"
            if sent == sum(v.records_out for v in job.status().vertices):
                break
        else:
            raise AssertionError("rows were on their way all the time")
    finally:
        job.cancel()
        SIGNALS.gate.set()
        job.wait()


def send_when_the_timer_has_fired(context: SourceContext) -> None:
    for n in range(5):
        context.collect_row({"n": n})
        assert SIGNALS.fired.acquire(timeout=10), "no timer fires between two rows"


def tell(row: Mapping[str, Any]) -> Mapping[str, Any]:
    SIGNALS.fired.release()
    return {"n": row["n"]}


class AnswersTheSecondTime(AsyncFunction):
    """Its operator asks again after a while: it has a timer for that."""

    async def async_invoke(self, row: Mapping[str, Any], context: AsyncContext) -> Mapping[str, Any]:
        if context.attempt == 1:
            raise OSError("not yet")
        return row


@pytest.mark.parametrize("chained", [True, False])
def test_timers_fire_between_the_rows_of_a_slow_source(chained: bool) -> None:
    """In its chain, whose thread is the source's, and behind an exchange."""
    env = StreamExecutionEnvironment("timed", parallelism=1)
    stream = env.add_source(send_when_the_timer_has_fired, NUMBERS, bounded=True, name="slow")
    results: DataStream
    if chained:
        again = AsyncRetryStrategy.fixed_delay(2, 10)
        results = AsyncDataStream.ordered_wait(stream, AnswersTheSecondTime, retry=again)
    else:
        results = stream.key_by("n").process(Alarms(10), TOLD)
    results.map(tell, NUMBERS).sink_to(memory.MemorySink("told", NUMBERS))
    graph = env.job_graph()
    assert any(v.name.startswith("slow -> ") for v in graph.vertices) is chained
    start_embedded(graph).wait()
    assert [row["n"] for row in taken()] == [0, 1, 2, 3, 4]
