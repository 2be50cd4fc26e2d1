"""Small operators and a builder of job graphs for tests of the runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from flowrun.api.operator import ChainingStrategy, InputStatus, OutputTag
from flowrun.core.elements import Element, Event, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.schema import Schema
from flowrun.core.types import BIGINT
from flowrun.graph.job_graph import (
    ChainEdge,
    ChainedOperator,
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobSettings,
    JobVertex,
    OutputEdge,
    ResultType,
)
from flowrun.graph.partitioner import ForwardPartitioner, Partitioner
from flowrun.operators.base import AbstractOperator
from flowrun.state.checkpoints import InFlight, InFlightFile, KeptElement, StateFile, StoredRows

ROWS = Schema.of(k=BIGINT, v=BIGINT)


def rows(keys: Sequence[int], values: Sequence[int] | None = None, *, times: bool = True) -> RecordBatch:
    """A batch of (k, v) whose event times are its values."""
    values = list(range(len(keys))) if values is None else values
    columns = pa.record_batch({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())})
    return RecordBatch(columns, pa.array(values, pa.int64()) if times else None)


def random_rows(count: int, seed: int = 0, keys: int = 1000) -> RecordBatch:
    """Random keys, values 0..count-1."""
    generator = np.random.default_rng(seed)
    columns = pa.record_batch({"k": generator.integers(0, keys, count), "v": np.arange(count)})
    return RecordBatch(columns, pa.array(np.arange(count)))


def until(holds: Callable[[], object], seconds: float = 30) -> None:
    """Return once another thread has made `holds` true; an assertion fails if it does not in time.

    It sleeps in between: asking without a pause would take the interpreter lock from the threads that are waited for.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.001)


def pairs(batches: Sequence[RecordBatch]) -> list[tuple[int, int]]:
    """(k, v) of all rows."""
    return [
        (k, v) for b in batches for k, v in zip(b.columns["k"].to_pylist(), b.columns["v"].to_pylist(), strict=True)
    ]


@dataclass(frozen=True)
class Make:
    """A factory around a function; fine inside one process."""

    make: Callable[[], Any]
    chaining: ChainingStrategy = ChainingStrategy.ALWAYS

    def create(self) -> Any:
        return self.make()


class ListSource(AbstractOperator):
    """Emits the elements that `elements(subtask)` gives, one a call; then ends, or goes silent if `endless`."""

    inputs = 0

    def __init__(self, elements: Callable[[int], Sequence[Element]], *, endless: bool = False) -> None:
        self._elements = elements
        self._endless = endless
        self._stopped = False
        self._position = 0

    def open(self) -> None:
        self._mine = list(self._elements(self.context.subtask))

    def emit_next(self) -> InputStatus:
        if self._stopped:
            return InputStatus.END_OF_INPUT
        if self._position == len(self._mine):
            return InputStatus.NOTHING_AVAILABLE if self._endless else InputStatus.END_OF_INPUT
        element = self._mine[self._position]
        self._position += 1
        if isinstance(element, RecordBatch):
            self.output.emit(element)
        elif isinstance(element, Watermark):
            self.output.emit_watermark(element)
        elif isinstance(element, WatermarkStatus):
            self.output.emit_status(element)
        return InputStatus.MORE_AVAILABLE

    def set_availability_listener(self, listener: Callable[[], None]) -> None:
        self._listener = listener

    def stop(self, drain: bool) -> None:
        self._stopped = True


class RepeatSource(ListSource):
    """Emits one batch `times` times, or for ever."""

    def __init__(self, batch: RecordBatch, times: int | None = None) -> None:
        super().__init__(lambda _: ())
        self._batch = batch
        self._left = times

    def emit_next(self) -> InputStatus:
        if self._stopped or self._left == 0:
            return InputStatus.END_OF_INPUT
        if self._left is not None:
            self._left -= 1
        self.output.emit(self._batch)
        return InputStatus.MORE_AVAILABLE


