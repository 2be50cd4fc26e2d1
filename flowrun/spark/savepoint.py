"""Hands over from a backfill to the stream: the whole job runs up to a point in event time, and its state is written as a savepoint."""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import orjson

from flowrun.api.changelog import ChangelogMode
from flowrun.api.source import Boundedness, DividedByTime, JsonValue, Split
from flowrun.connectors.filesystem.source import FileSource
from flowrun.core.clock import SystemClock
from flowrun.core.elements import CheckpointKind, CheckpointOptions
from flowrun.core.record import record
from flowrun.errors import UnsupportedPlanError
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.graph.explain import Format, render_job_graph
from flowrun.graph.job_graph import JobGraph, JobVertex
from flowrun.graph.transformation import SinkTransformation, Transformation
from flowrun.operators.factories import SourceOperatorFactory
from flowrun.operators.source import backfilled_state
from flowrun.plan.changelog import changelog_modes
from flowrun.plan.changelog_nodes import ChangelogNormalize
from flowrun.plan.nodes import Plan, Sink, walk_plan
from flowrun.runtime.checkpoint.assembly import JobIdentity, StartedCheckpoint, assemble
from flowrun.runtime.checkpoint.events import StoreCheckpoint
from flowrun.runtime.jobmaster.job_state import state_directory
from flowrun.spark.frame import SparkFrame
from flowrun.spark.hosted.destinations import Destination, Form
from flowrun.spark.hosted.flows import (
    Exchange,
    Flow,
    Sorting,
    destination_flow,
    frame_of,
    input_schemas,
    run_on,
    stage_input,
)
from flowrun.spark.hosted.job import OpenVertex, SinkPlace, edges_by_result, input_flows, open_vertex
from flowrun.spark.hosted.snapshotting import LeaveSnapshot, SubtaskNote
from flowrun.spark.hosted.sources import ReadSplit, SourceRun, find_splits, read_splits
from flowrun.spark.hosted.task import Stage
from flowrun.spark.hosted.wire import CONTENT, EDGE, NOTE
from flowrun.spark.input.data_source import is_in_process
from flowrun.state.checkpoints import OperatorSubtaskState, PipelineText, SnapshotFigures, SubtaskSnapshot
from flowrun.state.storage.names import job_slug
from flowrun.state.storage.parquet_storage import ParquetStorage
from flowrun.state.storage.savepoints import Savepoints
from flowrun.state.storage.state_path import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Note = TypeVar("Note")

_NUMBER = 1
"""The number of the savepoint, which is the first one of its job."""


class CompiledJob(Protocol):
    """A pipeline in the forms that a hand-over needs (`flowrun.runners.compile.CompiledPipeline`)."""

    @property
    def optimised(self) -> Plan:
        """The plan that was lowered."""
        ...

    @property
    def transformations(self) -> tuple[Transformation, ...]:
        """The transformations of its sinks, in the plan's order."""
        ...

    @property
    def job_graph(self) -> JobGraph:
        """The graph of the streaming job."""
        ...

    @property
    def text(self) -> PipelineText:
        """The text that a job resumes from without its file."""
        ...


@record
class SavepointWritten:
    """A savepoint that was written: its path, the bytes of its state, how many operators have state, and how many seconds it took."""

    path: str
    bytes: int
    operators: int
    seconds: float


class HandOver:
    """A job that ran up to the end of a backfill: the rows of its sinks, and its state, which `finish` makes a savepoint.

    Attributes:
        outputs: each sink, in the plan's order, with the final table of its rows. They must become visible before `finish` is called: a
            stream that resumes from the savepoint does not write them again.
    """

    def __init__(
        self, outputs: Sequence[tuple[Sink, SparkFrame]], state: _State, started: float, kept: Sequence[DataFrame]
    ) -> None:
        self.outputs = tuple(outputs)
        self._state = state
        self._started = started
        self._kept = tuple(kept)

    def finish(self) -> SavepointWritten:
        """Write the metadata, which completes the savepoint.

        Raises:
            StateError: its metadata cannot be written.
        """
        written = self._state.finish(self._started)
        self._release()
        return written

    def discard(self) -> None:
        """Remove the files that were written. It may be called again."""
        self._state.discard()
        self._release()

    def _release(self) -> None:
        for frame in self._kept:
            frame.unpersist()
        self._kept = ()


