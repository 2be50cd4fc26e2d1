"""Whether a pipeline can restore from a checkpoint or savepoint, and what becomes of each operator's state.

The rules (docs/guide.md, "the savepoint rules"): operators are found again by their uid, or without one by their structure. Order,
parallelism and everything stateless may change. An operator that is new starts empty; state whose operator is gone is an error
unless the user allows to leave it behind. Nullable columns may be added to state tables. The number of key groups is the
savepoint's, whatever the pipeline would derive from its parallelism.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowrun.core.elements import CheckpointKind
from flowrun.graph.job_graph import ChainedOperator, JobGraph, JobVertex
from flowrun.runtime.checkpoint.comparison import Comparison, OperatorComparison, Problem, StateChange
from flowrun.runtime.checkpoint.in_flight_compatibility import in_flight_problems
from flowrun.runtime.checkpoint.operator_compatibility import (
    Recorded,
    common_operator,
    dropped_operator,
    has_state,
    is_keyed,
    new_operator,
)
from flowrun.runtime.checkpoint.recorded_graph import recorded_accumulators, recorded_exchanges, recorded_meanings
from flowrun.state.checkpoints import CheckpointMetadata, OperatorMetadata

__all__ = ["Comparison", "OperatorComparison", "Problem", "StateChange", "compare"]


def compare(metadata: CheckpointMetadata, job_graph: JobGraph) -> Comparison:
    """What would happen if `job_graph` restored from a checkpoint; reads nothing but these two values.

    Run `Comparison.job_graph` afterwards: it has the checkpoint's number of key groups where the user did not set one.
    """
    vertices = tuple(_with_key_groups(v, metadata) for v in job_graph.vertices)
    adopted = replace(job_graph, vertices=vertices)
    meanings = recorded_meanings(metadata.job_graph)
    accumulators = recorded_accumulators(metadata.job_graph)
    present = {o.operator_id for v in vertices for o in v.operators}
    stateful = {o.operator_id: o for o in metadata.operators.values() if has_state(o)}
    dropped = [o for o in stateful.values() if o.operator_id not in present]
    newcomers = [o for v in vertices for o in v.operators if o.operator_id not in stateful]
    finished = _finished_vertices(metadata, adopted)
    operators = []
    for vertex, given in zip(vertices, job_graph.vertices, strict=True):
        for operator in vertex.operators:
            saved = metadata.operators.get(operator.operator_id)
            compared = (
                common_operator(
                    operator,
                    vertex,
                    saved,
                    Recorded(meanings.get(operator.operator_id, {}), accumulators.get(operator.operator_id, {})),
                )
                if saved is not None and operator.operator_id in stateful
                else new_operator(operator, vertex, saved, dropped)
            )
            problems = _key_group_problems(operator, saved, given, vertex)
            if saved is not None and saved.finished:
                compared = _ended(compared, operator, vertex, vertex.vertex_id in finished)
            operators.append(_with_problems(compared, problems))
    operators += [dropped_operator(saved, newcomers) for saved in dropped]
    return Comparison(
        _title(metadata),
        tuple(operators),
        adopted,
        in_flight_problems(metadata, adopted, recorded_exchanges(metadata.job_graph)),
        tuple(_warnings(metadata, job_graph)),
    )


def _with_key_groups(vertex: JobVertex, metadata: CheckpointMetadata) -> JobVertex:
    """A vertex with the number of key groups that the keyed state of its operators was taken with, unless the user set one."""
    saved = [metadata.operators.get(o.operator_id) for o in vertex.operators if is_keyed(o)]
    counts = [s.max_parallelism for s in saved if s is not None and has_state(s)]
    if not counts or vertex.max_parallelism_given:
        return vertex
    return replace(vertex, max_parallelism=counts[0])


def _key_group_problems(
    operator: ChainedOperator, saved: OperatorMetadata | None, given: JobVertex, vertex: JobVertex
) -> list[Problem]:
    """What is wrong with the number of key groups of an operator; `given` is its vertex as the user wants it, `vertex` with what the
    checkpoint imposes.
    """
    if saved is None or not is_keyed(operator) or not has_state(saved):
        return []
    name = f"'{operator.name}'"
    if vertex.max_parallelism != saved.max_parallelism:
        if given.max_parallelism_given:
            return [
                Problem(
                    f"the state of {name} has max parallelism {saved.max_parallelism}, the pipeline sets "
                    f"{vertex.max_parallelism}: keys would be looked for in other key groups",
                    f"set max_parallelism to {saved.max_parallelism}, or leave it out",
                )
            ]
        return [
            Problem(
                f"{name} shares a task with operators whose state has max parallelism {vertex.max_parallelism}; "
                f"its own state has {saved.max_parallelism}",
                "keep them apart with chaining: false on one of them",
            )
        ]
    if vertex.parallelism > saved.max_parallelism:
        return [
            Problem(
                f"{name} has parallelism {vertex.parallelism}, but its state has max parallelism "
                f"{saved.max_parallelism}: more subtasks than key groups",
                f"use a parallelism of at most {saved.max_parallelism}",
            )
        ]
    return []


def _with_problems(compared: OperatorComparison, problems: Sequence[Problem]) -> OperatorComparison:
    if not problems:
        return compared
    return replace(compared, change=StateChange.INCOMPATIBLE, problems=(*compared.problems, *problems))


def _finished_vertices(metadata: CheckpointMetadata, graph: JobGraph) -> frozenset[str]:
    """Vertices that are not run again: all their operators that the checkpoint has had come to their end, and so had what they read."""
    finished: set[str] = set()
    for vertex in graph.vertices:  # in topological order
        known = [metadata.operators[o.operator_id] for o in vertex.operators if o.operator_id in metadata.operators]
        if known and all(o.finished for o in known) and all(edge.source in finished for edge in vertex.inputs):
            finished.add(vertex.vertex_id)
    return frozenset(finished)


def _ended(
    compared: OperatorComparison, operator: ChainedOperator, vertex: JobVertex, finished: bool
) -> OperatorComparison:
    """With what becomes of an operator that had come to its end."""
    if finished:
        return replace(compared, notes=("it had come to its end: it is not run again", *compared.notes))
    if operator.source is None:
        return replace(
            compared, notes=("it had come to its end: it runs again, for rows that are new to it", *compared.notes)
        )
    others = ", ".join(f"'{o.name}'" for o in vertex.operators if o is not operator)
    problem = Problem(
        f"'{operator.name}' had been read to its end, but shares a task with operators that go on ({others}): it would be "
        "read again from its beginning",
        "keep them apart, with the parallelism they had or with chaining: false on the source",
    )
    return _with_problems(compared, [problem])


def _title(metadata: CheckpointMetadata) -> str:
    return f"{metadata.kind.value} {metadata.checkpoint_id} of '{metadata.job_name}'"


def _warnings(metadata: CheckpointMetadata, graph: JobGraph) -> list[str]:
    warnings = []
    if metadata.job_name != graph.name:
        warnings.append(f"it was taken of '{metadata.job_name}', this pipeline is '{graph.name}'")
    if metadata.drained:
        kind = "savepoint" if metadata.kind is CheckpointKind.SAVEPOINT else "checkpoint"
        warnings.append(
            f"the job was drained before this {kind}: event time had ended and open windows fired; rows that come now "
            "are late for them, or make their windows fire again"
        )
    return warnings
