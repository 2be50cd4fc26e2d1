"""Lowering of sinks: what they are told of the changes that they get, and rows of one key on one subtask where a sink keeps a key."""

from __future__ import annotations

from flowrun.api.changelog import ChangelogMode, ChangesTaken, changes_taken_by
from flowrun.api.sink import KeyedSink
from flowrun.api.sink import Sink as SinkDescription
from flowrun.errors import Diagnostic, OptionError, PipelineError
from flowrun.graph.transformation import SinkTransformation, Transformation
from flowrun.lowering.keyed import by_key
from flowrun.operators.factories import MeetingRows, SinkOperatorFactory
from flowrun.plan.nodes import Settings, Sink
from flowrun.plan.sink_keys import other_row_key
from flowrun.plan.superseded import why_superseded
from flowrun.plan.tables import create_sink


def lower_sink(
    node: Sink, source: Transformation, mode: ChangelogMode, settings: Settings, unbounded: bool
) -> SinkTransformation:
    """The transformation of a sink; the user's hints are not on it yet.

    A sink that writes by primary key gets its rows shuffled by it. Others get them as upstream sends them, each key's in its order.

    Args:
        node: the sink.
        source: what its input became.
        mode: of its rows.
        settings: of the job.
        unbounded: whether the job has an unbounded source.

    Raises:
        PipelineError: the options of the table do not fit after all.
    """
    name = node.hints.name or node.table.name
    try:
        sink = create_sink(node.table, node.schema, unbounded, updating=mode is not ChangelogMode.APPEND)
    except OptionError as error:
        problem = Diagnostic(
            f"sink '{node.table.name}': {error.message}", location=node.hints.location, hint=error.hint
        )
        raise PipelineError([problem]) from error
    keys = _keys(node, sink)
    if keys is not None and isinstance(sink, KeyedSink):
        _check_parallelism(node, sink, node.hints.parallelism or settings.parallelism)
    return SinkTransformation(
        name=f"Sink: {name}",
        schema=node.schema,
        factory=SinkOperatorFactory(sink, name, settings.constraints, _meeting(node, keys is not None)),
        sink=sink,
        input=source if keys is None else by_key(source, keys, name),
        state_keys=keys,
        max_parallelism=sink.key_groups if keys is not None and isinstance(sink, KeyedSink) else None,
    )


def _meeting(node: Sink, keeps_key: bool) -> MeetingRows:
    key = node.table.primary_key if keeps_key else ()
    return MeetingRows(key, other_row_key(node) if keeps_key else None, why_superseded(node) or "")


def _keys(node: Sink, sink: SinkDescription) -> tuple[int, ...] | None:
    if changes_taken_by(sink) is not ChangesTaken.UPSERT:
        return None
    return tuple(node.schema.index(k) for k in node.table.primary_key)


def _check_parallelism(node: Sink, sink: KeyedSink, parallelism: int) -> None:
    if parallelism > sink.key_groups:
        raise PipelineError(
            [
                Diagnostic(
                    f"sink '{node.table.name}': parallelism {parallelism} is more than its {sink.key_groups} "
                    f"bucket{'s'[: sink.key_groups != 1]}",
                    location=node.hints.location,
                    hint=f"raise 'sink.upsert.buckets' to {parallelism}, or lower the parallelism of the sink",
                )
            ]
        )
