"""A checkpoint's metadata from its parts: what subtasks acknowledged, what the job master holds, and what the job is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from flowrun import __version__
from flowrun.api.sink import Committable
from flowrun.api.source import JsonValue
from flowrun.core.elements import CheckpointOptions
from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.graph.job_graph import ChainedOperator, JobGraph, JobVertex
from flowrun.runtime.checkpoint.events import StoreCheckpoint
from flowrun.state.checkpoints import (
    CheckpointMetadata,
    OperatorMetadata,
    OperatorSubtaskState,
    PipelineText,
)
from flowrun.state.commit_log import Fork, LoggedCommit
from flowrun.state.committables import COMMITTABLES, committables_state, read_committables


@record
class JobIdentity:
    """What every checkpoint of a run says of its job; fields as in `CheckpointMetadata`."""

    lineage: str
    job_folder: str
    pipeline: PipelineText | None
    job_graph_json: JsonValue
    ancestors: tuple[Fork, ...] = ()


@record
class StartedCheckpoint:
    """A checkpoint whose barriers are on their way.

    Attributes:
        trigger_ms: processing time, epoch ms.
        options: with the target.
        enumerators: operator id of a source → its enumerator's snapshot.
        hooks: name of a master hook → what it asked to be remembered.
    """

    trigger_ms: int
    options: CheckpointOptions
    enumerators: Mapping[str, JsonValue] = field(default_factory=dict)
    hooks: Mapping[str, JsonValue] = field(default_factory=dict)


Held = Mapping[tuple[str, int], Sequence[Committable]]
"""(operator id, subtask) → the committables that a finished sink subtask left."""


def assemble(
    job_graph: JobGraph,
    identity: JobIdentity,
    started: StartedCheckpoint,
    command: StoreCheckpoint,
    held: Held,
    completed_ms: int,
) -> CheckpointMetadata:
    """The metadata of a checkpoint that every subtask has acknowledged or finished before.

    Args:
        job_graph: that runs.
        identity: of the run.
        started: how the checkpoint began.
        command: what the subtasks acknowledged, and which had finished.
        held: committables of subtasks that had finished, and those of running ones that are being committed.
        completed_ms: now, epoch ms.
    """
    checkpoint_id = command.checkpoint_id
    operators = {
        operator.operator_id: _operator(vertex, operator, started, command, held)
        for vertex in job_graph.vertices
        for operator in vertex.operators
    }
    snapshots = [command.snapshots[v] for v in sorted(command.snapshots)]
    in_flight = tuple(i for s in snapshots for i in s.in_flight)
    progress = tuple(p for s in snapshots for p in s.progress)
    files = {f.path: f.size for s in snapshots for f in s.files}
    return CheckpointMetadata(
        checkpoint_id=checkpoint_id,
        kind=started.options.kind,
        triggered_ms=started.trigger_ms,
        completed_ms=completed_ms,
        job_name=job_graph.name,
        lineage=identity.lineage,
        job_folder=identity.job_folder,
        flowrun_version=__version__,
        pipeline=identity.pipeline,
        job_graph=identity.job_graph_json,
        operators=operators,
        in_flight=in_flight,
        progress=progress,
        state_bytes=sum(files.values()),
        written_bytes=sum(s.figures.written_bytes for s in snapshots),
        unaligned=bool(in_flight or progress),
        drained=started.options.stop and started.options.drain,
        hooks=started.hooks,
        ancestors=identity.ancestors,
    )


def pending_commits(metadata: CheckpointMetadata) -> dict[str, tuple[Committable, ...]]:
    """Operator id → what its sink had written and not committed, by checkpoint and old subtask: all of it is to be committed."""
    pending: dict[str, tuple[Committable, ...]] = {}
    for operator_id, saved in metadata.operators.items():
        entries = [
            entry
            for _, subtask in sorted(saved.subtasks.items())
            if COMMITTABLES in subtask.operator
            for entry in read_committables(subtask.operator[COMMITTABLES])
        ]
        if entries:
            entries.sort(key=lambda e: e[0])
            pending[operator_id] = tuple(committable for _, committable in entries)
    return pending


def logged_commits(metadata: CheckpointMetadata) -> list[LoggedCommit]:
    """What becomes visible once a checkpoint is complete, as its job's folder logs it."""
    return [
        LoggedCommit(metadata.checkpoint_id, operator_id, metadata.operators[operator_id].name, committables)
        for operator_id, committables in pending_commits(metadata).items()
    ]


def _operator(
    vertex: JobVertex, operator: ChainedOperator, started: StartedCheckpoint, command: StoreCheckpoint, held: Held
) -> OperatorMetadata:
    operator_id = operator.operator_id
    subtasks: dict[int, OperatorSubtaskState] = {}
    ended = 0
    for subtask in range(vertex.parallelism):
        snapshot = command.snapshots.get(ExecutionVertexId(vertex.vertex_id, subtask))
        left = held.get((operator_id, subtask), ())
        if snapshot is not None:
            state = next((o for o in snapshot.operators if o.operator_id == operator_id), None)
            if left:
                state = _with_uncommitted(state, operator_id, command.checkpoint_id, left)
        else:
            ended += 1
            state = _left_behind(operator_id, command.checkpoint_id, left)
        if state is not None and not state.is_empty:
            subtasks[subtask] = state
    finished = ended == vertex.parallelism
    return OperatorMetadata(
        operator_id,
        operator.uid,
        operator.name,
        vertex.vertex_id,
        vertex.parallelism,
        vertex.max_parallelism,
        subtasks,
        finished,
        started.enumerators.get(operator_id),
    )


def _with_uncommitted(
    state: OperatorSubtaskState | None, operator_id: str, checkpoint_id: int, held: Sequence[Committable]
) -> OperatorSubtaskState | None:
    """What is being committed goes before what the subtask has pre-committed since, as it has to be committed first."""
    if state is None:
        return _left_behind(operator_id, checkpoint_id, held)
    own = read_committables(state.operator[COMMITTABLES]) if COMMITTABLES in state.operator else []
    named = {c.commit_id for _, c in own}
    first = min((at for at, _ in own), default=checkpoint_id)
    entries = [*((first, c) for c in held if c.commit_id not in named), *own]
    return replace(state, operator={**state.operator, COMMITTABLES: committables_state(entries)})


def _left_behind(
    operator_id: str, checkpoint_id: int, committables: Sequence[Committable]
) -> OperatorSubtaskState | None:
    if not committables:
        return None
    state = committables_state((checkpoint_id, c) for c in committables)
    return OperatorSubtaskState(operator_id, operator={COMMITTABLES: state})
