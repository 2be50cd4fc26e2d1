"""Transformations to be shown: what was stated, before anything is resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from flowrun.graph.explain.drawing import (
    Arrow,
    Box,
    Drawing,
    Format,
    counted,
    partitioner_label,
    render_drawing,
    resource_facts,
)
from flowrun.graph.transformation import (
    CoFeedbackTransformation,
    FeedbackTransformation,
    MultiInputTransformation,
    OneInputTransformation,
    PartitionTransformation,
    PhysicalTransformation,
    SideOutputTransformation,
    SinkTransformation,
    Transformation,
    TwoInputTransformation,
)


def walk_transformations(roots: Sequence[Transformation]) -> Iterator[Transformation]:
    """Every transformation that the roots reach, once, inputs before their readers (feedback edges last), in a stable order."""
    seen: set[Transformation] = set()
    waiting = list(reversed(roots))
    while waiting:
        stack: list[tuple[Transformation, bool]] = [(waiting.pop(), False)]
        while stack:
            current, inputs_done = stack.pop()
            if inputs_done:
                yield current
                if isinstance(current, FeedbackTransformation | CoFeedbackTransformation):
                    waiting[:0] = reversed(current.feedback_edges)
            elif current not in seen:
                seen.add(current)
                stack.append((current, True))
                stack += ((i, False) for i in reversed(current.inputs))


def render_transformations(name: str, sinks: Sequence[Transformation], output: Format = Format.TEXT) -> str:
    """The transformations of job `name` that `sinks` reach."""
    return render_drawing(_draw(name, sinks), output)


def _draw(name: str, roots: Sequence[Transformation]) -> Drawing:
    """The transformations of a job."""
    order = list(walk_transformations(roots))
    numbers = {transformation: number for number, transformation in enumerate(order, start=1)}
    physical = sum(isinstance(t, PhysicalTransformation) for t in order)
    boxes = tuple(_box(t, numbers) for t in order)
    facts = (counted(len(order), "transformation"), f"{physical} physical, {len(order) - physical} virtual")
    document = {"name": name, "transformations": [_json(t, numbers) for t in order]}
    return Drawing(f"Transformations of '{name}'", facts, boxes, document)


def kind_of(transformation: Transformation) -> str:
    """The kind in words: `one input`, `side output`."""
    name = type(transformation).__name__.removesuffix("Transformation")
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()


def operator_name(factory: object) -> str:
    """The operator that a factory makes, as a user may know it: `SliceWindow`."""
    return type(factory).__name__.removesuffix("Factory")


def _settings(transformation: Transformation) -> dict[str, Any]:
    """What was set on the transformation itself."""
    given = {
        "uid": transformation.uid,
        "user_hash": transformation.user_hash,
        "parallelism": transformation.parallelism,
        "max_parallelism": transformation.max_parallelism,
        "buffer_timeout_ms": transformation.buffer_timeout_ms,
        "slot_sharing_group": transformation.slot_sharing_group,
        "co_location_key": transformation.co_location_key,
    }
    if isinstance(transformation, PhysicalTransformation) and transformation.chaining is not None:
        given["chaining"] = transformation.chaining.value
    return {key: value for key, value in given.items() if value is not None}


def _keys(transformation: Transformation) -> list[list[str]]:
    """Names of the key columns an input, if the operator is keyed."""
    match transformation:
        case OneInputTransformation(state_keys=keys) | SinkTransformation(state_keys=keys) if keys is not None:
            keys_per_input: tuple[tuple[int, ...], ...] = (keys,)
        case TwoInputTransformation(state_keys=keys) | MultiInputTransformation(state_keys=keys) if keys is not None:
            keys_per_input = keys
        case _:
            return []
    inputs = zip(transformation.inputs, keys_per_input, strict=True)
    return [[stream.schema.names[k] for k in keys] for stream, keys in inputs]


def _property(transformation: Transformation) -> dict[str, Any]:
    """What only this kind of transformation has."""
    match transformation:
        case PartitionTransformation(partitioner=partitioner):
            return {"partitioner": partitioner_label(partitioner, transformation.schema)}
        case SideOutputTransformation(tag=tag):
            return {"tag": tag.name}
        case FeedbackTransformation(wait_ms=wait_ms) | CoFeedbackTransformation(wait_ms=wait_ms):
            return {"wait_ms": wait_ms}
        case PhysicalTransformation(factory=factory):
            return {"operator": operator_name(factory)}
        case _:
            return {}


def _box(transformation: Transformation, numbers: dict[Transformation, int]) -> Box:
    facts = [f"{key.replace('_', ' ')} {value}" for key, value in _property(transformation).items()]
    facts += (f"keyed by {', '.join(keys) or 'nothing'}" for keys in _keys(transformation))
    facts += (f"{key.replace('_', ' ')} {value}" for key, value in _settings(transformation).items())
    facts += resource_facts(transformation.min_resources, transformation.preferred_resources)
    feedback = getattr(transformation, "feedback_edges", ())
    return Box(
        number=numbers[transformation],
        title=transformation.name,
        kind=kind_of(transformation),
        facts=tuple(facts),
        details=(f"columns {transformation.schema}",),
        arrows=(
            *(Arrow(numbers[i]) for i in transformation.inputs),
            *(Arrow(numbers[i], "feedback") for i in feedback),
        ),
        virtual=not isinstance(transformation, PhysicalTransformation),
    )


def _json(transformation: Transformation, numbers: dict[Transformation, int]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": numbers[transformation],
        "type": kind_of(transformation),
        "name": transformation.name,
        "inputs": [numbers[i] for i in transformation.inputs],
        **_property(transformation),
        **_settings(transformation),
        "schema": {field.name: str(field.type) for field in transformation.schema},
    }
    if keys := _keys(transformation):
        shown["state_keys"] = keys
    feedback = getattr(transformation, "feedback_edges", ())
    if feedback:
        shown["feedback"] = [numbers[i] for i in feedback]
    return shown
