"""Warns about data that does not fit its format, before Spark reads it.

A stream's readers warn while they read. Spark's own readers do not, and a worker that reads a part of the data does not know the rest. So
the beginning of each source is read here, by the same reader that warns in a stream, until nothing is left to warn about.
"""

from __future__ import annotations

from flowrun.api.format import BadRecord
from flowrun.connectors.filesystem.opening import SplitOpener
from flowrun.connectors.filesystem.source import FileSource
from flowrun.connectors.formats.record_hints import ENOUGH_ROWS
from flowrun.core.row_errors import OnError
from flowrun.errors import FlowrunError
from flowrun.plan.nodes import Plan, Scan, walk_plan
from flowrun.spark.input.reading import find_splits
from flowrun.spark.input.scan import make_source, place

_WATCHED = ("json", "csv")
_MOST_SPLITS = 1_000
"""How many splits are read at most: to read thousands of files of a few rows would take too long for a warning."""


class _BadRecordError(Exception):
    """Reading would fail at this record, which is reported when all of the data is read."""


def warn_of_odd_data(plan: Plan) -> None:
    """Warn about the data of a plan's sources as a stream does. Data that cannot be read is ignored here. It blocks on I/O."""
    known = set()
    for node in walk_plan(plan):
        if not isinstance(node, Scan):
            continue
        try:
            source = make_source(node)
            if isinstance(source, FileSource) and source.format_name in _WATCHED:
                what = (source.location.text, source.format_name, source.request.schema.names)
                if what not in known:
                    known.add(what)
                    _read_beginning(source, place(node.table))
        except (FlowrunError, _BadRecordError):
            continue


def _read_beginning(source: FileSource, place: str) -> None:
    def on_bad(_path: str, _offset: int, _bad: BadRecord, _raw: bytes) -> None:
        if source.error_mode is OnError.FAIL:
            raise _BadRecordError

    opener = SplitOpener(source, ENOUGH_ROWS, on_bad)
    for split in find_splits(source, place)[:_MOST_SPLITS]:
        opened = opener.open(split.position)
        try:
            while opened.next_rows() is not None:
                if not opener.is_watching:
                    return
        finally:
            opened.close()
    opener.report_unseen()
