"""A stream graph to be shown; its JSON follows Apache Flink's execution plan (nodes with predecessors and ship strategies)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowrun.graph.chaining import chaining_obstacles
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
from flowrun.graph.explain.transformations import operator_name
from flowrun.graph.hasher import operator_ids
from flowrun.graph.stream_graph import NodeKind, StreamEdge, StreamGraph, StreamNode

_PACT = {
    NodeKind.SOURCE: "Data Source",
    NodeKind.SINK: "Data Sink",
    NodeKind.ITERATION_HEAD: "Iteration Head",
    NodeKind.ITERATION_TAIL: "Iteration Tail",
}
ID_DIGITS = 8
"""Digits of an operator id that are shown to people."""


def render_stream_graph(graph: StreamGraph, output: Format = Format.TEXT) -> str:
    """A stream graph. Raises `PipelineError` if two operators have one uid."""
    return render_drawing(_draw(graph), output)


def _draw(graph: StreamGraph) -> Drawing:
    """The nodes and edges of a stream graph, with what chaining will make of them.

    Raises:
        PipelineError: two operators have one uid.
    """
    ids = operator_ids(graph)
    settings = graph.settings
    facts = (
        counted(len(graph.nodes), "node"),
        counted(len(graph.edges), "edge"),
        settings.mode.value,
        f"chaining {'on' if settings.chaining else 'off'}",
        f"{'unbounded' if settings.job.unbounded else 'bounded'}",
    )
    boxes = tuple(_box(node, graph, ids) for node in graph.nodes)
    document = {"name": graph.name, "nodes": [_json(node, graph, ids) for node in graph.nodes]}
    return Drawing(f"StreamGraph '{graph.name}'", facts, boxes, document)


def parallelism_fact(parallelism: int, max_parallelism: int) -> str:
    """E.g. `parallelism 2 (max 128)`."""
    return f"parallelism {parallelism} (max {max_parallelism})"


def _keys(node: StreamNode, graph: StreamGraph) -> list[list[str]]:
    """Names of the key columns an input, if the operator is keyed."""
    schemas = {edge.input_index: edge.schema for edge in graph.in_edges(node.id)}
    return [[schemas[index].names[key] for key in keys] for index, keys in enumerate(node.state_keys or ())]


def _box(node: StreamNode, graph: StreamGraph, ids: Mapping[int, str]) -> Box:
    facts = [parallelism_fact(node.parallelism, node.max_parallelism)]
    if node.factory is not None:
        facts.append(f"operator {operator_name(node.factory)}")
    facts += (f"keyed by {', '.join(keys) or 'nothing'}" for keys in _keys(node, graph))
    if node.sorted_inputs:
        facts.append("sorted by key")
    facts.append(f"slot group {node.slot_sharing_group}")
    if node.co_location_key is not None:
        facts.append(f"co-located {node.co_location_key}")
    facts += resource_facts(node.min_resources, node.preferred_resources)
    if node.uid is not None:
        facts.append(f"uid {node.uid}")
    facts.append(f"id {ids[node.id][:ID_DIGITS]}")
    return Box(
        number=node.id,
        title=node.name,
        kind=node.kind.value,
        facts=tuple(facts),
        details=(f"columns {node.schema}",),
        arrows=tuple(_arrow(edge, graph) for edge in graph.in_edges(node.id)),
    )


def _arrow(edge: StreamEdge, graph: StreamGraph) -> Arrow:
    label = partitioner_label(edge.partitioner, edge.schema)
    if edge.tag is not None:
        label += f" side output {edge.tag.name}"
    obstacles = chaining_obstacles(edge, graph)
    facts = [edge.exchange.value]
    if len(graph.in_edges(edge.target)) > 1:
        facts.insert(0, f"input {edge.input_index}")
    facts.append("chained" if not obstacles else f"not chained: {'; '.join(o.otherwise for o in obstacles)}")
    return Arrow(edge.source, label, tuple(facts))


def _json(node: StreamNode, graph: StreamGraph, ids: Mapping[int, str]) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": node.id,
        "type": node.name,
        "pact": _PACT.get(node.kind, "Operator"),
        "contents": operator_name(node.factory) if node.factory is not None else node.kind.value,
        "parallelism": node.parallelism,
        "max_parallelism": node.max_parallelism,
        "slot_sharing_group": node.slot_sharing_group,
        "chaining": node.chaining.value,
        "operator_id": ids[node.id],
        "schema": {field.name: str(field.type) for field in node.schema},
    }
    for key in ("uid", "co_location_key"):
        if getattr(node, key) is not None:
            shown[key] = getattr(node, key)
    if keys := _keys(node, graph):
        shown["state_keys"] = keys
    if node.sorted_inputs:
        shown["sorted_inputs"] = True
    if edges := graph.in_edges(node.id):
        shown["predecessors"] = [_predecessor(edge, graph) for edge in edges]
    return shown


def _predecessor(edge: StreamEdge, graph: StreamGraph) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": edge.source,
        "edge_id": edge.edge_id,
        "ship_strategy": partitioner_label(edge.partitioner, edge.schema),
        "side": ("first", "second")[edge.input_index] if edge.input_index < 2 else str(edge.input_index + 1),
        "exchange": edge.exchange.value,
        "chained": not chaining_obstacles(edge, graph),
        "buffer_timeout_ms": edge.buffer_timeout_ms,
    }
    if edge.tag is not None:
        shown["side_output"] = edge.tag.name
    return shown
