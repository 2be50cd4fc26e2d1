"""A graph of pipelines and tables as text, Mermaid, DOT and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from flowrun.cli.views.mermaid import mermaid_text
from flowrun.runners.projects.graph import ProjectGraph, TableUse, meets, shown_place

Tables = Mapping[TableUse, tuple[str, ...]]
"""Use of a table → what people call the tables that it is."""


def graph_text(graph: ProjectGraph, form: str) -> str:
    """The graph as `text`, `mermaid`, `dot` or `json`."""
    tables = _tables(graph)
    match form:
        case "json":
            return _json(graph, tables)
        case "mermaid":
            return "\n".join(_mermaid(graph, tables))
        case "dot":
            return "\n".join(_dot(graph, tables))
        case _:
            return "\n".join(_text(graph, tables))


def _tables(graph: ProjectGraph) -> Tables:
    """What each use is called: a table that is written by its place, and one that is read by the written ones that it meets, if any."""
    written = dict.fromkeys(use.place for p in graph.pipelines for use in p.writes if use.place is not None)
    names: dict[TableUse, tuple[str, ...]] = {}
    for pipeline in graph.pipelines:
        for use in pipeline.writes:
            names[use] = (use.shown if use.place is not None else f"{use.shown} of {pipeline.name}",)
        for use in pipeline.reads:
            place = use.place
            met = () if place is None else tuple(shown_place(w) for w in written if meets(place, w))
            alone = use.shown if place is not None else f"{use.shown} of {pipeline.name}"
            names[use] = met or (alone,)
    return names


def _text(graph: ProjectGraph, tables: Tables) -> Iterator[str]:
    readers = {p.file: [r.name for r, _ in graph.next_of(p)] for p in graph.pipelines}
    for pipeline in graph.pipelines:
        yield f"{pipeline.name}  ({pipeline.file})"
        for name in _named(pipeline.reads, tables):
            owners = [p.name for p in graph.pipelines if name in _named(p.writes, tables)]
            yield f"  reads   {name}" + (f"  ← {', '.join(owners)}" if owners else "")
        for use in pipeline.writes:
            (name,) = tables[use]
            next_ones = list(dict.fromkeys(reader.name for reader, _ in graph.readers(use)))
            yield f"  writes  {name}" + (f"  → {', '.join(next_ones)}" if next_ones else "")
    if not any(readers.values()):
        yield "no pipeline reads what another one writes"


def _named(uses: tuple[TableUse, ...], tables: Tables) -> list[str]:
    return list(dict.fromkeys(name for use in uses for name in tables[use]))


def _json(graph: ProjectGraph, tables: Tables) -> str:
    pipelines = [
        {
            "name": p.name,
            "file": p.file,
            "reads": _named(p.reads, tables),
            "writes": _named(p.writes, tables),
            "next": list(dict.fromkeys(reader.name for reader, _ in graph.next_of(p))),
        }
        for p in graph.pipelines
    ]
    return json.dumps({"pipelines": pipelines, "tables": list(_ids(graph, tables)[1])}, indent=2, ensure_ascii=False)


def _ids(graph: ProjectGraph, tables: Tables) -> tuple[dict[str, str], dict[str, str]]:
    """(file of a pipeline → its id, name of a table → its id)."""
    pipelines = {p.file: f"p{number}" for number, p in enumerate(graph.pipelines, 1)}
    names = dict.fromkeys(name for p in graph.pipelines for name in _named((*p.reads, *p.writes), tables))
    return pipelines, {name: f"t{number}" for number, name in enumerate(names, 1)}


def _edges(graph: ProjectGraph, tables: Tables) -> Iterator[tuple[str, str]]:
    pipelines, names = _ids(graph, tables)
    for p in graph.pipelines:
        yield from ((names[name], pipelines[p.file]) for name in _named(p.reads, tables))
        yield from ((pipelines[p.file], names[name]) for name in _named(p.writes, tables))


def _mermaid(graph: ProjectGraph, tables: Tables) -> Iterator[str]:
    pipelines, names = _ids(graph, tables)
    yield "flowchart LR"
    for p in graph.pipelines:
        yield f'  {pipelines[p.file]}["{mermaid_text(p.name)}"]'
    for name, number in names.items():
        yield f'  {number}[("{mermaid_text(name)}")]'
    for start, end in _edges(graph, tables):
        yield f"  {start} --> {end}"


def _dot(graph: ProjectGraph, tables: Tables) -> Iterator[str]:
    pipelines, names = _ids(graph, tables)
    yield "digraph pipelines {"
    yield "  rankdir=LR;"
    for p in graph.pipelines:
        yield f"  {pipelines[p.file]} [shape=box, label={_dot_text(p.name)}];"
    for name, number in names.items():
        yield f"  {number} [shape=cylinder, label={_dot_text(name)}];"
    for start, end in _edges(graph, tables):
        yield f"  {start} -> {end};"
    yield "}"


def _dot_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
