"""Keys may be called like columns of state tables: what is kept of them is written, and read again."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowrun.api.process_function import KeyedProcessFunction, map_state, value_state
from flowrun.api.window_function import ProcessWindowFunction, window_state
from flowrun.connectors import memory
from flowrun.core.schema import Field, Schema
from flowrun.core.types import BIGINT, STRING, timestamp
from flowrun.datastream import (
    ContinuousEventTimeTrigger,
    DataStream,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
)
from flowrun.operators.watermark_strategy import WatermarkStrategy
from flowrun.runners.embedded import start_embedded
from flowrun.runtime.jobmaster.job_state import JobStateOptions
from flowrun.testing import rows_of
from tests.slices import everyday

NAMES = [
    "__key_group",
    "__timestamp",
    "__domain",
    "__deleted",
    "__written",
    "window_start",
    "window_end",
    "trigger",
    "value",
    "map_key",
]
COUNTS = Schema.of(c=BIGINT)
ROWS = 400
HOUR_MS = 3_600_000


class Counts(KeyedProcessFunction):
    """At the end, how many rows the key had."""

    counted = value_state("BIGINT")
    lasting = value_state("BIGINT", ttl=HOUR_MS)
    seen = map_state("BIGINT", "BIGINT", ttl=HOUR_MS)

    def process_element(self, row: Any, context: Any) -> None:
        self.counted.update((self.counted.value() or 0) + 1)
        self.lasting.update((self.lasting.value() or 0) + 1)
        self.seen.put(row["n"], 1)
        context.register_event_time_timer(10**14)

    def on_timer(self, timestamp: int, context: Any) -> Any:
        assert self.counted.value() == self.lasting.value() == sum(1 for _ in self.seen.items())
        yield {"c": self.counted.value()}


class BatchCounts(KeyedProcessFunction):
    counted = value_state("BIGINT")
    lasting = value_state("BIGINT", ttl=HOUR_MS)
    seen = map_state("BIGINT", "BIGINT", ttl=HOUR_MS)

    def process_batch(self, batch: pa.RecordBatch, context: Any) -> None:
        rows = pa.array(context.key_index).value_counts()
        added = {r["values"]: r["counts"] for r in rows.to_pylist()}
        self.counted.update(self.counted.numpy(default=0) + [added[i] for i in range(context.num_keys)])
        self.lasting.update(self.counted.numpy(default=0))
        self.seen.put(batch.column("n"), batch.column("n"), context.key_index)
        context.register_event_time_timers([10**14] * context.num_keys)

    def on_timers(self, timestamps: pa.Array, context: Any) -> Any:
        assert self.counted.get().equals(self.lasting.get())
        return pa.record_batch([self.counted.get()], names=["c"])


class WindowCounts(ProcessWindowFunction):
    fired = window_state(value_state("BIGINT", ttl=HOUR_MS))

    def process(self, key: Any, context: Any, rows: Any) -> Any:
        self.fired.update(1)
        yield {"c": len(rows)}


@pytest.fixture(autouse=True)
def clean_memory() -> Iterator[None]:
    memory.clear()
    yield
    memory.clear()


def program(name: str, step: str) -> StreamExecutionEnvironment:
    schema = Schema((Field(name, STRING), Field("n", BIGINT), Field("ts", timestamp(3))))
    env = StreamExecutionEnvironment("named", parallelism=1)
    options = {"number-of-rows": ROWS, "rows-per-second": 1_000, "fields.n.kind": "sequence", "fields.n.start": 0}
    numbers = env.from_connector("datagen", Schema.of(n=BIGINT), {**options, "fields.n.end": ROWS - 1}, name="numbers")
    start = dt.datetime(2024, 1, 1)
    rows = numbers.uid("numbers").map(
        lambda row: {name: str(row["n"] % 2), "n": row["n"], "ts": start + dt.timedelta(milliseconds=row["n"])}, schema
    )
    keyed = rows.assign_timestamps_and_watermarks(WatermarkStrategy.bounded(0), "ts").key_by(name)
    told: DataStream
    if step == "window":
        every = ContinuousEventTimeTrigger.of(10**9)
        told = keyed.window(TumblingEventTimeWindows.of(10**9)).trigger(every).process(WindowCounts(), COUNTS)
    else:
        told = keyed.process({"rows": Counts, "batches": BatchCounts}[step](), COUNTS)
    told.uid("told").sink_to(memory.MemorySink("told", COUNTS), name="out").uid("out")
    return env


@pytest.mark.parametrize(("name", "step"), everyday(product(NAMES, ["rows", "batches", "window"]), 4))
def test_a_job_goes_on_from_what_it_kept_of_such_a_key(tmp_path: Path, name: str, step: str) -> None:
    job = start_embedded(program(name, step).job_graph(), state=JobStateOptions(str(tmp_path / "state")))
    while not any(
        v.records_in > 20 for v in job.status().vertices if "told" in v.name or "out" in v.name or step in v.name
    ):
        assert job.wait(5) is None, "it is over before it could be stopped"
    path = job.take_snapshot(str(tmp_path / "savepoints"), stop=True).wait(20_000)
    job.wait()
    memory.take("told")
    state = JobStateOptions(str(tmp_path / "again"), restore_from=path)
    start_embedded(program(name, step).job_graph(), state=state).wait()
    found = Counter(row for batch in memory.take("told") for row in rows_of(batch.columns))
    assert found == Counter({(ROWS // 2,): 2})
