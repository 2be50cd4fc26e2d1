"""What every subtask of a job restores from: a checkpoint's metadata dealt out over an execution graph, at the same or another
parallelism. Pure; the rows of keyed state are read later by the subtasks themselves.

Keyed tables go to the new subtasks whose key groups the old subtask may hold; operator state by its redistribution mode; rows in flight
to who now owns their keys. The rules are those of Apache Flink's `StateAssignmentOperation`.
"""

from __future__ import annotations

from flowrun.errors import StateError
from flowrun.graph.execution_graph import ExecutionGraph, ExecutionVertexId
from flowrun.graph.job_graph import JobVertex
from flowrun.runtime.checkpoint.in_flight import InFlightAssignment
from flowrun.runtime.messages import RestoredOperator, RestoredTask
from flowrun.state.checkpoints import CheckpointMetadata, KeyedTableState, OperatorMetadata, OperatorSubtaskState
from flowrun.state.key_groups import key_group_range
from flowrun.state.redistribution import redistribute_operator_state


def restored_tasks(
    metadata: CheckpointMetadata, root: str, graph: ExecutionGraph
) -> dict[ExecutionVertexId, RestoredTask]:
    """What each subtask restores from. Operators that the checkpoint does not have start empty.

    Args:
        metadata: of a checkpoint or savepoint that was compared with the job graph.
        root: where the paths of its files start.
        graph: to run; its vertices have the checkpoint's number of key groups where there is keyed state.

    Raises:
        StateError: key groups differ; a piece of operator state is unlike in different subtasks; rows in flight have nowhere to go.
    """
    finished = finished_vertices(metadata, graph)
    in_flight = InFlightAssignment(metadata, graph)
    restored = {}
    for job_vertex in graph.job_vertices:
        vertex = job_vertex.job_vertex
        known = [metadata.operators[o.operator_id] for o in vertex.operators if o.operator_id in metadata.operators]
        for saved in known:
            _check_key_groups(saved, vertex)
        states = {saved.operator_id: restored_operators(saved, vertex) for saved in known}
        for subtask in job_vertex.vertices:
            restored[subtask.id] = RestoredTask(
                metadata.checkpoint_id,
                root,
                {operator: each[subtask.subtask] for operator, each in states.items()},
                in_flight.channels_of(subtask),
                vertex.vertex_id in finished,
            )
    in_flight.check_all_assigned()
    return restored


def finished_vertices(metadata: CheckpointMetadata, graph: ExecutionGraph) -> frozenset[str]:
    """Vertices that had come to their end: all their known operators had, and everything that they read had.

    A finished chain that got a new input, or an operator that had not finished, runs again, with nothing to restore from.
    """
    finished: set[str] = set()
    for job_vertex in graph.job_vertices:  # in topological order
        vertex = job_vertex.job_vertex
        known = [metadata.operators[o.operator_id] for o in vertex.operators if o.operator_id in metadata.operators]
        if known and all(o.finished for o in known) and all(edge.source in finished for edge in vertex.inputs):
            finished.add(vertex.vertex_id)
    return frozenset(finished)


def restored_operators(saved: OperatorMetadata, vertex: JobVertex) -> list[RestoredOperator]:
    """The state of one operator for every subtask of its new vertex, in their order.

    Raises:
        StateError: a piece of operator state is unlike in different subtasks.
    """
    nothing = OperatorSubtaskState(saved.operator_id)
    old = [saved.subtasks.get(i, nothing) for i in range(saved.parallelism)]
    keyed: list[dict[str, list[KeyedTableState]]] = [{} for _ in range(vertex.parallelism)]
    for number, state in enumerate(old):
        groups = key_group_range(number, saved.parallelism, saved.max_parallelism)
        if state.keyed and groups.start < groups.stop:
            for subtask in range(_owner(groups.start, vertex), _owner(groups.stop - 1, vertex) + 1):
                for name, table in state.keyed.items():
                    keyed[subtask].setdefault(name, []).append(table)
    try:
        operator = redistribute_operator_state([state.operator for state in old], vertex.parallelism)
    except StateError as error:
        raise StateError(f"operator '{saved.name}': {error.message}", hint=error.hint) from error
    return [
        RestoredOperator({name: tuple(tables) for name, tables in mine.items()}, own)
        for mine, own in zip(keyed, operator, strict=True)
    ]


def _owner(group: int, vertex: JobVertex) -> int:
    """The subtask that owns a key group."""
    return group * vertex.parallelism // vertex.max_parallelism


def _check_key_groups(saved: OperatorMetadata, vertex: JobVertex) -> None:
    if saved.max_parallelism == vertex.max_parallelism or not any(s.keyed for s in saved.subtasks.values()):
        return
    raise StateError(
        f"'{saved.name}' has {vertex.max_parallelism} key groups (max parallelism), its state has {saved.max_parallelism}",
        hint=f"set max_parallelism to {saved.max_parallelism}, or leave it out",
    )
