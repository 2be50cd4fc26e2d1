"""Looks up rows in files: the whole table is held in memory, indexed by key, and read again from time to time if the user wants that."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowrun.api.changelog import ChangelogMode
from flowrun.api.connector import TableDefinition
from flowrun.api.format import BadRecord
from flowrun.api.lookup import FoundRows, Lookup, LookupContext
from flowrun.connectors.filesystem.dead_letters import DeadLetters
from flowrun.connectors.filesystem.enumerator import FileEnumerator
from flowrun.connectors.filesystem.opening import SplitOpener
from flowrun.connectors.filesystem.source import FileSource, create_source
from flowrun.connectors.filesystem.split_readers import bad_record_error
from flowrun.connectors.filesystem.table_path import TablePath
from flowrun.connectors.formats.record_hints import bad_record_hint
from flowrun.core.arrays import Integers, any_null
from flowrun.core.record import record
from flowrun.core.row_errors import OnError
from flowrun.core.schema import Schema
from flowrun.errors import OptionError
from flowrun.state.key_groups import hash_columns

_BATCH_ROWS = 131_072

RELOAD_INTERVAL = "lookup.full-cache.periodic-reload.interval"


@record
class FileLookupSource:
    """A lookup table whose rows are in files.

    Attributes:
        source: reads the wanted columns and the key columns.
        schema: the columns of the rows that are found.
        keys: the names of the key columns.
        reload_interval_ms: after how long the files are read again; None: they are read once.
    """

    source: FileSource
    schema: Schema
    keys: Schema
    reload_interval_ms: int | None

    def create_lookup(self, context: LookupContext) -> Lookup:
        """The lookup of one subtask; each holds the whole table."""
        return FileLookup(self, context)


class FileLookup:
    """The table of one subtask: its rows in the order of the files, and their positions in the order of the hashes of their keys."""

    def __init__(self, recipe: FileLookupSource, context: LookupContext) -> None:
        self._recipe = recipe
        self._context = context
        self._names = list(recipe.schema.names)
        self._letters: DeadLetters | None = None
        self._loaded_ns = 0
        self._rows = _empty(recipe.schema)
        self._keys: list[pa.Array] = []
        self._hashes = np.zeros(0, np.uint64)
        self._order: Integers = np.zeros(0, np.int64)

    def open(self) -> None:
        """Read the files.

        Raises:
            ConnectorError: a file cannot be read.
            DataError: a record is no row of the table, and the table does not skip such records.
        """
        self._load()

    def find(self, keys: pa.RecordBatch) -> FoundRows:
        """The rows with these keys, those of one key in the order of the files. The files are read again first if it is time for that."""
        interval = self._recipe.reload_interval_ms
        if interval is not None and self._context.clock.monotonic_ns() - self._loaded_ns >= interval * 1_000_000:
            self._load()
        hashes = hash_columns(keys.columns)
        first = np.searchsorted(self._hashes, hashes, "left")
        counts = np.searchsorted(self._hashes, hashes, "right") - first
        counts[any_null(keys)] = 0
        probe = np.repeat(np.arange(keys.num_rows), counts)
        ends = np.cumsum(counts)
        at = np.arange(len(probe)) + np.repeat(first - (ends - counts), counts)
        positions = self._order[at]
        same = np.ones(len(probe), np.bool_)
        for stored, asked in zip(self._keys, keys.columns, strict=True):
            equal = pc.equal(stored.take(pa.array(positions)), asked.take(pa.array(probe)))
            same &= equal.to_numpy(zero_copy_only=False)
        if not same.all():
            probe, positions = probe[same], positions[same]
        return FoundRows(self._rows.take(pa.array(positions)), probe)

    def _load(self) -> None:
        self._loaded_ns = self._context.clock.monotonic_ns()
        source = self._recipe.source
        if source.error_mode is OnError.DEAD_LETTER:
            self._letters = DeadLetters(
                TablePath(source.options.text("format.dead-letter.path")), self._context.subtask
            )
            self._letters.open()
        batches = [b for b in self._read() if b.num_rows]
        if self._letters is not None:
            self._letters.close()
        rows = pa.concat_batches(batches) if batches else _empty(source.schema)
        keys = [rows.column(n) for n in self._recipe.keys.names]
        whole = pa.RecordBatch.from_arrays(keys, names=list(self._recipe.keys.names))
        known = np.flatnonzero(~any_null(whole))  # a key with a NULL is never found
        hashes = hash_columns(keys)[known]
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._order = hashes[order], known[order]
        self._rows, self._keys = rows.select(self._names), keys

    def _read(self) -> Iterator[pa.RecordBatch]:
        source = self._recipe.source
        opener = SplitOpener(source, _BATCH_ROWS, self._on_bad)
        self._filesystem = opener.filesystem
        files = FileEnumerator(source)
        files.start()
        while (split := files.next_split(self._context.subtask)) is not None:
            opened = opener.open(split.position)
            try:
                while (rows := opened.next_rows()) is not None:
                    yield rows.columns
            finally:
                opened.close()

    def _on_bad(self, path: str, offset: int, bad: BadRecord, raw: bytes) -> None:
        mode = self._recipe.source.error_mode
        if mode is OnError.FAIL:
            source = self._recipe.source
            hint = bad_record_hint(raw, bad.reason, source.request.schema.names, source.format_name)
            raise bad_record_error(self._filesystem, path, offset, bad, raw, hint)
        if mode is OnError.DEAD_LETTER and self._letters is not None:
            self._letters.add(path, offset, bad, raw)
            self._context.metrics.counter("numRecordsDeadLettered").inc()
        self._context.metrics.counter("numRecordsSkipped").inc()

    def close(self) -> None:
        """Forget the table."""
        self._rows, self._keys = _empty(self._recipe.schema), []
        self._hashes, self._order = np.zeros(0, np.uint64), np.zeros(0, np.int64)


def create_lookup(table: TableDefinition, keys: tuple[str, ...]) -> FileLookupSource:
    """The lookup of a table definition.

    Raises:
        OptionError: an option is wrong, as for a source, or the format holds changes instead of rows.
    """
    declared = table.declared or table.schema
    wanted = [n for n in declared.names if n in table.schema or n in keys]
    source = create_source(
        TableDefinition(
            name=table.name,
            schema=declared.select(wanted),
            options=table.options,
            format=table.format,
            partition_keys=table.partition_keys,
            primary_key=table.primary_key,
            declared=declared,
        )
    )
    if source.changelog_mode is not ChangelogMode.APPEND:
        raise OptionError(
            "format",
            f"'{table.name}' is looked up, but format '{table.format}' carries changes, not the rows of a table",
            hint="join it as a stream: without FOR SYSTEM_TIME AS OF, or as of an event time",
        )
    interval = table.options.get(RELOAD_INTERVAL)
    return FileLookupSource(source, table.schema, declared.select(keys), None if interval is None else int(interval))


def _empty(schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema.arrow], schema=schema.arrow)
