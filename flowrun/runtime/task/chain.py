"""The operator chain of a subtask: built from its job vertex, opened from tail to head, finished from head to tail, always closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from flowrun.api.coordination import CoordinatedSource
from flowrun.api.operator import (
    BatchForm,
    EndsKeys,
    OperatorContext,
    ProcessingTimeService,
    StreamOperator,
    TimerHandle,
    WorksAside,
    batch_form,
)
from flowrun.api.state import OperatorSnapshot
from flowrun.core.clock import Clock
from flowrun.core.elements import LatencyMarker, RecordBatch, Watermark, WatermarkStatus
from flowrun.core.provided import provides
from flowrun.core.record import record
from flowrun.errors import InternalError, JobCancelledError
from flowrun.graph.job_graph import ChainedOperator, JobSettings, JobVertex
from flowrun.operators.implementations import create_operator
from flowrun.operators.opened_functions import OpenedFunctions
from flowrun.runtime.error_text import describe_error
from flowrun.runtime.metrics import MetricRegistry, ScopedMetrics
from flowrun.runtime.task.outputs import (
    ChainEntry,
    ChainTarget,
    ChainWriter,
    CopyingChainTarget,
    OperatorOutput,
    Target,
    WriterTarget,
    copied,
    process_with_watermarks,
)
from flowrun.runtime.watchdog.board import SubtaskActivity, private_activity
from flowrun.state.key_groups import key_group_range


@record
class ChainEnvironment:
    """What a chain needs beside its vertex."""

    subtask: int
    clock: Clock
    processing_time: ProcessingTimeService
    metrics: MetricRegistry
    execute: Callable[[Callable[[], None]], None]
    pause: Callable[[float], None]
    job_id: str
    settings: JobSettings
    lineage: str = ""
    first_checkpoint_id: int = 1
    activity: SubtaskActivity = field(default_factory=private_activity)
    speaks_for_all: bool | None = None
    """See `OperatorContext.speaks_for_all`; None: if it is the first subtask."""
    staging: str = ""


@record
class OperatorFailure:
    """Which operator raised what, during which call of its life."""

    operator: str
    phase: str
    error: BaseException


class SnapshotDeclined(Exception):
    """An operator could not take part in a checkpoint; the job may go on without it."""

    def __init__(self, operator: str, error: BaseException) -> None:
        super().__init__(f"'{operator}' could not take its snapshot: {describe_error(error)}")
        self.error = error


Restore = Callable[[int], OperatorSnapshot | None]
"""Reads what the operator at a position of the chain restores from."""


class _Link:
    """One operator of the chain with its place, output and metrics."""

    __slots__ = ("metrics", "name", "operator", "output")

    def __init__(self, name: str, operator: StreamOperator, metrics: ScopedMetrics) -> None:
        self.name = name
        self.operator = operator
        self.metrics = metrics
        self.output: OperatorOutput | None = None

    @property
    def rows_sent(self) -> int:
        """Rows emitted so far, side outputs included."""
        return sum(count for name, count in self.metrics.counters().items() if name.startswith("numRecordsOut"))


class OperatorChain:
    """The operators of one subtask. All calls from the subtask's thread.

    Args:
        vertex: the chain.
        writers: one record writer per result of the vertex, in the order of `vertex.results`.
        environment: the surroundings.

    Raises:
        Exception: whatever a factory raises; `failure` then names the operator, and `close` still closes those that exist.
    """

    def __init__(self, vertex: JobVertex, writers: Sequence[ChainWriter], environment: ChainEnvironment) -> None:
        self._vertex = vertex
        self._writers = tuple(writers)
        self._environment = environment
        self.activity = environment.activity
        self._links: list[_Link] = []
        self._targets: dict[int, ChainTarget] = {}
        """How each operator behind the head is called, by its position."""
        self._working_aside: tuple[WorksAside, ...] = ()
        self._functions = OpenedFunctions()
        self._closed = False
        self.failure: OperatorFailure | None = None
        self.phase = "create"
        """The present part of the life, for messages."""
        self.is_finishing = False
        """Whether the operators are doing what they do last: sinks hand over what waits for the end of the whole job."""

    def build(self) -> None:
        """Create and set up all operators; the chain can be closed from now on, however far this comes."""
        self._functions.enter()
        for position, chained in enumerate(self._vertex.operators):
            scope = (self._vertex.vertex_id, str(self._environment.subtask), chained.operator_id)
            metrics = self._environment.metrics.group(*scope)
            with _Noting(self, position):
                self._links.append(_Link(chained.name, _create(chained), metrics))
        for position in reversed(range(len(self._links))):
            self._links[position].output = self._build_output(position)
        self.phase = "setup"
        for position, link in enumerate(self._links):
            with _Noting(self, position):
                link.operator.setup(self._context(position), self._output(position))

    @property
    def operators(self) -> list[StreamOperator]:
        """All operators, head first."""
        return [link.operator for link in self._links]

    @property
    def head_output(self) -> OperatorOutput:
        """What the head emits into."""
        return self._output(0)

    @property
    def source(self) -> CoordinatedSource | None:
        """The head, if it is a source whose splits are handed out."""
        if not self._links:
            return None
        head = self._links[0].operator
        return head if provides(head, CoordinatedSource) and self._vertex.operators[0].source is not None else None

    def initialize_state(self, restore: Restore | None = None) -> None:
        """Give every operator its state back, tail to head."""
        self._functions.enter()
        self.phase = "initialize_state"
        for position in reversed(range(len(self._links))):
            with _Noting(self, position):
                self._links[position].operator.initialize_state(None if restore is None else restore(position))

    def open(self, when_open: Callable[[int], None] = lambda _: None) -> None:
        """Open from tail to head, so that a head that emits in `open` finds everybody ready.

        Args:
            when_open: called with the position of each operator once it and all behind it are open, before those ahead of it are.
        """
        self._functions.enter()
        for position in reversed(range(len(self._links))):
            self.phase = "open"
            with _Noting(self, position):
                self._links[position].operator.open()
            self.phase = "process"
            when_open(position)
        self._working_aside = tuple(o for o in self.operators if provides(o, WorksAside))

    @property
    def accepts_rows(self) -> bool:
        """Whether every operator has room for more input."""
        return all(operator.accepts_rows for operator in self._working_aside)

    @property
    def is_at_rest(self) -> bool:
        """Whether no operator has rows under way somewhere else."""
        return all(operator.is_at_rest for operator in self._working_aside)

    def process_batch(self, batch: RecordBatch, input_index: int) -> None:
        """Rows for the head."""
        self._functions.enter()
        head = self._links[0]
        head.metrics.counter("numRecordsIn").inc(batch.num_rows)
        if not self._environment.settings.object_reuse:
            batch = copied(batch)
        self.activity.enter(0)
        try:
            if batch.watermarks is None:
                head.operator.process_batch(batch, input_index)
            else:
                process_with_watermarks(
                    head.operator, batch, input_index, exact=self._vertex.operators[0].exact_watermarks
                )
        except BaseException as error:
            self.note_failure(0, error)
            raise

    def process_event(self, event: Watermark | WatermarkStatus | LatencyMarker, input_index: int) -> None:
        """A watermark, status or probe for the head."""
        self._functions.enter()
        head = self._links[0].operator
        with _Noting(self, 0):
            if isinstance(event, Watermark):
                head.process_watermark(event, input_index)
            elif isinstance(event, WatermarkStatus):
                head.process_status(event, input_index)
            else:
                self.head_output.record_latency(event)
                head.process_latency_marker(event)

    def end_keys(self) -> None:
        """The head, whose inputs are sorted, gets no more rows of the keys that were."""
        self._functions.enter()
        head = self._links[0].operator
        assert isinstance(head, EndsKeys)
        with _Noting(self, 0):
            head.end_keys()

    def entry(self, position: int) -> ChainEntry:
        """Gives rows to an operator behind the head directly."""
        return ChainEntry(self._targets[position])

    def call(self, position: int, action: Callable[[], None]) -> None:
        """Do something else with an operator; a failure counts as its own."""
        self._functions.enter()
        with _Noting(self, position):
            action()

    def end_input(self, input_index: int) -> None:
        """One input of the head ended."""
        self._functions.enter()
        self.phase = "end_input"
        with _Noting(self, 0):
            self._links[0].operator.end_input(input_index)
        self.phase = "process"

    def finish(self) -> None:
        """All inputs ended: finish from head to tail; each operator learns that its input ended once the one before is finished."""
        self._functions.enter()
        self.is_finishing = True
        try:
            for position, link in enumerate(self._links):
                with _Noting(self, position):
                    if position > 0:
                        self.phase = "end_input"
                        link.operator.end_input()
                    self.phase = "finish"
                    link.operator.finish()
        finally:
            self.is_finishing = False

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Have every operator flush what must not be in the snapshot, head to tail; before the barrier goes downstream.

        Raises:
            SnapshotDeclined: an operator raised before it had emitted anything. It may have flushed a part of what it had to.
            Exception: an operator raised while or after emitting, or one that it emitted to did: the task has failed.
        """
        self.phase = "snapshot"
        for position, link in enumerate(self._links):
            sent = link.rows_sent
            try:
                with _Noting(self, position):
                    link.operator.prepare_snapshot(checkpoint_id)
            except JobCancelledError:
                raise
            except Exception as error:
                if link.rows_sent != sent:
                    raise
                raise self._declined(link, error) from error
        self.phase = "process"

    def snapshot_state(self, checkpoint_id: int) -> list[OperatorSnapshot]:
        """What each operator remembers, head first.

        Raises:
            SnapshotDeclined: an operator raised.
        """
        self.phase = "snapshot"
        snapshots = []
        for position, link in enumerate(self._links):
            try:
                with _Noting(self, position):
                    snapshots.append(link.operator.snapshot_state(checkpoint_id))
            except JobCancelledError:
                raise
            except Exception as error:
                raise self._declined(link, error) from error
        self.phase = "process"
        return snapshots

    def notify_checkpoint(self, checkpoint_id: int, *, complete: bool) -> None:
        """Tell every operator, head first, that a checkpoint is complete, or was aborted."""
        self.phase = "notify_checkpoint_complete" if complete else "notify_checkpoint_aborted"
        for position, link in enumerate(self._links):
            with _Noting(self, position):
                if complete:
                    link.operator.notify_checkpoint_complete(checkpoint_id)
                else:
                    link.operator.notify_checkpoint_aborted(checkpoint_id)
        self.phase = "process"

    def close(self) -> list[OperatorFailure]:
        """Close every operator, then the users' functions, whatever the others raise; gives what they raised. Idempotent."""
        if self._closed:
            return []
        self._closed = True
        failures = []
        for position, link in enumerate(self._links):
            self.activity.call(position)
            try:
                link.operator.close()
            except Exception as error:
                failures.append(OperatorFailure(link.name, "close", error))
        names = ", ".join(link.name for link in self._links)
        failures += [OperatorFailure(names, "close", error) for error in self._functions.close()]
        return failures

    def note_failure(self, position: int, error: BaseException) -> None:
        """An operator raised: the first to see an exception is where it comes from, those above it only pass it on."""
        if isinstance(error, JobCancelledError):
            return
        if self.failure is None or self.failure.error is not error:
            self.failure = OperatorFailure(self.name_of(position), self.phase, error)

    def _declined(self, link: _Link, error: Exception) -> SnapshotDeclined:
        self.failure = None  # the task goes on
        self.phase = "process"
        return SnapshotDeclined(link.name, error)

    def name_of(self, position: int) -> str:
        """The name of an operator that may not exist yet."""
        return self._vertex.operators[position].name

    def _output(self, position: int) -> OperatorOutput:
        output = self._links[position].output
        assert output is not None
        return output

    def _build_output(self, position: int) -> OperatorOutput:
        main: list[Target] = []
        side: dict[str, list[Target]] = {}
        for edge in self._vertex.chain_edges:
            if edge.source == position:
                if edge.target <= position:
                    raise InternalError(
                        f"chain '{self._vertex.name}' has an edge back from {position} to {edge.target}"
                    )
                kind = ChainTarget if self._environment.settings.object_reuse else CopyingChainTarget
                link = self._links[edge.target]
                target = kind(
                    link.operator,
                    edge.target,
                    position,
                    self._output(edge.target),
                    link.metrics,
                    self.note_failure,
                    self.activity,
                    exact_watermarks=self._vertex.operators[edge.target].exact_watermarks,
                )
                self._targets[edge.target] = target
                (main if edge.tag is None else side.setdefault(edge.tag.name, [])).append(target)
        for output in self._vertex.output_edges:
            if output.source == position:
                writer = WriterTarget(self._writers[output.result], exact_watermarks=output.exact_watermarks)
                (main if output.tag is None else side.setdefault(output.tag.name, [])).append(writer)
        return OperatorOutput(
            main,
            side,
            self._links[position].metrics,
            self._environment.clock,
            batch_mode=self._environment.settings.batch_mode,
        )

    def _context(self, position: int) -> OperatorContext:
        chained, environment, vertex = self._vertex.operators[position], self._environment, self._vertex
        return OperatorContext(
            operator_id=chained.operator_id,
            name=chained.name,
            uid=chained.uid,
            subtask=environment.subtask,
            parallelism=vertex.parallelism,
            max_parallelism=vertex.max_parallelism,
            key_groups=key_group_range(environment.subtask, vertex.parallelism, vertex.max_parallelism),
            clock=environment.clock,
            processing_time=_OperatorTimeService(environment.processing_time, self, position),
            metrics=self._links[position].metrics,
            execute=lambda mail: environment.execute(lambda: self.call(position, mail)),
            object_reuse=environment.settings.object_reuse,
            unbounded=environment.settings.unbounded,
            pause=environment.pause,
            job_id=environment.job_id,
            checkpointing=environment.settings.checkpoint is not None,
            owner=environment.lineage,
            first_checkpoint_id=environment.first_checkpoint_id,
            staging=environment.staging,
            exact_watermarks=chained.exact_watermarks,
            exact_behind=chained.exact_behind,
            sorted_inputs=chained.sorted_inputs,
            speaks_for_all=environment.subtask == 0
            if environment.speaks_for_all is None
            else environment.speaks_for_all,
        )


