"""Texts about a backfill: its range, its savepoint, and a preview of what it would read and write."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from flowrun.cli.views.figures import count_text
from flowrun.cli.views.tables import table_text
from flowrun.core.units import size_text

if TYPE_CHECKING:
    from flowrun.runners.backfill import Backfill
    from flowrun.runners.backfill_preview import BackfillPreview, SinkPreview, SourcePreview
    from flowrun.spark.context import TimeRange
    from flowrun.spark.savepoint import SavepointWritten


def moment_text(ms: int) -> str:
    """A moment, given in ms since the epoch, as a date and time in UTC.

    >>> moment_text(1704067200000), moment_text(1704067200250)
    ('2024-01-01 00:00:00', '2024-01-01 00:00:00.250')
    """
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{ms % 1000:03d}" if ms % 1000 else "")


def range_text(period: TimeRange) -> str:
    """A range of event times in words.

    >>> from flowrun.spark.context import TimeRange
    >>> range_text(TimeRange(None, 1704067200000))
    'everything up to 2024-01-01 00:00:00'
    """
    if period.start is None:
        return "everything" if period.stop is None else f"everything up to {moment_text(period.stop)}"
    return f"from {moment_text(period.start)}" + ("" if period.stop is None else f" up to {moment_text(period.stop)}")


def savepoint_line(left: SavepointWritten) -> str:
    """A line about the savepoint that a backfill wrote.

    >>> from flowrun.spark.savepoint import SavepointWritten
    >>> savepoint_line(SavepointWritten("/savepoints/savepoint-orders-1", 2_000_000, 3, 4.2))
    '  savepoint: 2.0 MB of state of 3 operators: /savepoints/savepoint-orders-1'
    """
    return f"  savepoint: {size_text(left.bytes)} of state of {left.operators} operators: {left.path}"


def preview_lines(preview: BackfillPreview, wanted: Backfill) -> Iterator[str]:
    """A preview as lines."""
    yield f"{preview.name}: {range_text(wanted.period)} (UTC)"
    if len(preview.parts) > 1:
        yield f"  in {len(preview.parts)} parts beside each other, at " + ", ".join(
            moment_text(p.start) for p in preview.parts[1:] if p.start is not None
        )
    if wanted.savepoint is not None:
        yield f"  the state at the end would be left in a new folder below {wanted.savepoint}"
    yield ""
    rows = [(s.name, s.connector, range_text(s.period), *_files(s)) for s in preview.sources]
    yield table_text(("would read", "connector", "event times", "files", "size"), rows, ("files", "size"))
    for source in preview.sources:
        if not source.has_event_time:
            yield f"  {source.name} has no event time: it is read whole"
    for step in preview.remembering:
        yield f"  {step} needs everything before the range"
    yield ""
    written = [(s.name, s.connector, _written(s), _replaced(s)) for s in preview.sinks]
    yield table_text(("would write", "connector", "rows", "would replace"), written)


def _files(source: SourcePreview) -> tuple[str, str]:
    if source.files is None:
        return "", ""
    return (
        f"{count_text(source.files)} of {count_text(source.all_files)}",
        f"{size_text(source.bytes)} of {size_text(source.all_bytes)}",
    )


def _written(sink: SinkPreview) -> str:
    return "as things stand at the end" if sink.period is None else range_text(sink.period)


def _replaced(sink: SinkPreview) -> str:
    if sink.replaced_files is None:
        return "nothing: rows are sent again by each run"
    if not sink.replaced_files:
        return f"nothing; new files in {sink.path}"
    return f"{count_text(sink.replaced_files)} files, {size_text(sink.replaced_bytes)} in {sink.path}"
