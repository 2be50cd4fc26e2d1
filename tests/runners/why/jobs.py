"""Small jobs to find something about: pipelines in SQL whose sources are partitions that send their rows and then nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from flowrun.api.format import lines_chunk
from flowrun.api.operator import InputStatus
from flowrun.api.source import Boundedness, Delivery, ReaderContext, SourceOutput, Split
from flowrun.connectors.formats.json_decoder import JsonDecoder
from flowrun.connectors.listed_splits import ListedSplitEnumerator
from flowrun.core.elements import RecordBatch
from flowrun.core.schema import Schema
from flowrun.errors import JobFailedError
from flowrun.graph.job_graph import JobGraph
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.runners.compile import compile_file
from flowrun.runners.embedded import JobStateOptions, LocalJob, start_embedded
from flowrun.runners.why.finding import Finding, Thresholds
from flowrun.runners.why.rules import findings
from flowrun.runtime.job_details import JobDetails
from flowrun.runtime.lifecycle import ExecutionState

AT_ONCE = Thresholds(silent_ms=1, growing_rows=100)
"""What is told at once, so that no test has to wait."""
Rows = Sequence[Mapping[str, Any]]

ORDERS = """
CREATE TABLE orders (id BIGINT, user_id STRING, amount BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
WITH ('connector' = 'datagen');
"""
PAYMENTS = """
CREATE TABLE payments (pid BIGINT, payer STRING, paid BIGINT, pts TIMESTAMP(3), WATERMARK FOR pts AS pts - INTERVAL '5' SECOND)
WITH ('connector' = 'datagen');
"""


@dataclass(frozen=True)
class Partitions:
    """A source of partitions that one subtask reads together: each sends its rows, batch by batch; then, unless it ends, nothing comes."""

    schema: Schema
    partitions: Mapping[str, Sequence[Rows]] = field(hash=False)
    ends: bool = False
    batches: list[int] = field(default_factory=lambda: [1 << 30], hash=False)
    """One number: so many batches of each partition may come by now."""
    delivery = Delivery.EXACTLY_ONCE

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED if self.ends else Boundedness.UNBOUNDED

    def create_enumerator(self, parallelism: int, clock: object, restored: Any = None) -> ListedSplitEnumerator:
        return ListedSplitEnumerator([Split(name, {"batch": 0}) for name in self.partitions], restored)

    def create_reader(self, context: ReaderContext) -> _Reader:
        return _Reader(self, context)


class _Reader:
    reads_splits_together = True

    def __init__(self, source: Partitions, context: ReaderContext) -> None:
        self._source, self._context = source, context
        self._at: dict[str, int] = {}
        self._no_more = False

    def start(self) -> None:
        for _ in range(len(self._source.partitions) + 1):
            self._context.request_split()

    def poll(self, output: SourceOutput) -> InputStatus:
        sent = waits = False
        for name, at in list(self._at.items()):
            batches = self._source.partitions[name]
            if self._source.batches[0] <= at < len(batches):
                waits = True
            elif at < len(batches):
                self._at[name], sent = at + 1, True
                if batches[at]:
                    output.emit(RecordBatch(rows_of(self._source.schema, batches[at])), name)
            elif self._source.ends:
                del self._at[name]
        if sent:
            return InputStatus.MORE_AVAILABLE
        if waits:
            self._context.processing_time.register(
                self._context.processing_time.now_ms() + 5, lambda _: self._context.notify_available()
            )
        ended = self._source.ends and self._no_more and not self._at
        return InputStatus.END_OF_INPUT if ended else InputStatus.NOTHING_AVAILABLE

    def add_splits(self, splits: Sequence[Split]) -> None:
        self._at.update({s.split_id: int(str(s.position["batch"])) for s in splits})

    def notify_no_more_splits(self) -> None:
        self._no_more = True

    def snapshot(self) -> Sequence[Split]:
        return [Split(name, {"batch": at}) for name, at in self._at.items()]

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Nothing to acknowledge."""

    def close(self) -> None:
        """Nothing to release."""


def rows_of(schema: Schema, rows: Rows) -> pa.RecordBatch:
    decoded = JsonDecoder(schema, compiled=False).decode(lines_chunk([orjson.dumps(dict(r)) for r in rows]))
    assert not decoded.bad, decoded.bad
    return decoded.columns


def order(id: int, at: int, user: str | None = "ann", amount: int = 1) -> dict[str, Any]:
    """An order `at` seconds after midnight."""
    return {"id": id, "user_id": user, "amount": amount, "ts": clock_text(at)}


def payment(pid: int, at: int, payer: str | None = "ann", paid: int = 1) -> dict[str, Any]:
    return {"pid": pid, "payer": payer, "paid": paid, "pts": clock_text(at)}


def clock_text(seconds: int) -> str:
    return f"2024-03-01 {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def job_graph(
    folder: Path,
    text: str,
    sources: Mapping[str, Mapping[str, Sequence[Rows]]],
    *,
    ends: bool = False,
    batches: list[int] | None = None,
    **settings: str,
) -> JobGraph:
    """The job of a script, its sources replaced by partitions; `batches`: one number, how many of each may come."""
    file = folder / ("job.yaml" if text.startswith("name:") else "job.sql")
    file.write_text(text)
    graph = compile_file(
        file, {"OUT": str(folder / "out")}, {f"settings.{k.replace('__', '.')}": v for k, v in settings.items()}
    ).job_graph
    vertices = []
    for vertex in graph.vertices:
        operators = []
        for operator in vertex.operators:
            name, factory = operator.name.removeprefix("Source: "), operator.factory
            if isinstance(factory, SourceOperatorFactory) and name in sources:
                source = Partitions(factory.source.schema, sources[name], ends, batches or [1 << 30])
                operators.append(replace(operator, factory=replace(factory, source=source), source=source))
            else:
                operators.append(operator)
        vertices.append(replace(vertex, operators=tuple(operators)))
    return replace(graph, vertices=tuple(vertices))


