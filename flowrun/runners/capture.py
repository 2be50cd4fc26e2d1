"""What each sink of a pipeline would get, in files instead: the stream's changes as they come, Spark's final rows."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from flowrun.connectors.live_rows import listening
from flowrun.core.arrays import Bools, Integers
from flowrun.core.clock import Clock
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.plan.nodes import Plan, PlanNode, Scan, Sink, TableReference
from flowrun.plan.rewrites.traversal import map_plan, with_sinks
from flowrun.runners.comparison import comparable, comparable_schema
from flowrun.runners.embedded import run_embedded
from flowrun.runtime.job_status import JobResult
from flowrun.spark.context import ALL_TIME, TimeRange
from flowrun.spark.input.scan import as_it_is

_TAKES_BACK = 1
"""Bit of a row kind that says so."""
_ROWS_HELD = 65_536
_numbers = itertools.count()


class CaptureFile:
    """A file of comparable rows. `take` may be called by any thread.

    Args:
        file: to write.
        schema: of the rows.
        kept: only rows with these event times.
    """

    def __init__(self, file: Path, schema: Schema, kept: TimeRange = ALL_TIME) -> None:
        self._schema = schema
        self._kept = kept
        self._lock = threading.Lock()
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_stream(str(file), comparable_schema(schema), options=options)

    def take(self, batch: RecordBatch) -> None:
        """Write rows and what their kinds count for."""
        if batch.row_kinds is None:
            weights = np.ones(batch.num_rows, np.int8)
        else:
            weights = 1 - 2 * (batch.row_kinds.to_numpy(zero_copy_only=False).astype(np.int8) & _TAKES_BACK)
        columns = batch.columns.columns
        rows = comparable(columns, self._schema, pa.array(weights))
        if self._kept != ALL_TIME:
            rows = rows.filter(pa.array(_within(batch.timestamps_numpy(), self._kept)))
        with self._lock:
            self._held.append(rows)
            self._rows += rows.num_rows
            if self._rows >= _ROWS_HELD:
                self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_batch(pa.concat_batches(self._held))
        self._held, self._rows = [], 0

    def close(self) -> None:
        """All rows are in the file."""
        self._flush()
        self._writer.close()

    def __enter__(self) -> CaptureFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _within(times: Integers, kept: TimeRange) -> Bools:
    inside = np.ones(len(times), np.bool_)
    if kept.start is not None:
        inside &= times >= kept.start
    if kept.stop is not None:
        inside &= times < kept.stop
    return inside


def capture_stream(plan: Plan, files: Sequence[Path], kept: Mapping[int, TimeRange], clock: Clock) -> JobResult:
    """Run an optimised plan as a stream, embedded, with the rows of its sinks in files instead.

    No checkpoints are taken, and dead letters are rows of a sink like others: nothing is written elsewhere. Of a watched folder the
    files are read that are there.

    Args:
        plan: its sinks' rows are captured.
        files: one a sink.
        kept: by `id` of a sink, the event times of the rows that count; without: all.
        clock: processing time.

    Raises:
        JobFailedError: the job failed.
    """
    names = [f"captured {next(_numbers)}" for _ in plan.sinks]
    with ExitStack() as stack:
        for sink, name, file in zip(plan.sinks, names, files, strict=True):
            capture = stack.enter_context(CaptureFile(file, sink.schema, kept.get(id(sink), ALL_TIME)))
            stack.enter_context(listening(name, capture))
        sinks = [_captured(sink, name) for sink, name in zip(plan.sinks, names, strict=True)]
        quiet = map_plan(with_sinks(plan, tuple(sinks)), _once)
        settings = replace(plan.settings, checkpoint=None, restart=None, embedded_mode="streaming")
        graph = build_stream_graph(plan.name, lower(replace(quiet, settings=settings)), graph_settings(settings))
        return run_embedded(build_job_graph(graph), clock=clock)


def _captured(sink: Sink, name: str) -> Sink:
    """A sink that hands its rows to who listens to `name`."""
    return replace(sink, table=TableReference(name, "print", {"live": "true"}))


def _once(node: PlanNode) -> PlanNode:
    """A scan that reads what is there now."""
    if not isinstance(node, Scan):
        return node
    table = as_it_is(node.table)
    return node if table is node.table else replace(node, table=table)
