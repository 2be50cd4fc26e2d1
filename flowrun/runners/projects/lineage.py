"""Columns of sinks with the columns of tables that they come from, across the pipelines of a project. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from flowrun.core.record import record
from flowrun.plan.lineage import ColumnLineage, Origin, plan_lineage
from flowrun.plan.nodes import Plan
from flowrun.runners.projects.graph import PipelineNode, meets, pipeline_node


@record
class WrittenColumn:
    """A column that a pipeline writes.

    Attributes:
        file: of the pipeline.
        sink: its name.
        column: of the sink.
    """

    file: str
    sink: str
    column: str

    def __str__(self) -> str:
        return f"{self.sink}.{self.column}"


@record(eq=False)
class PipelineColumn:
    """A column of a sink, and who writes what it comes from.

    Attributes:
        written: the column.
        lineage: where it comes from in its own pipeline.
        writers: columns of tables that it comes from → the columns of other pipelines that these are.
    """

    written: WrittenColumn
    lineage: ColumnLineage
    writers: Mapping[Origin, tuple[WrittenColumn, ...]]

    @property
    def origins(self) -> tuple[Origin, ...]:
        """All columns that it is made of or depends on."""
        return (*self.lineage.made_of, *self.lineage.depends_on)


def lineage_together(plans: Sequence[tuple[Path, Plan]]) -> tuple[PipelineColumn, ...]:
    """Each column of each sink of pipelines, which are given by their files with plans as they are written."""
    nodes = [pipeline_node(file, plan) for file, plan in plans]
    columns = [(node, column) for node, (_, plan) in zip(nodes, plans, strict=True) for column in plan_lineage(plan)]
    known = {WrittenColumn(node.file, column.sink, column.column) for node, column in columns}
    return tuple(_with_writers(node, column, nodes, known) for node, column in columns)


def _with_writers(
    node: PipelineNode, column: ColumnLineage, nodes: Sequence[PipelineNode], known: set[WrittenColumn]
) -> PipelineColumn:
    writers = {
        origin: tuple(w for w in _writers(node, origin, nodes) if w in known)
        for origin in (*column.made_of, *column.depends_on)
    }
    written = WrittenColumn(node.file, column.sink, column.column)
    return PipelineColumn(written, column, {origin: found for origin, found in writers.items() if found})


def _writers(node: PipelineNode, origin: Origin, nodes: Iterable[PipelineNode]) -> Iterator[WrittenColumn]:
    """The columns of other pipelines that a column of a table is, if these have one of its name."""
    places = [use.place for use in node.reads if use.table == origin.table and use.place is not None]
    for other in nodes:
        if other is node:
            continue
        for use in other.writes:
            if use.place is not None and any(meets(place, use.place) for place in places):
                yield WrittenColumn(other.file, use.table, origin.column)


def with_those_before(
    chosen: Sequence[PipelineColumn], columns: Sequence[PipelineColumn]
) -> tuple[PipelineColumn, ...]:
    """Columns, each followed by those of other pipelines that it comes from, and so on; each once, and none that is not in `columns`."""
    by_name = {column.written: column for column in columns}
    found: dict[WrittenColumn, PipelineColumn] = {}
    pending = list(reversed(chosen))
    while pending:
        column = pending.pop()
        if column.written not in found:
            found[column.written] = column
            pending += [by_name[w] for several in reversed([*column.writers.values()]) for w in several if w in by_name]
    return tuple(found.values())


def that_come_from(source: str, columns: Sequence[PipelineColumn]) -> tuple[PipelineColumn, ...]:
    """The columns that come from a table or a column of it, also through tables that other pipelines write.

    Args:
        source: the table, or table and column with a dot between.
        columns: of all pipelines.
    """
    reached = {c.written for c in columns if any(source in (o.table, str(o)) for o in c.origins)}
    grown = True
    while grown:
        more = {c.written for c in columns if any(w in reached for several in c.writers.values() for w in several)}
        grown = not more <= reached
        reached |= more
    return tuple(c for c in columns if c.written in reached)
