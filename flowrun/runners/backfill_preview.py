"""What a backfill would read and write, found without running it: no Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowrun.api.connector import Comparison, PushedFilter
from flowrun.api.format import RecordFormat
from flowrun.connectors.filesystem.output_files import OutputFolder
from flowrun.connectors.filesystem.partitions import may_hold_rows
from flowrun.connectors.filesystem.sink import FileSink
from flowrun.connectors.filesystem.source import FileSource
from flowrun.connectors.filesystem.table_path import FoundFile, list_files, open_error
from flowrun.core.record import record
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import Plan, PlanNode, Scan, Sink, walk_plan
from flowrun.plan.tables import create_sink
from flowrun.runners.backfill import Backfill, output_job, readings_of
from flowrun.spark.context import TimeRange
from flowrun.spark.input.scan import make_source
from flowrun.spark.output.job import name_of
from flowrun.spark.output.names import output_name
from flowrun.spark.ranges import Reading

_MOST_FOOTERS = 1_000
"""Of so many files the statistics are looked at; of further ones they are not, and all their bytes count."""


@record
class SourcePreview:
    """What would be read of one source.

    Attributes:
        name: of the source.
        connector: of the source.
        has_event_time: whether only a part of it is read.
        period: event times to read, what windows and joins need around the range included.
        files: that may have rows of these times; None: it has no files.
        bytes: of these files, or of those parts of them that may.
        all_files: of the source.
        all_bytes: of these.
    """

    name: str
    connector: str
    has_event_time: bool
    period: TimeRange
    files: int | None = None
    bytes: int = 0
    all_files: int = 0
    all_bytes: int = 0


@record
class SinkPreview:
    """What would be written to one sink.

    Attributes:
        name: of the sink.
        connector: of the sink.
        period: event times of the rows; None: how things stand at the end of the range.
        path: of a sink that is a folder.
        replaced_files: visible files that would be replaced; None: nothing of an earlier run is replaced.
        replaced_bytes: of these.
    """

    name: str
    connector: str
    period: TimeRange | None
    path: str | None = None
    replaced_files: int | None = None
    replaced_bytes: int = 0


@record
class BackfillPreview:
    """What a backfill would do.

    Attributes:
        name: of the pipeline.
        parts: the ranges that would be computed beside each other.
        sources: a source that is read in several places is there once.
        sinks: in the pipeline's order.
        remembering: steps that need everything before the range, as text.
    """

    name: str
    parts: tuple[TimeRange, ...]
    sources: tuple[SourcePreview, ...]
    sinks: tuple[SinkPreview, ...]
    remembering: tuple[str, ...]


def preview_backfill(plan: Plan, wanted: Backfill, parts: list[TimeRange]) -> BackfillPreview:
    """What `run_backfill` would do with an optimised plan that `readings_of` found nothing wrong with."""
    (whole,) = readings_of(plan, replace(wanted, ranges=1))
    if wanted.savepoint is not None:  # the whole job runs, from the beginning
        bounds = {i: TimeRange(None, wanted.period.stop) for i in whole.bounds}
        whole = replace(whole, bounds=bounds)
    sources: dict[tuple[str, TimeRange], SourcePreview] = {}
    for node in walk_plan(plan):
        if isinstance(node, Scan):
            found = _source(node, whole.bounds)
            known = sources.get((found.name, found.period))
            if known is None or found.bytes > known.bytes:
                sources[found.name, found.period] = found
    return BackfillPreview(
        plan.name,
        tuple(parts),
        tuple(sources.values()),
        tuple(_sink(s, plan, wanted, whole) for s in plan.sinks),
        tuple(_step_name(n) for n in whole.remembering),
    )


# ---- sources


def _source(scan: Scan, bounds: Mapping[int, TimeRange]) -> SourcePreview:
    period = bounds.get(id(scan), TimeRange())
    preview = SourcePreview(scan.table.name, scan.table.connector, scan.event_time, period)
    source = make_source(replace(scan, filters=(*scan.filters, *_filters(scan, period))))
    if not isinstance(source, FileSource):
        return preview
    pattern = source.options.get("source.path.regex-pattern")
    every = list_files(source.location, None if pattern is None else str(pattern))
    _, base = source.location.open()
    default = source.options.text("partition.default-name")
    chosen = [f for f in every if may_hold_rows(f.path, base, source.partitions, default, source.partition_filters)]
    sizes = [_bytes_to_read(source, file, i) for i, file in enumerate(chosen)]
    return replace(
        preview,
        files=sum(1 for size in sizes if size),
        bytes=sum(sizes),
        all_files=len(every),
        all_bytes=sum(f.size for f in every),
    )


def _filters(scan: Scan, period: TimeRange) -> tuple[PushedFilter, ...]:
    """The range as filters on the column that is the event time, if one is."""
    time = None if scan.watermark is None else scan.watermark.time
    if not isinstance(time, ColumnRef):
        return ()
    column = scan.physical.names[time.index]
    bounds = ((Comparison.GE, period.start), (Comparison.LT, period.stop))
    return tuple(PushedFilter(column, comparison, ms) for comparison, ms in bounds if ms is not None)


def _bytes_to_read(source: FileSource, file: FoundFile, number: int) -> int:
    """Of a file, without what its statistics exclude."""
    used = source.format
    if isinstance(used, RecordFormat) or number >= _MOST_FOOTERS:
        return file.size
    filesystem, _ = source.location.open()
    try:
        with filesystem.open_input_file(file.path) as opened:
            return sum(p.size for p in used.create_reader(source.request).parts(opened, file.path, file.size))
    except OSError as error:
        raise open_error(file.path, error) from error


# ---- sinks


def _sink(sink: Sink, plan: Plan, wanted: Backfill, reading: Reading) -> SinkPreview:
    preview = SinkPreview(name_of(sink), sink.table.connector, reading.written.get(id(sink)))
    described = create_sink(sink.table, sink.schema, unbounded=False, updating=False)
    if not isinstance(described, FileSink):
        return preview
    name = output_name(output_job(plan, wanted, sink, reading, run_id="preview"), name_of(sink))
    filesystem, _ = described.location.open()
    replaced = [p for p in OutputFolder(described.location).visible_files() if name.is_replaced(p.rpartition("/")[2])]
    sizes = [info.size or 0 for info in filesystem.get_file_info(replaced)]
    return replace(preview, path=described.location.text, replaced_files=len(replaced), replaced_bytes=sum(sizes))


def _step_name(node: PlanNode) -> str:
    kind = type(node).__name__
    return f"{node.hints.name} ({kind})" if node.hints.name else kind
