"""What is remembered of each checkpoint for people: what it took, vertex by vertex and operator by operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from flowrun.core.record import record
from flowrun.graph.execution_graph import ExecutionVertexId
from flowrun.state.checkpoints import OperatorSubtaskState, SubtaskSnapshot

COMPLETED = "completed"
FAILED = "failed"
IN_PROGRESS = "in progress"
ABANDONED = "abandoned"


@record
class CheckpointedOperator:
    """What one operator has in a checkpoint.

    Attributes:
        operator_id: its stable hash.
        state_bytes: of the files that hold its keyed state.
        state_rows: rows in these files, deleted ones and those that later files replace included.
    """

    operator_id: str
    state_bytes: int
    state_rows: int


@record
class CheckpointedVertex:
    """What the subtasks of one vertex took for a checkpoint: sums of bytes, the longest of durations (ms).

    Attributes:
        vertex_id: of the vertex.
        acknowledged: how many of its subtasks have written their snapshots.
        state_bytes: of all files that the snapshots name.
        written_bytes: of files that did not exist before.
        in_flight_bytes: of rows between subtasks, of unaligned checkpoints.
        synchronous_ms: in which a subtask processed nothing.
        asynchronous_ms: of writing beside processing.
        alignment_ms: from a subtask's first barrier to its last.
        operators: those with keyed state.
    """

    vertex_id: str
    acknowledged: int
    state_bytes: int = 0
    written_bytes: int = 0
    in_flight_bytes: int = 0
    synchronous_ms: float = 0.0
    asynchronous_ms: float = 0.0
    alignment_ms: float = 0.0
    operators: tuple[CheckpointedOperator, ...] = ()


@record
class CheckpointRecord:
    """One checkpoint or savepoint.

    Attributes:
        checkpoint_id: its number.
        kind: `checkpoint` or `savepoint`.
        status: `in progress`, `completed`, `failed`, or `abandoned`: a newer one or a restart made it superfluous.
        triggered_ms: when it began, epoch ms.
        duration_ms: until it ended; so far, if it is under way.
        subtasks: how many have to take part.
        acknowledged: how many have written their snapshots, or had finished.
        path: of one that is complete.
        failure: why it failed or was abandoned.
        vertices: what its subtasks took.
    """

    checkpoint_id: int
    kind: str
    status: str
    triggered_ms: int
    duration_ms: float
    subtasks: int
    acknowledged: int
    path: str | None = None
    failure: str | None = None
    vertices: tuple[CheckpointedVertex, ...] = field(default_factory=tuple)

    @property
    def state_bytes(self) -> int:
        """Of all files that it names."""
        return sum(vertex.state_bytes for vertex in self.vertices)


def vertex_records(snapshots: Mapping[ExecutionVertexId, SubtaskSnapshot]) -> tuple[CheckpointedVertex, ...]:
    """What the subtasks took that have acknowledged, by vertex, in the order of their names."""
    grouped: dict[str, list[SubtaskSnapshot]] = {}
    for vertex in sorted(snapshots):
        grouped.setdefault(vertex.vertex_id, []).append(snapshots[vertex])
    return tuple(_vertex(vertex_id, group) for vertex_id, group in grouped.items())


def _vertex(vertex_id: str, snapshots: list[SubtaskSnapshot]) -> CheckpointedVertex:
    figures = [snapshot.figures for snapshot in snapshots]
    return CheckpointedVertex(
        vertex_id,
        len(snapshots),
        state_bytes=sum(f.state_bytes for f in figures),
        written_bytes=sum(f.written_bytes for f in figures),
        in_flight_bytes=sum(f.in_flight_bytes for f in figures),
        synchronous_ms=max(f.synchronous_ms for f in figures),
        asynchronous_ms=max(f.asynchronous_ms for f in figures),
        alignment_ms=max(f.alignment_ms for f in figures),
        operators=_operators(state for snapshot in snapshots for state in snapshot.operators),
    )


def _operators(states: Iterable[OperatorSubtaskState]) -> tuple[CheckpointedOperator, ...]:
    sums: dict[str, tuple[int, int]] = {}
    for state in states:
        files = {r.file.path: r.file for table in state.keyed.values() for r in table.files}
        if files:
            size, rows = sums.get(state.operator_id, (0, 0))
            sums[state.operator_id] = (
                size + sum(f.size for f in files.values()),
                rows + sum(f.rows for f in files.values()),
            )
    return tuple(CheckpointedOperator(operator_id, *total) for operator_id, total in sums.items())