def leave_savepoint(
    compiled: CompiledJob,
    session: SparkSession,
    until_ms: int,
    directory: str,
    *,
    now_ms: int,
    identities: Mapping[int, str] | None = None,
    pipeline: PipelineText | None = None,
) -> HandOver:
    """Run a whole job up to a point in event time, and write the state of its operators into a savepoint.

    Every vertex is a stage with as many partitions as it has subtasks: compile the pipeline with the parallelism that Spark is to have
    (`settings.parallelism`); the stream that resumes may have another one. Sources read the data that is there now. Rows whose event
    time is `until_ms` or later are left to the stream; sources without event time are read to their end.

    Args:
        compiled: the pipeline.
        session: a session with flowrun's semantics, whose workers can write to `directory`.
        until_ms: the point in event time, in ms since the epoch.
        directory: the folder in which the savepoint gets a folder of its own.
        now_ms: processing time.
        identities: `id` of a sink of the plan → the name that its files by key have; None: the sinks have no such files.
        pipeline: the pipeline's text that the savepoint keeps; None: `compiled.text`.

    Raises:
        UnsupportedPlanError: nothing says which rows of a source are before `until_ms`.
        StateError: the folder cannot be made.
        Exception: an exception of Spark, because a task failed; no file of the savepoint is left then.
    """
    for vertex in compiled.job_graph.vertices:
        _check_source(vertex)
    _check_order(compiled.optimised)
    state = _State(compiled, directory, now_ms, pipeline or compiled.text)
    run = _Run(compiled, session, until_ms, now_ms, state, identities or {})
    try:
        return run.to_its_end()
    except BaseException:
        run.discard()
        raise


def _check_order(plan: Plan) -> None:
    """Refuse upserts and changes that may come twice: they count in the order in which they come, but a backfill runs by event time."""
    for node in walk_plan(plan):
        if isinstance(node, ChangelogNormalize):
            raise UnsupportedPlanError(
                f"'{node.hints.name}' reads changes whose order of arrival counts, and a backfill has them in the order of event time",
                hint="let the stream read them from the beginning, or leave the savepoint out",
            )


def _check_source(vertex: JobVertex) -> None:
    head = vertex.operators[0]
    if head.source is not None and is_in_process(head.source):
        raise UnsupportedPlanError(
            f"'{head.name}' reads rows that live in this process, which those who resume from a savepoint do not have",
            hint="put them into files, or leave the savepoint out",
        )
    source: object = head.source
    if isinstance(source, DividedByTime) and not source.is_divided:
        raise UnsupportedPlanError(
            f"'{head.name}' reads sources one after the other without a time for the switch: nothing says which of their rows are "
            "those of the backfill",
            hint="give it a switch-time, or leave the savepoint out",
        )
    if head.source is None or head.source.boundedness is Boundedness.BOUNDED:
        return
    factory = head.factory
    if isinstance(factory, SourceOperatorFactory) and factory.strategy is None:
        raise UnsupportedPlanError(
            f"'{head.name}' has no end and no event time: nothing says which of its rows belong to the backfill",
            hint="declare a watermark for it, or bound it",
        )