def records_in(details: JobDetails, name: str) -> int:
    """Rows that came to an operator; of a source those that it sent."""
    for vertex in details.vertices:
        for described in vertex.operators:
            if described.name.removeprefix("Source: ").removeprefix("Sink: ") == name:
                counted = "numRecordsOut" if described.is_source else "numRecordsIn"
                return sum(
                    m.counters.get(counted, 0)
                    for s in vertex.subtasks
                    for m in s.operators
                    if m.operator_id == described.operator_id
                )
    raise AssertionError(f"there is no operator '{name}'")


@contextmanager
def running(graph: JobGraph, state: Path | None = None) -> Iterator[LocalJob]:
    options = None if state is None else JobStateOptions(str(state))
    with start_embedded(graph, state=options) as job:
        yield job
        job.cancel()


def until(job: LocalJob, holds: Callable[[JobDetails], bool], timeout_s: float = 20) -> JobDetails:
    """The job's details once something holds of them."""
    deadline = time.monotonic() + timeout_s
    while True:
        details = job.details()
        if holds(details):
            return details
        assert time.monotonic() < deadline, "the job does not get there"
        assert not details.status.state.is_terminal, "the job is over"
        time.sleep(0.005)


def read(counts: Mapping[str, int]) -> Callable[[JobDetails], bool]:
    """Whether operators have got so many rows."""
    return lambda details: all(records_in(details, name) >= count for name, count in counts.items())


Found = dict[str, list[Finding]]


def found_in(graph: JobGraph, counts: Mapping[str, int], thresholds: Thresholds = AT_ONCE) -> Found:
    """Findings by kind about a job that stays as it is once operators have got so many rows."""
    with running(graph) as job:
        until(job, all_run)
        until(job, read(counts))
        return by_kind(findings(settled(job), thresholds))


def settled(job: LocalJob) -> JobDetails:
    """The details once nothing is counted any more: rows that were read have come as far as they get."""
    quiet, counted = 0, -1
    while True:
        details = job.details()
        now = sum(c for v in details.vertices for s in v.subtasks for m in s.operators for c in m.counters.values())
        quiet, counted = (quiet + 1 if now == counted else 0), now
        if quiet >= 10:
            return details
        time.sleep(0.01)


def all_run(details: JobDetails) -> bool:
    """Whether all subtasks run."""
    return all(s.state is ExecutionState.RUNNING for v in details.vertices for s in v.subtasks)


def found_at_end(graph: JobGraph) -> Found:
    """Findings by kind about a job that has ended, however it did."""
    with suppress(JobFailedError), start_embedded(graph) as job:
        job.wait()
    return by_kind(findings(job.details(), AT_ONCE))


def by_kind(found: Sequence[Finding]) -> Found:
    kinds: Found = {}
    for finding in found:
        kinds.setdefault(finding.kind, []).append(finding)
    return kinds


def one(found: Found, kind: str) -> Finding:
    """The only finding of a kind."""
    assert len(found.get(kind, [])) == 1, f"of '{kind}' there are: {found}"
    return found[kind][0]
