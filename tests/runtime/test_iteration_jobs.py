"""Jobs with iterations take neither checkpoints nor savepoints, and say so; a savepoint that is refused does them no harm."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from checkpoint_fakes import MemoryStorage
from runtime_fakes import until
from test_recovery import BY_HAND, checkpoint, running

from flowrun.connectors import memory
from flowrun.core.recovery import RestartSettings
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.datastream import StreamExecutionEnvironment
from flowrun.errors import FlowrunError, JobFailedError
from flowrun.graph.explain import render_job_graph
from flowrun.graph.job_graph import JobGraph, JobSettings

N = Schema.of(n=BIGINT)


@pytest.fixture(autouse=True)
def numbers() -> Iterator[None]:
    memory.clear()
    memory.put("numbers", [pa.record_batch({"n": pa.array([5, 8, 1], pa.int64())})])
    yield
    memory.clear()


def halve(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": pc.divide(batch.column("n"), 2)})


def is_positive(batch: pa.RecordBatch) -> pa.BooleanArray:
    return pc.greater(batch.column("n"), 0)


def halving(job: JobSettings | None = None) -> JobGraph:
    env = StreamExecutionEnvironment("halving", job=job)
    loop = env.from_source(memory.MemorySource("numbers", N)).iterate(wait_ms=4_000)
    halved = loop.map_batches(halve, N, name="halve")
    loop.close_with(halved.filter_batches(is_positive))
    halved.sink_to(memory.MemorySink("halves", N))
    return env.job_graph()


def test_a_savepoint_is_refused_and_the_job_goes_on() -> None:
    with running(halving(), MemoryStorage(), checkpoints=False) as job_master:
        until(lambda: sum(v.records_in for v in job_master.status().vertices) > 0)
        with pytest.raises(FlowrunError, match="an iteration cannot be checkpointed"):
            checkpoint(job_master, savepoint=True)
        assert job_master.wait() is not None
    found = [n for batch in memory.take("halves") for n in batch.columns.column("n").to_pylist()]
    assert sorted(found) == [0, 0, 0, 1, 1, 2, 2, 4]


def test_checkpoints_are_refused_at_once() -> None:
    graph = halving(JobSettings(checkpoint=BY_HAND, restart=RestartSettings("none")))
    with running(graph, MemoryStorage()) as job_master, pytest.raises(JobFailedError, match="cannot be checkpointed"):
        job_master.wait()


def test_explain_says_that_head_and_tail_are_in_one_process() -> None:
    text = render_job_graph(halving())
    assert text.count("co-located iteration-1: one process") == 2