class _State:
    """Collects the savepoint's metadata."""

    def __init__(self, compiled: CompiledJob, directory: str, now_ms: int, pipeline: PipelineText) -> None:
        self._graph = compiled.job_graph
        root = state_directory(self._graph)
        self._storage = Savepoints(root, self._graph.name)
        self._folder = (
            "" if self._graph.settings.checkpoint is None else (resolve(root) / job_slug(self._graph.name)).uri
        )
        self._pipeline = pipeline
        self._now_ms = now_ms
        self.target = self._storage.begin(_NUMBER, CheckpointKind.SAVEPOINT, directory)
        self.writing = ParquetStorage(resolve(self.target))
        self.enumerators: dict[str, JsonValue] = {}
        self._subtasks: dict[ExecutionVertexId, list[OperatorSubtaskState]] = {
            ExecutionVertexId(v.vertex_id, i): [] for v in self._graph.vertices for i in range(v.parallelism)
        }

    def add(self, vertex_id: str, subtask: int, states: Sequence[OperatorSubtaskState]) -> None:
        """Add the state of the operators of a subtask."""
        self._subtasks[ExecutionVertexId(vertex_id, subtask)] += states

    def finish(self, started: float) -> SavepointWritten:
        shown: JsonValue = orjson.loads(render_job_graph(self._graph, Format.JSON))
        identity = JobIdentity(uuid.uuid4().hex, self._folder, self._pipeline, shown)
        snapshots = {}
        for subtask, states in self._subtasks.items():
            snapshot = SubtaskSnapshot(tuple(states))
            size = sum(f.size for f in snapshot.files)
            snapshots[subtask] = SubtaskSnapshot(tuple(states), figures=SnapshotFigures(written_bytes=size))
        options = CheckpointOptions(kind=CheckpointKind.SAVEPOINT, target=self.target)
        metadata = assemble(
            self._graph,
            identity,
            StartedCheckpoint(self._now_ms, options, self.enumerators),
            StoreCheckpoint(_NUMBER, snapshots, frozenset()),
            {},
            SystemClock().now_ms(),
        )
        path = self._storage.finish(self.target, metadata)
        operators = sum(1 for o in metadata.operators.values() if o.subtasks)
        return SavepointWritten(path, metadata.state_bytes, operators, time.monotonic() - started)

    def discard(self) -> None:
        self._storage.discard(self.target, ())


