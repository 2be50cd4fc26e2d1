"""The runtime with the real graph generators, source and sink operators: what later layers will hand it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from runtime_fakes import ROWS, Collect, Make, Seen

from flowrun.connectors import memory
from flowrun.graph.job_graph import JobSettings
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.partitioner import KeyGroupPartitioner
from flowrun.graph.stream_graph import GraphSettings
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.graph.transformation import (
    OneInputTransformation,
    PartitionTransformation,
    SinkTransformation,
    SourceTransformation,
)
from flowrun.operators.factories import SinkOperatorFactory, SourceOperatorFactory
from flowrun.runners.embedded import run_embedded


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("batch_rows", [1, 7, 1024])
def test_memory_to_memory_over_a_keyed_exchange(parallelism: int, batch_rows: int) -> None:
    keys = np.arange(500) % 13
    batches = [pa.record_batch({"k": keys, "v": np.arange(500) + 500 * i}) for i in range(4)]
    memory.put("in", batches[:2], batches[2:])
    read = memory.MemorySource("in", ROWS)
    seen = Seen()
    source = SourceTransformation(
        name="in", schema=ROWS, source=read, factory=SourceOperatorFactory(read, batch_rows=batch_rows, name="in")
    )
    keyed = PartitionTransformation(name="key", schema=ROWS, input=source, partitioner=KeyGroupPartitioner((0,)))
    middle = OneInputTransformation(name="see", schema=ROWS, input=keyed, factory=Make(lambda: Collect(seen)))
    write = memory.MemorySink("out", ROWS)
    sink = SinkTransformation(
        name="out", schema=ROWS, input=middle, sink=write, factory=SinkOperatorFactory(write, "out")
    )
    graph = build_stream_graph(
        "real", [sink], GraphSettings(parallelism=parallelism, job=JobSettings(batch_rows=batch_rows))
    )
    run_embedded(build_job_graph(graph))
    values = sorted(v for b in memory.take("out") for v in b.columns["v"].to_pylist())
    assert values == list(range(2_000))
    memory.clear()
    for key in range(13):
        owners = {s for s in range(parallelism) if any(k == key for k, _ in seen.pairs(s))}
        assert len(owners) == 1, "one subtask sees all rows of a key"
