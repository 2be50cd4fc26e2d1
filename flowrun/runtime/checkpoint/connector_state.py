"""The JSON that sources and sinks keep in a checkpoint, compared with what they declare before they see it.

What a split enumerator remembers is a member of the metadata; positions of splits and committables are texts in files of operator state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from flowrun.api.sink import DeclaresCommittables, Sink
from flowrun.api.source import DeclaresSourceState, Source
from flowrun.core.shapes import Shape, ShapeError, anything, boolean, integer, mapping, members, optional, text
from flowrun.errors import StateError
from flowrun.graph.job_graph import ChainedOperator
from flowrun.state.checkpoints import OperatorMetadata
from flowrun.state.committables import COMMITTABLES, read_committables

SPLITS = "splits"
"""Name of the operator state in which sources keep the splits that they are reading."""

_time = integer(-(2**63))
_split = members(
    {"split_id": text, "position": text},
    later={"event_time": optional(_time), "watermark": optional(_time), "idle": optional(boolean), "until": optional(_time)},
)  # fmt: skip


def connector_state_problems(operator: ChainedOperator, saved: OperatorMetadata) -> list[str]:
    """What a source or sink of the pipeline cannot restore from: the first place where its JSON is not as declared, in words."""
    try:
        if operator.source is not None:
            _check_source(operator.source, saved)
        if operator.sink is not None:
            _check_sink(operator.sink, saved)
    except ShapeError as error:
        return [str(error)]
    except StateError as error:
        return [error.message]
    return []


def _check_source(source: Source, saved: OperatorMetadata) -> None:
    declared = source if isinstance(source, DeclaresSourceState) else None
    if saved.enumerator is not None and declared is not None:
        declared.enumerator_shape(saved.enumerator, "enumerator")
    shape: Shape = mapping(anything) if declared is None else declared.position_shape
    for place, row in _rows(saved, SPLITS):
        _split(row, place)
        shape(_parsed(row["position"], f"{place}.position"), f"{place}.position")


def _check_sink(sink: Sink, saved: OperatorMetadata) -> None:
    shape = sink.committable_shape if isinstance(sink, DeclaresCommittables) else anything
    for number, subtask in sorted(saved.subtasks.items()):
        if COMMITTABLES in subtask.operator:
            for row, (_, committable) in enumerate(read_committables(subtask.operator[COMMITTABLES])):
                shape(committable.payload, f"{COMMITTABLES}.{number}[{row}].payload")


def _rows(saved: OperatorMetadata, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, subtask in sorted(saved.subtasks.items()):
        if name in subtask.operator:
            for row, content in enumerate(subtask.operator[name].rows.to_pylist()):
                yield f"{name}.{number}[{row}]", content


def _parsed(content: str, place: str) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise ShapeError(place, "JSON", content) from None
