"""Pipelines and the tables between them, by what the tables are outside; and what cannot be: two owners, and circles. Pure values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from flowrun.api.connector import PlaceMatching, TablePlace
from flowrun.connectors.registry import connector_named
from flowrun.core.record import record
from flowrun.errors import Diagnostic, Location
from flowrun.plan.joins import LookupJoin
from flowrun.plan.nodes import Plan, PlanNode, Scan, TableReference, walk_plan
from flowrun.plan.tables import ProgramTable


@record
class TableUse:
    """A table as one pipeline reads or writes it.

    Attributes:
        table: the pipeline's name of it.
        connector: its connector.
        place: what it is outside; None: nothing that pipelines could share, such as generated rows.
        location: where the pipeline declares it.
    """

    table: str
    connector: str
    place: TablePlace | None
    location: Location | None

    @property
    def shown(self) -> str:
        """For people: a local path as seen from here, or the place as it is."""
        if self.place is None:
            return f"{self.connector} '{self.table}'"
        return shown_place(self.place)


@record
class PipelineNode:
    """A pipeline with the tables that it reads and writes.

    Attributes:
        file: of it.
        name: of its job.
    """

    file: str
    name: str
    reads: tuple[TableUse, ...]
    writes: tuple[TableUse, ...]


@record
class ProjectGraph:
    """Pipelines with their tables; each pipeline once."""

    pipelines: tuple[PipelineNode, ...]

    def readers(self, written: TableUse) -> Iterator[tuple[PipelineNode, TableUse]]:
        """Who reads what a pipeline writes."""
        for pipeline in self.pipelines:
            for use in pipeline.reads:
                if written.place is not None and use.place is not None and meets(use.place, written.place):
                    yield pipeline, use

    def next_of(self, pipeline: PipelineNode) -> list[tuple[PipelineNode, TableUse]]:
        """The pipelines that read what one writes, and by which of its tables."""
        found = [(reader, written) for written in pipeline.writes for reader, _ in self.readers(written)]
        return list(dict.fromkeys(found))


def pipeline_node(file: Path, plan: Plan) -> PipelineNode:
    """The tables of a pipeline, from its plan as it is written."""
    reads = [(n.table, n) for n in walk_plan(plan) if isinstance(n, Scan | LookupJoin)]
    writes = [(s.table, s) for s in (*plan.sinks, *plan.letter_sinks.values())]
    return PipelineNode(str(file), plan.name, tuple(_uses(reads)), tuple(_uses(writes)))


def program_node(file: Path, name: str, reads: Iterable[ProgramTable], writes: Iterable[ProgramTable]) -> PipelineNode:
    """The tables of a program; of a source or sink that is no connector's only the name is known.

    Args:
        file: of the program.
        name: of its job.
        reads: its sources.
        writes: its sinks.
    """
    return PipelineNode(str(file), name, _of_program(file, reads, "source"), _of_program(file, writes, "sink"))


def _of_program(file: Path, tables: Iterable[ProgramTable], what: str) -> tuple[TableUse, ...]:
    found = (
        TableUse(
            given.name,
            what if given.table is None else given.table.connector,
            place,
            Location(str(file), 1 if given.line is None else given.line, 1),
        )
        for given in tables
        for place in (() if given.table is None else table_places(given.table)) or (None,)
    )
    return tuple(dict.fromkeys(found))


def _uses(tables: Iterable[tuple[TableReference, PlanNode]]) -> list[TableUse]:
    found = [
        TableUse(table.name, table.connector, place, node.hints.location)
        for table, node in tables
        for place in table_places(table) or (None,)
    ]
    return list(dict.fromkeys(found))


def table_places(table: TableReference) -> tuple[TablePlace, ...]:
    """What a table is outside; a table that is made of others is what they are. Empty: nothing that pipelines could share."""
    return tuple(_places(table.connector, table.name, table.options))


def _places(connector: str, name: str, options: Mapping[str, object]) -> Iterator[TablePlace]:
    found = connector_named(connector)
    if found.parts_of is not None:
        for part in found.parts_of(options):
            yield from _places(str(part["connector"]), name, part)
    elif found.places is not None:
        yield from found.places(name, options)


def meets(reads: TablePlace, writes: TablePlace) -> bool:
    """Whether a table that is read has rows of one that is written.

    >>> lake, orders = (TablePlace("files", p, PlaceMatching.PATH) for p in ("/lake/*/new/*.json", "/lake/orders/new"))
    >>> meets(lake, orders), meets(orders, lake), meets(TablePlace("kafka a", "x.*", PlaceMatching.PATTERN), TablePlace("kafka a", "xy"))
    (True, False, True)
    """
    if reads.system != writes.system:
        return False
    match reads.matching:
        case PlaceMatching.EXACT:
            return reads.name == writes.name
        case PlaceMatching.PATTERN:
            return re.fullmatch(reads.name, writes.name) is not None
        case PlaceMatching.PATH:
            return _is_on_path(reads.name.split("/"), writes.name.split("/"))


def _is_on_path(read: Sequence[str], written: Sequence[str]) -> bool:
    """Whether one path leads to the other; parts of the one that is read may be globs."""
    for glob, part in zip(read, written, strict=False):
        if glob == "**":
            return True
        if glob != part and not fnmatchcase(part, glob):
            return False
    return True


def shown_place(place: TablePlace) -> str:
    """A place for people: a local path as seen from the working directory.

    >>> shown_place(TablePlace("files", str(Path.cwd() / "out" / "orders"))), shown_place(TablePlace("kafka b:9092", "orders"))
    ('out/orders', 'kafka b:9092 orders')
    """
    if place.system != "files":
        return str(place)
    here = f"{Path.cwd()}/"
    return place.name.removeprefix(here)


def graph_problems(graph: ProjectGraph) -> list[Diagnostic]:
    """An error for each table that two pipelines own, each name that two have, and each circle of pipelines."""
    return [*_double_names(graph), *_double_owners(graph), *_circles(graph)]


def _double_names(graph: ProjectGraph) -> Iterator[Diagnostic]:
    first: dict[str, PipelineNode] = {}
    for pipeline in graph.pipelines:
        other = first.setdefault(pipeline.name, pipeline)
        if other is not pipeline:
            yield same_name(other.file, pipeline.file, pipeline.name)


def same_name(one: str, other: str, name: str) -> Diagnostic:
    """The error of two pipelines whose jobs have one name."""
    hint = "a name is that of the checkpoints: give one of them another"
    return Diagnostic(f"{one} and {other} are both called '{name}'", hint=hint)


def _double_owners(graph: ProjectGraph) -> Iterator[Diagnostic]:
    owners: dict[TablePlace, tuple[PipelineNode, TableUse]] = {}
    for pipeline in graph.pipelines:
        for use in pipeline.writes:
            if use.place is None:
                continue
            owner, owned = owners.setdefault(use.place, (pipeline, use))
            if owner is not pipeline:
                where = "" if owned.location is None else f" ({owned.location})"
                yield Diagnostic(
                    f"'{pipeline.name}' writes {use.shown}, which '{owner.name}' owns{where}",
                    use.location or Location(pipeline.file, 1, 1),
                    hint="a table has one owner: write to a table of its own, and read both with UNION ALL (union: in YAML) where "
                    "they are needed together",
                )


def _circles(graph: ProjectGraph) -> Iterator[Diagnostic]:
    """Each circle once, at the table of its last pipeline that closes it. A walk with a stack of its own: chains may be of any length."""
    done: set[str] = set()
    for root in graph.pipelines:
        if root.file in done:
            continue
        path: list[PipelineNode] = [root]
        pending = [iter(graph.next_of(root))]
        while pending:
            step = next(pending[-1], None)
            if step is None:
                pending.pop()
                done.add(path.pop().file)
                continue
            reader, written = step
            if reader in path:
                yield _circle(path[path.index(reader) :], written)
            elif reader.file not in done:
                path.append(reader)
                pending.append(iter(graph.next_of(reader)))


def _circle(path: list[PipelineNode], closing: TableUse) -> Diagnostic:
    last = path[-1]
    at = closing.location or Location(last.file, 1, 1)
    if len(path) == 1:
        message = f"'{last.name}' reads {closing.shown}, which it writes itself"
    else:
        names = " → ".join(f"'{p.name}'" for p in (*path, path[0]))
        message = f"pipelines read each other in a circle: {names}; {closing.shown} closes it"
    return Diagnostic(
        message, at, hint="let one of them write to another table, or join what belongs together in one pipeline"
    )
