"""Dead letters read from where a pipeline's sinks have written them, by the source of the same connector."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from flowrun.connectors.live_rows import listening
from flowrun.core.elements import RecordBatch
from flowrun.core.record import record
from flowrun.core.row_errors import DEAD_LETTER_SCHEMA
from flowrun.core.schema import Schema
from flowrun.errors import FlowrunError, JobFailedError, OptionError, PipelineError
from flowrun.graph.job_graph_generator import build_job_graph
from flowrun.graph.stream_graph_generator import build_stream_graph
from flowrun.lowering import lower
from flowrun.lowering.settings import graph_settings
from flowrun.plan.expressions import ColumnRef
from flowrun.plan.nodes import NodeHints, Plan, Scan, Settings, Sink, TableReference
from flowrun.plan.row_errors import is_letter_sink
from flowrun.plan.tables import create_source
from flowrun.runners.embedded import run_embedded

_numbers = itertools.count()
_WHOLE: Mapping[str, Mapping[str, str]] = {
    "kafka": {"scan.startup.mode": "earliest-offset", "scan.bounded.mode": "latest-offset"},
    "upsert-kafka": {"scan.bounded.mode": "latest-offset"},
}
"""Options with which a source reads all that is there, and ends."""
_WATCHING = "source.monitor-interval"
Keeps: TypeAlias = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Letters → which of them are wanted."""


@record
class LetterStore:
    """Where dead letters of a pipeline are: the table of a sink, and the columns that it has."""

    pipeline: str
    table: TableReference
    schema: Schema

    @property
    def name(self) -> str:
        """What messages call it: the sink, or the folder."""
        path = self.table.options.get("path")
        return f"sink '{self.table.name}'" if path is None else f"'{path}'"

    def check_columns(self, needed: tuple[str, ...], purpose: str) -> None:
        """Pass if the letters have these columns.

        Raises:
            PipelineError: the sink does not declare one.
        """
        missing = [n for n in needed if n not in self.schema]
        if missing:
            raise PipelineError.of(
                f"dead letters in {self.name} have no column '{missing[0]}', which is needed {purpose}",
                f"declare it among the sink's columns: {', '.join(needed)}",
            )

    def read(self, columns: tuple[str, ...], keeps: Keeps) -> pa.Table:
        """The letters of the pipeline that are wanted. It blocks on I/O.

        Args:
            columns: those to give, of `DEAD_LETTER_SCHEMA`; where the store does not have one it is NULL.
            keeps: which letters; it is given all columns that the store has of `columns`.

        Raises:
            PipelineError: the sink's connector, or its options, cannot read what it wrote.
            JobFailedError: reading failed.
        """
        asked = (*columns, "pipeline") if "pipeline" not in columns else columns
        physical = self.schema.select(n for n in self.schema.names if n in asked)
        wanted = pa.schema([DEAD_LETTER_SCHEMA.arrow.field(n) for n in columns])
        taker = _Taker(wanted, self.pipeline, keeps)
        if self._is_there(physical):
            self._run(physical, taker)
        return pa.Table.from_batches(taker.batches, wanted)

    def _is_there(self, physical: Schema) -> bool:
        """Whether there is anything to read; a folder that nothing was written to is none."""
        try:
            create_source(self._reading, physical, self.schema)
        except OptionError as error:
            if self.table.connector == "filesystem" and error.option == "path":
                return False
            raise PipelineError.of(
                f"dead letters in {self.name} cannot be read: {error.message}", error.hint
            ) from error
        return True

    @property
    def _reading(self) -> TableReference:
        options = {k: v for k, v in self.table.options.items() if k != _WATCHING}
        return replace(self.table, options={**options, **_WHOLE.get(self.table.connector, {})})

    def _run(self, physical: Schema, taker: _Taker) -> None:
        columns = tuple(ColumnRef(f.type, i, f.name) for i, f in enumerate(physical))
        hints = NodeHints(name=self.table.name)
        scan = Scan(physical, hints, self._reading, physical, columns, declared=self.schema)
        name = f"dead letters {next(_numbers)}"
        sink = Sink(physical, NodeHints(name=name), scan, TableReference(name, "print", {"live": "true"}))
        settings = Settings(memory_watch=False)
        with ExitStack() as stack:
            stack.enter_context(listening(name, taker))
            plan = Plan(f"{self.pipeline}: dead letters", (sink,), settings)
            graph = build_stream_graph(plan.name, lower(plan), graph_settings(settings))
            try:
                run_embedded(build_job_graph(graph))
            except JobFailedError as error:
                raise self._cannot_read(error) from error

    def _cannot_read(self, error: JobFailedError) -> JobFailedError:
        """What to do if letters cannot be read: a damaged file is not to keep those of others from anybody."""
        cause = error.__cause__
        message, hint = (cause.message, cause.hint) if isinstance(cause, FlowrunError) else (error.message, error.hint)
        if self.table.connector == "filesystem":
            hint = "if a file is damaged, mend it or move it out of the folder: letters of all others are there then"
        return JobFailedError(f"dead letters in {self.name} cannot be read: {message}", hint=hint)


class _Taker:
    """Keeps the letters that are wanted. `take` may be called by any thread."""

    def __init__(self, wanted: pa.Schema, pipeline: str, keeps: Keeps) -> None:
        self._wanted = wanted
        self._pipeline = pipeline
        self._keeps = keeps
        self._lock = threading.Lock()
        self.batches: list[pa.RecordBatch] = []

    def take(self, batch: RecordBatch) -> None:
        rows = batch.columns
        if "pipeline" in rows.schema.names:
            mine = pc.equal(rows.column("pipeline"), self._pipeline)
            rows = rows.filter(pc.fill_null(mine, False))
        rows = rows.filter(pc.fill_null(self._keeps(rows), False))
        names = rows.schema.names
        arrays = [
            rows.column(f.name).cast(f.type) if f.name in names else pa.nulls(rows.num_rows, f.type)
            for f in self._wanted
        ]
        with self._lock:
            self.batches.append(pa.RecordBatch.from_arrays(arrays, schema=self._wanted))


def letter_stores(plan: Plan) -> tuple[LetterStore, ...]:
    """Where the dead letters of an optimised plan are.

    Raises:
        PipelineError: it keeps none.
    """
    found = {id(s): LetterStore(plan.name, s.table, s.schema) for s in plan.sinks if is_letter_sink(s)}
    if not found:
        raise PipelineError.of(
            f"pipeline '{plan.name}' keeps no dead letters",
            "set on_error: dead-letter, and dead_letters: {sink: name} in its settings",
        )
    return tuple(found.values())


def read_letters(stores: tuple[LetterStore, ...], columns: tuple[str, ...], keeps: Keeps) -> pa.Table:
    """The letters of several stores, in the order of their time; see `LetterStore.read`."""
    table = pa.concat_tables([store.read(columns, keeps) for store in stores])
    return table.sort_by([(n, "ascending") for n in ("time", "file", "offset") if n in columns])


def everything(letters: pa.RecordBatch) -> pa.BooleanArray:
    """Wants all letters."""
    return pa.repeat(pa.scalar(True), letters.num_rows)


def rows_of(letters: pa.Table) -> Iterator[dict[str, object]]:
    """Letters one by one, as Python values."""
    for batch in letters.to_batches():
        yield from batch.to_pylist()