class _Run:
    def __init__(
        self,
        compiled: CompiledJob,
        session: SparkSession,
        until_ms: int,
        now_ms: int,
        state: _State,
        identities: Mapping[int, str],
    ) -> None:
        self._compiled = compiled
        self._session = session
        self._until_ms = until_ms
        self._now_ms = now_ms
        self._state = state
        self._identities = identities
        self._graph = compiled.job_graph
        self._started = time.monotonic()
        self._flows: dict[str, Flow] = {}
        self._reached: dict[str, int | None] = {}
        """Data set → the event time that it has reached; None: it has none."""
        self._taken: list[tuple[SinkPlace, Flow]] = []
        self._kept: list[DataFrame] = []
        modes = changelog_modes(compiled.optimised)
        pairs = zip(compiled.transformations, compiled.optimised.sinks, strict=True)
        self._sinks = [(t.sink, node, modes[id(node)]) for t, node in pairs if isinstance(t, SinkTransformation)]

    def to_its_end(self) -> HandOver:
        for vertex in self._graph.vertices:
            opened = open_vertex(vertex, checked=True)
            if vertex.operators[0].source is None:
                self._run(opened, input_flows(vertex, self._flows), self._reached_by(vertex))
            else:
                rows, reached = self._read(vertex)
                self._run(opened, [(0, rows)], (reached,))
        outputs = []
        for sink, node, _ in self._sinks:
            place, flow = next((p, f) for p, f in self._taken if p.sink is sink)
            timed = node.event_time and not place.operator.state_keys  # nobody reads the event times of a table by key
            outputs.append((node, frame_of(flow, event_time=timed, arrival=False)))
        return HandOver(outputs, self._state, self._started, self._kept)

    def discard(self) -> None:
        self._state.discard()
        for frame in self._kept:
            frame.unpersist()

    def _read(self, vertex: JobVertex) -> tuple[Flow, int | None]:
        """(a source's rows, the event time that they have reached)."""
        head = vertex.operators[0]
        assert head.source is not None
        found = find_splits(head.source, vertex.parallelism, SystemClock(), self._until_ms)
        # files end, also in a folder that is watched, and so do the parts of a divided source whose splits are found
        source: object = head.source
        ends = head.source.boundedness is Boundedness.BOUNDED or isinstance(source, FileSource | DividedByTime)
        run = SourceRun(vertex, self._graph.settings, self._now_ms, self._until_ms, found.splits, ends)
        stage = self._keep(read_splits(self._session, run))
        notes = sorted(self._notes(stage, ReadSplit), key=lambda n: n.number)
        has_strategy = isinstance(head.factory, SourceOperatorFactory) and head.factory.strategy is not None
        until = self._until_ms if has_strategy or any(n.timed for n in notes) else None
        left = [split for note in notes for split in note.left]
        self._state.enumerators[head.operator_id] = found.enumerator
        for subtask in range(vertex.parallelism):
            own: list[Split] = left[subtask :: vertex.parallelism]
            state = OperatorSubtaskState(head.operator_id, operator=backfilled_state(own, until))
            self._state.add(vertex.vertex_id, subtask, [state])
        flow = destination_flow(stage, 0, head.schema, only=False)
        return flow, None if until is None else until - 1

    def _reached_by(self, vertex: JobVertex) -> tuple[int | None, ...]:
        by_input: dict[int, list[int | None]] = {}
        for edge in vertex.inputs:
            by_input.setdefault(edge.input_index, []).append(self._reached[edge.data_set_id])
        return tuple(_least(by_input[i]) for i in sorted(by_input))

    def _run(self, opened: OpenVertex, inputs: list[tuple[int, Flow]], reached: tuple[int | None, ...]) -> None:
        vertex = opened.vertex
        data = stage_input(inputs, Exchange(vertex.parallelism), Sorting.TIME)
        stage = Stage(
            vertex=vertex,
            inputs=input_schemas(inputs),
            destinations=self._destinations(opened),
            settings=self._graph.settings,
            now_ms=self._now_ms,
            ending=LeaveSnapshot(
                vertex, self._identified(opened), reached, _NUMBER, self._state.target, self._state.writing
            ),
            ordered=True,
            lags=tuple(None if r is None else max(self._until_ms - 1 - r, 0) for r in reached),
            alone=False,
        )
        ran = self._keep(run_on(data, stage))
        notes = self._notes(ran, SubtaskNote)
        for note in notes:
            self._state.add(vertex.vertex_id, note.subtask, note.states)
        sinks = {place.result: place for place in opened.sinks}
        for edge in edges_by_result(vertex):
            flow = destination_flow(ran, edge.result, edge.schema, only=False)
            if edge.result in sinks:
                self._taken.append((sinks[edge.result], flow))
            else:
                data_set = vertex.results[edge.result].data_set_id
                self._flows[data_set] = flow
                self._reached[data_set] = _least([note.watermarks[edge.result] for note in notes])

    def _destinations(self, opened: OpenVertex) -> tuple[Destination, ...]:
        vertex = opened.vertex
        sinks = {place.result: place for place in opened.sinks}
        readers = {e.data_set_id: v for v in self._graph.vertices for e in v.inputs}
        destinations = []
        for edge in edges_by_result(vertex):
            if edge.result in sinks:
                destinations.append(self._sink_place(sinks[edge.result]))
                continue
            reader = readers[vertex.results[edge.result].data_set_id]
            destinations.append(
                Destination(
                    edge.schema,
                    partitioner=edge.partitioner,
                    channels=reader.parallelism,
                    max_parallelism=reader.max_parallelism,
                )
            )
        return tuple(destinations)

    def _identified(self, opened: OpenVertex) -> tuple[SinkPlace, ...]:
        nodes = {id(sink): node for sink, node, _ in self._sinks}
        return tuple(
            replace(place, identity=self._identities.get(id(nodes[id(place.sink)]), "")) for place in opened.sinks
        )

    def _sink_place(self, place: SinkPlace) -> Destination:
        mode = next(mode for sink, _, mode in self._sinks if sink is place.sink)
        keys = place.operator.state_keys
        if keys is not None and keys[0]:
            return Destination(place.operator.schema, Form.NEWEST, keys=keys[0])
        form = Form.CHANGES if mode is ChangelogMode.APPEND else Form.FINAL
        return Destination(place.operator.schema, form)

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def _notes(self, stage: DataFrame, kind: type[Note]) -> list[Note]:
        """The notes of the tasks of a stage, which Spark runs now."""
        rows = stage.where(f"{EDGE} = {NOTE}").select(CONTENT).collect()
        notes = [pickle.loads(row[0]) for row in rows]
        return [note for note in notes if isinstance(note, kind)]


def _least(reached: Sequence[int | None]) -> int | None:
    """The event time after several producers; None: one of them has sent no watermark."""
    known = [r for r in reached if r is not None]
    return min(known) if known and len(known) == len(reached) else None