def _create(chained: ChainedOperator) -> StreamOperator:
    if chained.sorted_inputs and batch_form(chained.factory) is BatchForm.BY_KEYS:
        # Imported here: it is for batch mode alone.
        from flowrun.operators.by_keys import OperatorByKeys

        return OperatorByKeys(chained.factory, len(chained.state_keys or ()))
    return create_operator(chained.factory)


class _Noting:
    """Notes which operator is at work, and which one raised, around one call."""

    __slots__ = ("_chain", "_position")

    def __init__(self, chain: OperatorChain, position: int) -> None:
        self._chain = chain
        self._position = position

    def __enter__(self) -> None:
        self._chain.activity.call(self._position)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._chain.activity.rest()
        if error is not None:
            self._chain.note_failure(self._position, error)


class _OperatorTimeService:
    """The subtask's processing time as one operator sees it: what its callbacks raise is noted as its own."""

    def __init__(self, service: ProcessingTimeService, chain: OperatorChain, position: int) -> None:
        self._service = service
        self._chain = chain
        self._position = position

    def now_ms(self) -> int:
        return self._service.now_ms()

    def register(self, timestamp_ms: int, callback: Callable[[int], None]) -> TimerHandle:
        return self._service.register(timestamp_ms, lambda due: self._chain.call(self._position, lambda: callback(due)))
