"""A job graph to be shown: vertices with the tree of operators in each chain, and the data sets between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowrun.graph.explain.drawing import (
    Arrow,
    Box,
    Drawing,
    Format,
    counted,
    mermaid_arrow,
    mermaid_box,
    mermaid_text,
    partitioner_label,
    render_drawing,
    resource_facts,
)
from flowrun.graph.explain.stream import ID_DIGITS, parallelism_fact
from flowrun.graph.explain.transformations import operator_name
from flowrun.graph.job_graph import ChainedOperator, IntermediateDataSet, JobEdge, JobGraph, JobVertex, OutputEdge
from flowrun.operators.state_meanings import state_accumulators, state_meanings


def render_job_graph(graph: JobGraph, output: Format = Format.TEXT) -> str:
    """A job graph."""
    return render_drawing(_draw(graph), output)


def _draw(graph: JobGraph) -> Drawing:
    """The vertices of a job graph."""
    vertices = _Vertices(graph)
    data_sets = sum(len(v.results) for v in graph.vertices)
    operators = sum(len(v.operators) for v in graph.vertices)
    facts = (
        counted(len(graph.vertices), "vertex", "vertices"),
        counted(operators, "operator"),
        counted(data_sets, "data set"),
        counted(sum(v.parallelism for v in graph.vertices), "subtask"),
        *((counted(max(vertices.stages.values(), default=0), "stage"),) if graph.settings.batch_mode else ()),
    )
    boxes = tuple(_box(vertex, vertices) for vertex in graph.vertices)
    document: dict[str, Any] = {
        "name": graph.name,
        "settings": {
            "buffer_timeout_ms": graph.settings.buffer_timeout_ms,
            "object_reuse": graph.settings.object_reuse,
            "batch_rows": graph.settings.batch_rows,
            "latency_interval_ms": graph.settings.latency_interval_ms,
            "cancellation_timeout_ms": graph.settings.cancellation_timeout_ms,
            "memory_watch": graph.settings.memory_watch,
            "unbounded": graph.settings.unbounded,
        },
        "vertices": [_json(vertex, vertices) for vertex in graph.vertices],
    }
    if graph.slot_sharing_groups:
        document["slot_sharing_groups"] = [
            {"name": g.name, "cpu": g.cpu, "memory_bytes": g.memory} for g in graph.slot_sharing_groups
        ]
    return Drawing(f"JobGraph '{graph.name}'", facts, boxes, document, _mermaid(graph, vertices))


class _Vertices:
    """Numbers of vertices, their stages in batch mode, and the producing end of each data set."""

    def __init__(self, graph: JobGraph) -> None:
        self.number = {v.vertex_id: n for n, v in enumerate(graph.vertices, start=1)}
        self.stages = graph.stages() if graph.settings.batch_mode else {}
        self.groups = {group.name: group for group in graph.slot_sharing_groups}
        self.output: dict[str, tuple[JobVertex, OutputEdge, IntermediateDataSet]] = {}
        for vertex in graph.vertices:
            for edge in vertex.output_edges:
                result = vertex.results[edge.result]
                self.output[result.data_set_id] = (vertex, edge, result)

    def label(self, edge: JobEdge) -> str:
        """Partitioner and side output of a job edge."""
        tag = self.output[edge.data_set_id][1].tag
        return partitioner_label(edge.partitioner, edge.schema) + ("" if tag is None else f" side output {tag.name}")


def _box(vertex: JobVertex, vertices: _Vertices) -> Box:
    group = vertices.groups.get(vertex.slot_sharing_group)
    slots = f"slot group {vertex.slot_sharing_group}" + ("" if group is None else f" ({group.resources})")
    facts = [parallelism_fact(vertex.parallelism, vertex.max_parallelism), slots]
    if vertices.stages:
        facts.insert(0, f"stage {vertices.stages[vertex.vertex_id]}")
    if vertex.co_location_key is not None:
        facts.append(f"co-located {vertex.co_location_key}: one process")
    facts += resource_facts(vertex.min_resources, vertex.preferred_resources)
    facts.append(f"id {vertex.vertex_id[:ID_DIGITS]}")
    arrows = []
    for edge in vertex.inputs:
        producer, output, result = vertices.output[edge.data_set_id]
        about = [result.type.value]
        if len(producer.operators) > 1:
            about.insert(0, f"from {producer.operators[output.source].name}")
        if len(vertex.inputs) > 1:
            about.insert(0, f"input {edge.input_index}")
        arrows.append(Arrow(vertices.number[edge.source], vertices.label(edge), tuple(about)))
    return Box(
        number=vertices.number[vertex.vertex_id],
        title=vertex.name,
        facts=tuple(facts),
        details=tuple(_chain_lines(vertex)),
        arrows=tuple(arrows),
    )


def _chain_lines(vertex: JobVertex) -> Iterator[str]:
    """The operators of a chain as a tree, each with its properties."""
    followers: dict[int, list[int]] = {}
    tags: dict[int, str] = {}
    for edge in vertex.chain_edges:
        followers.setdefault(edge.source, []).append(edge.target)
        if edge.tag is not None:
            tags[edge.target] = edge.tag.name
    rows: list[tuple[str, int]] = []
    stack: list[tuple[int, str, str]] = [(0, "", "")]
    while stack:
        position, own, below = stack.pop()
        rows.append((own + vertex.operators[position].name, position))
        after = followers.get(position, [])
        if len(after) == 1:  # a line of operators stays in one column: only branches move to the right
            stack.append((after[0], below + "-> ", below))
            continue
        for follower in reversed(after):
            last = follower == after[-1]
            stack.append((follower, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
    width = max(len(text) for text, _ in rows)
    for text, position in rows:
        facts = _operator_facts(vertex.operators[position], vertex)
        if position in tags:
            facts.insert(0, f"side output {tags[position]}")
        yield f"   {text:<{width}}   {' · '.join(facts)}"


def _operator_facts(operator: ChainedOperator, vertex: JobVertex) -> list[str]:
    facts = [operator_name(operator.factory)]
    facts += (f"keyed by {', '.join(keys) or 'nothing'}" for keys in _keys(operator, vertex))
    if operator.sorted_inputs:
        facts.append("sorted by key")
    if operator.uid is not None:
        facts.append(f"uid {operator.uid}")
    return [*facts, f"id {operator.operator_id[:ID_DIGITS]}"]


def _keys(operator: ChainedOperator, vertex: JobVertex) -> list[list[str]]:
    """Names of an operator's key columns an input; positions where the input's columns are those of a chained operator."""
    position = vertex.operators.index(operator)
    if position == 0:
        schemas = {edge.input_index: edge.schema for edge in vertex.inputs}
    else:
        (edge,) = (e for e in vertex.chain_edges if e.target == position)
        schemas = {0: edge.tag.schema if edge.tag is not None else vertex.operators[edge.source].schema}
    return [[schemas[index].names[key] for key in keys] for index, keys in enumerate(operator.state_keys or ())]


def _json(vertex: JobVertex, vertices: _Vertices) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": vertices.number[vertex.vertex_id],
        "vertex_id": vertex.vertex_id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "max_parallelism": vertex.max_parallelism,
        "slot_sharing_group": vertex.slot_sharing_group,
        "operators": [_operator_json(operator, vertex) for operator in vertex.operators],
        "chain_edges": [
            {"source": e.source, "target": e.target, **({} if e.tag is None else {"side_output": e.tag.name})}
            for e in vertex.chain_edges
        ],
        "inputs": [_input_json(edge, vertices) for edge in vertex.inputs],
        "results": [{"data_set_id": r.data_set_id, "type": r.type.value} for r in vertex.results],
    }
    if vertex.co_location_key is not None:
        shown["co_location_key"] = vertex.co_location_key
    if vertices.stages:
        shown["stage"] = vertices.stages[vertex.vertex_id]
    return shown


def _operator_json(operator: ChainedOperator, vertex: JobVertex) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operator_id": operator.operator_id,
        "name": operator.name,
        "operator": operator_name(operator.factory),
        "schema": {field.name: str(field.type) for field in operator.schema},
    }
    if operator.uid is not None:
        shown["uid"] = operator.uid
    if keys := _keys(operator, vertex):
        shown["state_keys"] = keys
    if operator.sorted_inputs:
        shown["sorted_inputs"] = True
    if meanings := state_meanings(operator.factory):
        shown["state"] = {table: dict(columns) for table, columns in meanings.items()}
    if kept := {table: forms for table, forms in state_accumulators(operator.factory).items() if forms}:
        shown["accumulators"] = {
            t: {name: form.document() for name, form in forms.items()} for t, forms in kept.items()
        }
    return shown


def _input_json(edge: JobEdge, vertices: _Vertices) -> dict[str, Any]:
    _, output, result = vertices.output[edge.data_set_id]
    shown: dict[str, Any] = {
        "id": vertices.number[edge.source],
        "data_set_id": edge.data_set_id,
        "input_index": edge.input_index,
        "operator": output.source,
        "ship_strategy": partitioner_label(edge.partitioner, edge.schema),
        "pattern": edge.partitioner.pattern.value,
        "type": result.type.value,
        "buffer_timeout_ms": output.buffer_timeout_ms,
    }
    if output.tag is not None:
        shown["side_output"] = output.tag.name
    return shown


def _mermaid(graph: JobGraph, vertices: _Vertices) -> str:
    """Chains as subgraphs of their operators; data sets as arrows from operator to operator."""
    numbers: dict[tuple[str, int], int] = {}
    for vertex in graph.vertices:
        for position in range(len(vertex.operators)):
            numbers[vertex.vertex_id, position] = len(numbers) + 1
    lines = ["flowchart LR"]
    arrows = []
    for vertex in graph.vertices:
        title = f"{vertices.number[vertex.vertex_id]}: {parallelism_fact(vertex.parallelism, vertex.max_parallelism)}"
        lines.append(f'  subgraph v{vertices.number[vertex.vertex_id]}["{mermaid_text(title)}"]')
        for position, operator in enumerate(vertex.operators):
            facts = (operator_name(operator.factory),)
            lines.append(f"    {mermaid_box(Box(numbers[vertex.vertex_id, position], operator.name, facts=facts))}")
        for inner in vertex.chain_edges:
            source, target = (f"n{numbers[vertex.vertex_id, end]}" for end in (inner.source, inner.target))
            label = "" if inner.tag is None else f"side output {inner.tag.name}"
            lines.append(f"    {mermaid_arrow(source, target, label)}")
        lines.append("  end")
        for edge in vertex.inputs:
            producer, output, _ = vertices.output[edge.data_set_id]
            source = f"n{numbers[producer.vertex_id, output.source]}"
            arrows.append(mermaid_arrow(source, f"n{numbers[vertex.vertex_id, 0]}", vertices.label(edge)))
    return "\n".join([*lines, *(f"  {arrow}" for arrow in arrows)])
