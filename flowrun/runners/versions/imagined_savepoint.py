"""A savepoint that a pipeline could have taken, with a row in every piece of its state: so what becomes of state is told without any."""

from __future__ import annotations

import orjson

from flowrun.api.operator import DescribesState
from flowrun.core.elements import CheckpointKind
from flowrun.graph.explain import Format, render_job_graph
from flowrun.graph.job_graph import ChainedOperator, JobGraph, JobVertex
from flowrun.state.checkpoints import (
    CheckpointMetadata,
    FileReference,
    KeyedTableState,
    OperatorMetadata,
    OperatorSubtaskState,
    StateFile,
)


def imagined_savepoint(job_graph: JobGraph, other: JobGraph) -> CheckpointMetadata:
    """The metadata of such a savepoint. No file that it names exists.

    Args:
        job_graph: of the pipeline that takes it.
        other: that is to be compared with it: where both have a source, what that remembers is taken to fit.
    """
    common = frozenset(o.operator_id for v in other.vertices for o in v.operators)
    return CheckpointMetadata(
        checkpoint_id=1,
        kind=CheckpointKind.SAVEPOINT,
        triggered_ms=0,
        completed_ms=0,
        job_name=other.name,  # that a name differs is no matter of state
        lineage="",
        job_folder="",
        flowrun_version="",
        pipeline=None,
        job_graph=orjson.loads(render_job_graph(job_graph, Format.JSON)),
        operators={o.operator_id: _operator(o, v, common) for v in job_graph.vertices for o in v.operators},
    )


def _operator(operator: ChainedOperator, vertex: JobVertex, common: frozenset[str]) -> OperatorMetadata:
    schemas = operator.factory.state_schemas() if isinstance(operator.factory, DescribesState) else {}
    file = FileReference(StateFile("imagined.parquet", 0, 1, ""))
    keyed = {name: KeyedTableState(schema, (file,)) for name, schema in schemas.items()}
    return OperatorMetadata(
        operator.operator_id,
        operator.uid,
        operator.name,
        vertex.vertex_id,
        vertex.parallelism,
        vertex.max_parallelism,
        {0: OperatorSubtaskState(operator.operator_id, keyed)} if keyed else {},
        enumerator={} if operator.source is not None and operator.operator_id not in common else None,
    )