@dataclass
class Seen:
    """What the subtasks of one operator saw, by (subtask, input): elements in order."""

    elements: dict[tuple[int, int], list[Element | str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, subtask: int, input_index: int, element: Element | str) -> None:
        with self.lock:
            self.elements.setdefault((subtask, input_index), []).append(element)

    def of(self, kind: type, subtask: int | None = None) -> list[Any]:
        return [
            e for (s, _), found in sorted(self.elements.items()) if subtask in (None, s) for e in found
            if isinstance(e, kind)
        ]  # fmt: skip

    def pairs(self, subtask: int | None = None) -> list[tuple[int, int]]:
        return pairs(self.of(RecordBatch, subtask))


class Collect(AbstractOperator):
    """Records what it sees and passes it on."""

    def __init__(self, seen: Seen, inputs: int = 1) -> None:
        self.inputs = inputs
        self._seen = seen

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self._seen.add(self.context.subtask, input_index, batch)
        self.output.emit(batch)

    def process_watermark(self, watermark: Watermark, input_index: int = 0) -> None:
        self._seen.add(self.context.subtask, input_index, watermark)
        super().process_watermark(watermark, input_index)

    def process_status(self, status: WatermarkStatus, input_index: int = 0) -> None:
        self._seen.add(self.context.subtask, input_index, status)
        super().process_status(status, input_index)

    def end_input(self, input_index: int = 0) -> None:
        self._seen.add(self.context.subtask, input_index, "end")

    def finish(self) -> None:
        self._seen.add(self.context.subtask, 0, "finish")


class Count(AbstractOperator):
    """Counts rows and drops them."""

    def process_batch(self, batch: RecordBatch, input_index: int = 0) -> None:
        self.context.metrics.counter("seen").inc(batch.num_rows)


@dataclass
class Vertex:
    """A job vertex under construction: a straight chain of operators."""

    name: str
    operators: list[tuple[str, Callable[[], Any]]]
    parallelism: int = 1
    reads: list[tuple[Vertex, Partitioner, int, OutputTag | None]] = field(default_factory=list)
    source: Any = None
    sink: Any = None
    max_parallelism: int = 128

    def read(
        self, other: Vertex, partitioner: Partitioner | None = None, index: int = 0, tag: OutputTag | None = None
    ) -> Vertex:
        """Read another vertex's output; gives self."""
        self.reads.append((other, partitioner or ForwardPartitioner(), index, tag))
        return self

    @property
    def vertex_id(self) -> str:
        return f"{self.name}-0"


def vertex(name: str, *makes: Callable[[], Any], parallelism: int = 1, source: Any = None, sink: Any = None) -> Vertex:
    """A vertex whose operators are `name`, or `name.0`, `name.1` … if there are several."""
    names = [name] if len(makes) == 1 else [f"{name}.{i}" for i in range(len(makes))]
    return Vertex(name, list(zip(names, makes, strict=True)), parallelism, source=source, sink=sink)


def job(
    *vertices: Vertex,
    settings: JobSettings | None = None,
    type: ResultType = ResultType.PIPELINED,
    buffer_timeout_ms: int = 100,
) -> JobGraph:
    """The job graph of vertices in topological order."""
    built = []
    for v in vertices:
        outgoing = [(w, p, i, t) for w in vertices for r, p, i, t in w.reads if r is v]
        results, output_edges = [], []
        for position, (w, partitioner, index, tag) in enumerate(outgoing):
            data_set = _data_set(v, w, index, tag)
            results.append(IntermediateDataSet(data_set, v.vertex_id, type, partitioner))
            tail = len(v.operators) - 1
            output_edges.append(OutputEdge(tail, position, partitioner, ROWS, tag, buffer_timeout_ms))
        inputs = [JobEdge(_data_set(r, v, i, t), r.vertex_id, v.vertex_id, i, p, ROWS) for r, p, i, t in v.reads]
        operators = tuple(
            ChainedOperator(
                f"{v.name}-{position}",
                name,
                None,
                Make(make),
                ROWS,
                source=v.source if position == 0 else None,
                sink=v.sink if position == len(v.operators) - 1 else None,
            )
            for position, (name, make) in enumerate(v.operators)
        )
        chain = tuple(ChainEdge(i, i + 1) for i in range(len(operators) - 1))
        built.append(
            JobVertex(
                v.vertex_id, v.name, v.parallelism, v.max_parallelism, operators, chain,
                tuple(inputs), tuple(output_edges), tuple(results), "default",
            )
        )  # fmt: skip
    return JobGraph("test", tuple(built), settings or JobSettings())


def _data_set(source: Vertex, target: Vertex, index: int, tag: OutputTag | None) -> str:
    return f"{source.name}>{target.name}.{index}.{tag.name if tag else ''}"


class InFlightInMemory:
    """The part of a `SnapshotStorage` for rows in flight: they are kept in memory under the paths of files that do not exist."""

    def __init__(self) -> None:
        self.rows: dict[str, RecordBatch] = {}

    def write_in_flight(self, target: str, in_flight: Sequence[InFlight]) -> tuple[InFlight, ...]:
        """Rows are kept under paths; gives where they are."""
        kept = []
        for held in in_flight:
            elements: list[KeptElement] = []
            for element in held.elements:
                if isinstance(element, RecordBatch):
                    path = f"{target}/in-flight-{len(self.rows)}"
                    self.rows[path] = element
                    file = StateFile(path, element.nbytes, element.num_rows, "")
                    source = InFlightFile(held.data_set_id, element.columns.schema, file)
                    has_times = element.timestamps is not None
                    elements.append(StoredRows(source, 0, element.num_rows, has_times, element.row_kinds is not None))
                else:
                    elements.append(element)
            kept.append(replace(held, elements=tuple(elements)))
        return tuple(kept)

    def read_in_flight(
        self, channels: Sequence[Sequence[KeptElement]], root: str
    ) -> list[tuple[RecordBatch | Event, ...]]:
        return [
            tuple(self.rows[e.source.file.path] if isinstance(e, StoredRows) else e for e in elements)
            for elements in channels
        ]
